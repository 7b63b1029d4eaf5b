"""Machines as QEMU guests with a kernel of their own and nested KVM: slow, and like real ones.

The processor is emulated (with AMD's virtualization), so KVM inside needs none outside.
All that a machine writes is on its own disks, which outlive its QEMU and lose in a power cut what was not
flushed (``disk.py``).  Everything about them is in one directory, so another process can go on with them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from . import store
from .containers import BRIDGE, NAMESPACES, TIMEOUT_S, Machine, Network
from .installed import machine_files

SECONDARY_BRIDGE: Final = "br1"
SECONDARY_NETWORK: Final = "10.96.0."
MEMORY_MB: Final = 900
BOOT_TIMEOUT_S: Final = 300.0
# What is slow to emulate: copies byte by byte, the fifth level of page tables, and guards of the kernel.
_PROCESSOR: Final = "max,-erms,-fsrm,-la57,-smap,-smep,-umip,-pku"
SHARED_DISKS: Final = 2  # seen by all machines, as of a storage area network
SHARED_SIZE: Final = "64M"
VOLUME_GROUP: Final = "xenvg"
_OWN_DISKS: Final = {"own": "3G", "data": "24G"}  # the files of a machine, and its physical volume
_PAUSE_S: Final = 0.05
# What takes seconds of an emulated machine and is of no use to it.
_LEFT_OUT: Final = (
    *(
        "systemd-networkd.service",
        "systemd-networkd.socket",
        "systemd-firstboot.service",
        "systemd-sysusers.service",
    ),
    *("systemd-journal-flush.service", "systemd-random-seed.service", "systemd-pstore.service"),
    *("dev-hugepages.mount", "dev-mqueue.mount", "sys-kernel-debug.mount"),
    *("sys-kernel-tracing.mount", "sys-fs-fuse-connections.mount", "sys-kernel-config.mount"),
    "etcd.service",  # of the package; Ganeti starts its own
    *(f"modprobe@{name}.service" for name in ("loop", "fuse", "efi_pstore", "drm", "configfs")),
)
_COMMAND_LINE: Final = (
    "console=ttyS0 quiet panic=1 no_timer_check mitigations=off systemd.show_status=0 net.ifnames=0"
    " systemd.default_timeout_start_sec=900 systemd.hostname={name}"
    " eth0={address} eth1={secondary} " + " ".join(f"systemd.mask={unit}" for unit in _LEFT_OUT)
)
SYNC_DATA: Final = "sync /dev/disk/by-id/virtio-data"  # LVM does not flush what it writes
_MAKE_GROUP: Final = (
    f"vgs {VOLUME_GROUP} || vgcreate {VOLUME_GROUP} /dev/disk/by-id/virtio-data; {SYNC_DATA}"
)


def shared_disk(number: int) -> str:
    """Return the path at which a machine sees a shared disk."""
    return f"/dev/disk/by-id/virtio-shared{number}"


class VirtualMachine(Machine):
    """A machine whose directory knows the processes that are it."""

    @property
    def secondary(self) -> str:
        """Its address in the network for replication."""
        return f"{SECONDARY_NETWORK}{10 + self.number}"

    @property
    def _record(self) -> Path:
        return self.directory / "processes"

    def spawn(self, *words: object) -> None:
        """Start one of its processes."""
        with open(self.directory / "qemu.log", "ab") as log:
            process = subprocess.Popen(
                [str(word) for word in (*self.network.inside(), "nice", "-n", "5", *words)],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        born = psutil.Process(process.pid).create_time()
        self._record.write_text(json.dumps([*self._recorded(), [process.pid, born]]))

    def _recorded(self) -> list[tuple[int, float]]:
        return json.loads(self._record.read_text()) if self._record.exists() else []

    def processes(self) -> list[psutil.Process]:
        """Return those of its processes that live: none if it is off."""
        living = []
        for pid, born in self._recorded():
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if process.create_time() == born and process.status() != psutil.STATUS_ZOMBIE:
                    living.append(process)
        return living

    def ssh(self, *words: str) -> list[str]:
        """Return the words of an ssh command that reaches it as root, by an open connection."""
        return super().ssh("-o", f"ControlPath={self.directory}/ssh", *words)

    def connect(self) -> None:
        """Open a connection that all commands use: a handshake takes it a second."""
        self._disconnect()
        self._quietly("-M", "-N", "-f")

    def _disconnect(self) -> None:
        self._quietly("-O", "exit")

    def _quietly(self, *words: str) -> None:
        nothing = subprocess.DEVNULL  # a pipe would stay open in the background
        subprocess.run(
            self.ssh(*words),
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            timeout=TIMEOUT_S,
            check=False,
        )

    def kill(self) -> None:
        """Switch it off at once: what its disks have not flushed is lost."""
        self._disconnect()
        living = self.processes()
        for process in living:
            process.kill()
        psutil.wait_procs(living, TIMEOUT_S)
        self._record.unlink(missing_ok=True)


class VirtualMachines:
    """Some machines from one image, on two bridges, with some disks that all of them see.

    Attributes:
        boots: the files that a machine boots from.
        processor: what of a processor they have.
        memory_mb: what of memory each has.
    """

    boots: tuple[str, ...] = ("vmlinuz", "initrd", "image")
    processor = _PROCESSOR
    memory_mb = MEMORY_MB

    def __init__(self, count: int, directory: Path, saved: Path | None = None) -> None:
        """``saved`` is a directory that `save` has filled: the machines go on from there."""
        self._saved = saved
        self.network = Network(directory)
        self.network.key = store.key()
        self.network.bridges[SECONDARY_BRIDGE] = SECONDARY_NETWORK
        self.directory = directory = directory.absolute()  # QEMU runs in a directory of its own
        self.machines = [
            VirtualMachine(n, directory / f"node{n}", self.network) for n in range(1, count + 1)
        ]

    @property
    def is_saved(self) -> bool:
        """Whether the machines go on from saved disks."""
        return self._saved is not None

    @classmethod
    def of(cls, directory: Path) -> Self:
        """Return the machines that another process has made in a directory."""
        count, namespace = json.loads((directory / "machines").read_text())
        made = cls(count, directory)
        made.network.namespace = namespace
        return made

    def make(self) -> None:
        """Make the machines and their networks, and switch them on."""
        (self.directory / "machines").write_text(
            json.dumps([len(self.machines), self.network.namespace])
        )
        self._undo = contextlib.ExitStack()
        with self._undo as undo:
            undo.callback(self.remove)
            files = self.files()
            for name in self.boots:  # links, since the store may drop this version
                _link(files / name, self.directory / name)
            for number in range(SHARED_DISKS):
                store.run("truncate", "-s", SHARED_SIZE, self._shared(number))
            self.network.__enter__()
            for machine in self.machines:
                self._make_disks(machine)
                self._plug_in(machine)
                self.start(machine)
            self.at_all(self.wait_for)
            self.at_all(lambda machine: machine.run(_MAKE_GROUP))
            undo.pop_all()

    def files(self) -> Path:
        """Return the directory of those that they boot from."""
        return machine_files()

    def kernel(self, command_line: str) -> tuple[str, ...]:
        """Return what tells QEMU which kernel to boot."""
        boot = self.directory
        return (
            *("-kernel", f"{boot}/vmlinuz"),
            *("-initrd", f"{boot}/initrd", "-append", command_line),
        )

    def at_all(self, action: Callable[[VirtualMachine], object]) -> None:
        """Do something to all machines at the same time."""
        with ThreadPoolExecutor(len(self.machines)) as pool:
            list(pool.map(action, self.machines))

    def _shared(self, number: int) -> Path:
        return self.directory / f"shared{number}"

    def _make_disks(self, machine: VirtualMachine) -> None:
        machine.directory.mkdir()
        if self._saved:
            _copy_disks(self._saved / machine.directory.name, machine.directory)
            return
        for name, size in _OWN_DISKS.items():
            store.run("truncate", "-s", size, machine.directory / name)
        store.run("mke2fs", "-q", "-t", "ext4", machine.directory / "own")

    def save(self, directory: Path) -> None:
        """Copy the disks as a power cut would leave them now, all of it written out before."""
        self.at_all(lambda machine: machine.run(f"sync; {SYNC_DATA}"))
        for machine in self.machines:
            disks, _ = machine.processes()
            disks.suspend()
            target = directory / machine.directory.name
            target.mkdir(parents=True)
            _copy_disks(machine.directory, target)
            disks.resume()

    def _plug_in(self, machine: VirtualMachine) -> None:
        for bridge, tap in ((BRIDGE, "t"), (SECONDARY_BRIDGE, "r")):
            self.network.ip(f"tuntap add dev {tap}{machine.number} mode tap")
            self.network.ip(f"link set {tap}{machine.number} master {bridge} up")

    def start(self, machine: VirtualMachine, seed: str = "0") -> None:
        """Switch a machine on; ``seed`` decides what a full disk cache writes out."""
        for name in _OWN_DISKS:
            (machine.directory / f"{name}.socket").unlink(missing_ok=True)
        machine.spawn(sys.executable, Path(__file__).with_name("disk.py"), seed, *_OWN_DISKS)
        until = time.monotonic() + TIMEOUT_S
        while not all((machine.directory / f"{name}.socket").exists() for name in _OWN_DISKS):
            assert time.monotonic() < until, f"{machine.name} has no disks"
            time.sleep(_PAUSE_S)
        n = machine.number
        command_line = _COMMAND_LINE.format(
            name=machine.name, address=machine.address, secondary=machine.secondary
        )
        argv = [
            *("qemu-system-x86_64", "-name", machine.name),
            *("-nodefaults", "-no-user-config", "-display", "none", "-M", "pc"),
            *("-accel", "tcg,thread=multi", "-cpu", self.processor),
            *("-smp", "1", "-m", str(self.memory_mb)),
            *("-serial", f"file:{machine.log}"),
            *self.kernel(command_line),
            *_disk("image", f"file,node-name=image,filename={self.directory}/image,read-only=on"),
            *("-device", "virtio-rng-pci"),
        ]
        for name in _OWN_DISKS:
            argv += _disk(name, f"nbd,node-name={name},server.type=unix,server.path={name}.socket")
        for number in range(SHARED_DISKS):
            path = self._shared(number)
            argv += _disk(
                f"shared{number}",
                f"file,node-name=shared{number},filename={path},locking=off",
                ",share-rw=on",
            )
        for index, tap in enumerate("tr"):
            argv += (
                *("-netdev", f"tap,id=net{index},ifname={tap}{n},script=no,downscript=no"),
                *("-device", f"virtio-net-pci,netdev=net{index},mac=aa:00:00:00:0{index}:0{n}"),
            )
        machine.spawn(*argv)

    def wait_for(self, machine: VirtualMachine) -> None:
        """Wait until a machine has booted."""
        machine.wait_until("systemctl is-active --quiet multi-user.target", BOOT_TIMEOUT_S)
        machine.connect()

    def pull_plug(self, machine: VirtualMachine) -> None:
        """Switch a machine off at once; what its disks have not flushed is lost."""
        machine.kill()

    def remove(self) -> None:
        """Switch all machines off, and remove their networks."""
        for machine in self.machines:
            self.pull_plug(machine)
        if Path(f"{NAMESPACES}/{self.network.namespace}").exists():
            self.network.__exit__()

    def __enter__(self) -> Self:
        self.make()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()


def _copy_disks(source: Path, target: Path) -> None:
    for name in _OWN_DISKS:
        store.run("cp", "--sparse=always", source / name, target / name)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy(source, target)


def _disk(name: str, backend: str, of_device: str = "") -> tuple[str, ...]:
    return (
        *("-blockdev", f"driver={backend}"),
        *("-device", f"virtio-blk-pci,drive={name},serial={name}{of_device}"),
    )


@contextlib.contextmanager
def virtual_machines(count: int) -> Iterator[VirtualMachines]:
    """Yield running machines with Ganeti, an empty volume group and DRBD, but no cluster."""
    with run_directory() as directory, VirtualMachines(count, directory) as running:
        yield running


@contextlib.contextmanager
def run_directory() -> Iterator[Path]:
    """Yield a directory for machines, removed afterwards."""
    store.DIRECTORY.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=store.own_name(store.RUN), dir=store.DIRECTORY
    ) as directory:
        yield Path(directory)

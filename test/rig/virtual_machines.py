"""Machines as QEMU guests with a kernel of their own and nested KVM: slow, and like real ones.

The processor is emulated (``-cpu max`` has AMD's virtualization), so KVM inside needs none outside.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from . import image, store
from .containers import BRIDGE, TIMEOUT_S, Machine, Network, hosts, let_in

MEMORY_MB: Final = 768
BOOT_TIMEOUT_S: Final = 300.0
SHARED_DISKS: Final = 2  # seen by all machines, as of a storage area network
SHARED_SIZE: Final = "64M"
_OWN_SIZE: Final = "2G"
_COMMAND_LINE: Final = (
    "console=ttyS0 quiet panic=1 no_timer_check mitigations=off systemd.show_status=0 net.ifnames=0"
    " systemd.hostname={name} own_address={address}"
)


def shared_disk(number: int) -> str:
    """Return the path at which a machine sees a shared disk."""
    return f"/dev/disk/by-id/virtio-shared{number}"


class VirtualMachines:
    """Some machines from one image, on one bridge, with some disks that all of them see."""

    def __init__(self, count: int, base: Sequence[Path], directory: Path) -> None:
        self.network = Network(directory)
        self._base = base
        self._directory = directory
        self.machines = [
            Machine(n, directory / f"node{n}", self.network) for n in range(1, count + 1)
        ]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            undo.enter_context(self.network)
            undo.callback(self._stop_all)
            self._make_files()
            for machine in self.machines:
                self.network.ip(f"tuntap add dev t{machine.number} mode tap")
                self.network.ip(f"link set t{machine.number} master {BRIDGE} up")
                self.start(machine)
            for machine in self.machines:
                self.wait_for(machine)
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._undo.__exit__(kind, value, traceback)

    def _make_files(self) -> None:
        extra = self._directory / "extra"
        (extra / "etc/ssh").mkdir(parents=True)
        (extra / "etc/hosts").write_text(hosts())
        let_in(extra, self.network.key)
        self._image = image.make_image(self._directory, self._base, extra)
        self._initrd = image.make_initrd(self._directory)
        self._shared = [self._directory / f"shared{n}" for n in range(SHARED_DISKS)]
        for path in self._shared:
            store.run("truncate", "-s", SHARED_SIZE, path)
        for machine in self.machines:
            machine.directory.mkdir()
            image.make_disk(machine.directory / "own", _OWN_SIZE)

    def start(self, machine: Machine) -> None:
        """Switch a machine on."""
        n = machine.number
        command_line = _COMMAND_LINE.format(name=machine.name, address=machine.address)
        argv = [
            *("nice", "-n", "15", "qemu-system-x86_64", "-name", machine.name),
            *("-nodefaults", "-no-user-config", "-display", "none", "-M", "pc"),
            *("-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "1", "-m", str(MEMORY_MB)),
            *("-serial", f"file:{machine.log}"),
            *("-kernel", str(image.vmlinuz()), "-initrd", str(self._initrd)),
            *("-append", command_line),
            *_disk("image", self._image, "readonly=on"),
            *_disk("own", machine.directory / "own", "cache=unsafe"),
            *("-netdev", f"tap,id=net,ifname=t{n},script=no,downscript=no"),
            *("-device", f"virtio-net-pci,netdev=net,mac=aa:00:00:00:01:0{n}"),
            *("-device", "virtio-rng-pci"),
        ]
        for number, path in enumerate(self._shared):
            argv += _disk(f"shared{number}", path, "file.locking=off", ",share-rw=on")
        with open(machine.directory / "qemu.log", "ab") as log:
            machine.process = subprocess.Popen(
                [*self.network.inside(), *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_for(self, machine: Machine) -> None:
        """Wait until a machine has booted."""
        machine.wait_until("systemctl is-active --quiet multi-user.target", BOOT_TIMEOUT_S)

    def pull_plug(self, machine: Machine) -> None:
        """Switch a machine off at once."""
        process, machine.process = machine.process, None
        if process is not None:
            process.kill()
            process.wait(TIMEOUT_S)

    def _stop_all(self) -> None:
        for machine in self.machines:
            self.pull_plug(machine)


def _disk(name: str, path: Path, options: str, of_device: str = "") -> tuple[str, ...]:
    return (
        *("-drive", f"file={path},format=raw,if=none,id={name},{options}"),
        *("-device", f"virtio-blk-pci,drive={name},serial={name}{of_device}"),
    )


@contextlib.contextmanager
def virtual_machines(count: int, *more: Path) -> Iterator[VirtualMachines]:
    """Yield running machines; ``more`` are directories over the plain Debian, the topmost first."""
    store.DIRECTORY.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="run-", dir=store.DIRECTORY) as directory,
        VirtualMachines(count, (*more, store.root()), Path(directory)) as running,
    ):
        yield running

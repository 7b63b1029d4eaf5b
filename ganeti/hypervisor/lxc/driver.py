"""The hypervisor "lxc": every instance is a container of the node's own kernel.

The first disk holds the root file system, and is mounted while there is the container.  After a
start a container is known by LXC and by its directory alone, so nothing is lost when the node
daemon restarts.  One that was shut down from inside stays known, with its file system mounted,
until it is stopped or started.

    RUN_DIR/lxc-hypervisor/<name>/config     the configuration, made anew at each start
    RUN_DIR/lxc-hypervisor/<name>/root       where the file system is mounted
    RUN_DIR/lxc-hypervisor/<name>/nic<n>-up  connects a network interface, at reboots too
    RUN_DIR/lxc-hypervisor/<name>/book.json  the facts that LXC does not tell
    LOG_DIR/lxc/<name>.log, <name>.console.log  the messages of LXC and of the container's console

Source: constants.json, "hvparams" of lxc; the manual pages of LXC.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from ganeti.base.errors import CommandError, GenericError, HypervisorError, failing_as
from ganeti.base.json import dumps, loads_as
from ganeti.base.text import natural_sorted
from ganeti.hypervisor import node
from ganeti.hypervisor.interface import (
    GUEST_WAIT_S,
    AssembledDisk,
    ConsoleNode,
    Disks,
    Hypervisor,
    InstanceInfo,
    InstanceState,
    NodeEnv,
    check_name,
)
from ganeti.hypervisor.lxc import config, root
from ganeti.hypervisor.lxc.cgroups import NEEDED, Hierarchies, hierarchies, limits_swap, usage_of
from ganeti.hypervisor.lxc.tools import PROGRAMS, Found, Lxc, State
from ganeti.hypervisor.params import HvParams, check_cpus_here, missing_here
from ganeti.netdev import taps
from ganeti.netdev.backends import BackendKind, NicBackend, choose_backends
from ganeti.objects.hypervisors import ConsoleKind, RebootType
from ganeti.objects.model import Guest, InstanceConsole
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.system.files import ensure_directory, read_bytes_or_none, write_atomic

_BOOK_BYTES_MAX: Final = 1 << 16
_LOG_TAIL_BYTES: Final = 4096
_MESSAGES_MAX: Final = 3
_CONSOLE_TAIL_BYTES: Final = 2048
# Root of a container can make programs that run as root, and the node's users must not get there.
_DIRECTORY_MODE: Final = 0o700
_MAPPED_MODE: Final = 0o711  # root of the container is another user here, and goes through it
_ROOT_MODE: Final = 0o755
_SCRIPT_MODE: Final = 0o755
_APPARMOR_ON: Final = "/sys/module/apparmor/parameters/enabled"
_APPARMOR_PROFILES: Final = "/sys/kernel/security/apparmor/profiles"
_KERNEL_BYTES_MAX: Final = 1 << 20


def _told(path: str) -> str | None:
    """Return the content of a file of the kernel; None if there is none or it may not be read."""
    try:
        data = read_bytes_or_none(path, _KERNEL_BYTES_MAX)
    except PermissionError:
        return None
    return None if data is None else data.decode("utf-8", "replace")


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one container; ``links`` are its interfaces on the node, with their modes."""

    memory_mib: int
    vcpus: int
    links: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class ContainerFiles:
    """The files of one container on one node."""

    directory: str
    log: str
    console_log: str

    @property
    def root(self) -> str:
        """Where its file system is mounted."""
        return f"{self.directory}/root"

    @property
    def config(self) -> str:
        """Its configuration, where LXC looks for it."""
        return f"{self.directory}/config"

    @property
    def book(self) -> str:
        """Its record."""
        return f"{self.directory}/book.json"

    def script(self, index: int) -> str:
        """Return the path of the program that connects a network interface."""
        return f"{self.directory}/nic{index}-up"

    def load(self) -> Book | None:
        """Read the record; None when there is no container."""
        data = read_bytes_or_none(self.book, _BOOK_BYTES_MAX)
        return None if data is None else loads_as(Book, data)


class LxcHypervisor(Hypervisor):
    """The hypervisor "lxc" on one node."""

    def __init__(self, name: str, env: NodeEnv, hvparams: Mapping[str, object]) -> None:
        super().__init__(name, env, hvparams)
        self._directory = os.path.realpath(env.paths.lxc_dir)
        self._lxc = Lxc(self._directory)

    def _files(self, name: str) -> ContainerFiles:
        check_name(name)
        log = f"{self.env.paths.log_lxc_dir}/{name}"
        return ContainerFiles(f"{self._directory}/{name}", f"{log}.log", f"{log}.console.log")

    # Looking

    def all_instances_info(self) -> list[InstanceInfo]:
        """Look at all containers here."""
        try:
            names = natural_sorted(os.listdir(self._directory))
        except FileNotFoundError:
            return []
        here = hierarchies()
        found = (self._look(name, here) for name in names if not name.startswith("."))
        return [info for info in found if info is not None]

    def instance_info(self, name: str) -> InstanceInfo | None:
        """Look at one container; None when it is not here."""
        return self._look(name, hierarchies())

    def _look(self, name: str, here: Hierarchies) -> InstanceInfo | None:
        book = self._files(name).load()
        if book is None:
            return None
        try:
            found = self._lxc.info(name)
        except HypervisorError:  # without an answer it counts as running
            found = Found(State.RUNNING, None)
        memory_mib, cpu_time_s = None, 0.0
        if found.pid is not None:
            usage = usage_of(found.pid, name, here)
            memory_mib, cpu_time_s = usage.memory_mib(), usage.cpu_time_s()
        return InstanceInfo(
            name=name,
            memory_mib=memory_mib or book.memory_mib,
            vcpus=book.vcpus,
            state=InstanceState.RUNNING if found.runs else InstanceState.SHUTDOWN,
            cpu_time_s=cpu_time_s,
        )

    def node_info(self) -> dict[str, object]:
        """Return the node's memory and processors; that of containers is not the node's own."""
        return node.resources(0)

    def consoles(self, instance: RpcInstance, node: ConsoleNode) -> list[InstanceConsole]:
        """Return the container's console."""
        command = self._lxc.argv("lxc-console", instance.name, "-t", "0")
        return [
            InstanceConsole(
                instance=instance.name,
                kind=ConsoleKind.SSH,
                host=node.name,
                user="root",
                command=command,
            )
        ]

    def guest(self, instance: RpcInstance, wait_s: float = GUEST_WAIT_S) -> Guest:
        """Return the last words of the container's console."""
        path = self._files(instance.name).console_log
        return Guest(console=_tail(path, _CONSOLE_TAIL_BYTES))

    # Checking

    def verify(self) -> str | None:
        """Say which programs, rights or controllers are missing here, if any are."""
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        if missing:
            return f"missing programs for hypervisor lxc: {', '.join(missing)}"
        if os.geteuid() != 0:
            return "hypervisor lxc needs the node daemon to run as root"
        lacking = sorted(set(NEEDED) - hierarchies().known)
        return f"the kernel has no control groups for {', '.join(lacking)}" if lacking else None

    def problems(self, hvparams: Mapping[str, object]) -> Iterator[GenericError]:
        """Find wrong values, also within lists."""
        wrong = list(super().problems(hvparams))
        yield from wrong or config.problems(hvparams)

    def check_on_node(self, hvparams: Mapping[str, object]) -> None:
        """Check that the node has processors, controllers and profile that the parameters name."""
        params = HvParams(hvparams)
        if mask := params.text("cpu_mask"):
            check_cpus_here(mask, self.env.hostname)
        known = hierarchies().known
        for name in config.extra_controllers(params):
            if name not in known:
                here = f"node {self.env.hostname} has no control groups for {name!r}"
                raise missing_here("extra_cgroups", f"{here}; it has {', '.join(sorted(known))}")
        profile = config.missing_profile(
            params, _told(_APPARMOR_ON) or "", _told(_APPARMOR_PROFILES)
        )
        if profile:
            text = (
                f"AppArmor is on, and node {self.env.hostname} has no profile {profile!r} loaded,"
                " without which LXC starts no container; install the package 'apparmor' there and"
                " type 'systemctl reload apparmor', or choose another one by"
                " extra_config=lxc.apparmor.profile=unconfined"
            )
            raise missing_here("extra_config", text)

    # Starting and stopping

    def start(self, instance: RpcInstance, disks: Disks, *, paused: bool = False) -> None:
        """Mount the first disk and start a container in it; on failure nothing is left."""
        name, files = instance.name, self._files(instance.name)
        if self._lxc.info(name).runs:
            raise HypervisorError(f"instance {name!r} is already here, and runs")
        self._clean_up(name)
        self.check_all(instance.hvparams)
        here = hierarchies()
        backends = self._backends(instance)
        with ExitStack() as undo:
            is_mapped = config.maps_user_ids(HvParams(instance.hvparams))
            ensure_directory(files.directory, _MAPPED_MODE if is_mapped else _DIRECTORY_MODE)
            ensure_directory(files.root, _ROOT_MODE)
            ensure_directory(self.env.paths.log_lxc_dir, 0o750)
            undo.callback(self._clean_up, name)
            self._write(instance, disks, backends, here)
            root.mount(name, disks[0], files.root)
            self._start(instance, here)
            if paused:
                self._lxc.freeze(name)
            undo.pop_all()

    def _backends(self, instance: RpcInstance) -> list[NicBackend]:
        able = taps.abilities(
            instance.nics,
            script=self.env.paths.lxc_vif_script,
            is_virtual=self.env.is_virtual,
            address=self.env.address,
        )
        can_make = taps.can_make_interfaces()
        return choose_backends(instance, replace(able, can_make_taps=can_make))

    def _write(
        self, instance: RpcInstance, disks: Disks, backends: Sequence[NicBackend], here: Hierarchies
    ) -> None:
        """Write the files of a container."""
        files = self._files(instance.name)
        place = config.Place(
            root=files.root,
            console_log=files.console_log,
            scripts=[files.script(index) for index in range(len(backends))],
            limits_swap=limits_swap(here),
            devices=_further_devices(instance.name, disks),
        )
        links = [each for each in backends if each.kind is BackendKind.TAP]
        book = Book(
            memory_mib=instance.beparams["maxmem"],
            vcpus=instance.beparams["vcpus"],
            links={backend.tap: backend.mode for backend in links},
        )
        write_atomic(files.book, dumps(book), 0o600)
        for index, backend in enumerate(backends):
            script = taps.connecting_script(backend, self.env.paths.lxc_vif_script)
            write_atomic(files.script(index), script.encode(), _SCRIPT_MODE)
        text = config.config_text(instance, here, backends, place)
        write_atomic(files.config, text.encode(), 0o600)

    def _start(self, instance: RpcInstance, here: Hierarchies) -> None:
        name, files = instance.name, self._files(instance.name)
        params = HvParams(instance.hvparams)
        try:
            self._lxc.start(name, files.log, float(params.number("startup_timeout")))
        except CommandError as err:
            said = _messages(files.log) or err.message
            raise HypervisorError(f"instance {name!r} did not start: {said}") from err
        self._check_groups(instance, self._lxc.info(name), here)

    def _check_groups(self, instance: RpcInstance, found: Found, here: Hierarchies) -> None:
        """Check that a container is limited: LXC only warns of limits that it cannot set."""
        name, wanted_mib = instance.name, instance.beparams["maxmem"]
        if found.pid is None:
            said = _messages(self._files(name).log)
            raise HypervisorError(f"instance {name!r} ended at once: {said or 'it said nothing'}")
        usage = usage_of(found.pid, name, here)
        if usage.memory_mib() != wanted_mib:
            raise HypervisorError(
                f"instance {name!r}: its memory is not limited to {wanted_mib} MiB"
                f" but to {usage.memory_mib()}; see {self._files(name).log}"
            )
        for controller in config.extra_controllers(HvParams(instance.hvparams)):
            if controller in here.legacy and controller not in usage.groups:
                raise HypervisorError(f"instance {name!r} is in no control group of {controller}")

    def stop(self, name: str, *, force: bool = False, timeout_s: float = 120) -> None:
        """Stop a container, by its init's own shutdown or at once, and unmount its disk."""
        if self._files(name).load() is None:
            return
        if self._lxc.info(name).state == State.RUNNING and not force and timeout_s > 0:
            self._lxc.shut_down(name, timeout_s)
        if self._lxc.info(name).runs:
            self._lxc.kill(name)
        if self._lxc.info(name).runs:
            raise HypervisorError(f"instance {name!r} cannot be stopped")
        self._clean_up(name)

    def _clean_up(self, name: str) -> None:
        """Remove what there is of a container, its logs excepted; one that runs is ended."""
        files = self._files(name)
        if not os.path.isdir(files.directory):
            return
        if self._lxc.info(name).runs:
            self._lxc.kill(name)
        book = files.load()
        root.unmount(name, files.root)
        for link, mode in (book.links if book is not None else {}).items():
            taps.remove_tap(link, mode)
        # Never with what may be mounted there again, by a call whose job is gone.
        with failing_as(HypervisorError, f"{files.root} cannot be removed"):
            with suppress(FileNotFoundError):
                os.rmdir(files.root)
            for each in os.scandir(files.directory):
                os.rmdir(each.path) if each.is_dir(follow_symlinks=False) else os.unlink(each.path)
            os.rmdir(files.directory)

    def reboot(
        self, instance: RpcInstance, disks: Disks, *, kind: RebootType, timeout_s: float = 120
    ) -> None:
        """Reboot: ``soft`` by the container's init, where it can, else and ``hard`` a new start."""
        soft = kind is RebootType.SOFT and timeout_s > 0
        if not (soft and self._lxc.reboot(instance.name, timeout_s)):
            super().reboot(instance, disks, kind=kind, timeout_s=timeout_s)

    def balloon(self, name: str, memory_mib: int) -> None:
        """Set the memory that a running container may use.

        A limit of memory and swap together is never below that of memory: the order counts.
        """
        here = hierarchies()
        settings = config.memory_settings(here, memory_mib, swap=limits_swap(here))
        if not self._lxc.set(name, settings):
            self._lxc.set(name, settings[::-1])
        pid = self._lxc.info(name).pid
        if pid is None or usage_of(pid, name, here).memory_mib() != memory_mib:
            text = f"instance {name!r}: its memory cannot be limited to {memory_mib} MiB"
            raise HypervisorError(f"{text}; it may use more just now")


def _further_devices(name: str, disks: Disks) -> list[tuple[int, str, str]]:
    """Return the disks but the first as devices for a container.

    Raises:
        HypervisorError: there is no first disk, or another one is a file.
    """
    if not disks:
        raise HypervisorError(f"instance {name!r} has no disk with its root file system")
    return [(disk.index, disk.dev_path, _numbers(name, disk)) for disk in disks[1:]]


def _numbers(name: str, disk: AssembledDisk) -> str:
    status = os.stat(disk.dev_path)
    if not status.st_rdev:
        raise HypervisorError(
            f"instance {name!r}: disk {disk.index} is a file; hypervisor lxc takes only the first"
            " disk from a file"
        )
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


def _tail(path: str, size_bytes: int) -> str:
    with suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - size_bytes))
        return file.read(size_bytes).decode("utf-8", "replace")
    return ""


def _messages(log: str) -> str:
    """Return the last errors that LXC has logged."""
    lines = [line for line in _tail(log, _LOG_TAIL_BYTES).splitlines() if " ERROR " in line]
    texts = (line.split(" ERROR ", 1)[1].split(" - ", 1)[-1].strip() for line in lines)
    return "; ".join(list(texts)[-_MESSAGES_MAX:])

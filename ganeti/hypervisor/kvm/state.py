"""Machines on this node: their processes, their descriptions and their states.

A process is found by its pid file and known by its command line, which names that very pid file: so
a number that went to another process meanwhile is never mistaken for it.

The runtime file has the facts that the process alone does not show: the devices and their places,
and the taps that were made.  The same text, without the node's own parts, tells another node which
machine to build when the instance is migrated.

Source: QEMU's QMP reference, RunState.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from ganeti.base.errors import CommandError, GenericError, HypervisorError
from ganeti.base.json import dumps, loads_as
from ganeti.base.paths import Paths
from ganeti.base.text import natural_sorted
from ganeti.hypervisor.interface import InstanceInfo, InstanceState, NodeEnv
from ganeti.hypervisor.kvm.agent import let_go
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.machine import Machine
from ganeti.hypervisor.kvm.monitor import Monitor, MonitorError, MonitorGone, MonitorTimeout
from ganeti.netdev.backends import BackendKind, NicBackend
from ganeti.system import clock, process, process_facts
from ganeti.system.files import read_bytes_or_none, remove_if_exists, write_atomic
from ganeti.system.process_facts import ProcessFacts

logger = logging.getLogger(__name__)

_PID_BYTES_MAX: Final = 64
_COMMAND_BYTES_MAX: Final = 1 << 20
_LOG_TAIL_BYTES: Final = 4096
_TERM_TIMEOUT_S: Final = 5.0


class _Child(Protocol):
    def poll(self) -> int | None: ...


_children: list[_Child] = []  # started here, to be reaped when they have ended


@dataclass(frozen=True, slots=True)
class QemuProcess:
    """A running QEMU."""

    pid: int
    arguments: tuple[str, ...]

    def argument(self, option: str) -> str:
        """Return the word after an option on the command line, or ""."""
        with contextlib.suppress(ValueError, IndexError):
            return self.arguments[self.arguments.index(option) + 1]
        return ""

    def size(self) -> tuple[int, int]:
        """Return memory (MiB) and processors that it was started with."""
        memory = self.argument("-m").partition(",")[0]
        vcpus = self.argument("-smp").partition(",")[0]
        return int(memory) if memory.isdigit() else 0, int(vcpus) if vcpus.isdigit() else 1

    def cpu_time_s(self) -> float:
        """Return the processor time that it has used."""
        facts = process_facts.read(self.pid)
        return 0.0 if facts is None else facts.cpu_s


def _reap() -> None:
    _children[:] = [child for child in _children if child.poll() is None]


def find_process(files: MachineFiles) -> QemuProcess | None:
    """Find the QEMU of an instance; None when it does not run."""
    _reap()
    data = read_bytes_or_none(files.pid_file, _PID_BYTES_MAX)
    if data is None or not data.strip().isdigit():
        return None
    return _qemu_of(files, int(data))


def find_begun(files: MachineFiles) -> QemuProcess | None:
    """Find the QEMU of an instance, also one that has not written its number yet.

    Whoever started that one may have died, and nobody else would know of it.
    """
    found = find_process(files)
    if found is not None or not os.path.exists(files.runtime):
        return found
    numbers = (int(name) for name in os.listdir("/proc") if name.isdecimal())
    return next(filter(None, (_qemu_of(files, number) for number in numbers)), None)


def _qemu_of(files: MachineFiles, pid: int) -> QemuProcess | None:
    """Return a process if it is the QEMU of an instance."""
    if process_facts.read(pid) is None:
        return None
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read(_COMMAND_BYTES_MAX)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    found = QemuProcess(pid, tuple(os.fsdecode(word) for word in command.split(b"\0")[:-1]))
    return found if found.argument("-pidfile") == files.pid_file else None


def start_process(
    command: Sequence[str],
    files: MachineFiles,
    descriptors: Sequence[int],
    *,
    log: str = "",
    appends: bool = False,
) -> int:
    """Start QEMU in a session of its own, with its messages in its log; returns its number.

    Args:
        log: another one, for another program.
        appends: the log has messages that are to stay.

    Raises:
        HypervisorError: the program cannot be run.
    """
    _reap()
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if appends else os.O_TRUNC)
    output = os.open(log or files.log, flags, 0o640)
    try:
        child = process.spawn(
            command,
            env={**os.environ, "LC_ALL": "C"},
            stdout=output,
            stderr=output,
            pass_fds=descriptors,
            cwd="/",
        )
    except CommandError as err:
        raise HypervisorError(err.message) from err
    finally:
        os.close(output)
    _children.append(child)
    return child.pid


def log_tail(path: str) -> str:
    """Return the end of a program's output."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - _LOG_TAIL_BYTES))
            return file.read().decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return ""


def end_process(pid: int) -> bool:
    """End a process, by force if need be; returns whether it is gone."""
    ended = process.terminate(pid, _TERM_TIMEOUT_S)
    _reap()
    return ended


def kill_process(pid: int) -> bool:
    """Kill a process at once; returns whether it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    gone = process.wait_gone(pid, _TERM_TIMEOUT_S)
    _reap()
    return gone


FORMAT: Final = 1
_FILE_BYTES_MAX: Final = 4 << 20
_MODE: Final = 0o600


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a machine that runs.

    ``taps`` are the interfaces made for it, ``modes`` how those are connected; ``paused``: its
    guest was left paused at the start; ``stopped``: its guest was stopped to be moved; ``uid`` is
    taken from the node's pool of user ids.  ``is_of_3_0``: 3.0 started it; it runs on and can be
    looked at and stopped, but the places of its devices are not known.
    """

    machine: Machine
    taps: tuple[str, ...] = ()
    modes: dict[str, str] = {}
    paused: bool = False
    stopped: bool = False
    uid: int | None = None
    format: int = FORMAT
    is_of_3_0: bool = False


def with_taps(runtime: Runtime, backends: Iterable[NicBackend]) -> Runtime:
    """Return the description with the taps of these network interfaces, instead of others."""
    made = {backend.tap: backend for backend in backends if backend.kind is BackendKind.TAP}
    modes = {name: str(backend.mode) for name, backend in made.items()}
    return replace(runtime, taps=tuple(made), modes=modes)


def save_runtime(files: MachineFiles, runtime: Runtime) -> None:
    """Write the runtime file."""
    write_atomic(files.runtime, dumps(runtime), _MODE)


def load_runtime(files: MachineFiles) -> Runtime | None:
    """Read the runtime file; None when there is none.

    Raises:
        HypervisorError: it cannot be understood.
    """
    data = read_bytes_or_none(files.runtime, _FILE_BYTES_MAX)
    if data is None:
        return None
    if data.lstrip().startswith(b"["):
        return _decode_of_3_0(data, files)
    return decode_runtime(data, files.runtime)


def _decode_of_3_0(data: bytes, files: MachineFiles) -> Runtime:
    """Read a runtime file of 3.0: command line, NICs, hypervisor parameters and disks.

    Raises:
        HypervisorError: it cannot be understood.
    """
    try:
        command, _nics, hvparams, *_disks = loads_as(
            tuple[list[object], list[object], dict[str, object], list[object]], data
        )
    except GenericError as err:
        raise HypervisorError(
            f"{files.runtime}: no description of a machine: {err.message}"
        ) from err
    process = QemuProcess(0, tuple(map(str, command)))  # the memory is a number there
    memory, vcpus = process.size()
    uid = (read_bytes_or_none(files.uid_file_of_3_0, _PID_BYTES_MAX) or b"").strip()
    machine = Machine(
        name=files.name,
        uuid=process.argument("-uuid"),
        memory_mib=memory,
        vcpus=vcpus,
        machine_type=process.argument("-M") or process.argument("-machine"),
        accelerator="kvm",
        cpu_type=process.argument("-cpu"),
        network_port=None,
        disks=(),
        nics=(),
        hvparams=hvparams,
    )
    return Runtime(machine=machine, uid=int(uid) if uid.isdigit() else None, is_of_3_0=True)


def unreadable_runtimes(paths: Paths) -> list[str]:
    """Say for each machine that runs why its description cannot be used."""
    found = []
    for files, _process, _facts in running_machines(paths):
        try:
            if load_runtime(files) is None:
                found.append(f"the file {files.runtime} is missing")
        except HypervisorError as err:
            found.append(err.message)
    return found


def decode_runtime(data: bytes | str, source: str) -> Runtime:
    """Decode a runtime text; ``source`` says in errors where it is from.

    Raises:
        HypervisorError: it cannot be understood.
    """
    try:
        runtime = loads_as(Runtime, data)
    except GenericError as err:
        raise HypervisorError(f"{source}: no description of a machine: {err.message}") from err
    if runtime.format != FORMAT:
        raise HypervisorError(f"{source}: machine description of unknown format {runtime.format}")
    return runtime


def runtime_for_migration(runtime: Runtime, *, paused: bool) -> str:
    """Return the text for the node that is to receive the machine."""
    return dumps(Runtime(machine=runtime.machine, paused=paused)).decode()


INFO_TIMEOUT_S: Final = 5.0
ALL_INFO_TIMEOUT_S: Final = 20.0  # all machines together: less than the call has (URGENT, 60 s)
_LEAST_S: Final = 0.1  # a QEMU that answers at all does so in a millisecond
# Not running, and not to be started again in this process: the guest switched itself off, or its
# memory has gone to another node.
# Only such a QEMU outlives its guest; all others run as long as they are there.
_OUTLIVES_GUEST: Final = "-no-shutdown"
_TOLD_TO_RUN: Final = b"told to run\n"
_DOWN_STATES: Final = frozenset({"shutdown", "postmigrate"})
_MIB: Final = 1 << 20


def running_machines(paths: Paths) -> Iterator[tuple[MachineFiles, QemuProcess, ProcessFacts]]:
    """Yield the machines that run here, but not those still being received."""
    for name in known_names(paths):
        files = MachineFiles(paths, name)
        if is_incoming(files):
            continue
        found = find_process(files)
        facts = None if found is None else process_facts.read(found.pid)
        if found is not None and facts is not None:
            yield files, found, facts


def is_guest_down(files: MachineFiles, found: QemuProcess) -> bool:
    """Tell whether the guest has switched itself off while its QEMU goes on."""
    if _OUTLIVES_GUEST not in found.arguments:
        return False
    try:
        info = look(files)
    except GenericError:
        return False  # without an answer it counts as running
    return info is not None and info.state is InstanceState.SHUTDOWN


def known_names(paths: Paths) -> list[str]:
    """Return the names of all machines of which there is a trace, in order."""
    try:
        names = os.listdir(f"{paths.kvm_dir}/pid")
    except FileNotFoundError:
        return []
    return natural_sorted(name for name in names if not name.startswith("."))


def let_all_go(paths: Paths) -> None:
    """Let all guests go on that processes which died have left; failures are logged."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(os.path.dirname(MachineFiles(paths, "any").standstill)):
            files = MachineFiles(paths, name)
            if find_process(files) is None:
                remove_if_exists(files.standstill)
            elif look(files) is not None and os.path.exists(files.standstill):
                logger.warning("instance %s may stand still for a snapshot", name)


def expect(files: MachineFiles) -> None:
    """Mark the instance as being received."""
    write_atomic(files.incoming, b"")


def is_incoming(files: MachineFiles) -> bool:
    """Tell whether the instance is being received: it never ran here, nor was it told to."""
    try:
        return os.path.getsize(files.incoming) == 0
    except FileNotFoundError:
        return False


def hand_over(files: MachineFiles) -> None:
    """Mark the instance as told to run, before it is: from here on nobody takes it for waiting."""
    write_atomic(files.incoming, _TOLD_TO_RUN)


def is_handed_over(files: MachineFiles) -> bool:
    """Tell whether no mark is left: if the instance was received, that is over."""
    return not os.path.exists(files.incoming)


def end_hand_over(files: MachineFiles) -> None:
    """Take the mark away: the instance is as any other one here."""
    remove_if_exists(files.incoming)


def is_unfinished(files: MachineFiles, status: str) -> bool:
    """Tell whether this is left of a start that was cut off: a guest that never began."""
    if status != "prelaunch":
        return False
    runtime = load_runtime(files)
    return runtime is None or not runtime.paused


def look_at_all(env: NodeEnv) -> list[InstanceInfo]:
    """Look at all machines of this node; many that do not answer cost no more time than a few."""
    deadline = clock.monotonic() + ALL_INFO_TIMEOUT_S
    found = []
    for name in known_names(env.paths):
        left_s = max(_LEAST_S, deadline - clock.monotonic())
        info = _look_within(MachineFiles(env.paths, name), min(INFO_TIMEOUT_S, left_s))
        if info is not None:
            found.append(info)
    return found


def look(files: MachineFiles) -> InstanceInfo | None:
    """Look at one machine; None when it does not run here, or is still being received.

    A QEMU that does not answer is taken to run, with the size that it was started with.
    """
    return _look_within(files, INFO_TIMEOUT_S)


def _look_within(files: MachineFiles, timeout_s: float) -> InstanceInfo | None:
    process = find_process(files)
    if process is None:
        return None
    try:
        with Monitor.connect(files.name, files.socket_path("info"), timeout_s) as monitor:
            with contextlib.suppress(HypervisorError, OSError):  # the next look tries again
                let_go(files, monitor)
            status = monitor.status()
            if status == "running":  # it never does so by itself: a mark was left by its hand-over
                end_hand_over(files)
            elif is_incoming(files):
                return None
            down = status in _DOWN_STATES or is_unfinished(files, status)
            return InstanceInfo(
                name=files.name,
                memory_mib=memory_mib(monitor),
                vcpus=len(monitor.query_list("query-cpus-fast")),
                state=InstanceState.SHUTDOWN if down else InstanceState.RUNNING,
                cpu_time_s=process.cpu_time_s(),
            )
    except MonitorGone:
        if find_process(files) is None:
            return None
    except MonitorTimeout:
        if is_incoming(files):
            return None
    return _from_command_line(files.name, process)


def memory_mib(monitor: Monitor) -> int:
    """Return the memory that the guest may use now."""
    with contextlib.suppress(MonitorError):  # no balloon, or no driver for it in the guest
        actual_mib = int(str(monitor.query("query-balloon").get("actual"))) // _MIB
        if actual_mib > 0:  # the guest tells how much it has given back, which may be a lie
            return actual_mib
    sizes = monitor.query("query-memory-size-summary")
    value = int(str(sizes["base-memory"])) + int(str(sizes.get("plugged-memory", 0)))
    return value // _MIB


def _from_command_line(name: str, process: QemuProcess) -> InstanceInfo:
    memory, vcpus = process.size()
    return InstanceInfo(
        name=name,
        memory_mib=memory,
        vcpus=vcpus,
        state=InstanceState.RUNNING,
        cpu_time_s=process.cpu_time_s(),
    )


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines of one node."""

    env: NodeEnv

    def files(self, name: str) -> MachineFiles:
        """Return the files of an instance's machine."""
        return MachineFiles(self.env.paths, name)

    def control(self, name: str) -> Monitor:
        """Talk to a machine.

        Raises:
            HypervisorError: it does not run here.
        """
        files = self.files(name)
        if find_process(files) is None:
            raise HypervisorError(f"instance {name} does not run on {self.env.hostname}")
        return Monitor.connect(name, files.socket_path("control"))

    def runtime(self, name: str) -> Runtime:
        """Return the description of a machine that runs.

        Raises:
            HypervisorError: there is none, or the machine was not started by us.
        """
        files = self.files(name)
        runtime = load_runtime(files)
        if runtime is None:
            raise HypervisorError(f"instance {name}: the file {files.runtime} is missing")
        if runtime.is_of_3_0:
            raise HypervisorError(
                f"instance {name} was started by Ganeti 3.0, and the places of its devices are not"
                f" known; this works after 'gnt-instance reboot --type=full {name}'"
            )
        return runtime

    def check_movable(self, name: str) -> None:
        """Check that a machine runs, or stands still, and nothing moves it already.

        Raises:
            HypervisorError: it does not.
        """
        with self.control(name) as monitor:
            status = monitor.status()
        if status not in ("running", "paused"):
            raise HypervisorError(f"instance {name} is {status} and cannot be migrated")

"""Directories of the node in a guest: a process virtiofsd beside QEMU for each.

It reads and writes for the guest, as root and with the user ids of the guest, and sees nothing but
the directory: that is bound to an own place in a mount namespace of its own, read-only if the guest
may not write, and virtiofsd shuts itself in there.  Mounts below the directory are not part of it.
virtiofsd is connected to QEMU alone, and ends with it.

Two programs have that name: QEMU's own one, until 7.2, and its successor.

Source: manual page virtiofsd(1) of QEMU 7.2; the README of virtiofsd 1.13; documentation of QEMU,
"vhost-user back ends".
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import CommandError, HypervisorError, failing_as
from ganeti.base.paths import Paths
from ganeti.hypervisor import shared_dirs
from ganeti.hypervisor.interface import NodeEnv
from ganeti.hypervisor.kvm import state
from ganeti.hypervisor.kvm.devices import share_name
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.monitor import Monitor
from ganeti.hypervisor.params import missing_here
from ganeti.hypervisor.shared_dirs import Directory, Share
from ganeti.system import process
from ganeti.system.files import ensure_directory, read_bytes_or_none, remove_if_exists, write_atomic
from ganeti.system.process import wait_gone
from ganeti.system.programs import is_runnable

_PLACES: Final = (
    "/usr/libexec/virtiofsd",
    "/usr/lib/virtiofsd",
    "/usr/bin/virtiofsd",
    "/usr/local/bin/virtiofsd",
    "/usr/lib/qemu/virtiofsd",
)
_HELP_TIMEOUT_S: Final = 10.0
_END_TIMEOUT_S: Final = 5.0
_PID_BYTES_MAX: Final = 64
_MODE: Final = 0o700
_MOVING_QEMU: Final = (8, 2)  # the first that takes along what virtiofsd knows

# Arguments: file for the number of the process, device:inode of the directory, "ro" or "rw",
# directory, the place where it is bound to, command.  Between the check of the directory and this
# somebody may have put a link in its place.
_SCRIPT: Final = """\
echo $$ > "$1" && mount --bind -- "$4" "$5" || exit
if [ "$(stat -c %d:%i -- "$5")" != "$2" ]; then
  echo "$4 has been replaced just now"
  exit 1
fi
mount -o "remount,bind,$3" -- "$5" || exit
shift 5
exec "$@"
"""
_ALONE: Final = ("/usr/bin/unshare", "--mount", "--propagation", "private", "/bin/sh", "-c")


@dataclass(frozen=True, slots=True)
class Virtiofsd:
    """The program; ``is_qemus``: the one of QEMU itself; ``can_move``: to another node."""

    path: str
    is_qemus: bool
    can_move: bool

    def command(self, descriptor: int, directory: str) -> list[str]:
        """Return the command that serves a directory to who connects to a listening socket."""
        if self.is_qemus:
            options = f"source={directory},sandbox=namespace,log_level=warn"
            return [self.path, f"--fd={descriptor}", "-o", options]
        return [
            *(self.path, f"--fd={descriptor}", f"--shared-dir={directory}"),
            "--sandbox=namespace",
        ]


def find(hostname: str) -> Virtiofsd:
    """Return the program virtiofsd of this node.

    Raises:
        OpPrereqError: there is none, or it does not say what it can.
    """
    path = next(filter(is_runnable, _PLACES), None)
    if path is None:
        packages = "package virtiofsd, in Debian 12 qemu-system-common"
        text = f"node {hostname} does not have the program virtiofsd ({packages})"
        raise missing_here(shared_dirs.PARAMETER, text)
    try:
        done = process.run([path, "--help"], timeout_s=_HELP_TIMEOUT_S).check()
    except CommandError as err:
        raise missing_here(shared_dirs.PARAMETER, err.message) from err
    said = done.output
    return Virtiofsd(path, is_qemus="--shared-dir" not in said, can_move="--migration-" in said)


def check_movable(monitor: Monitor, name: str, hostname: str) -> None:
    """Check that a machine with shared directories can go to another node while it runs.

    Raises:
        HypervisorError: says why not, and what to do instead.
    """
    why = ""
    if not find(hostname).can_move:
        why = f"virtiofsd of node {hostname} cannot hand over what the guest has open"
    elif _qemu_version(monitor) < _MOVING_QEMU:
        why = "its QEMU is older than 8.2"
    if why:
        text = "shares directories of this node (hypervisor parameter shared_dirs), and"
        raise HypervisorError(f"instance {name} {text} {why}; use failover")


def _qemu_version(monitor: Monitor) -> tuple[int, int]:
    found = monitor.query("query-version").get("qemu")
    numbers = found if isinstance(found, dict) else {}
    return int(str(numbers.get("major", 0))), int(str(numbers.get("minor", 0)))


def start(
    env: NodeEnv,
    files: MachineFiles,
    shares: list[Share],
    ends: contextlib.ExitStack,
    undo: contextlib.ExitStack,
) -> dict[str, int]:
    """Start a virtiofsd for each shared directory; returns the descriptors for QEMU by name.

    Args:
        ends: closes our ends of the connections, once QEMU has its own.
        undo: ends the processes, if the start of the machine fails.

    Raises:
        OpPrereqError: this node does not share such a directory, or has no virtiofsd.
        HypervisorError: it cannot be run.
    """
    end(files)
    if not shares:
        return {}
    shared_dirs.check_here(shares, env.paths, env.hostname)
    program = find(env.hostname)
    write_atomic(files.shares_log, b"")
    undo.callback(end, files, timeout_s=0)
    found = {}
    for number, share in enumerate(shares):
        directory = shared_dirs.find(share, env.paths, env.hostname)
        own = ends.enter_context(_serve(program, files, share, directory))
        found[share_name(number)] = own.fileno()
    return found


def _serve(
    program: Virtiofsd, files: MachineFiles, share: Share, directory: Directory
) -> socket.socket:
    """Start a virtiofsd; returns a connection to it.

    Nobody else can connect: the socket lies in a directory of root's, and is gone at once.
    """
    place = _Place(files, share.tag)
    with failing_as(HypervisorError, f"instance {files.name}: shared directory {share.tag}"):
        ensure_directory(place.view, _MODE)
        with files.listen("share") as listener, contextlib.ExitStack() as undo:
            own = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            own.connect(files.socket_path("share"))
            remove_if_exists(files.link("share"))
            remove_if_exists(files.socket_path("share"))
            command = [
                *(*_ALONE, _SCRIPT, "virtiofsd", place.pid_file),
                *(f"{directory.device}:{directory.inode}", "ro" if share.read_only else "rw"),
                *(directory.path, place.view),
                *program.command(listener.fileno(), place.view),
            ]
            descriptors = [listener.fileno()]
            state.start_process(command, files, descriptors, log=files.shares_log, appends=True)
            undo.pop_all()
    return own


@dataclass(frozen=True, slots=True)
class _Place:
    """The files of one virtiofsd."""

    files: MachineFiles
    tag: str

    @property
    def view(self) -> str:
        """The directory where virtiofsd, and nobody else, sees what is shared."""
        return f"{self.files.shares}/{self.tag}/view"

    @property
    def pid_file(self) -> str:
        return f"{self.files.shares}/{self.tag}/pid"

    def process(self) -> int | None:
        """Return the number of the process; None if it has ended.

        Another one that has its number now does not have the directory among its arguments.
        """
        data = (read_bytes_or_none(self.pid_file, _PID_BYTES_MAX) or b"").strip()
        if not data.isdigit():
            return None
        with contextlib.suppress(OSError), open(f"/proc/{int(data)}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
            if any(os.fsencode(self.view) in word for word in words):
                return int(data)
        return None


def end(files: MachineFiles, *, timeout_s: float = _END_TIMEOUT_S) -> None:
    """Wait until every virtiofsd of a machine that ended has ended too, by force if need be.

    Raises:
        HypervisorError: one cannot be ended.
    """
    for place in list(_places(files)):
        pid = place.process()
        if pid is not None and not wait_gone(pid, timeout_s):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # with the part of it that is shut in
            if not state.kill_process(pid):
                raise HypervisorError(
                    f"instance {files.name}: virtiofsd, process {pid}, cannot be ended"
                )
        remove_if_exists(place.pid_file)
        # Nothing below is ever removed: a directory that is shared must not be at stake.
        for directory in (place.view, os.path.dirname(place.view)):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(directory)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(files.shares)


def _places(files: MachineFiles) -> Iterator[_Place]:
    with contextlib.suppress(FileNotFoundError):
        for tag in sorted(os.listdir(files.shares)):
            yield _Place(files, tag)


def lost(paths: Paths) -> Iterable[str]:
    """Say which shared directories running machines have lost, as their virtiofsd has ended."""
    for files, _process, _facts in state.running_machines(paths):
        for place in _places(files):
            if place.process() is None:
                yield (
                    f"instance {files.name} has lost its shared directory {place.tag}, as virtiofsd"
                    f" has ended (see {files.shares_log}); 'gnt-instance reboot -t full"
                    f" {files.name}' brings it back"
                )

"""Instances that are processes of the node in a directory tree of their own.

The only disk of an instance holds a file system; it is mounted below the run directory, and the
instance's init script is called in it with ``start`` or ``stop``.  An instance runs while its tree
is mounted; one whose start was cut off counts as shut down.  There is no isolation beyond the root
directory: for trusted guests only.

    RUN_DIR/chroot-hypervisor/<name>          where the disk is mounted
    RUN_DIR/chroot-hypervisor/.<name>.json    the facts that its driver needs to stop it

Source: constants.json, "hvparams" of chroot; config.json, "well_known_paths".
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import ExitStack, suppress
from typing import Final

import msgspec
from msgspec.structs import replace

from ganeti.base.errors import CommandError, HypervisorError, failing_as
from ganeti.base.json import dumps, loads_as
from ganeti.base.text import natural_sorted
from ganeti.hypervisor import interface
from ganeti.hypervisor.interface import (
    ConsoleNode,
    Disks,
    Hypervisor,
    InstanceInfo,
    InstanceState,
    check_name,
)
from ganeti.objects.disk_templates import DiskMode
from ganeti.objects.hypervisors import ConsoleKind
from ganeti.objects.model import InstanceConsole
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.system import clock, process
from ganeti.system.files import ensure_directory, read_bytes_or_none, remove_if_exists, write_atomic

START_TIMEOUT_S: Final = 300.0
_MOUNT_TIMEOUT_S: Final = 60.0
_KILL_WAIT_S: Final = 5.0
_KILL_ROUNDS_MAX: Final = 20  # processes may fork while they are being killed
_FILE_BYTES_MAX: Final = 1 << 16
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")  # as the kernel writes blanks and such
_ENVIRONMENT: Final = {"PATH": "/sbin:/bin:/usr/sbin:/usr/bin"}
_DIRECTORY_MODE: Final = 0o700  # programs of guests that run as root are not for the node's users
_TREE_MODE: Final = 0o755


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one instance; ``is_begun``: its start has not ended yet."""

    init_script: str
    memory_mib: int
    vcpus: int
    started_s: float
    is_begun: bool = False


def mounted_below(directory: str, mountinfo: str) -> set[str]:
    """Return the paths right below a directory at which something is mounted.

    Args:
        mountinfo: the text of /proc/self/mountinfo.
    """
    # By the kernel's own separators: names of others may have any other one of Unicode.
    paths = (line.split(" ")[4] for line in mountinfo.split("\n") if line)
    plain = (_ESCAPED.sub(lambda found: chr(int(found[1], 8)), path) for path in paths)
    return {path for path in plain if os.path.dirname(path) == directory}


def processes_in(tree: str) -> list[int]:
    """Return the processes that have a tree, or a directory below it, as their root directory."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with suppress(OSError):
            root = os.readlink(f"/proc/{entry}/root")
            if root == tree or root.startswith(f"{tree}/"):
                found.append(int(entry))
    return found


class ChrootHypervisor(Hypervisor):
    """The hypervisor "chroot" on one node."""

    @property
    def _directory(self) -> str:
        return os.path.realpath(self.env.paths.chroot_dir)

    def _tree(self, name: str) -> str:
        check_name(name)
        return os.path.join(self._directory, name)

    def _book_path(self, name: str) -> str:
        return os.path.join(self._directory, f".{name}.json")

    def _load(self, name: str) -> Book | None:
        data = read_bytes_or_none(self._book_path(name), _FILE_BYTES_MAX)
        return None if data is None else loads_as(Book, data)

    def _save(self, name: str, book: Book) -> None:
        write_atomic(self._book_path(name), dumps(book), 0o600)

    def _mounted(self) -> set[str]:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return mounted_below(self._directory, file.read())

    def list_instances(self) -> list[str]:
        """Return the names of the instances with a mounted tree."""
        return natural_sorted(os.path.basename(path) for path in self._mounted())

    def all_instances_info(self) -> list[InstanceInfo]:
        """Look at all instances here."""
        return [self._info(name) for name in self.list_instances()]

    def instance_info(self, name: str) -> InstanceInfo | None:
        """Look at one instance; None when it is not here."""
        return self._info(name) if self._tree(name) in self._mounted() else None

    def _info(self, name: str) -> InstanceInfo:
        book = self._load(name)
        is_begun = book is not None and book.is_begun
        return InstanceInfo(
            name=name,
            memory_mib=book.memory_mib if book else 0,
            vcpus=book.vcpus if book else 0,
            state=InstanceState.SHUTDOWN if is_begun else InstanceState.RUNNING,
            cpu_time_s=max(0.0, clock.now() - book.started_s) if book else 0.0,
        )

    def start(self, instance: RpcInstance, disks: Disks, *, paused: bool = False) -> None:
        """Mount the disk and call the init script; on failure nothing stays mounted."""
        name = instance.name
        if self.instance_info(name) is not None:
            raise HypervisorError(f"instance {name!r} runs already")
        if len(disks) != 1:
            raise HypervisorError(
                f"instance {name!r} has {len(disks)} disks; hypervisor chroot needs exactly one,"
                " with the file system of its tree"
            )
        script = str(instance.hvparams["init_script"])
        tree = self._tree(name)
        ensure_directory(self._directory, _DIRECTORY_MODE)
        ensure_directory(tree, _TREE_MODE)
        book = Book(
            init_script=script,
            memory_mib=instance.beparams["maxmem"],
            vcpus=instance.beparams["vcpus"],
            started_s=clock.now(),
            is_begun=True,
        )
        with ExitStack() as undo:
            undo.callback(self.stop, name, force=True)
            self._save(name, book)
            self._mount(name, disks[0], tree)
            if not paused:
                with failing_as(HypervisorError, f"instance {name!r} did not start"):
                    self._call(name, script, "start", START_TIMEOUT_S)
            self._save(name, replace(book, is_begun=False))
            undo.pop_all()

    def _mount(self, name: str, disk: interface.AssembledDisk, tree: str) -> None:
        options = ["loop"] if os.path.isfile(disk.dev_path) else []
        options.append("ro" if disk.mode is DiskMode.RO else "rw")
        argv = ["mount", "-o", ",".join(options), disk.dev_path, tree]
        with failing_as(HypervisorError, f"the disk of instance {name!r} cannot be mounted"):
            process.run(argv, timeout_s=_MOUNT_TIMEOUT_S).check()

    def _call(self, name: str, script: str, word: str, timeout_s: float) -> None:
        """Call the init script; its children in the background may keep its output open.

        Raises:
            CommandError: it failed or did not end in time; with the end of its output.
        """
        argv = ["chroot", self._tree(name), script, word]
        log_path = os.path.join(self._directory, f".{name}.log")
        with open(log_path, "wb") as log:
            child = process.spawn(
                argv, env=_ENVIRONMENT, cwd="/", stdout=log.fileno(), stderr=log.fileno()
            )
        ended = process.wait_gone(child.pid, timeout_s)
        if not ended:
            process.terminate(child.pid, 0.0)
        status = child.wait()
        with open(log_path, "rb") as log:
            output = log.read(_FILE_BYTES_MAX)
        remove_if_exists(log_path)
        process.CommandResult(tuple(argv), status, output, b"", timed_out=not ended).check()

    def stop(self, name: str, *, force: bool = False, timeout_s: float = 120) -> None:
        """Call the init script, then end the remaining processes in the tree, and unmount it."""
        if self.instance_info(name) is None:
            self._forget(name)
            return
        book = self._load(name)
        if book is not None and not force and timeout_s > 0:
            # Whether it obeys or not: the remaining processes are ended below.
            with suppress(CommandError):
                self._call(name, book.init_script, "stop", timeout_s)
        self._take_down(name)

    def _take_down(self, name: str) -> None:
        tree = self._tree(name)
        self._end_processes(tree)
        with failing_as(HypervisorError, f"the tree of instance {name!r} cannot be unmounted"):
            # With all that the init script has mounted in it, such as /proc.
            process.run(["umount", "--recursive", tree], timeout_s=_MOUNT_TIMEOUT_S).check()
        self._forget(name)

    def _end_processes(self, tree: str) -> None:
        number = signal.SIGTERM
        for _round in range(_KILL_ROUNDS_MAX):
            left = processes_in(tree)
            if not left:
                return
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            deadline_s = clock.monotonic() + _KILL_WAIT_S
            for pid in left:
                process.wait_gone(pid, max(0.0, deadline_s - clock.monotonic()))
            number = signal.SIGKILL
        raise HypervisorError(f"processes in {tree} cannot be ended: {processes_in(tree)}")

    def _forget(self, name: str) -> None:
        remove_if_exists(self._book_path(name))
        with suppress(FileNotFoundError):
            os.rmdir(self._tree(name))

    def verify(self) -> str | None:
        """Return the reason why this hypervisor cannot work here, or None."""
        if os.geteuid() != 0:
            return "hypervisor chroot needs the node daemon to run as root"
        return None

    def consoles(self, instance: RpcInstance, node: ConsoleNode) -> list[InstanceConsole]:
        """Return a shell in the tree."""
        name, kind = instance.name, ConsoleKind.SSH
        command = ["chroot", self._tree(name)]
        return [
            InstanceConsole(instance=name, kind=kind, host=node.name, user="root", command=command)
        ]

"""A hypervisor that only keeps books: one small file for each instance that "runs".

A book begins as 3.0 writes it: an identifier (0), the memory in MiB and the processors, a line
each.  All other facts follow in a line of their own, which 3.0 does not read; so each reads
the books of the other, and instances run on when the release of a node is changed.

It goes through every step that a real one does, migration included, and survives restarts of the
node daemon in the same way.  An instance is one of: running; incoming (accepted from another node);
sent (its memory has left, the end of the migration is awaited); down (shut itself down).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from ganeti.base.errors import HypervisorError, ProtocolError
from ganeti.base.json import dumps, loads_as
from ganeti.base.text import natural_sorted
from ganeti.hypervisor import interface, node
from ganeti.hypervisor.interface import Disks, Hypervisor, InstanceInfo, NodeEnv, check_name
from ganeti.objects.hypervisors import RebootType
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.system import clock
from ganeti.system.files import ensure_directory, read_bytes_or_none, remove_if_exists, write_atomic

_FILE_BYTES_MAX: Final = 1 << 16


class Phase(StrEnum):
    """The state of an instance of this hypervisor."""

    RUNNING = "running"
    INCOMING = "incoming"
    SENT = "sent"
    DOWN = "down"


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one instance."""

    memory_mib: int
    vcpus: int
    started_s: float
    phase: Phase = Phase.RUNNING


class _Books:
    """The books of one node."""

    def __init__(self, env: NodeEnv) -> None:
        self._directory = env.paths.fake_dir
        self.hostname = env.hostname

    def names(self) -> list[str]:
        """Return the names of all instances that have a book, in order."""
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        return natural_sorted(name for name in names if not name.startswith("."))

    def _path(self, name: str) -> str:
        check_name(name)
        return os.path.join(self._directory, name)

    def load(self, name: str) -> Book | None:
        """Return the book of an instance; None when there is none."""
        path = self._path(name)
        data = read_bytes_or_none(path, _FILE_BYTES_MAX)
        return None if data is None else _decode(data, path)

    def save(self, name: str, book: Book) -> None:
        """Write the book of an instance."""
        ensure_directory(self._directory)
        head = b"0\n%d\n%d\n" % (book.memory_mib, book.vcpus)
        write_atomic(self._path(name), head + dumps(book) + b"\n")

    def forget(self, name: str) -> None:
        """Remove the book of an instance, if there is one."""
        remove_if_exists(self._path(name))

    def existing(self, name: str, *phases: Phase) -> Book:
        """Return the book of an instance in one of some phases.

        Raises:
            HypervisorError: there is none, or it is in another phase.
        """
        book = self.load(name)
        if book is None:
            raise HypervisorError(f"instance {name!r} does not run on {self.hostname}")
        if book.phase not in phases:
            raise HypervisorError(f"instance {name!r} is {book.phase} on {self.hostname}")
        return book


def _decode(data: bytes, path: str) -> Book:
    """Read a book; one of 3.0 is as old as its file.

    Raises:
        HypervisorError: it is none.
    """
    *numbers, last = data.strip().splitlines() or [b""]
    try:
        if last.startswith(b"{"):
            return loads_as(Book, last)
        memory, vcpus = (int(each) for each in [*numbers, last][-2:])
        return Book(memory_mib=memory, vcpus=vcpus, started_s=os.stat(path).st_mtime)
    except (ValueError, OSError, ProtocolError) as err:
        raise HypervisorError(f"{path}: no record of a running instance: {err}") from err


class FakeHypervisor(Hypervisor):
    """The hypervisor "fake" on one node."""

    def __init__(self, name: str, env: NodeEnv, hvparams: Mapping[str, object]) -> None:
        super().__init__(name, env, hvparams)
        self._books = _Books(env)
        self.migration = _FakeMigration(self._books)

    def all_instances_info(self) -> list[InstanceInfo]:
        """Look at all instances here."""
        return [info for info in map(self._info_of, self._books.names()) if info is not None]

    def _info_of(self, name: str) -> InstanceInfo | None:
        """Look at one of many; an instance with an unreadable book is taken to run."""
        try:
            return self.instance_info(name)
        except HypervisorError:
            running = interface.InstanceState.RUNNING
            return InstanceInfo(name=name, memory_mib=0, vcpus=1, state=running, cpu_time_s=0.0)

    def verify(self) -> str | None:
        """Say which books cannot be read."""
        found = []
        for name in self._books.names():
            try:
                self._books.load(name)
            except HypervisorError as err:
                found.append(err.message)
        return "; ".join(found) or None

    def instance_info(self, name: str) -> InstanceInfo | None:
        """Look at one instance; None when it is not here."""
        book = self._books.load(name)
        if book is None or book.phase is Phase.INCOMING:
            return None
        running = book.phase is Phase.RUNNING
        return InstanceInfo(
            name=name,
            memory_mib=book.memory_mib,
            vcpus=book.vcpus,
            state=interface.InstanceState.RUNNING if running else interface.InstanceState.SHUTDOWN,
            cpu_time_s=max(0.0, clock.now() - book.started_s),
        )

    def start(self, instance: RpcInstance, disks: Disks, *, paused: bool = False) -> None:
        """Write down that the instance runs."""
        if self._books.load(instance.name) is not None:
            raise HypervisorError(f"instance {instance.name!r} is already there")
        self._books.save(instance.name, _new_book(instance, clock.now()))

    def stop(self, name: str, *, force: bool = False, timeout_s: float = 120) -> None:
        """Forget the instance; this guest always obeys."""
        self._books.forget(name)

    def reboot(
        self, instance: RpcInstance, disks: Disks, *, kind: RebootType, timeout_s: float = 120
    ) -> None:
        """Let the instance's time start again."""
        self._books.existing(instance.name, Phase.RUNNING, Phase.DOWN)
        self._books.save(instance.name, _new_book(instance, clock.now()))

    def balloon(self, name: str, memory_mib: int) -> None:
        """Write down another size of memory."""
        book = self._books.existing(name, Phase.RUNNING)
        self._books.save(name, msgspec.structs.replace(book, memory_mib=memory_mib))

    def node_info(self) -> dict[str, object]:
        """Return the real node's memory and processors, less the instances' memory."""
        guests_mib = sum(info.memory_mib for info in self.all_instances_info())
        found = node.resources(0)
        found["memory_free"] = max(0, int(str(found["memory_free"])) - guests_mib)
        return found


class _FakeMigration(interface.Migration):
    """Migration of the hypervisor "fake": it takes no time."""

    def __init__(self, books: _Books) -> None:
        self._books = books

    def check(self, instance: RpcInstance) -> None:
        """Check that the instance runs."""
        self._books.existing(instance.name, Phase.RUNNING)

    def describe(self, instance: RpcInstance) -> str:
        """Return the book of the instance."""
        return dumps(self._books.existing(instance.name, Phase.RUNNING)).decode()

    def accept(self, instance: RpcInstance, info: str, address: str, disks: Disks) -> str:
        """Write down that the instance is expected; it keeps the time of its start."""
        book = self._books.load(instance.name)
        if book is not None and book.phase is not Phase.INCOMING:
            host = self._books.hostname
            raise HypervisorError(f"instance {instance.name!r} is already on {host}")
        sent = loads_as(Book, info) if info else _new_book(instance, clock.now())
        self._books.save(instance.name, msgspec.structs.replace(sent, phase=Phase.INCOMING))
        return address

    def send(self, instance: RpcInstance, target_address: str, *, live: bool) -> None:
        """Write down that the instance's memory has left."""
        book = self._books.existing(instance.name, Phase.RUNNING)
        self._books.save(instance.name, msgspec.structs.replace(book, phase=Phase.SENT))

    def status(self, instance: RpcInstance, *, wait_s: float = 1.0) -> interface.MigrationStatus:
        """Say completed: a migration takes no time here."""
        book = self._books.existing(instance.name, Phase.SENT)
        size = book.memory_mib << 20
        return interface.MigrationStatus(
            interface.MigrationState.COMPLETED, transferred_ram=size, total_ram=size
        )

    def finish_source(self, instance: RpcInstance, *, success: bool, live: bool) -> None:
        """Forget the instance, or let it run again."""
        book = self._books.load(instance.name)
        if book is None:
            if success:
                return
            self._books.existing(instance.name)
        elif success and book.phase is Phase.RUNNING:
            host = self._books.hostname
            raise HypervisorError(f"instance {instance.name!r} still runs on {host}; not removed")
        elif success:
            self._books.forget(instance.name)
        else:
            self._books.save(instance.name, msgspec.structs.replace(book, phase=Phase.RUNNING))

    def finish_target(self, instance: RpcInstance, info: str, *, success: bool) -> bool:
        """Let the expected instance run, or forget it."""
        book = self._books.load(instance.name)
        if success:
            book = self._books.existing(instance.name, Phase.INCOMING, Phase.RUNNING)
            self._books.save(instance.name, msgspec.structs.replace(book, phase=Phase.RUNNING))
        elif book is not None and book.phase is Phase.INCOMING:
            self._books.forget(instance.name)
            return True
        return False


def _new_book(instance: RpcInstance, now_s: float) -> Book:
    memory_mib, vcpus = instance.beparams["maxmem"], instance.beparams["vcpus"]
    return Book(memory_mib=memory_mib, vcpus=vcpus, started_s=now_s)

"""A hypervisor that only keeps books: one small file for each instance that "runs".

It goes through every step that a real one does, migration included, and survives restarts of the
node daemon in the same way.  An instance is one of: running; incoming (accepted from another node);
sent (its memory has left, the end of the migration is awaited); down (shut itself down).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from ganeti.base.errors import ErrorCode, HypervisorError, OpPrereqError
from ganeti.base.json import dumps, loads_as
from ganeti.base.text import natural_sorted
from ganeti.hypervisor.interface import (
    AssembledDisk,
    HypervisorInfo,
    InstanceInfo,
    InstanceState,
    MigrationState,
    MigrationStatus,
    NodeEnv,
)
from ganeti.hypervisor.node_resources import node_resources
from ganeti.hypervisor.power import powercycle
from ganeti.hypervisor.refusals import WithoutHotplug, WithoutSnapshots
from ganeti.objects.console import InstanceConsole
from ganeti.objects.hypervisors import ConsoleKind, MigrationMode, RebootType
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.system import clock
from ganeti.system.files import (
    ensure_directory,
    read_bytes_or_none,
    remove_if_exists,
    write_atomic,
)

_FILE_BYTES_MAX: Final = 1 << 16


class Phase(StrEnum):
    """What an instance of this hypervisor does."""

    RUNNING = "running"
    INCOMING = "incoming"
    SENT = "sent"
    DOWN = "down"


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """What is written down about one instance."""

    memory_mib: int
    vcpus: int
    started_s: float
    phase: Phase = Phase.RUNNING


class FakeHypervisor(WithoutHotplug, WithoutSnapshots):
    """The hypervisor "fake" on one node."""

    info = HypervisorInfo(
        name="fake",
        can_migrate=True,
        can_migrate_live=True,
        can_hotplug=False,
        needs_network_port=False,
    )

    def __init__(self, env: NodeEnv) -> None:
        self._env = env
        self._directory = env.paths.fake_dir

    def _path(self, name: str) -> str:
        if not name or "/" in name or name.startswith("."):
            raise HypervisorError(f"{name!r} cannot be the name of an instance")
        return os.path.join(self._directory, name)

    def _load(self, name: str) -> Book | None:
        data = read_bytes_or_none(self._path(name), _FILE_BYTES_MAX)
        return None if data is None else loads_as(Book, data)

    def _save(self, name: str, book: Book) -> None:
        ensure_directory(self._directory)
        write_atomic(self._path(name), dumps(book))

    def _existing(self, name: str, *phases: Phase) -> Book:
        book = self._load(name)
        if book is None:
            raise HypervisorError(f"instance {name!r} does not run on {self._env.hostname}")
        if book.phase not in phases:
            raise HypervisorError(f"instance {name!r} is {book.phase} on {self._env.hostname}")
        return book

    def list_instances(self) -> list[str]:
        """Return the names of the instances here; not those still being received."""
        return [info.name for info in self.all_instances_info()]

    def all_instances_info(self) -> list[InstanceInfo]:
        """Look at all instances here."""
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        infos = (self.instance_info(name) for name in natural_sorted(names) if name[0] != ".")
        return [info for info in infos if info is not None]

    def instance_info(self, name: str) -> InstanceInfo | None:
        """Look at one instance; None when it is not here."""
        book = self._load(name)
        if book is None or book.phase is Phase.INCOMING:
            return None
        running = book.phase is Phase.RUNNING
        return InstanceInfo(
            name=name,
            memory_mib=book.memory_mib,
            vcpus=book.vcpus,
            state=InstanceState.RUNNING if running else InstanceState.SHUTDOWN,
            cpu_time_s=max(0.0, clock.now() - book.started_s),
        )

    def start(
        self, instance: RpcInstance, disks: Sequence[AssembledDisk], *, paused: bool = False
    ) -> None:
        """Write down that the instance runs."""
        if self._load(instance.name) is not None:
            raise HypervisorError(f"instance {instance.name!r} is already there")
        self._save(instance.name, _new_book(instance, clock.now()))

    def stop(self, name: str, *, force: bool = False, timeout_s: float = 120) -> None:
        """Forget the instance; this guest always obeys."""
        remove_if_exists(self._path(name))

    def reboot(
        self,
        instance: RpcInstance,
        disks: Sequence[AssembledDisk],
        *,
        kind: RebootType,
        timeout_s: float = 120,
    ) -> None:
        """Let the instance's time start again."""
        self._existing(instance.name, Phase.RUNNING, Phase.DOWN)
        self._save(instance.name, _new_book(instance, clock.now()))

    def balloon(self, name: str, memory_mib: int) -> None:
        """Write down another size of memory."""
        book = self._existing(name, Phase.RUNNING)
        self._save(name, msgspec.structs.replace(book, memory_mib=memory_mib))

    def node_info(self) -> dict[str, object]:
        """Return the real node's memory and processors, less what the instances would use."""
        guests_mib = sum(info.memory_mib for info in self.all_instances_info())
        found = node_resources(0)
        found["memory_free"] = max(0, int(str(found["memory_free"])) - guests_mib)
        return found

    def verify(self) -> str | None:
        """Return None: there is nothing that could be missing."""
        return None

    def check_params(self, hvparams: Mapping[str, object]) -> None:
        """Check the migration mode, the only parameter."""
        mode = hvparams.get("migration_mode", MigrationMode.LIVE)
        if mode not in tuple(MigrationMode):
            raise OpPrereqError(
                f"hypervisor parameter migration_mode: {mode!r} is not one of "
                + ", ".join(MigrationMode),
                ErrorCode.INVAL,
            )

    def validate_params(self, hvparams: Mapping[str, object]) -> None:
        """Check nothing more: no parameter depends on the node."""
        self.check_params(hvparams)

    def consoles(
        self, instance: RpcInstance, *, node_name: str, node_address: str
    ) -> list[InstanceConsole]:
        """Say that there is no console."""
        text = f"instance {instance.name} has no console: hypervisor fake runs nothing"
        return [
            InstanceConsole(instance=instance.name, kind=ConsoleKind.MESSAGE, message=text),
        ]

    def migratable(self, instance: RpcInstance) -> None:
        """Check that the instance runs."""
        self._existing(instance.name, Phase.RUNNING)

    def migration_info(self, instance: RpcInstance) -> str:
        """Return the book of the instance."""
        return dumps(self._existing(instance.name, Phase.RUNNING)).decode()

    def accept_instance(
        self,
        instance: RpcInstance,
        info: str,
        target_address: str,
        disks: Sequence[AssembledDisk],
    ) -> str:
        """Write down that the instance is expected; it keeps the time of its start."""
        book = self._load(instance.name)
        if book is not None and book.phase is not Phase.INCOMING:
            raise HypervisorError(f"instance {instance.name!r} is already on {self._env.hostname}")
        sent = loads_as(Book, info) if info else _new_book(instance, clock.now())
        self._save(instance.name, msgspec.structs.replace(sent, phase=Phase.INCOMING))
        return target_address

    def migrate(self, instance: RpcInstance, target_address: str, *, live: bool) -> None:
        """Write down that the instance's memory has left."""
        book = self._existing(instance.name, Phase.RUNNING)
        self._save(instance.name, msgspec.structs.replace(book, phase=Phase.SENT))

    def migration_status(self, instance: RpcInstance, *, wait_s: float = 1.0) -> MigrationStatus:
        """Say completed: a migration takes no time here."""
        book = self._existing(instance.name, Phase.SENT)
        size = book.memory_mib << 20
        return MigrationStatus(MigrationState.COMPLETED, transferred_ram=size, total_ram=size)

    def finalize_migration_src(self, instance: RpcInstance, *, success: bool, live: bool) -> None:
        """Forget the instance, or let it run again."""
        book = self._load(instance.name)
        if book is None:
            if success:
                return
            self._existing(instance.name)
        elif success and book.phase is not Phase.SENT:
            raise HypervisorError(
                f"instance {instance.name!r} still runs on {self._env.hostname}; not removed"
            )
        elif success:
            remove_if_exists(self._path(instance.name))
        else:
            self._save(instance.name, msgspec.structs.replace(book, phase=Phase.RUNNING))

    def finalize_migration_dst(self, instance: RpcInstance, info: str, *, success: bool) -> None:
        """Let the expected instance run, or forget it."""
        book = self._load(instance.name)
        if success:
            book = self._existing(instance.name, Phase.INCOMING, Phase.RUNNING)
            self._save(instance.name, msgspec.structs.replace(book, phase=Phase.RUNNING))
        elif book is not None and book.phase is Phase.INCOMING:
            remove_if_exists(self._path(instance.name))

    def resize_disk(self, instance: RpcInstance, disk: AssembledDisk) -> None:
        """Do nothing: this guest does not look at its disks."""

    def powercycle(self) -> None:
        """Restart the node."""
        powercycle(self._env)


def _new_book(instance: RpcInstance, now_s: float) -> Book:
    return Book(
        memory_mib=instance.beparams["maxmem"], vcpus=instance.beparams["vcpus"], started_s=now_s
    )

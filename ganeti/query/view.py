"""The view of a query: the configuration, and live answers of nodes.

The caller fills a `View`: the configuration as of one instant, and of the live part only the facts
that the plan of the query names (`Plan.needs`, `Plan.targets`).  Nothing here asks anybody.

Source: query_fields.json; node_rpc.json for the shapes of answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Self

import msgspec

from ganeti.base.errors import ProtocolError
from ganeti.base.ids import InstanceUuid, JobId, NodeUuid
from ganeti.base.json import JsonValue
from ganeti.config.tables import NO_TABLES, Tables
from ganeti.jobs.record import QueuedJob
from ganeti.objects.disk_templates import LocalDiskStatus
from ganeti.objects.model import Guest, InstanceConsole
from ganeti.protocol.node_rpc_values import ChainPoint
from ganeti.query.kept_rows import KeptRows


class StorageInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Space of one storage unit: MiB, or spindles for ``lvm-pv``; None if it cannot be told."""

    type: str
    name: str
    storage_free: int | None = None
    storage_size: int | None = None


class HypervisorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Memory (MiB) and processors of a node as a hypervisor sees them."""

    memory_total: int | None = None
    memory_free: int | None = None
    memory_dom0: int | None = None
    cpu_total: int | None = None
    cpu_dom0: int | None = None
    cpu_nodes: int | None = None
    cpu_sockets: int | None = None


class NodeLive(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one node to ``node_info``; a node that failed is None in a `View`."""

    boot_id: str
    storage: Sequence[StorageInfo] = ()
    hypervisors: Sequence[HypervisorInfo] = ()

    @classmethod
    def from_rpc(cls, payload: object) -> Self:
        """Make it from ``[boot id, [storage info], [hypervisor info]]``; nulls are left out.

        Raises:
            ProtocolError: the payload has another shape.
        """
        try:
            boot_id, storage, hypervisors = msgspec.convert(payload, _NodeInfo)
        except msgspec.ValidationError as err:
            raise ProtocolError(f"node_info: {err}") from err
        return cls(
            boot_id=boot_id,
            storage=[info for info in storage or () if info is not None],
            hypervisors=[info for info in hypervisors or () if info is not None],
        )


_NodeInfo = tuple[str, list[StorageInfo | None] | None, list[HypervisorInfo | None] | None]


class InstanceLive(msgspec.Struct, frozen=True, kw_only=True):
    """One instance in an answer to ``all_instances_info``: MiB, state as in LiveState, seconds."""

    memory: int
    vcpus: int
    state: int
    time: float = 0.0


def instances_from_rpc(payload: object) -> dict[str, InstanceLive]:
    """Read an answer to ``all_instances_info``: instances by name.

    Raises:
        ProtocolError: the payload has another shape.
    """
    try:
        return msgspec.convert(payload, dict[str, InstanceLive])
    except msgspec.ValidationError as err:
        raise ProtocolError(f"all_instances_info: {err}") from err


class Copy(msgspec.Struct, frozen=True):
    """The copy of a disk on its second node, as the primary node sees it.

    Attributes:
        state: that of one of the constants below.
        percent: how much is up to date already, None unless it is being made.
    """

    state: str
    percent: float | None = None


UP_TO_DATE: Final = Copy("up to date")
SYNCING: Final = "syncing"
DEGRADED: Final = Copy("degraded")  # there is no second node with all data
FAULTY: Final = Copy("faulty")  # the primary node's own data is not usable
UNKNOWN: Final = Copy("unknown")
MISSING: Final = Copy("missing")  # the primary node cannot look at the disk
INACTIVE: Final = Copy("inactive")


class _MirrorStatus(msgspec.Struct, frozen=True):
    sync_percent: float | None
    is_degraded: bool | None
    ldisk_status: int | None


def copies_from_rpc(payload: object) -> list[Copy]:
    """Read an answer to ``blockdev_getmirrorstatus_multi``: one copy for each disk asked about.

    Raises:
        ProtocolError: the payload has another shape.
    """
    try:
        parts = msgspec.convert(payload, list[tuple[bool, _MirrorStatus | str | None]])
    except msgspec.ValidationError as err:
        raise ProtocolError(f"blockdev_getmirrorstatus_multi: {err}") from err
    return [_copy(part) if is_found else MISSING for is_found, part in parts]


def _copy(status: _MirrorStatus | str | None) -> Copy:
    if not isinstance(status, _MirrorStatus):
        return UNKNOWN
    if status.sync_percent is not None:
        return Copy(SYNCING, status.sync_percent)
    if status.ldisk_status in (LocalDiskStatus.FAULTY, LocalDiskStatus.UNKNOWN):
        return FAULTY if status.ldisk_status == LocalDiskStatus.FAULTY else UNKNOWN
    return DEGRADED if status.is_degraded else UP_TO_DATE


class LockState(msgspec.Struct, frozen=True, kw_only=True):
    """One lock: mode "shared" or "exclusive" (None if free), its owners, and its waiters.

    ``pending`` holds [mode, [names of waiters]]; ``priorities`` [name of waiter, priority], the
    most urgent first.
    """

    name: str
    mode: str | None = None
    owners: Sequence[str] = ()
    pending: Sequence[tuple[str, Sequence[str]]] = ()
    priorities: Sequence[tuple[str, int]] = ()


class JobItem(msgspec.Struct, frozen=True):
    """A job, and whether it was found in the archive; of one that is nowhere only the id."""

    job: QueuedJob | JobId
    archived: bool | None = False

    @property
    def id(self) -> JobId:
        """The id of the job."""
        return self.job.id if isinstance(self.job, QueuedJob) else self.job


class View(msgspec.Struct, frozen=True, kw_only=True):
    """One version of the configuration, and the parts that a plan needs beyond it.

    A key that is missing in a live table means the same as None: asked, but no answer.  Nodes that
    are marked offline need not be in them.

    Attributes:
        kept_rows: encoded rows of the same version of the configuration, for more to be added.
        node_live: answers to ``node_info`` (need: node_live).
        instance_live: answers to ``all_instances_info``, by node (need: instance_live).
        copies: answers to ``blockdev_getmirrorstatus_multi``, by UUID of the disk (need: copies).
        consoles: answers to ``instance_console_info`` (need: console).
        guests: answers to ``instance_guest_info`` (need: guest).
        exports: answers to ``export_list`` (need: exports).
        chains: answers to ``export_chains``: the points of exports by name (need: chains).
        rows: ready values by field name, for cluster, os and extstorage (need: rows).
    """

    config: Tables = NO_TABLES
    kept_rows: KeptRows | None = None
    node_live: Mapping[NodeUuid, NodeLive | None] = {}
    instance_live: Mapping[NodeUuid, Mapping[str, InstanceLive] | None] = {}
    copies: Mapping[str, Copy] = {}
    consoles: Mapping[InstanceUuid, InstanceConsole | None] = {}
    guests: Mapping[InstanceUuid, Guest | None] = {}
    jobs: Mapping[JobId, JobItem] = {}
    locks: Sequence[LockState] = ()
    exports: Mapping[NodeUuid, Sequence[str] | None] = {}
    chains: Mapping[NodeUuid, Mapping[str, Sequence[ChainPoint]] | None] = {}
    rows: Sequence[Mapping[str, JsonValue]] = ()

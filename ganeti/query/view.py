"""What a query looks at: the configuration, and what was found out live.

The caller fills a `View`: the tables of the configuration as of one instant, and of the live part
only what the plan of the query names (`Plan.needs`, `Plan.targets`).  Nothing here asks anybody.

Source: query_fields.json; node_rpc.json for the shapes of answers.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Protocol, Self

import msgspec
from msgspec import Raw

from ganeti.base.errors import ProtocolError
from ganeti.base.ids import DiskUuid, GroupUuid, InstanceUuid, JobId, NetworkUuid, NodeUuid
from ganeti.jobs.record import QueuedJob
from ganeti.objects.cluster import Cluster
from ganeti.objects.console import InstanceConsole
from ganeti.objects.disk import Disk
from ganeti.objects.filter_rule import FilterRule
from ganeti.objects.instance import Instance
from ganeti.objects.json_value import JsonValue
from ganeti.objects.network import Network
from ganeti.objects.node import Node
from ganeti.objects.nodegroup import NodeGroup
from ganeti.objects.query_words import QueryResource


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
    """The answer of one node to ``node_info``; a node that failed is None in `QueryView`."""

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


class LockState(msgspec.Struct, frozen=True, kw_only=True):
    """One lock: mode "shared" or "exclusive" (None if free), its owners, and who waits.

    ``pending`` holds [mode, [names of waiters]]; ``priorities`` [name of waiter, priority], the
    most urgent first.
    """

    name: str
    mode: str | None = None
    owners: Sequence[str] = ()
    pending: Sequence[tuple[str, Sequence[str]]] = ()
    priorities: Sequence[tuple[str, int]] = ()


class JobItem(msgspec.Struct, frozen=True):
    """A job, and whether it was found in the archive."""

    job: QueuedJob
    archived: bool = False


class Index(Protocol):
    """What a caller can tell without going through everything, as of the same instant."""

    @property
    def made(self) -> MutableMapping[str, Any]:
        """What queries made out of the configuration alone, by names of theirs."""

    def matching(self, resource: QueryResource, name: str) -> Sequence[str]:
        """Return the keys of all things of one kind that have a full or short name."""

    def ordered(self, resource: QueryResource) -> Sequence[str] | None:
        """Return the keys of all things of one kind in their order; None if it is not known."""

    def rows(
        self, resource: QueryResource, fields: tuple[str, ...]
    ) -> MutableMapping[str, Raw] | None:
        """Return where encoded rows of these fields are kept by key; None if they are not.

        Only for fields of the configuration.  Rows that are there are right; others go in.
        """


class QueryView(Protocol):
    """What a query reads; every part may be empty unless the plan needs it.

    A key that is missing in a live table means the same as None: asked, but no answer.  Nodes that
    are marked offline need not be in them.
    """

    @property
    def cluster(self) -> Cluster:
        """The cluster."""

    @property
    def nodes(self) -> Mapping[NodeUuid, Node]:
        """All nodes."""

    @property
    def groups(self) -> Mapping[GroupUuid, NodeGroup]:
        """All node groups."""

    @property
    def instances(self) -> Mapping[InstanceUuid, Instance]:
        """All instances."""

    @property
    def disks(self) -> Mapping[DiskUuid, Disk]:
        """All disks."""

    @property
    def networks(self) -> Mapping[NetworkUuid, Network]:
        """All networks."""

    @property
    def filters(self) -> Mapping[str, FilterRule]:
        """All job filters."""

    @property
    def index(self) -> Index | None:
        """What is known about the tables; without it everything is gone through."""

    @property
    def node_live(self) -> Mapping[NodeUuid, NodeLive | None]:
        """Answers to ``node_info`` (need: node_live)."""

    @property
    def instance_live(self) -> Mapping[NodeUuid, Mapping[str, InstanceLive] | None]:
        """Answers to ``all_instances_info``, by node (need: instance_live)."""

    @property
    def consoles(self) -> Mapping[InstanceUuid, InstanceConsole | None]:
        """Answers to ``instance_console_info`` (need: console)."""

    @property
    def jobs(self) -> Mapping[JobId, JobItem]:
        """Jobs (need: jobs)."""

    @property
    def locks(self) -> Sequence[LockState]:
        """All locks (need: locks)."""

    @property
    def exports(self) -> Mapping[NodeUuid, Sequence[str] | None]:
        """Answers to ``export_list`` (need: exports)."""

    @property
    def rows(self) -> Sequence[Mapping[str, object]]:
        """Ready values by field name, for cluster, os and extstorage (need: rows)."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A `QueryView` made of plain values."""

    cluster: Cluster
    nodes: Mapping[NodeUuid, Node] = {}
    groups: Mapping[GroupUuid, NodeGroup] = {}
    instances: Mapping[InstanceUuid, Instance] = {}
    disks: Mapping[DiskUuid, Disk] = {}
    networks: Mapping[NetworkUuid, Network] = {}
    filters: Mapping[str, FilterRule] = {}
    index: Index | None = None
    node_live: Mapping[NodeUuid, NodeLive | None] = {}
    instance_live: Mapping[NodeUuid, Mapping[str, InstanceLive] | None] = {}
    consoles: Mapping[InstanceUuid, InstanceConsole | None] = {}
    jobs: Mapping[JobId, JobItem] = {}
    locks: Sequence[LockState] = ()
    exports: Mapping[NodeUuid, Sequence[str] | None] = {}
    rows: Sequence[Mapping[str, JsonValue]] = ()

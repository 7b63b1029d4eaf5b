"""The cluster as placement sees it: groups, nodes, instances.  Memory and disk are MiB.

These records do not change; a node's free resources are in `ganeti.allocation.load`.  They are
Structs, as ten thousands of them are made while a job waits, and so does the start of the program.

Source: iallocator.json, "nodegroup", "node" and "instance"; manual pages hail(1) and hbal(1).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from msgspec import Struct

from ganeti.objects.disk_templates import DiskTemplate, Mirroring
from ganeti.objects.instance_policy import InstanceSpec
from ganeti.objects.model import AllocPolicy

NO_TAGS: Final[frozenset[str]] = frozenset()


class Group(Struct, frozen=True):
    """A node group; ``ipolicy`` is filled, ``networks`` are UUIDs."""

    uuid: str
    name: str
    alloc_policy: AllocPolicy
    networks: frozenset[str]
    ipolicy: Mapping[str, Any]
    vcpu_ratio: float
    spindle_ratio: float
    tags: tuple[str, ...] = ()


class Utilisation(NamedTuple):
    """The dynamic load of an instance, or the sum of those on a node, in units of the operator."""

    cpu: float
    memory: float
    disk: float
    network: float


STANDARD_LOAD: Final = Utilisation(1.0, 1.0, 1.0, 1.0)
NO_LOAD: Final = Utilisation(0.0, 0.0, 0.0, 0.0)


class InstanceStatus(StrEnum):
    """The state of an instance as listed, as far as placement distinguishes it."""

    RUNNING = "running"
    ERROR_UP = "ERROR_up"
    ERROR_DOWN = "ERROR_down"
    ERROR_NODE_DOWN = "ERROR_nodedown"
    ERROR_NODE_OFFLINE = "ERROR_nodeoffline"
    ERROR_WRONG_NODE = "ERROR_wrongnode"
    USER_DOWN = "USER_down"
    ADMIN_DOWN = "ADMIN_down"
    ADMIN_OFFLINE = "ADMIN_offline"


IDLE: Final = (
    InstanceStatus.ERROR_DOWN,
    InstanceStatus.USER_DOWN,
    InstanceStatus.ADMIN_DOWN,
    InstanceStatus.ADMIN_OFFLINE,
)
"""The states in which an instance is known to take no memory of its node."""


class Node(Struct, frozen=True):
    """A node.

    Attributes:
        is_usable: online, not drained, able to hold instances: a place for instances.
        own_memory: memory that the node uses itself.
        cpu_speed: compared with that of a usual node of the cluster.
        spindle_count: its spindles; with exclusive storage all that can be given away.
        address: IP address that its daemons have, where the source tells it.
        disk_min: room that has to stay free.
        own_cpu_load: measured CPU load of a node without instances that could cause it.
        spindles_max: how much spindle use its policy allows.
        cpu_power: its CPUs, each counted by its speed.
        vcpus_max: how many virtual CPUs its policy allows.
        own_cpus: CPUs that the node uses itself.
        locations: tags of the failure domains that it is in.
        migration_tags: tags that a target must have too for a migration from here.
        accepts: tags of migration sources that may come here.
    """

    name: str
    group: str
    is_usable: bool
    total_memory: int = 0
    total_disk: int = 0
    own_cpus: int = 0
    cpu_power: float = 0.0
    vcpus_max: float = 0.0
    spindles_max: float = 0.0
    exclusive_storage: bool = False
    locations: frozenset[str] = NO_TAGS
    migration_tags: frozenset[str] = NO_TAGS
    accepts: frozenset[str] = NO_TAGS
    is_offline: bool = False
    own_memory: int = 0
    cpus: int = 0
    cpu_speed: float = 1.0
    spindle_count: int = 1
    is_master: bool = False
    own_cpu_load: float = 0.0
    address: str = ""
    disk_min: int = 0
    tags: tuple[str, ...] = ()

    def accepts_from(self, source: Node) -> bool:
        """Tell whether the tags allow a migration from that node to this one."""
        return source.migration_tags <= self.accepts


class Instance(Struct, frozen=True):
    """An instance, where it is or is to be.

    Attributes:
        memory: its size when it runs.
        running_memory: the same if it takes its memory now, else 0.
        kept_memory: memory that its secondary node keeps for it; 0 for one that is set offline or
            not balanced automatically.
        vcpus: its virtual CPUs; 0 while it is set offline.
        disk: room in the volume group of each of its nodes, with metadata; 0 for other storage.
        file_disk: room among the files of its node.
        spindle_use: load on the spindles of each of its nodes.
        spindles: dedicated ones, for exclusive storage.
        spec: the sizes that policies look at.
        exclusion_tags: no two instances with one of these belong on one node.
        wishes: tags of nodes that it would like to be on.
        load: its dynamic utilisation.
        is_forthcoming: reserved and not made yet.
        is_movable: may be moved; an operator may exclude it.
    """

    name: str
    template: DiskTemplate
    memory: int
    running_memory: int
    vcpus: int
    disk: int
    spindle_use: int
    spindles: int
    spec: InstanceSpec
    nodes: tuple[str, ...] = ()
    exclusion_tags: frozenset[str] = NO_TAGS
    wishes: frozenset[str] = NO_TAGS
    networks: frozenset[str] = NO_TAGS
    kept_memory: int = 0
    file_disk: int = 0
    load: Utilisation = STANDARD_LOAD
    has_unknown_spindles: bool = False
    status: InstanceStatus = InstanceStatus.RUNNING
    is_forthcoming: bool = False
    is_auto_balanced: bool = True
    is_movable: bool = True
    tags: tuple[str, ...] = ()

    @property
    def primary(self) -> str:
        """Name of its primary node."""
        return self.nodes[0]

    @property
    def secondary(self) -> str | None:
        """Name of its secondary node, if it has one."""
        return self.nodes[1] if len(self.nodes) > 1 else None

    @property
    def idle_memory(self) -> int:
        """Memory (MiB) that it would take from its node once it runs."""
        return self.memory - self.running_memory

    @property
    def mirroring(self) -> Mirroring:
        """How its disks are kept on more than one node, and so how it can get to another."""
        return self.template.traits.mirroring

    @property
    def node_count(self) -> int:
        """How many nodes it needs."""
        return self.template.traits.node_count


class Rules(Struct, frozen=True):
    """The checks of a placement.

    Attributes:
        ignores_soft: leave out ratios of CPUs and spindles, exclusion tags and N+1 of mirrors.
        checks_capacity: each node's instances must be able to restart when it fails.
        only: the only nodes to consider, if not all.
    """

    ignores_soft: bool = False
    checks_capacity: bool = True
    only: frozenset[str] | None = None

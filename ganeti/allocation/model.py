"""The cluster as placement sees it: groups, nodes, instances.  Memory and disk are MiB.

These records do not change; a node's free resources are in `ganeti.allocation.load`.  They are
Structs, as ten thousands of them are made while a job waits, and so does the start of the program.

Source: iallocator.json, "nodegroup", "node" and "instance"; manual pages hail(1) and hbal(1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
    ipolicy: Mapping[str, object]
    vcpu_ratio: float
    spindle_ratio: float


class Node(Struct, frozen=True):
    """A node.

    Attributes:
        is_usable: online, not drained, able to hold instances: a place for instances.
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

    def accepts_from(self, source: Node) -> bool:
        """Tell whether the tags allow a migration from that node to this one."""
        return source.migration_tags <= self.accepts


class Instance(Struct, frozen=True):
    """An instance, where it is or is to be.

    Attributes:
        memory: its size when it runs; 0 while it is set offline.
        running_memory: the same if it is meant to run now, else 0.
        vcpus: its virtual CPUs; 0 while it is set offline.
        disk: room on each of its nodes, with metadata; 0 for storage outside the nodes.
        spindle_use: load on the spindles of each of its nodes.
        spindles: dedicated ones, for exclusive storage.
        spec: the sizes that policies look at.
        exclusion_tags: no two instances with one of these belong on one node.
        wishes: tags of nodes that it would like to be on.
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

    @property
    def primary(self) -> str:
        """Name of its primary node."""
        return self.nodes[0]

    @property
    def secondary(self) -> str | None:
        """Name of its secondary node, if it has one."""
        return self.nodes[1] if len(self.nodes) > 1 else None

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

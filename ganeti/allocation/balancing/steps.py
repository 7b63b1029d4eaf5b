"""The ways in which an instance can move within its group, and what each comes to.

An instance with a mirror can change roles between its two nodes (``f``), or one of both can be
replaced by a third node (``r:NODE``), with changes of roles before and after.  One on storage that
every node reaches can run anywhere (``fa:NODE``).  Others stay, and so do those that are not
balanced automatically.

A way is open if no node gets over a limit or further over it, if migration tags allow each change
of roles, and if no less could be restarted after the failure of any one node.

Source: manual page hbal(1), "Algorithm used" and "Output format".
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ganeti.allocation.model import Instance, Rules
from ganeti.allocation.moves import ReplaceSecondary, SwitchPrimary
from ganeti.allocation.state import ClusterState
from ganeti.objects.disk_templates import Mirroring

FAILOVER: Final = "f"


class Limits(Struct, frozen=True):
    """The moves that are wanted.

    Attributes:
        rules: the checks of each node.
        moves_disks: whether mirrors may be made on other nodes.
        moves_instances: whether instances may get another primary node.
        only_evacuates: move only what is on a node that is offline or drained.
        restricts_migration: migrate no instance twice, and where a mirror is made on another node
            only from a primary node that is drained or offline.
    """

    rules: Rules = Rules(checks_capacity=False)
    moves_disks: bool = True
    moves_instances: bool = True
    only_evacuates: bool = False
    restricts_migration: bool = False


class Step(Struct, frozen=True):
    """A move: the instance before and after, and by which actions it gets there.

    ``actions`` are in the order in which they are done: `FAILOVER`, ``r:NODE`` or ``fa:NODE``.
    """

    before: Instance
    after: Instance
    actions: tuple[str, ...]

    @property
    def parts(self) -> list[ReplaceSecondary | SwitchPrimary]:
        """The actions as allocators answer them."""
        found: list[ReplaceSecondary | SwitchPrimary] = []
        for action in self.actions:
            kind, _, node = action.partition(":")
            found.append(ReplaceSecondary(node) if kind == "r" else SwitchPrimary(node or None))
        return found

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that it changes."""
        return frozenset((*self.before.nodes, *self.after.nodes))


def is_candidate(instance: Instance, cluster: ClusterState, group: str, limits: Limits) -> bool:
    """Tell whether an instance could move at all within a group."""
    nodes = [cluster.nodes[name] for name in instance.nodes]
    return (
        instance.is_movable
        and instance.is_auto_balanced
        and not instance.is_forthcoming
        and instance.mirroring is not Mirroring.NONE
        and len(nodes) == instance.node_count
        and all(node.group == group for node in nodes)
        and (not limits.only_evacuates or not all(node.is_usable for node in nodes))
    )


def actions_of(before: Instance, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the actions that bring an instance to other nodes, not both of them new."""
    if before.secondary is None:
        return (f"fa:{nodes[0]}",)
    old = set(before.nodes)
    if old == set(nodes):
        return (FAILOVER,)
    (new,) = set(nodes) - old
    # The node that is left must not be the primary one while its mirror is replaced.
    first = (FAILOVER,) if before.primary not in nodes else ()
    runs_on = before.secondary if first else before.primary
    last = (FAILOVER,) if nodes[0] != runs_on else ()
    return (*first, f"r:{new}", *last)

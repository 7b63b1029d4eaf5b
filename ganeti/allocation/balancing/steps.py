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

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ganeti.allocation.limits import Redundancy, obstacle
from ganeti.allocation.model import Instance, Node, Rules
from ganeti.allocation.state import ClusterState, GroupState
from ganeti.objects.disk_templates import Mirroring

FAILOVER: Final = "f"


class Limits(Struct, frozen=True):
    """The moves that are wanted.

    Attributes:
        rules: the checks of each node.
        moves_disks: whether mirrors may be made on other nodes.
        moves_instances: whether instances may get another primary node.
        only_evacuates: move only what is on a node that is offline or drained.
    """

    rules: Rules = Rules(checks_capacity=False)
    moves_disks: bool = True
    moves_instances: bool = True
    only_evacuates: bool = False


class Step(Struct, frozen=True):
    """A move: the instance before and after, and by which actions it gets there.

    ``actions`` are in the order in which they are done: `FAILOVER`, ``r:NODE`` or ``fa:NODE``.
    """

    before: Instance
    after: Instance
    actions: tuple[str, ...]

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that it changes."""
        return frozenset((*self.before.nodes, *self.after.nodes))

    def applied(self, cluster: ClusterState) -> ClusterState:
        """Return the state of the cluster after it."""
        return cluster.without_instance(self.before).with_instance(self.after)


class Option(Struct, frozen=True):
    """A step that is open, and the group after it."""

    step: Step
    state: GroupState


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


def options_of(state: GroupState, instance: Instance, limits: Limits) -> Iterator[Option]:
    """Yield the steps that are open to an instance that `is_candidate`; `keeps_redundancy` is the
    caller's to ask of the one that it takes.
    """
    for nodes, actions in _ways(state, instance, limits):
        after = _arrived(state, instance, nodes, limits.rules)
        if after is not None:
            yield Option(Step(instance, replace(instance, nodes=nodes), actions), after)


def keeps_redundancy(state: GroupState, option: Option) -> bool:
    """Tell whether as much as before could be restarted elsewhere if any one node failed.

    To get away from a node that is offline or drained is worth more than that.
    """
    if not all(state.loads[name].node.is_usable for name in option.step.before.nodes):
        return True
    changes = {name: option.state.loads[name] for name in option.step.nodes}
    return not Redundancy(state.loads).gets_worse(changes)


_Way = tuple[tuple[str, ...], tuple[str, ...]]


def _ways(state: GroupState, instance: Instance, limits: Limits) -> Iterator[_Way]:
    """Yield pairs of nodes, and the actions by which the instance gets there."""
    usable = [load.node for load in state.loads.values() if load.node.is_usable]
    targets = [node for node in usable if node.name not in instance.nodes]
    primary = state.loads[instance.primary].node
    if instance.secondary is None:
        for node in targets:
            if limits.moves_instances and _migrates(primary, node):
                yield (node.name,), (f"fa:{node.name}",)
        return
    secondary = state.loads[instance.secondary].node
    p, s = instance.nodes
    runs_there = secondary.is_usable and _migrates(primary, secondary) and limits.moves_instances
    if runs_there:
        yield (s, p), (FAILOVER,)
    # The secondary node runs the instance for a while.
    between = runs_there and _can_run(state, instance, secondary, limits.rules)
    for node in targets if limits.moves_disks else ():
        t = node.name
        replaced = f"r:{t}"
        if not primary.is_offline:  # else there is nothing to copy from
            yield (p, t), (replaced,)
            if limits.moves_instances and _migrates(primary, node):
                yield (t, p), (replaced, FAILOVER)
        if runs_there:
            yield (s, t), (FAILOVER, replaced)
        if between and _migrates(secondary, node):
            yield (t, s), (FAILOVER, replaced, FAILOVER)


def _migrates(source: Node, target: Node) -> bool:
    return source.is_offline or target.accepts_from(source)


def _can_run(state: GroupState, instance: Instance, node: Node, rules: Rules) -> bool:
    load = state.loads[node.name].with_secondary(instance, instance.primary, -1)
    after = load.with_primary(instance, state.loads[instance.primary].node)
    return obstacle(load, after, rules) is None


def _arrived(
    state: GroupState, instance: Instance, nodes: tuple[str, ...], rules: Rules
) -> GroupState | None:
    """Return the group with the instance on other nodes, unless a limit forbids it."""
    loads = state.loads
    changed = {name: loads[name] for name in (*instance.nodes, *nodes)}
    for names, sign in ((instance.nodes, -1), (nodes, 1)):
        first, *rest = names
        second = loads[rest[0]].node if rest else None
        changed[first] = changed[first].with_primary(instance, second, sign)
        if second is not None:
            changed[second.name] = changed[second.name].with_secondary(instance, first, sign)
    for name in nodes:
        if obstacle(loads[name], changed[name], rules) is not None:
            return None
    after = state.with_loads(changed).with_clashes(instance, loads[instance.primary].node, -1)
    return after.with_clashes(instance, loads[nodes[0]].node, 1)

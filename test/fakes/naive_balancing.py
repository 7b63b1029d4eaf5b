"""The moves of balancing as they are told, one after the other: slow and obvious."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from ganeti.allocation.balancing.steps import FAILOVER, Limits, Step, is_candidate
from ganeti.allocation.limits import Redundancy, obstacle
from ganeti.allocation.model import Instance, Node, Rules
from ganeti.allocation.state import ClusterState, GroupState


class Option(Struct, frozen=True):
    """A step that is open, and the group after it."""

    step: Step
    state: GroupState


def options_of(state: GroupState, instance: Instance, limits: Limits) -> Iterator[Option]:
    """Yield the steps that are open to an instance, whether or not they keep redundancy."""
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
    between = between and not limits.restricts_migration
    copies_first = limits.moves_instances
    if limits.restricts_migration:
        copies_first = copies_first and not primary.is_usable
    for node in targets if limits.moves_disks else ():
        t = node.name
        replaced = f"r:{t}"
        if not primary.is_offline:  # else there is nothing to copy from
            yield (p, t), (replaced,)
            if copies_first and _migrates(primary, node):
                yield (t, p), (replaced, FAILOVER)
        if runs_there and (not limits.restricts_migration or not primary.is_usable):
            yield (s, t), (FAILOVER, replaced)
        if between and _migrates(secondary, node):
            yield (t, s), (FAILOVER, replaced, FAILOVER)


def _migrates(source: Node, target: Node) -> bool:
    return source.is_offline or target.accepts_from(source)


def _can_run(state: GroupState, instance: Instance, node: Node, rules: Rules) -> bool:
    load = state.loads[node.name]
    after = load.with_secondary(instance, instance.primary, -1)
    after = after.with_primary(instance, state.loads[instance.primary].node)
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


def best_option(cluster: ClusterState, group: str, limits: Limits) -> Option | None:
    """Return the step with the lowest score, if one is better than to stay."""
    state = cluster.groups[group]
    best, lowest = None, state.exact_score - 1e-7
    for instance in cluster.instances.values():
        if is_candidate(instance, cluster, group, limits):
            for option in options_of(state, instance, limits):
                score = option.state.exact_score
                if score < lowest - 1e-7 and keeps_redundancy(state, option):
                    best, lowest = option, score
    return best

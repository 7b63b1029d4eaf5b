"""Moves of instances away from nodes, with the steps for each.

Every instance is moved in the state that the moves before it leave behind.  The possible steps
depend on its disks: with mirrored ones it changes one of two nodes at a time, with shared ones it
can go anywhere, with local ones it stays.

Source: iallocator.json, "node-evacuate", "change-group" and "relocate"; manual page hail(1).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from ganeti.allocation.limits import obstacle
from ganeti.allocation.model import Instance, Node, Rules
from ganeti.allocation.placing import Outcome, choose_group, find_place, find_secondary
from ganeti.allocation.state import ClusterState
from ganeti.base.errors import GenericError
from ganeti.objects.allocation_modes import EvacMode
from ganeti.objects.disk_templates import Mirroring


class CannotMove(GenericError):
    """There is no way for an instance; the text says why."""


class SwitchPrimary(Struct, frozen=True):
    """Migrate or fail over; to the secondary node, or to the one given."""

    target: str | None = None


class ReplaceSecondary(Struct, frozen=True):
    """Make the mirror on another node."""

    node: str


Step = SwitchPrimary | ReplaceSecondary


class Move(Struct, frozen=True):
    """Where an instance goes, by which steps, and the state of the cluster after that."""

    instance: Instance
    group: str
    steps: tuple[Step, ...]
    after: ClusterState


def evacuate(cluster: ClusterState, instance: Instance, mode: EvacMode, rules: Rules) -> Move:
    """Take an instance away from its primary node, its secondary node or both, within its group.

    Raises:
        CannotMove: there is no way.
    """
    _check_movable(cluster, instance)
    # Getting away is worth more than that everything could be restarted once again.
    rules = replace(rules, checks_capacity=False)
    without = cluster.without_instance(instance)
    if instance.mirroring is Mirroring.EXTERNAL:
        if mode is EvacMode.SECONDARY_ONLY:
            raise CannotMove(
                f"with disk template {instance.template} it has no secondary node to leave"
            )
        return move_shared(cluster, instance, rules)
    if mode is EvacMode.PRIMARY_ONLY:
        return _switch(without, instance, rules)
    if mode is EvacMode.SECONDARY_ONLY:
        return replace_secondary(cluster, instance, rules)
    state = without.group_of(instance.primary)
    outcome = find_place(
        state, instance, rules, excluded=instance.nodes, source=_migrates_from(without, instance)
    )
    return _move_pair(without, instance, _found(outcome), rules)


def change_group(
    cluster: ClusterState, instance: Instance, targets: Iterable[str], rules: Rules
) -> Move:
    """Take an instance to the best of other groups; no targets mean any.

    Raises:
        CannotMove: there is no way.
    """
    _check_movable(cluster, instance, across_groups=True)
    own = cluster.nodes[instance.primary].group
    wanted = list(targets)
    among = [uuid for uuid in wanted or cluster.groups if uuid != own]
    if not among:
        raise CannotMove("there is no other group that it may go to")
    without = cluster.without_instance(instance)
    source = _migrates_from(without, instance)
    choice = choose_group(without, instance, rules, among, is_explicit=bool(wanted), source=source)
    if choice.best is None:
        raise CannotMove(choice.text)
    if instance.mirroring is Mirroring.EXTERNAL:
        return _arrive(without, instance, choice.best, (SwitchPrimary(choice.best.nodes[0]),))
    return _move_pair(without, instance, choice.best, rules)


def replace_secondary(
    cluster: ClusterState, instance: Instance, rules: Rules, excluded: Iterable[str] = ()
) -> Move:
    """Find another secondary node for a mirrored instance.

    Raises:
        CannotMove: there is none.
    """
    primary = cluster.nodes[instance.primary]
    if primary.is_offline:
        raise CannotMove(
            f"its primary node {primary.name} is offline, so its disks cannot be copied from there;"
            f" use 'gnt-instance failover {instance.name}' first, if its secondary node is up"
        )
    without = cluster.without_instance(instance)
    state = without.group_of(primary.name)
    old = instance.nodes[1:]
    outcome = _found(find_secondary(state, instance, primary, rules, {*old, *excluded}))
    return _arrive(without, instance, outcome, (ReplaceSecondary(outcome.nodes[1]),))


def move_shared(
    cluster: ClusterState, instance: Instance, rules: Rules, excluded: Iterable[str] = ()
) -> Move:
    """Find another node for an instance on storage that every node reaches.

    Raises:
        CannotMove: there is none.
    """
    without = cluster.without_instance(instance)
    state = without.group_of(instance.primary)
    source, left = _migrates_from(without, instance), {*instance.nodes, *excluded}
    outcome = find_place(state, instance, rules, left, source=source)
    if not outcome.nodes and source is None:  # soft limits do not keep it down
        outcome = find_place(state, instance, replace(rules, ignores_soft=True), left)
    _found(outcome)
    return _arrive(without, instance, outcome, (SwitchPrimary(outcome.nodes[0]),))


def _switch(without: ClusterState, instance: Instance, rules: Rules) -> Move:
    """Let an instance run on its secondary node."""
    primary, secondary = instance.nodes
    _check_can_run(without, instance, secondary, rules)
    state = without.group_of(primary)
    outcome = Outcome(state, nodes=(secondary, primary))
    return _arrive(without, instance, outcome, (SwitchPrimary(),))


def _move_pair(without: ClusterState, instance: Instance, outcome: Outcome, rules: Rules) -> Move:
    """Bring a mirrored instance to two nodes, none of them its primary node."""
    kept = instance.nodes[1]  # it may stay, if it is in another group than the primary node
    first, second = outcome.nodes
    is_switched = without.nodes[instance.primary].is_offline
    if is_switched:  # it must run before it can be copied
        _check_can_run(without, instance, kept, rules)
    steps: list[Step] = [SwitchPrimary()] if is_switched or kept == first else []
    if kept != first:
        steps += [ReplaceSecondary(first), SwitchPrimary()]
    if not (is_switched and kept == second):  # then it is the secondary node by that switch
        steps.append(ReplaceSecondary(second))
    return _arrive(without, instance, outcome, tuple(steps))


def _arrive(
    without: ClusterState, instance: Instance, outcome: Outcome, steps: tuple[Step, ...]
) -> Move:
    moved = replace(instance, nodes=outcome.nodes)
    return Move(moved, outcome.state.group.name, steps, without.with_instance(moved))


def _found(outcome: Outcome) -> Outcome:
    if not outcome.nodes:
        raise CannotMove(f"group {outcome.state.group.name}: {outcome.reasons()}")
    return outcome


def _check_movable(
    cluster: ClusterState, instance: Instance, *, across_groups: bool = False
) -> None:
    if instance.mirroring is Mirroring.NONE:
        raise CannotMove(
            f"its disks (template {instance.template}) are on node {instance.primary} only;"
            f" use 'gnt-instance move {instance.name}' while that node is up"
        )
    if instance.mirroring is not Mirroring.INTERNAL:
        return
    if instance.secondary is None:
        raise CannotMove(f"with disk template {instance.template} it should have two nodes")
    groups = {cluster.nodes[name].group for name in instance.nodes}
    if len(groups) > 1 and not across_groups:
        raise CannotMove(
            f"its nodes {' and '.join(instance.nodes)} are in different groups;"
            f" 'gnt-instance change-group {instance.name}' brings it into one"
        )


def _check_can_run(without: ClusterState, instance: Instance, name: str, rules: Rules) -> None:
    """Refuse a mirrored instance's switch to its secondary node if that cannot have it.

    Of an instance whose primary node is offline the mirror is all that there is: soft limits do not
    keep it down.
    """
    primary = without.nodes[instance.primary]
    if primary.is_offline:
        rules = replace(rules, ignores_soft=True)
    load = without.load(name)
    if not load.node.is_usable:
        raise CannotMove(f"its secondary node {name} is offline, drained or not vm_capable")
    if not primary.is_offline and not load.node.accepts_from(primary):
        raise CannotMove(f"migration tags forbid a migration from {primary.name} to {name}")
    why = obstacle(load, load.with_primary(instance, primary), rules)
    if why is not None:
        raise CannotMove(f"its secondary node {name} cannot run it: {why}")


def _migrates_from(cluster: ClusterState, instance: Instance) -> Node | None:
    """Return the node that it would be migrated from; none if it is failed over."""
    node = cluster.nodes[instance.primary]
    return None if node.is_offline else node

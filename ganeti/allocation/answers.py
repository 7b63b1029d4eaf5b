"""From the model to an answer: one function for each mode of the allocator interface.

Source: iallocator.json, "result_per_mode" and "examples".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from ganeti.allocation import moves
from ganeti.allocation.capacity.search import Search, new_names
from ganeti.allocation.explaining import explain
from ganeti.allocation.model import STANDARD_LOAD, Instance, Rules, Utilisation
from ganeti.allocation.placing import GroupChoice, choose_group, find_secondary
from ganeti.allocation.questions import mirrored_size, new_instance
from ganeti.allocation.state import ClusterState
from ganeti.allocation.tags import TagMeanings
from ganeti.base.errors import GenericError
from ganeti.base.json import JsonValue
from ganeti.objects.disk_templates import DiskTemplate, Mirroring
from ganeti.protocol import iallocator as wire


class Answer(Struct, frozen=True):
    """An answer, and the state of the cluster once it was followed."""

    response: wire.AllocatorResponse
    after: ClusterState


class Question(Struct, frozen=True):
    """The state of the cluster, the meaning of its tags, and the rules for placements.

    ``load`` is the dynamic load that a new instance is expected to have.
    """

    cluster: ClusterState
    meanings: TagMeanings
    rules: Rules
    load: Utilisation = STANDARD_LOAD


def answer(question: Question, wanted: wire.Wanted) -> Answer:
    """Answer a question.

    Raises:
        GenericError: it asks about something that there is not, or makes no sense.
    """
    return _MODES[type(wanted)](question, wanted)


def _failure(question: Question, text: str) -> Answer:
    return Answer(wire.AllocatorResponse(success=False, info=text), question.cluster)


def _success(text: str, result: object, after: ClusterState) -> Answer:
    return Answer(wire.AllocatorResponse(success=True, info=text, result=result), after)


def _allocate(question: Question, wanted: wire.Allocate) -> Answer:
    choice, after = _place_new(question, wanted)
    if choice.best is None:
        return _failure(question, f"instance {wanted.name} fits nowhere: {choice.text}")
    text = f"instance {wanted.name} goes to {choice.text}"
    return _success(text, list(choice.best.nodes), after)


class _Wish(Struct, frozen=True):
    """A new instance, the rules for it, and the UUIDs of the groups that it may go to."""

    instance: Instance
    rules: Rules
    groups: list[str]
    is_explicit: bool


def _wish(question: Question, wanted: wire.NewInstance) -> _Wish:
    cluster, rules = question.cluster, question.rules
    if wanted.name in cluster.instances:
        raise GenericError(f"there is an instance {wanted.name!r} already")
    instance = new_instance(wanted, question.meanings, question.load)
    if wanted.required_nodes != instance.node_count:
        raise GenericError(
            f"instance {wanted.name!r}: {wanted.required_nodes} nodes are wanted, but disk template"
            f" {wanted.disk_template} needs {instance.node_count}"
        )
    if rules.only is None and isinstance(wanted.restrict_to_nodes, list):
        rules = replace(rules, only=frozenset(wanted.restrict_to_nodes))
    _check_known(rules.only or (), cluster.nodes, "node")
    groups = _groups_named(cluster, wanted.group_name)
    return _Wish(instance, rules, groups, wanted.group_name is not None)


def _place_new(question: Question, wanted: wire.NewInstance) -> tuple[GroupChoice, ClusterState]:
    cluster, wish = question.cluster, _wish(question, wanted)
    choice = choose_group(
        cluster, wish.instance, wish.rules, wish.groups, is_explicit=wish.is_explicit
    )
    if choice.best is None:
        return choice, cluster
    return choice, cluster.with_instance(replace(wish.instance, nodes=choice.best.nodes))


def explanation(question: Question, wanted: wire.Wanted, said: wire.AllocatorResponse) -> list[str]:
    """Return lines for people on an answer: of a new instance why it goes there, and not elsewhere.

    Other kinds of requests have the text of their answer only.
    """
    if not isinstance(wanted, wire.Allocate):
        return said.info.split("; ")
    wish = _wish(question, wanted)
    return explain(
        question.cluster,
        wish.instance,
        wish.rules,
        wish.groups,
        said.result,
        is_explicit=wish.is_explicit,
    )


def _groups_named(cluster: ClusterState, name: str | None) -> list[str]:
    """Return the UUIDs of the groups that an instance may go to."""
    if name is None:
        return list(cluster.groups)
    found = [uuid for uuid, each in cluster.groups.items() if name in (each.group.name, uuid)]
    if not found:
        raise GenericError(f"there is no node group {name!r}")
    return found


def _multi_allocate(question: Question, wanted: wire.MultiAllocate) -> Answer:
    placed: list[tuple[str, list[str]]] = []
    failed: list[str] = []
    texts: list[str] = []
    after = question.cluster
    for each in wanted.instances:
        choice, after = _place_new(replace(question, cluster=after), each)
        if choice.best is None:
            failed.append(each.name)
            texts.append(f"instance {each.name} fits nowhere: {choice.text}")
        else:
            placed.append((each.name, list(choice.best.nodes)))
    text = "; ".join([f"instances placed: {len(placed)}, not placed: {len(failed)}", *texts])
    return _success(text, [placed, failed], after)


def _relocate(question: Question, wanted: wire.Relocate) -> Answer:
    cluster = question.cluster
    instance = _instance(cluster, wanted.name)
    _check_known(wanted.relocate_from, cluster.nodes, "node")
    rules = replace(question.rules, checks_capacity=False)
    try:
        move = _relocation(cluster, instance, wanted.relocate_from, rules)
    except moves.CannotMove as err:
        return _failure(question, f"instance {wanted.name} cannot be relocated: {err.message}")
    result = move.instance.nodes[-1]
    return _success(f"instance {wanted.name} can go to {result}", [result], move.after)


def _relocation(
    cluster: ClusterState, instance: Instance, leaving: list[str], rules: Rules
) -> moves.Move:
    if instance.mirroring is Mirroring.NONE:
        raise moves.CannotMove(f"disk template {instance.template} has no second node")
    if instance.mirroring is Mirroring.EXTERNAL:
        return moves.move_shared(cluster, instance, rules, leaving)
    if leaving != [instance.secondary]:
        raise moves.CannotMove(
            f"only its secondary node {instance.secondary} can be replaced, not"
            f" {', '.join(leaving)}"
        )
    return moves.replace_secondary(cluster, instance, rules)


def _allocate_secondary(question: Question, wanted: wire.AllocateSecondary) -> Answer:
    cluster = question.cluster
    instance = _instance(cluster, wanted.name)
    if instance.secondary is not None:
        return _failure(
            question, f"instance {wanted.name} has a secondary node already: {instance.secondary}"
        )
    mirrored = replace(instance, template=DiskTemplate.DRBD, disk=mirrored_size(instance))
    without = cluster.without_instance(instance)
    state = without.group_of(instance.primary)
    rules = question.rules
    outcome = find_secondary(state, mirrored, cluster.nodes[instance.primary], rules)
    if not outcome.nodes:
        return _failure(
            question, f"instance {wanted.name}: no secondary node found: {outcome.reasons()}"
        )
    node = outcome.nodes[1]
    after = without.with_instance(replace(mirrored, nodes=outcome.nodes))
    return _success(f"instance {wanted.name} can have the secondary node {node}", node, after)


def _node_evacuate(question: Question, wanted: wire.NodeEvacuate) -> Answer:
    def move(cluster: ClusterState, instance: Instance) -> moves.Move:
        return moves.evacuate(cluster, instance, wanted.evac_mode, question.rules)

    return _move_all(question, wanted.instances, move)


def _change_group(question: Question, wanted: wire.ChangeGroup) -> Answer:
    _check_known(wanted.target_groups, question.cluster.groups, "node group")

    def move(cluster: ClusterState, instance: Instance) -> moves.Move:
        return moves.change_group(cluster, instance, wanted.target_groups, question.rules)

    return _move_all(question, wanted.instances, move)


def _move_all(
    question: Question, names: Iterable[str], move: Callable[[ClusterState, Instance], moves.Move]
) -> Answer:
    """Move instances one after the other, each in the state that those before it leave."""
    after = question.cluster
    instances = [_instance(after, name) for name in dict.fromkeys(names)]
    moved: list[tuple[str, str, list[str]]] = []
    failed: list[tuple[str, str]] = []
    jobs: list[list[dict[str, JsonValue]]] = []
    for instance in instances:
        try:
            done = move(after, instance)
        except moves.CannotMove as err:
            failed.append((instance.name, err.message))
            continue
        after = done.after
        moved.append((instance.name, done.group, list(done.instance.nodes)))
        jobs.append([opcode(instance.name, step) for step in done.steps])
    text = f"instances that can be moved: {len(moved)}, that cannot: {len(failed)}"
    return _success(text, [moved, failed, jobs], after)


def opcode(instance: str, step: moves.Step) -> dict[str, JsonValue]:
    """Return the opcode that carries a step out, in its JSON form."""
    if isinstance(step, moves.SwitchPrimary):
        fields: dict[str, JsonValue] = {
            "OP_ID": "OP_INSTANCE_MIGRATE",
            "instance_name": instance,
            "allow_runtime_changes": False,
            "ignore_ipolicy": False,
            "cleanup": False,
            "allow_failover": True,
            "ignore_hvversions": True,
        }
        return fields if step.target is None else {**fields, "target_node": step.target}
    return {
        "OP_ID": "OP_INSTANCE_REPLACE_DISKS",
        "instance_name": instance,
        "early_release": False,
        "ignore_ipolicy": False,
        "mode": "replace_new_secondary",
        "disks": [],
        "remote_node": step.node,
    }


def _capacity(question: Question, wanted: wire.Capacity) -> Answer:
    names = new_names(wanted.name, 1)
    free = next(name for name in names if name not in question.cluster.instances)
    wish = _wish(question, replace(wanted, name=free))
    search = Search(wish.rules, wish.groups, wish.is_explicit)
    names = new_names(wanted.name, 1)
    filled = search.fill(question.cluster, wish.instance, names, wanted.count_max)
    places = [list(each.nodes) for each in filled.placed]
    then = f"; then {filled.text}" if filled.text else ", as many as were asked for"
    return _success(f"more instances that fit: {len(places)}{then}", places, filled.after)


def _balance(question: Question, wanted: wire.Balance) -> Answer:
    from ganeti.allocation.balancing import search  # its arrays take a tenth of a second to load

    cluster = question.cluster
    _check_known(wanted.groups, cluster.groups, "node group")
    groups = wanted.groups or list(cluster.groups)
    done, after = search.search_groups(cluster, groups, question.rules, wanted.moves_max)
    moved = {step.after.name: (uuid, step.after) for uuid, step in done}  # the last place of each
    names = {uuid: cluster.groups[uuid].group.name for uuid in groups}
    scores = "; ".join(
        f"group {name}: score {cluster.groups[uuid].exact_score:.6f},"
        f" then {after.groups[uuid].exact_score:.6f}"
        for uuid, name in names.items()
    )
    return _success(
        f"moves that make it better: {len(done)}; {scores}",
        [
            [(name, names[uuid], list(each.nodes)) for name, (uuid, each) in moved.items()],
            [],
            [[opcode(step.after.name, part) for part in step.parts] for _, step in done],
        ],
        after,
    )


def _instance(cluster: ClusterState, name: str) -> Instance:
    found = cluster.instances.get(name)
    if found is None:
        raise GenericError(f"there is no instance {name!r}")
    return found


def _check_known(names: Iterable[str], known: Mapping[str, object], what: str) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise GenericError(f"there is no {what} {unknown[0]!r}")


_MODES: Final[Mapping[type, Callable[[Question, Any], Answer]]] = {
    wire.Allocate: _allocate,
    wire.AllocateSecondary: _allocate_secondary,
    wire.Balance: _balance,
    wire.Capacity: _capacity,
    wire.ChangeGroup: _change_group,
    wire.MultiAllocate: _multi_allocate,
    wire.NodeEvacuate: _node_evacuate,
    wire.Relocate: _relocate,
}

"""How many more instances fit, and the moves that balance groups."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.allocator_questions import Draw, Json, decoded, group, instance, new, node, question

from ganeti.allocation.answers import Answer, Question, answer
from ganeti.allocation.model import Rules
from ganeti.allocation.questions import state_of
from ganeti.allocation.tags import meanings_of
from ganeti.base.errors import GenericError
from ganeti.protocol.iallocator import AllocatorRequest


def asked(content: Json) -> tuple[AllocatorRequest, Answer]:
    request = decoded(content)
    state = state_of(request)
    return request, answer(
        Question(state, meanings_of(request.cluster_tags), Rules()), request.request
    )


def capacity(count_max: int = 100, **kind: Any) -> Json:
    return new("more", **kind) | {"type": "capacity", "count_max": count_max}


def balance(moves_max: int = 20, groups: tuple[str, ...] = ()) -> Json:
    return {"type": "balance", "groups": list(groups), "moves_max": moves_max}


# Capacity.


@pytest.mark.shows("2.1/capacity/capacity")
def test_as_many_fit_as_single_creations_would_find_places_for() -> None:
    nodes = {"a": node(), "b": node(free_memory=5500), "c": node(free_memory=3200)}
    content = question(capacity(memory=1500), nodes)
    _, found = asked(content)
    places: list[list[str]] = found.response.result
    assert len(places) == len(found.after.instances) > 3
    assert places[0] == ["a", "b"]
    # The slow way: one question after the other, about the cluster as it is by then.
    there: dict[str, Json] = {}
    for names in [*places, []]:
        now = {}
        for name, each in nodes.items():
            primaries = [i for i in there.values() if i["nodes"][0] == name]
            disks = [i["disk_space_total"] for i in there.values() if name in i["nodes"]]
            free = {"free_memory": each["free_memory"] - 1500 * len(primaries)}
            now[name] = {**each, **free, "free_disk": 100000 - sum(disks)}
        _, single = asked(question(new(memory=1500), now, there))
        assert single.response.result == names
        there[f"more-{len(there) + 1}"] = instance(names, memory=1500)
    assert "; then group default: 3 nodes to choose from, refused " in found.response.info


def test_no_more_are_counted_than_were_asked_for() -> None:
    _, found = asked(question(capacity(5, template="plain", memory=10), {"a": node()}))
    assert found.response.result == [["a"]] * 5
    assert found.response.info == "more instances that fit: 5, as many as were asked for"
    _, none = asked(question(capacity(memory=20000), {"a": node(), "b": node()}))
    assert (none.response.success, none.response.result) == (True, [])
    assert none.response.info.startswith("more instances that fit: 0; then group default: 2 nodes")


def test_names_that_are_taken_are_passed_over() -> None:
    there = {"more-1": instance(["a"], "plain")}
    nodes = {"a": node(free_memory=9000)}
    _, found = asked(question(capacity(2, template="plain"), nodes, there))
    assert set(found.after.instances) == {"more-1", "more-2", "more-3"}


# Balance.


def crowded(template: str = "drbd", count: int = 6) -> tuple[dict[str, Json], dict[str, Json]]:
    """All instances are on a, with their mirrors, if any, on b; c and d are empty."""
    where = ["a", "b"] if template == "drbd" else ["a"]
    instances = {f"i{number}": instance(where, template) for number in range(count)}
    room = 100000 - sum(each["disk_space_total"] for each in instances.values())
    nodes = {
        "a": node(free_memory=10000 - 1000 * count, free_disk=room),
        "b": node(free_disk=room if template == "drbd" else 100000),
        "c": node(),
        "d": node(),
    }
    return nodes, instances


@pytest.mark.shows("2.1/balance/balance")
@pytest.mark.parametrize("template", ["drbd", "ext"])
def test_instances_are_spread_over_the_nodes(template: str) -> None:
    request, found = asked(question(balance(), *crowded(template)))
    before, after = (state.groups["g1"] for state in (state_of(request), found.after))
    assert after.score < before.score / 2
    primaries = [each.primary for each in found.after.instances.values()]
    assert max(map(primaries.count, "abcd")) <= 2
    moved, failed, jobs = found.response.result
    assert not failed
    assert len(jobs) <= 20
    assert {name: list(found.after.instances[name].nodes) for name, _, _ in moved} == {
        name: nodes for name, _, nodes in moved
    }
    if template == "ext":
        assert {op["OP_ID"] for job in jobs for op in job} == {"OP_INSTANCE_MIGRATE"}


def test_each_move_makes_it_better_and_the_best_come_first() -> None:
    content = question(balance(), *crowded())
    scores = []
    for count in range(5):
        _, found = asked({**content, "request": balance(count)})
        assert len(found.response.result[2]) == count
        scores.append(found.after.groups["g1"].score)
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 5


def test_a_balanced_cluster_is_left_alone() -> None:
    nodes = {name: node(free_memory=9000, free_disk=100000) for name in "abc"}
    instances = {f"i{name}": instance([name], "ext") for name in "abc"}
    _, found = asked(question(balance(), nodes, instances))
    assert found.response.result == [[], [], []]
    assert found.response.info.startswith("moves that make it better: 0; group default: score ")


def test_groups_are_balanced_for_themselves() -> None:
    nodes, instances = crowded("ext")
    second = {f"{name}2": {**each, "group": "g2"} for name, each in nodes.items()}
    others = {f"{name}2": {**each, "nodes": ["a2"]} for name, each in instances.items()}
    groups = {"g1": group(), "g2": group("second")}
    content = question(balance(4, ("g2",)), nodes | second, instances | others, groups)
    _, found = asked(content)
    assert {name[-1] for name, _, _ in found.response.result[0]} == {"2"}
    assert {each.primary[-1] for each in found.after.instances.values()} >= {"a", "2"}
    _, both = asked({**content, "request": balance(4)})
    assert {group for _, group, _ in both.response.result[0]} == {"default", "second"}
    with pytest.raises(GenericError, match="no node group 'g3'"):
        asked({**content, "request": balance(4, ("g3",))})


@pytest.mark.parametrize("seed", range(8))
def test_any_cluster_gets_no_worse_and_no_limit_is_broken(seed: int) -> None:
    nodes, instances = Draw(seed).cluster(6, 25, odd=0.1)
    request, found = asked(question(balance(5), nodes, instances))
    before = state_of(request)
    assert found.after.groups["g1"].score <= before.groups["g1"].score
    assert len(found.response.result[2]) <= 5
    for name, load in found.after.groups["g1"].loads.items():
        old = before.load(name)
        assert load.free_memory > 0 or load.free_memory >= old.free_memory
        assert load.free_disk > 0 or load.free_disk >= old.free_disk

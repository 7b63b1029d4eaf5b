"""The place that is found is allowed, is the best of those allowed, and is found whenever there is one."""

from __future__ import annotations

from itertools import permutations

import pytest
from fakes.allocator_questions import Draw, Json, decoded, new, node, question
from fakes.chance import seed
from fakes.naive_placement import as_existing, feasible_places, with_instance
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ganeti.allocation.answers import Question, answer
from ganeti.allocation.model import Rules
from ganeti.allocation.questions import new_instance, state_of
from ganeti.allocation.tags import meanings_of
from ganeti.protocol.iallocator import AllocatorResponse

CLOSE = 1e-9
TAGS = ("service:a", "service:b", "other")
seeds = st.integers(min_value=0, max_value=1 << 30).map(lambda number: number + seed())


def ask(content: Json, rules: Rules | None = None) -> AllocatorResponse:
    request = decoded(content)
    asked = Question(state_of(request), meanings_of(request.cluster_tags), rules or Rules())
    return answer(asked, request.request).response


def score(content: Json) -> float:
    (state,) = state_of(decoded(content)).groups.values()
    return state.score


def draw_question(number: int, *, full: bool) -> Json:
    draw = Draw(number)
    nodes, instances = draw.cluster(
        draw.random.randint(1, 6),
        draw.random.randint(0, 25 if full else 8),
        states=("up", "up", "up", "down", "offline"),
        tags=TAGS,
        odd=0.15,
        memory=(8000, 12000) if full else (16000, 32000),
    )
    wish = draw.wish() | {"tags": draw.random.sample(TAGS, draw.random.randint(0, 2))}
    return question(wish, nodes, instances, cluster_tags=["htools:iextags:service"])


@given(seeds, st.booleans(), st.booleans())
@settings(max_examples=150)
def test_the_best_allowed_place_is_found_if_there_is_one(
    number: int, full: bool, capacity: bool
) -> None:
    content = draw_question(number, full=full)
    places = feasible_places(content, capacity=capacity)
    found = ask(content, Rules(checks_capacity=capacity))
    assert found.success == bool(places), found.info
    if not places:
        assert found.result == []
        return
    chosen = tuple(found.result)
    assert chosen in places
    scores = {
        nodes: score(with_instance(content, "new", as_existing(content["request"], nodes)))
        for nodes in places
    }
    assert scores[chosen] <= min(scores.values()) + CLOSE
    told = float(found.info.partition(", score ")[2].partition(";")[0])  # the incremental one
    assert told == pytest.approx(scores[chosen], abs=1e-6)


@given(seeds)
@settings(max_examples=40)
def test_the_order_of_nodes_and_instances_in_the_question_decides_nothing(number: int) -> None:
    content = draw_question(number, full=False)
    turned = content | {
        kind: dict(reversed(content[kind].items())) for kind in ("nodes", "instances")
    }
    assert ask(content) == ask(turned)


@given(seeds)
@settings(max_examples=40)
def test_pairs_that_are_cut_off_would_not_have_been_better(number: int) -> None:
    draw = Draw(number)
    nodes, instances = draw.cluster(
        14, draw.random.randint(0, 80), ("drbd",), memory=(64000, 96000)
    )
    for name in draw.random.sample(list(nodes), 6):
        nodes[name]["tags"] = ["rack:1"]
    wish = new(memory=draw.random.choice((700, 5000)), disk=draw.random.choice((3000, 9000)))
    content = question(wish, nodes, instances, cluster_tags=["htools:nlocation:rack"])
    request = decoded(content)
    state = state_of(request)
    wished = new_instance(request.request, meanings_of(request.cluster_tags))
    scores = {}
    for pair in permutations(nodes, 2):
        after = state.with_instance(replace(wished, nodes=pair))
        scores[pair] = after.groups["g1"].score
    found = ask(content, Rules(ignores_soft=True, checks_capacity=False))
    assert scores[tuple(found.result)] <= min(scores.values()) + CLOSE


def test_the_emptier_node_is_taken() -> None:
    nodes = {"a": node(free_memory=4000), "b": node(), "c": node(free_memory=5000)}
    assert ask(question(new(template="ext"), nodes)).result == ["b"]


def test_equal_nodes_are_taken_in_natural_order() -> None:
    nodes = {name: node() for name in ("node10", "node2", "node1")}
    assert ask(question(new(), nodes)).result == ["node1", "node2"]


def test_nodes_may_be_restricted_by_the_question_and_by_an_option() -> None:
    nodes = {name: node() for name in "abc"}
    content = question(new(template="plain", **{"restrict-to-nodes": ["c"]}), nodes)
    assert ask(content).result == ["c"]
    assert ask(content, Rules(only=frozenset("b"))).result == ["b"]


def test_a_refusal_counts_what_was_in_the_way_on_how_many_nodes() -> None:
    nodes = {
        "a": node(free_memory=100),
        "b": node(free_disk=100),
        "c": node(total_cpus=0),
        "d": node(drained=True),
    }
    found = ask(question(new(template="plain"), nodes))
    assert not found.success
    assert found.info == (
        "instance new fits nowhere: group default: 3 nodes to choose from, refused as primary node"
        " (memory: 1, disk: 1, virtual CPUs: 1); left out (drained or not vm_capable: 1)"
    )


def test_a_pair_is_refused_by_the_part_that_each_node_would_have() -> None:
    nodes = {"a": node(free_disk=100), "b": node()}
    assert "as secondary node (disk: 1)" in ask(question(new(), nodes)).info
    assert "1 node to choose from, too few" in ask(question(new(), {"a": node()})).info


def test_in_need_soft_limits_can_be_left_out() -> None:
    nodes = {"a": node(total_cpus=0)}
    content = question(new(template="plain"), nodes)
    assert not ask(content).success
    assert ask(content, Rules(ignores_soft=True)).success
    content = question(new(template="plain", memory=20000), nodes)
    assert not ask(content, Rules(ignores_soft=True)).success


def test_dedicated_spindles_are_counted() -> None:
    spindled = node(exclusive_storage=True, total_spindles=4, free_spindles=2)
    for wanted, fits in ((2, True), (3, False)):
        disks = [{"size": 1000, "mode": "rw", "spindles": wanted}]
        wish = new(template="plain", disks=disks)
        assert ask(question(wish, {"a": spindled})).success == fits


@pytest.mark.parametrize("template", ["plain", "drbd"])
def test_disks_without_a_number_of_spindles_go_to_shared_ones_only(template: str) -> None:
    spindled = node(exclusive_storage=True, total_spindles=9, free_spindles=9)
    nodes = {"a": spindled, "b": spindled, "c": node(free_memory=5000), "d": node(free_memory=5000)}
    found = ask(question(new(template=template), nodes))
    assert found.result == ["c", "d"][: 1 + (template == "drbd")]
    found = ask(question(new(template=template), {"a": spindled, "b": spindled}))
    assert (
        "2 nodes to choose from, refused as primary node (number of spindles not given: 2)"
        in found.info
    )
    one_silent = [{"size": 1000, "mode": "rw", "spindles": 2}, {"size": 1000, "mode": "rw"}]
    wish = new(template="plain", disks=one_silent, disk_space_total=2000)
    assert not ask(question(wish, {"a": spindled})).success
    found = ask(question(new(template="diskless"), {"a": spindled, "b": spindled}))
    assert found.result == ["a"]


def test_a_made_up_question_needs_no_instances_or_free_nodes() -> None:
    assert "no usable node" in ask(question(new(), {})).info

"""Why a new instance goes to its nodes, and why not to the others."""

from __future__ import annotations

from typing import Any

from fakes.allocator_questions import Draw, Json, decoded, group, ipolicy, new, node, question

from ganeti.allocation.answers import Question, answer, explanation
from ganeti.allocation.explaining import LINES_MAX
from ganeti.allocation.model import Rules
from ganeti.allocation.questions import state_of
from ganeti.allocation.tags import meanings_of


def explained(content: Json, **rules: Any) -> tuple[Any, list[str]]:
    request = decoded(content)
    asked = Question(state_of(request), meanings_of(request.cluster_tags), Rules(**rules))
    said = answer(asked, request.request).response
    return said.result, explanation(asked, request.request, said)


def test_each_node_that_was_not_chosen_has_its_reason() -> None:
    nodes = {
        "a": node(),
        "b": node(free_memory=9000),
        "c": node(free_memory=500),
        "d": node(free_disk=100),
        "e": node(total_cpus=0),
        "f": node(drained=True),
        "g": node(offline=True),
        "h": node(),
    }
    wish = new(template="plain") | {"restrict-to-nodes": list("abcdefg")}
    result, lines = explained(question(wish, nodes))
    assert result == ["a"]
    assert lines[0].startswith("instance new goes to a in group default (preferred), score ")
    assert lines[0].endswith(" without it")
    assert lines[1].startswith("node b: possible, score ")
    assert lines[1].endswith(" more")
    assert lines[2:] == [
        "node c: refused as primary node memory (500 MiB free, 1000 MiB wanted)",
        "node d: refused as primary node disk (100 MiB free, 1000 MiB wanted)",
        "node e: refused as primary node virtual CPUs",
        "node f: drained or not vm_capable",
        "node g: offline",
        "node h: not among the nodes to choose from",
    ]


def test_spindles_that_nobody_told_are_the_reason() -> None:
    nodes = {"a": node(), "b": node(exclusive_storage=True, total_spindles=9, free_spindles=9)}
    result, lines = explained(question(new(template="plain"), nodes))
    assert result == ["a"]
    assert lines[1:] == ["node b: refused as primary node number of spindles not given"]


def test_a_pair_is_tried_with_one_of_its_nodes_replaced() -> None:
    nodes = {name: node(free_memory=10000 - 500 * place) for place, name in enumerate("abcd")}
    nodes["e"] = node(free_memory=10, free_disk=20)
    result, lines = explained(question(new(), nodes))
    assert len(result) == 2
    others = sorted(set("abcd") - set(result))
    possible = [line for line in lines if "possible as" in line]
    assert sorted(line[5] for line in possible) == others
    scores = [float(line.split("score ")[1].split(",")[0]) for line in possible]
    best = float(lines[0].split("score ")[1].split(";")[0])
    assert best <= min(scores)
    assert scores == sorted(scores)
    assert lines[-1] == (
        "node e: refused as primary node memory (10 MiB free, 1000 MiB wanted), as secondary node"
        " disk (20 MiB free, 1128 MiB wanted)"
    )


def test_groups_are_explained_where_they_are_out_of_the_question() -> None:
    nodes = {"a": node(), "b": node(group="g2"), "c": node(group="g3"), "d": node(group="g4")}
    tight = ipolicy(disk_templates=["ext"])
    groups = {
        "g1": group(),
        "g2": group("closed", alloc_policy="unallocable"),
        "g3": group("strict", ipolicy=tight),
        "g4": group("other"),
    }
    _, lines = explained(question(new(template="plain"), nodes, groups=groups))
    assert "group closed (1 nodes): closed for new instances (unallocable)" in lines
    assert any(
        line.startswith("group strict (1 nodes): its instance policy forb") for line in lines
    )
    assert any(line.startswith("also possible: d in group other") for line in lines)
    wish = new(template="plain", group_name="default")
    _, lines = explained(question(wish, nodes, groups=groups))
    assert "group other: not asked for" in lines


def test_without_a_place_every_reason_is_there_with_its_count() -> None:
    nodes = {
        "a": node(free_memory=100),
        "b": node(free_memory=200),
        "c": node(offline=True),
        "d": node(drained=True),
    }
    result, lines = explained(question(new(template="plain"), nodes))
    assert result == []
    assert lines[0] == (
        "group default: 2 nodes to choose from, refused as primary node (memory: 2); left out"
        " (offline: 1), (drained or not vm_capable: 1)"
    )
    assert len(lines) == 5


def test_many_nodes_are_counted_behind_the_best() -> None:
    nodes = {f"n{number}": node(free_memory=3000 + number) for number in range(60)}
    nodes |= {f"full{number}": node(free_memory=1) for number in range(20)}
    _, lines = explained(question(new(template="plain"), nodes))
    assert len(lines) == 1 + LINES_MAX + 1
    assert lines[-1] == "and 39 more nodes (memory: 20, possible: 19)"


def test_any_other_node_that_is_possible_is_no_better() -> None:
    for seed in range(6):
        nodes, instances = Draw(seed).cluster(8, 20, odd=0.1)
        _, lines = explained(question(Draw(seed).wish(), nodes, instances))
        head = [line for line in lines if " goes to " in line]
        scores = [
            float(line.split("score ")[1].split(",")[0]) for line in lines if ": possible" in line
        ]
        for line in head:
            best = float(line.split("score ")[1].split(";")[0])
            assert all(score >= best - 1e-6 for score in scores)


def test_other_requests_have_the_text_of_their_answer() -> None:
    wish = new("more", "plain") | {"type": "capacity", "count_max": 2}
    _, lines = explained(question(wish, {"a": node()}))
    assert lines == ["more instances that fit: 2, as many as were asked for"]

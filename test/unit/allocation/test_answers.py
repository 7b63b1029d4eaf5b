"""New instances: one, many, in which group; and questions that make no sense."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fakes.allocator_questions import (
    Json,
    decoded,
    group,
    instance,
    ipolicy,
    new,
    node,
    question,
    several,
)

from ganeti.allocation.answers import Question, answer
from ganeti.allocation.model import Rules
from ganeti.allocation.questions import state_of
from ganeti.allocation.tags import meanings_of
from ganeti.base.errors import GenericError
from ganeti.protocol.iallocator import AllocatorResponse

TWO = {"a": node(), "b": node(), "c": node(group="g2"), "d": node(group="g2")}


def ask(content: Json, **rules: Any) -> AllocatorResponse:
    request = decoded(content)
    meanings = meanings_of(request.cluster_tags)
    return answer(Question(state_of(request), meanings, Rules(**rules)), request.request).response


def groups(**second: object) -> Json:
    return {"g1": group(), "g2": group("second", **second)}


def test_several_instances_are_placed_one_after_the_other() -> None:
    wishes = several(*(new(f"i{number}", "ext", 6000) for number in range(3)))
    found = ask(question(wishes, {"a": node(), "b": node()}), checks_capacity=False)
    assert found.success
    assert found.result == [[("i0", ["a"]), ("i1", ["b"])], ["i2"]]
    assert "instance i2 fits nowhere: group default: 2 nodes to choose from" in found.info


def test_the_better_of_two_groups_is_taken() -> None:
    nodes = TWO | {"b": node(free_memory=2000)}
    found = ask(question(new(), nodes, groups=groups()))
    assert found.result == ["c", "d"]
    assert "; also possible: a and b in group default (preferred), score " in found.info


def test_a_last_resort_comes_last() -> None:
    nodes = TWO | {"b": node(free_memory=2000)}
    last = groups(alloc_policy="last_resort")
    assert ask(question(new(), nodes, groups=last)).result[0] in "ab"
    assert ask(question(new(memory=9000), nodes, groups=last)).result == ["c", "d"]


def test_a_closed_group_takes_what_names_it_only() -> None:
    closed = groups(alloc_policy="unallocable")
    nodes = {name: made for name, made in TWO.items() if name in "cd"}
    found = ask(question(new(), nodes, groups=closed))
    assert not found.success
    assert "group second: closed for new instances (unallocable)" in found.info
    assert ask(question(new(group_name="second"), nodes, groups=closed)).result == ["c", "d"]


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ({"disk_templates": ["plain"]}, "disk template drbd is not allowed"),
        ({"vcpu_ratio": 0.1}, "virtual CPUs: 2"),
        ({"spindle_ratio": 0.5}, "spindles: 2"),
    ],
)
def test_a_group_has_policies(policy: Json, reason: str) -> None:
    only = {"g1": group(ipolicy=ipolicy(**policy))}
    found = ask(question(new(), {"a": node(), "b": node()}, groups=only))
    assert reason in found.info


def test_sizes_must_fit_the_policy() -> None:
    found = ask(question(new(vcpus=9), {"a": node(), "b": node()}))
    assert found.info == (
        "instance new fits nowhere: group default: its instance policy forbids it:"
        " cpu-count: 9 is not between 1 and 8"
    )


def test_a_network_must_be_connected() -> None:
    connected = {"g1": group(), "g2": group("second", networks=["net"])}
    wish = new(nics=[{"mac": "auto", "mode": "bridged", "link": "br0", "network": "net"}])
    found = ask(question(wish, TWO, groups=connected))
    assert found.result == ["c", "d"]
    assert "group default: not connected to network net" in found.info
    assert "not connected to network net" in ask(question(wish, {"a": node(), "b": node()})).info


def test_instances_that_are_down_or_set_offline_are_thought_to_take_their_memory() -> None:
    for state, fits in (("up", True), ("down", False), ("offline", False)):
        instances = {"i": instance(["a"], "plain", 9500, admin_state=state)}
        wish = new(template="plain", memory=2000)
        assert ask(question(wish, {"a": node()}, instances)).success == fits, state


WRONG = {
    "a node of no group": (question(new(), {"a": node(group="g7")}), "unknown node group 'g7'"),
    "an instance on no node": (
        question(new(), {"a": node()}, {"i": instance(["z"], "plain")}),
        "instance 'i' is on unknown node 'z'",
    ),
    "negative memory": (
        question(new(memory=-1), {"a": node()}),
        "instance 'new': memory is -1, which cannot be",
    ),
    "a negative disk": (
        question(new(disks=[{"size": -5, "mode": "rw"}]), {"a": node()}),
        "size of a disk is -5",
    ),
    "a disk without a size": (
        question(new(disks=[{"mode": "rw"}]), {"a": node()}),
        "size of a disk is None",
    ),
    "a node with less than nothing": (
        question(new(), {"a": node(total_cpus=-2)}),
        "node 'a': total_cpus is -2, which cannot be",
    ),
    "an existing name": (
        question(new("i"), {"a": node()}, {"i": instance(["a"], "plain")}),
        "there is an instance 'i' already",
    ),
    "a wrong number of nodes": (
        question(new(required_nodes=1), {"a": node()}),
        "1 nodes are wanted, but disk template drbd needs 2",
    ),
    "an unknown template": (
        question(new(template="tape"), {"a": node()}),
        "unknown disk template 'tape'",
    ),
    "an unknown group": (question(new(group_name="x"), {"a": node()}), "no node group 'x'"),
    "an unknown allowed node": (
        question(new(**{"restrict-to-nodes": ["z"]}), {"a": node()}),
        "there is no node 'z'",
    ),
    "an unknown instance": (
        question({"type": "allocate-secondary", "name": "z"}, {"a": node()}),
        "there is no instance 'z'",
    ),
    "an unknown allocation policy": (
        question(new(), {"a": node()}, groups={"g1": group(alloc_policy="maybe")}),
        "unknown allocation policy 'maybe'",
    ),
    "a ratio that is none": (
        question(new(), {"a": node()}, groups={"g1": group(ipolicy=ipolicy(vcpu_ratio="x"))}),
        "vcpu-ratio of its instance policy is 'x', not a ratio",
    ),
    "another version": (
        question(new(), {"a": node()}, version=3),
        "the request has version 3; this allocator knows version 2",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_question_that_makes_no_sense_is_refused(what: str) -> None:
    content, message = WRONG[what]
    with pytest.raises(GenericError, match=re.escape(message)):
        ask(content)


def test_a_node_that_is_online_must_say_what_it_has() -> None:
    mute = {name: value for name, value in node().items() if name != "free_memory"}
    with pytest.raises(GenericError, match="node 'a': free_memory is missing"):
        ask(question(new(), {"a": mute}))
    assert not ask(question(new(), {"a": node(offline=True)})).success

"""Clusters as text: what is written can be read, and what cannot be read names the line."""

from __future__ import annotations

import math
import re

import pytest
from fakes.allocator_questions import Draw, decoded, group, instance, new, node, question, several
from fakes.chance import seed
from fakes.text_clusters import Shape
from fakes.text_clusters import made_up as cluster_text
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ganeti.allocation.answers import Question, answer
from ganeti.allocation.model import Rules
from ganeti.allocation.questions import snapshot_of, state_of
from ganeti.allocation.sources.text_data import from_text, made_up, read_text, to_text
from ganeti.allocation.state import make_state, snapshot_after
from ganeti.allocation.tags import meanings_of
from ganeti.base.errors import GenericError
from ganeti.objects.instance_policy import violations
from ganeti.protocol.iallocator import AllocatorRequest

TEXT = """\
default|g1|preferred|gt1,gt2|u1

a|10000|512|9000|100000|99000|8|N|g1|1|t:1|N|0|0|1.0
b|10000|512|9488|100000|98872|8|M|g1|4||Y|3|2|2.0
c|?|?|?|?|?|?|N|g1|1

i|500|1000|2|running|Y|a||plain|t:2|1|-|N
j|100|1128|1|ADMIN_down|Y|a|b|drbd||3|2|N
k|100|0|1|ERROR_down|Y|b||diskless|

htools:iextags:t

|128,1,1024,1,1,1|1,1,1,0,0,0;9999,8,1048576,16,8,12|plain,drbd,diskless|4.0|32.0
default|128,1,1024,1,1,1|2,1,1,0,0,0;9999,8,1048576,16,8,12|plain,drbd|3.5|16.0
"""


def test_a_text_is_read() -> None:
    found = from_text(TEXT)
    only = found.groups["g1"]
    assert (only.name, only.tags, only.networks) == ("default", ("gt1", "gt2"), {"u1"})
    assert (only.vcpu_ratio, only.ipolicy["disk-templates"]) == (3.5, ["plain", "drbd"])
    assert found.ipolicy["minmax"][0]["min"]["memory-size"] == 1
    assert found.tags == ("htools:iextags:t",)
    assert found.free["a"].memory == 9000
    b = found.nodes["b"]
    assert b.exclusive_storage
    assert b.is_master
    assert (b.spindle_count, b.own_cpus, b.cpu_speed) == (4, 2, 2.0)
    assert found.nodes["c"].is_offline
    statuses = [each.status for each in found.instances.values()]
    assert statuses == ["running", "ADMIN_down", "ERROR_down"]
    assert found.instances["j"].nodes == ("a", "b")
    assert found.instances["j"].spindles == 2
    state = make_state(found)
    assert state.load("a").exclusion == {"t:2": 1}
    assert state.load("a").free_memory == 8900  # less what is down
    assert (
        state.load("a").present_free_memory == 8988
    )  # all but the node's own and the running one's


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1 sections of lines, 5 are needed"),
        ("a|b\n\n\n\n\n", "line 1: node group 'a': 2 columns, 4 are needed"),
        (
            TEXT.replace("a|10000", "a|many"),
            "line 3: node 'a': total_memory is 'many', not a number",
        ),
        (TEXT.replace("i|500", "i|x"), "line 7: instance 'i': memory is 'x', not a number"),
        (TEXT.replace("|Y|a||", "|y|a||"), "instance 'i': auto_balance is 'y', not Y or N"),
        (TEXT.replace("|1|-|N", "|1|-|no"), "instance 'i': forthcoming is 'no', not Y or N"),
        (TEXT.replace("||Y|3|2", "|||3|2"), "node 'b': exclusive_storage is '', not Y or N"),
        (
            TEXT.replace("|3.5|", "|x|"),
            "line 14: instance policy 'default': vcpu-ratio is 'x', not a number",
        ),
        (TEXT.replace(";9999", ";9999,1;9"), "line 13: "),
        (
            TEXT.replace("|Y|a||plain", "|Y||b|plain"),
            "line 7: instance 'i': it has no primary node",
        ),
        (
            TEXT.replace("\ni|", "\ni|500|1|1|running|Y|a||plain|\ni|", 1),
            "line 8: instance 'i' is on an earlier line already",
        ),
    ],
)
def test_a_text_that_is_not_understood_names_the_line(text: str, message: str) -> None:
    with pytest.raises(GenericError) as caught:
        from_text(text)
    assert message in caught.value.message


def drawn(number: int) -> AllocatorRequest:
    draw = Draw(number)
    nodes, instances = draw.cluster(5, 12, states=("up", "down", "offline"), tags=("s:a", "b"))
    return decoded(question(draw.wish(), nodes, instances, cluster_tags=["htools:iextags:s"]))


@given(st.integers(min_value=0, max_value=1 << 30).map(lambda number: number + seed()))
@settings(max_examples=30)
def test_what_is_written_is_read_as_the_same(number: int) -> None:
    snapshot = snapshot_of(drawn(number))
    text = to_text(snapshot)
    again = from_text(text)
    assert to_text(again) == text
    assert make_state(again).groups["g1"].score == make_state(snapshot).groups["g1"].score


def test_what_is_saved_afterwards_has_the_new_instances_and_the_moved_ones() -> None:
    nodes = {"a": node(free_memory=9000), "b": node(), "c": node()}
    instances = {"i": instance(["a"], "ext")}
    for wish, where in (
        (several(new("x"), new("y", "plain")), {"i": ["a"], "x": ["b", "c"], "y": ["c"]}),
        ({"type": "node-evacuate", "instances": ["i"], "evac_mode": "all"}, {"i": ["b"]}),
    ):
        request = decoded(question(wish, nodes, instances))
        before = state_of(request)
        found = answer(
            Question(before, meanings_of(()), Rules(checks_capacity=False)), request.request
        )
        then = snapshot_after(snapshot_of(request), found.after)
        assert {name: list(each.nodes) for name, each in then.instances.items()} == where
        after = make_state(then).groups["g1"]
        assert after.score == pytest.approx(found.after.groups["g1"].score, abs=1e-9)


def test_a_node_group_of_older_versions_tells_no_networks() -> None:
    found = from_text(TEXT.replace("|gt1,gt2|u1", "|gt1,gt2"))
    assert (found.groups["g1"].tags, found.groups["g1"].networks) == (("gt1", "gt2"), frozenset())


def test_of_a_node_with_an_unknown_number_no_number_counts() -> None:
    found = from_text(TEXT.replace("b|10000|512|9488|", "b|10000|512|?|"))
    node, free = found.nodes["b"], found.free["b"]
    assert node.is_offline
    assert (node.total_memory, node.own_memory, node.total_disk, node.cpus) == (0, 0, 0, 0)
    assert (node.own_cpus, free.memory, free.disk) == (0, 0, 0)


def test_a_made_up_node_has_one_spindle_unless_more_are_told() -> None:
    """As with 3.0, whose manual has the form of older versions."""
    assert made_up(["p,2,1g,1g,4"]) == made_up(["p,2,1g,1g,4,1"])
    assert made_up(["p,1,1g,1g,4,7"]).nodes["node-01-001"].spindle_count == 7


def test_groups_can_be_made_up() -> None:
    found = made_up(["preferred,3,100g,16g,4,2", "u,1,1t,512m,1,1"])
    assert sorted(found.nodes) == ["node-01-001", "node-01-002", "node-01-003", "node-02-001"]
    first = found.nodes["node-01-001"]
    assert (first.total_disk, found.free[first.name].memory, first.cpus) == (102400, 16384, 4)
    assert found.groups["fake-uuid-02"].alloc_policy == "unallocable"
    make_state(found)
    for wrong in ("", "p,1,2,3", "p,1,2,3,4,5,6", "never,1,1g,1g,1,1", "p,x,1g,1g,1,1"):
        with pytest.raises(GenericError, match="cannot make up a group from"):
            made_up([wrong])


def test_other_groups_keep_their_names() -> None:
    request = decoded(
        question(new(), {"a": node(group="g2")}, groups={"g1": group(), "g2": group("second")})
    )
    snapshot = snapshot_of(request)
    assert from_text(to_text(snapshot)).groups == snapshot.groups


def test_network_interfaces_that_no_text_tells_break_no_policy() -> None:
    found = from_text(TEXT.replace("1,1,1,0,0,0;", "1,1,1,0,1,0;"))
    assert found.ipolicy["minmax"][0]["min"]["nic-count"] == 1
    assert violations(found.ipolicy, found.instances["i"].spec) == []


@pytest.mark.parametrize("is_forthcoming", ["N", "Y"])
def test_without_exclusive_storage_a_move_takes_no_spindles(is_forthcoming: str) -> None:
    text = TEXT.replace("|Y|3|2|2.0", "|N|0|2|2.0").replace("i|500", "spare|500")
    text = text.replace("plain|t:2|1|-|N", f"plain|t:2|1|4|{is_forthcoming}")
    before = from_text(text)
    state = make_state(before)
    moved = replace(state.instances["spare"], nodes=("b",))
    after = state.without_instance(state.instances["spare"]).with_instance(moved)
    again = from_text(to_text(snapshot_after(before, after)))
    assert again.instances["spare"].nodes == ("b",)
    assert [free.spindles for free in again.free.values()] == [0, 0, 0]


@pytest.mark.parametrize("name", ["p|q", "x\ny", "x\u2028y", "x\r"])
def test_a_name_that_no_column_can_hold_is_not_written(name: str) -> None:
    snapshot = snapshot_of(decoded(question(new(), {"a": node()}, groups={"g1": group(name)})))
    with pytest.raises(GenericError, match=r"cannot hold the name of node group .* rename g1 NAME"):
        to_text(snapshot)


@pytest.mark.parametrize("number", range(3))
def test_a_file_that_is_cut_anywhere_gives_one_line_that_names_the_object(number: int) -> None:
    content = cluster_text(number, Shape(nodes=(2, 3), groups=1 + number % 2)).encode()
    messages = [message for size in range(len(content)) if (message := refusal(content[:size]))]
    form = r"cluster\.data: (\d sections of lines, 5 are needed|line \d+: \w[\w ]* '.*'[: ].+)"
    assert [message for message in messages if not re.fullmatch(form, message)] == []
    assert len(messages) > len(content) * 0.9


def refusal(content: bytes) -> str:
    """Return why a file cannot be read; empty if it can."""
    try:
        make_state(read_text(content, "cluster.data"))
    except GenericError as err:
        return err.message
    return ""


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 50), st.data())
def test_a_column_with_anything_in_it_is_read_or_refused(number: int, data: st.DataObject) -> None:
    lines = cluster_text(number, Shape(nodes=(2, 2), per_node=(1, 2))).splitlines()
    place = data.draw(st.sampled_from([n for n, line in enumerate(lines) if "|" in line]))
    columns = lines[place].split("|")
    column = data.draw(st.integers(0, len(columns) - 1))
    words = ["", "-1", "x", "nan", "inf", "1e9", "0", "Y", "1,2", ";", "?", "nowhere", "9" * 30]
    columns[column] = data.draw(st.sampled_from(words))
    lines[place] = "|".join(columns)
    content = "\n".join(lines).encode()
    message = refusal(content)
    if message:
        assert "\n" not in message
        assert message.startswith("cluster.data: ")
    else:
        groups = make_state(read_text(content, "cluster.data")).groups.values()
        assert all(math.isfinite(group.score) for group in groups)

"""Answers of allocators: what can be used, and one clear error for whatever else they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.allocator_questions import OWN_EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.base.errors import OpPrereqError
from ganeti.logical_units.allocator.asking import read_answer
from ganeti.logical_units.allocator.moves import planned_jobs, refusals
from ganeti.objects.allocation_modes import IAllocatorMode
from ganeti.opcodes.instance import OpInstanceFailover, OpInstanceMigrate, OpInstanceReplaceDisks
from ganeti.protocol.iallocator import AllocatorRequest, decode_request

MODEL: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "model" / "iallocator.json").read_text()
)
FULL = MODEL["example_full_request"]

EXAMPLES: dict[str, Any] = MODEL["examples"] | OWN_EXAMPLES


def question(mode: str, **changes: Any) -> AllocatorRequest:
    """Return the recorded question of a mode, in a cluster that has all nodes of the answers."""
    node = FULL["nodes"]["node1"]
    instance = FULL["instances"]["inst1"]
    wire = {
        **FULL,
        "nodes": {f"node{number}": node for number in range(1, 6)},
        "instances": dict.fromkeys(("inst1", "inst2", "inst3"), instance),
        "request": {**EXAMPLES[mode]["request"], **changes},
    }
    return decode_request(json.dumps(wire).encode())


def response(mode: str, **changes: Any) -> dict[str, Any]:
    return {**EXAMPLES[mode]["response"], **changes}


def read(mode: str, said: Any, **changes: Any) -> Any:
    text = said if isinstance(said, str) else json.dumps(said)
    return read_answer("mine", question(mode, **changes), text)


@pytest.mark.parametrize("mode", IAllocatorMode)
def test_the_recorded_answers_are_taken(mode: IAllocatorMode) -> None:
    said = response(mode)
    assert json.loads(json.dumps(read(mode, said))) == said["result"]


def test_the_older_name_of_the_result_will_do() -> None:
    said = {"success": True, "info": "", "nodes": ["node3"]}
    assert read("relocate", said) == ["node3"]
    assert read("relocate", {**said, "nodes": ["nix"], "result": ["node3"]}) == ["node3"]


def test_no_place_is_told_with_the_reason() -> None:
    with pytest.raises(OpPrereqError) as caught:
        read("allocate", {**MODEL["example_failure"], "info": "FailMem: 3"})
    assert caught.value.message == "allocator 'mine', mode allocate: FailMem: 3"
    assert caught.value.ecode == "insufficient_resources"


def moved(**changes: Any) -> list[Any]:
    """Return the result of a migration to node2, changed."""
    op = {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": "inst1", "target_node": "node2"}
    return [[["inst1", "default", ["node2"]]], [], [[{**op, **changes}]]]


@pytest.mark.parametrize(
    ("mode", "said", "text"),
    [
        ("allocate", "", "it printed nothing"),
        ("allocate", "[1,", r"invalid JSON: .*; it begins with '\[1,'"),
        ("allocate", "[" * 5000, "nested too deeply"),
        ("allocate", [1], r"not a JSON object; it begins with '\[1\]'"),
        ("allocate", {"success": True}, "'info', 'result' is missing"),
        ("allocate", response("allocate", success=1), "'success' is not true or false"),
        ("allocate", response("allocate", info=None), "'info' is not text"),
        ("allocate", response("allocate", result="node1"), "'result': .*got 'node1'"),
        ("allocate", response("allocate", result=["node1"]), r"'new1': 2 node\(s\) are needed"),
        ("allocate", response("allocate", result=["node1", "x"]), "there is no node 'x'"),
        ("allocate", response("allocate", result=["node1"] * 2), "names a node twice"),
        ("relocate", response("relocate", result=["node2"]), "is the one that it is to leave"),
        ("relocate", response("relocate", result=[]), r"1 node\(s\) are needed, it names \[\]"),
        ("allocate-secondary", response("allocate-secondary", result="x"), "no node 'x'"),
        ("allocate-secondary", response("allocate-secondary", result="node1"), "primary node"),
        ("multi-allocate", response("multi-allocate", result=[[], []]), "nothing about new10, new"),
        (
            "multi-allocate",
            response("multi-allocate", result=[[["new10", ["node1"]]], ["new10", "new11"]]),
            "names instance 'new10' twice",
        ),
        (
            "multi-allocate",
            response("multi-allocate", result=[[["x", ["node1"]]], []]),
            "not asked about instance 'x'",
        ),
        ("change-group", response("change-group", result=[[], []]), "'result': .*length 3"),
        (
            "change-group",
            response("change-group", result=[[["inst1", "g", ["x"]]], [], []]),
            "'inst1': there is no node 'x'",
        ),
        ("change-group", response("change-group", result=[[], [["x", None]], []]), "instance 'x'"),
        ("change-group", response("change-group", result=[[], [], [[]]]), "job 1 is empty"),
        (
            "change-group",
            response("change-group", result=moved(OP_ID="OP_CLUSTER_DESTROY")),
            "job 1: opcode 'OP_CLUSTER_DESTROY' is not allowed, only OP_INSTANCE_FAILOVER",
        ),
        ("change-group", response("change-group", result=moved(target_node="x")), "no node 'x'"),
        ("change-group", response("change-group", result=moved(instance_name="x")), "instance 'x'"),
        ("change-group", response("change-group", result=moved(foo=1)), "'foo' is unknown"),
        ("change-group", response("change-group", result=moved(OP_ID=[])), "not allowed"),
        ("balance", response("balance", result=moved(instance_name="x")), "instance 'x'"),
        (
            "balance",
            response("balance", result=[[], [], moved()[2] * 4]),
            "4 jobs, and at most 3 were asked for",
        ),
        ("capacity", response("capacity", result=[["node1", "node2"]]), r"1 node\(s\) are needed"),
        ("capacity", response("capacity", result=[["x"]]), "there is no node 'x'"),
        ("capacity", response("capacity", result=[["node1"]] * 3), "3 instances, and at most 2"),
    ],
)
def test_what_is_wrong_is_named(mode: str, said: Any, text: str) -> None:
    with pytest.raises(OpPrereqError, match=text) as caught:
        read(mode, said)
    assert caught.value.message.startswith(f"allocator 'mine', mode {mode}: its answer cannot be")
    assert caught.value.ecode == "internal_error"
    assert len(caught.value.message) < 1000


def test_limits_of_the_question_are_kept_to() -> None:
    said = response("allocate", result=["node5", "node4"])
    with pytest.raises(OpPrereqError, match="node 'node5' is not among the allowed ones"):
        read("allocate", said, **{"restrict-to-nodes": ["node4", "node3"]})
    with pytest.raises(OpPrereqError, match="in node group 'default', not in 'west'"):
        read("allocate", said, group_name="west")
    assert read("allocate", said, group_name="default") == ["node5", "node4"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("node1"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


@settings(max_examples=150)
@given(
    st.sampled_from([mode.value for mode in IAllocatorMode]),
    JSON,
    st.fixed_dictionaries({}, optional={"success": JSON, "info": JSON, "result": JSON}),
)
def test_whatever_is_said_ends_in_a_result_or_one_error(mode: str, said: Any, some: Any) -> None:
    for answer in (said, {**response(mode), **some}, response(mode, result=said)):
        try:
            read(mode, answer)
        except OpPrereqError as err:
            text = err.message
        else:
            continue
        assert text.startswith("allocator 'mine', mode ")


# What becomes of planned jobs.


def test_jobs_are_made_as_the_operator_wants_them() -> None:
    result = read("change-group", response("change-group"))
    reason = [["cli", "because", 1]]
    [job] = planned_jobs(result, reason=reason, early_release=True, force_failover=True)
    assert [type(op) for op in job] == [
        OpInstanceReplaceDisks,
        OpInstanceFailover,
        OpInstanceReplaceDisks,
    ]
    assert all(op.reason == reason for op in job)
    assert isinstance(job[0], OpInstanceReplaceDisks)
    assert job[0].early_release
    [plain] = planned_jobs(result, reason=[])
    assert isinstance(plain[1], OpInstanceMigrate)


def test_one_job_after_the_other() -> None:
    [[row], _, [job]] = moved()
    jobs = planned_jobs(([row] * 3, [], [job] * 3), reason=[], sequential=True)
    depends = [op.depends for [op] in jobs]
    assert depends == [None, [(-1, ["error", "success"])], [(-1, ["error", "success"])]]


def test_what_cannot_be_moved_is_a_line_each() -> None:
    assert refusals(([], [("a", "full"), ("b", None)], [])) == [
        "instance a cannot be moved: full",
        "instance b cannot be moved: no reason given",
    ]

"""The allocator interface reads and writes what is recorded of it, and nothing else."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes.allocator_questions import OWN_EXAMPLES

from ganeti.base.errors import ProtocolError
from ganeti.objects.allocation_modes import EvacMode, IAllocatorMode
from ganeti.protocol import iallocator

MODEL: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "model" / "iallocator.json").read_text()
)
EXAMPLES: dict[str, Any] = MODEL["examples"] | OWN_EXAMPLES


def question(mode: str) -> dict[str, Any]:
    """Return a whole question of a mode."""
    return {**MODEL["example_full_request"], "request": EXAMPLES[mode]["request"]}


def test_every_mode_has_an_example_and_a_type_of_result() -> None:
    assert list(IAllocatorMode) == sorted([*MODEL["modes"], *OWN_EXAMPLES]) == sorted(EXAMPLES)
    assert list(EvacMode) == MODEL["evac_modes"]
    assert set(iallocator.RESULTS) == set(IAllocatorMode)
    assert sorted(iallocator.JOB_OPCODES) == MODEL["result_per_mode"]["job_opcodes_allowed"]
    assert MODEL["version"] == iallocator.VERSION


@pytest.mark.shows("2.0/interaction/in-iallocator")
@pytest.mark.parametrize("mode", IAllocatorMode)
def test_recorded_questions_survive_reading_and_writing(mode: IAllocatorMode) -> None:
    wire = question(mode)
    request = iallocator.decode_request(json.dumps(wire).encode())
    assert request.mode is mode
    assert json.loads(iallocator.encode_request(request)) == wire


@pytest.mark.parametrize("mode", IAllocatorMode)
def test_recorded_results_are_of_their_type(mode: IAllocatorMode) -> None:
    result = EXAMPLES[mode]["response"]["result"]
    typed = msgspec.convert(result, iallocator.RESULTS[mode])
    assert json.loads(msgspec.json.encode(typed)) == result


def test_the_limits_of_a_creation_and_what_an_offline_node_lacks_are_left_out() -> None:
    wire = question("allocate")
    wire["request"]["restrict-to-nodes"] = ["node1"]
    node = wire["nodes"]["node1"]
    for key in [key for key in node if key.endswith(("memory", "disk", "spindles", "cpus"))]:
        del node[key]
    request = iallocator.decode_request(json.dumps(wire).encode())
    assert isinstance(request.request, iallocator.Allocate)
    assert request.request.restrict_to_nodes == ["node1"]
    assert request.nodes["node1"].free_memory is msgspec.UNSET
    assert json.loads(iallocator.encode_request(request)) == wire


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"{", "JSON"),
        (b"[]", "object"),
        (b'{"cluster_name": 1}', "cluster_name"),
        (json.dumps({**question("allocate"), "request": {"type": "x"}}).encode(), "'x'"),
    ],
)
def test_what_is_no_question_is_refused(content: bytes, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        iallocator.decode_request(content)


def test_an_answer_is_written_as_recorded() -> None:
    failure = iallocator.AllocatorResponse(success=False, info="text")
    assert json.loads(iallocator.encode_response(failure)) == MODEL["example_failure"]

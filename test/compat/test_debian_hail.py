"""Our allocator beside Debian's, which is used as it is: the same questions, the same possibilities.

Where the two are meant to differ is left out of the questions, see `compat.recordings`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from compat.recordings import EVACUATIONS, draw_cluster, our_answer, score_after, shape_of
from fakes import debian_htools
from fakes.allocator_questions import Json, decoded

from ganeti.allocation.answers import Question, answer
from ganeti.allocation.model import Rules
from ganeti.allocation.questions import snapshot_of
from ganeti.allocation.sources.text_data import from_text, to_text
from ganeti.allocation.state import make_state
from ganeti.allocation.tags import meanings_of

QUESTIONS = 120
CLOSE = 1e-9

pytestmark = pytest.mark.skipif(not debian_htools.are_there(), reason=debian_htools.REASON)


def theirs(content: Json, path: Path, *options: str) -> Json:
    path.write_text(json.dumps(content))
    return debian_htools.ask_allocator(str(path), *options)


@pytest.mark.parametrize("capacity", [True, False])
def test_the_same_new_instances_have_a_place_and_ours_is_no_worse(
    capacity: bool, tmp_path: Path
) -> None:
    different = []
    placed = 0
    for number in range(QUESTIONS // 2):
        _, content = draw_cluster(number, capacity=capacity)
        options = [] if capacity else ["--no-capacity-checks"]
        debian = theirs(content, tmp_path / "question", *options)
        found = our_answer(content, Rules(checks_capacity=capacity))
        if debian["success"] != found.success:
            different.append((number, debian["info"], found.info))
        elif found.success:
            placed += 1
            assert score_after("allocate", content, found.result) <= (
                score_after("allocate", content, debian["result"]) + CLOSE
            ), number
    assert not different
    assert QUESTIONS // 8 < placed < QUESTIONS // 2  # both kinds of answers were compared


@pytest.mark.parametrize("mode", EVACUATIONS)
def test_the_same_instances_can_leave_their_nodes(mode: str, tmp_path: Path) -> None:
    """One instance at a time: what several need of each other depends on every choice before."""
    different = []
    moved = 0
    for number in range(20):
        draw, content = draw_cluster(1000 + number, capacity=False)
        if not content["instances"]:
            continue
        name = draw.random.choice(list(content["instances"]))
        content["request"] = {"type": "node-evacuate", "instances": [name], "evac_mode": mode}
        debian = theirs(content, tmp_path / "question")["result"]
        found = json.loads(json.dumps(our_answer(content, Rules()).result))
        if [len(part) for part in debian] != [len(part) for part in found]:
            different.append((number, debian, found))
        elif found[0]:
            moved += 1
            assert shape_of("evacuate", found) == shape_of("evacuate", debian)
            assert sorted(found[2][0][0]) == sorted(debian[2][0][0])
    assert not different
    assert moved


def test_each_reads_what_the_other_has_written(tmp_path: Path) -> None:
    _, content = draw_cluster(7, capacity=False)
    saved, text = tmp_path / "saved", tmp_path / "text"
    debian = theirs(content, tmp_path / "question", "--save", str(saved), "--no-capacity-checks")
    request = decoded(content)
    text.write_text(to_text(snapshot_of(request)))
    again = theirs(content, tmp_path / "question", "-t", str(text), "--no-capacity-checks")
    assert again["result"] == debian["result"]
    read = from_text(Path(f"{saved}.pre-ialloc").read_text())
    assert set(read.nodes) == set(request.nodes)
    assert set(read.instances) == set(request.instances)
    found = answer(
        Question(make_state(read), meanings_of(read.tags), Rules(checks_capacity=False)),
        request.request,
    )
    assert found.response.result == our_answer(content, Rules(checks_capacity=False)).result

"""Our allocator beside Debian's, which is used as it is: the same questions, the same possibilities.

Where the two are meant to differ is left out of the questions: Debian's keeps 4 GB for a KVM node
whatever it reports (told not to here), takes no account of the room for disks in files, and restarts
instances elsewhere whose disks are local.
Above all it refuses every new instance while anything is wrong with N+1 that was wrong before, be it
a mirror on a node that is offline, or tags that keep instances from restarting together.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import machine
import pytest
from fakes.allocator_questions import Draw, Json, decoded, question
from fakes.naive_placement import View, as_existing, with_instance

from ganeti.allocation.answers import Question, answer
from ganeti.allocation.model import Rules
from ganeti.allocation.questions import snapshot_of, state_of
from ganeti.allocation.sources.text_data import from_text, to_text
from ganeti.allocation.state import make_state
from ganeti.allocation.tags import meanings_of

HAIL = "/usr/lib/ganeti/iallocators/hail"
TIMEOUT_S = 120
QUESTIONS = 120
CLOSE = 1e-9
TAGS = ("service:a", "service:b")
MODES = ("all", "primary-only", "secondary-only")


def is_debians() -> bool:
    """Tell whether Debian's allocator is there, and not ours in its place."""
    if machine.hides() or not os.access(HAIL, os.X_OK):
        return False
    with open(HAIL, "rb") as file:
        return file.read(4) == b"\x7fELF"


pytestmark = pytest.mark.skipif(not is_debians(), reason="the package ganeti-htools is not there")


def theirs(content: Json, path: Path, *options: str) -> Json:
    path.write_text(json.dumps(content))
    command = [HAIL, str(path), "--static-kvm-node-memory=0", *options]
    done = subprocess.run(
        command, capture_output=True, timeout=TIMEOUT_S, check=True, env={"LANG": "C.UTF-8"}
    )
    found: Json = json.loads(done.stdout)
    return found


def ours(content: Json, rules: Rules) -> Any:
    request = decoded(content)
    asked = Question(state_of(request), meanings_of(request.cluster_tags), rules)
    return answer(asked, request.request).response


def score(content: Json, nodes: list[str]) -> float:
    made = as_existing(content["request"], tuple(nodes))
    (state,) = state_of(decoded(with_instance(content, "new", made))).groups.values()
    return state.score


def is_sound(content: Json) -> bool:
    """Tell whether nothing is wrong with N+1 to begin with."""
    view = View(content)
    return not any(view.deficit(name) or view.lost(name) for name in view.usable)


def draw_cluster(number: int, *, capacity: bool) -> tuple[Draw, Json]:
    draw = Draw(number)
    templates = ("drbd", "ext", "diskless") if capacity else ("drbd", "ext", "plain", "rbd")
    while True:
        nodes, instances = draw.cluster(
            draw.random.randint(2, 7),
            draw.random.randint(0, 20),
            templates,
            states=("up", "up", "down"),
            tags=() if capacity else TAGS,
            odd=0.0 if capacity else 0.1,
            memory=(8000, 16000),
        )
        content = question(
            draw.wish(templates) | {"tags": draw.random.sample(TAGS, draw.random.randint(0, 1))},
            nodes,
            instances,
            cluster_tags=["htools:iextags:service"],
        )
        if is_sound(content):
            return draw, content


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
        found = ours(content, Rules(checks_capacity=capacity))
        if debian["success"] != found.success:
            different.append((number, debian["info"], found.info))
        elif found.success:
            placed += 1
            assert score(content, found.result) <= score(content, debian["result"]) + CLOSE, number
    assert not different
    assert QUESTIONS // 8 < placed < QUESTIONS // 2  # both kinds of answers were compared


@pytest.mark.parametrize("mode", MODES)
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
        found = json.loads(json.dumps(ours(content, Rules()).result))
        if [len(part) for part in debian] != [len(part) for part in found]:
            different.append((number, debian, found))
        elif found[0]:
            moved += 1
            assert [[each["OP_ID"] for each in job] for job in found[2]] == [
                [each["OP_ID"] for each in job] for job in debian[2]
            ]
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
    assert found.response.result == ours(content, Rules(checks_capacity=False)).result

"""What Debian's htools said about a hundred clusters, beside what ours say; and whether they still do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from compat.recordings import CLUSTERS, RECORD, ask_debians, differences, digest
from fakes import debian_htools

STILL_ASKED = range(0, CLUSTERS, 5)


def test_nothing_is_different_or_worse() -> None:
    recorded = json.loads(RECORD.read_text())
    assert len(recorded) == CLUSTERS
    changed = [number for number in range(CLUSTERS) if digest(number) != recorded[number]["digest"]]
    assert not changed, "other clusters are made up; run test/compat/recordings.py"
    wrong = {number: differences(number, each) for number, each in enumerate(recorded)}
    assert not {number: found for number, found in wrong.items() if found}


def test_answers_of_each_kind_were_recorded() -> None:
    recorded = json.loads(RECORD.read_text())
    for name in ("allocate", "relocate"):
        said = [each[name]["success"] for each in recorded if name in each]
        assert said.count(True) >= 15, name
        assert said.count(False) >= 5, name
    assert sum(bool(each["evacuate all"]["result"][0]) for each in recorded if "relocate" in each)
    assert sum(first > last for first, last in (each["balanced"] for each in recorded)) > 80


@pytest.mark.skipif(not debian_htools.are_there(), reason=debian_htools.REASON)
def test_they_still_say_so(tmp_path: Path) -> None:
    recorded = json.loads(RECORD.read_text())
    for number in STILL_ASKED:
        assert ask_debians(number, tmp_path) == recorded[number], number

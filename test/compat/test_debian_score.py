"""Our score beside that of Debian's hbal, which is used as it is: every component, on any cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes import debian_htools
from fakes.text_clusters import Shape, made_up, utilisation

from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.sources.text_data import from_text
from ganeti.allocation.sources.utilisation import (
    read_reports,
    read_utilisation,
    with_loads,
    with_reports,
    without_load,
)
from ganeti.allocation.state import make_state

debian = pytest.mark.skipif(not debian_htools.are_there(), reason=debian_htools.REASON)
CLUSTERS = 100
CLOSE = 1e-6
RECORDED = Path(__file__).parent.parent / "data" / "scores" / "debian.json"


def ours(snapshot: Snapshot) -> dict[str, float]:
    (group,) = make_state(snapshot).groups.values()
    found = {each.name: each.value for each in group.components}
    return {"overall": group.exact_score, **found}


def differing(number: int, found: dict[str, float], theirs: dict[str, float]) -> list[Any]:
    assert list(found) == list(theirs)  # in the same order, too
    return [
        (number, name, value, theirs[name])
        for name, value in found.items()
        if abs(value - theirs[name]) > CLOSE
    ]


@debian
def test_every_component_is_theirs(tmp_path: Path) -> None:
    wrong = []
    for number in range(CLUSTERS):
        text = made_up(number)
        theirs = debian_htools.components(text, tmp_path / "cluster")
        wrong += differing(number, ours(from_text(text)), theirs)
    assert not wrong


@debian
def test_dynamic_utilisation_counts_as_theirs(tmp_path: Path) -> None:
    wrong, file = [], tmp_path / "utilisation"
    for number in range(CLUSTERS // 4):
        text = made_up(number)
        file.write_text(utilisation(number, text))
        theirs = debian_htools.components(text, tmp_path / "cluster", "-U", str(file))
        snapshot = with_loads(from_text(text), read_utilisation(file.read_text()))
        wrong += differing(number, ours(snapshot), theirs)
        theirs = debian_htools.components(text, tmp_path / "cluster", "--ignore-dynu")
        wrong += differing(number, ours(without_load(snapshot)), theirs)
    assert not wrong


@debian
def test_measured_load_counts_as_theirs(tmp_path: Path) -> None:
    wrong, file = [], tmp_path / "reports"
    words = ("--mond=yes", "--mond-data", str(file))
    for number in range(CLUSTERS // 4):
        text = made_up(number, Shape(has_forthcoming=False))
        snapshot = from_text(text)
        file.write_text(json.dumps(_reports(snapshot, lacking=number % 4 == 0)))
        theirs = debian_htools.components(text, tmp_path / "cluster", *words)
        measured = with_reports(snapshot, read_reports(file.read_bytes()))
        wrong += differing(number, ours(measured.snapshot), theirs)
    assert not wrong


def _reports(snapshot: Snapshot, *, lacking: bool) -> list[dict[str, Any]]:
    # Theirs takes the silence of a node that is offline for a lack, too.
    silent = next((name for name, node in snapshot.nodes.items() if node.is_usable), "")
    return [
        {"node": name, "reports": [_report(place + 0.5)]}
        for place, name in enumerate(snapshot.nodes)
        if not (lacking and name == silent)
    ]


def _report(load: float) -> dict[str, Any]:
    return {
        "name": "cpu-avg-load",
        "version": "B",
        "format_version": 1,
        "timestamp": 1700000000000000000,
        "category": None,
        "kind": 0,
        "data": {"cpu_number": 1, "cpus": [load], "cpu_total": load},
    }


@pytest.mark.parametrize("number", range(12))
def test_scores_are_those_that_hbal_of_debian_gave(number: int) -> None:
    recorded = json.loads(RECORDED.read_text())[number]
    found = ours(from_text(recorded["text"]))
    assert not differing(number, found, recorded["components"])

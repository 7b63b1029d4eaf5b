"""The table of all measurements, from figures that were recorded."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
from fakes import pages

BENCH = pages.CHECKOUT / "bench"


def test_figures_become_a_table_and_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    report, scoreboard = (importlib.import_module(name) for name in ("report", "scoreboard"))
    record = tmp_path / "record"
    monkeypatch.setenv(report.RECORD, str(record))
    report.row("", "reached", "at most")
    report.row("a job | none", "12.0 ms", "18 ms")
    for size, value in ((1, 40.0), (20000, 60.0)):
        report.record(f"tag, {size}", f"{value} ms", point=("A tag, ms: file", size, value))
    found = [("jobs", each) for each in scoreboard.figures_in(str(record))]
    assert len(found) == 3
    scoreboard.write(found, tmp_path / "out")
    table = (tmp_path / "out/figures.md").read_text()
    assert "| jobs | a job / none | 12.0 ms | 18 ms |" in table
    assert "![A tag, ms](a-tag--ms.svg)" in table
    assert "<polyline" in (tmp_path / "out/a-tag--ms.svg").read_text()
    assert json.loads((tmp_path / "out/figures.json").read_text())[0]["value"] == "12.0 ms"
    for name in ("report", "scoreboard"):
        sys.modules.pop(name)


def test_every_program_is_a_section_or_part_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    sections = {each.program for each in importlib.import_module("scoreboard").SECTIONS}
    parts = {"compare", "confd", "mond", "rapi", "report", "scoreboard"}  # or of those of faces
    assert sections == {path.stem for path in BENCH.glob("*.py")} - parts
    for name in ("report", "scoreboard"):
        sys.modules.pop(name)

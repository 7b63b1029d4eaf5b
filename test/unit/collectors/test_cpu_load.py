"""Tests of ganeti/collectors/cpu_load.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.collectors import cpu_load
from ganeti.collectors.node_view import NodeView

STAT = """\
cpu  100 2 30 4000 50 6 7 8 9 0
cpu0 50 1 15 2000 25 3 4 4 5 0
cpu1 50 1 15 2000 25 3 3 4 4 0
cpu10 1 0 0 7 0 0 0 0 0 0
intr 1234 0 0
ctxt 99
btime 1700000000
processes 5
procs_running 1
"""
VIEW = NodeView(Paths(), "node1.example.com")


def test_busy_ticks_of_each_processor() -> None:
    # 50+1+15+3+4+4: neither idle nor waiting, and the guest's time only once
    assert cpu_load.parse(STAT) == {"cpu0": 77, "cpu1": 76, "cpu10": 1}


def test_the_short_lines_of_old_kernels() -> None:
    assert cpu_load.parse("cpu 1 2 3 4\ncpu0 1 2 3 4\n") == {"cpu0": 6}


@pytest.mark.parametrize("text", ["", "cpu  1 2 3 4\n", "intr 0\n", "\0\n"])
def test_a_file_without_processors_is_refused(text: str) -> None:
    with pytest.raises(GenericError, match="names no processor"):
        cpu_load.parse(text)


def test_a_line_that_is_not_understood_is_shown() -> None:
    with pytest.raises(GenericError, match="cpu0 a b"):
        cpu_load.parse("cpu0 a b c d\n")


def test_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "stat"
    collect = cpu_load.make(str(source))
    with pytest.raises(GenericError, match="No such file"):
        collect(VIEW)
    source.write_text(STAT)
    monkeypatch.setattr(cpu_load.clock, "monotonic", lambda: 10.0)
    assert collect(VIEW) == {"cpu_number": 3, "cpus": [0, 0, 0], "cpu_total": 0}
    source.write_text(STAT.replace("cpu1 50", "cpu1 250").replace("cpu10 1", "cpu10 101"))
    monkeypatch.setattr(cpu_load.clock, "monotonic", lambda: 14.0)
    found: Any = collect(VIEW)
    assert found == {"cpu_number": 3, "cpus": pytest.approx([0, 0.5, 0.25]), "cpu_total": 0.75}

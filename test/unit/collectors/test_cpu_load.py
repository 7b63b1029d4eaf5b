"""Tests of ganeti/collectors/cpu_load.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.collectors import cpu_load
from ganeti.collectors.collector import NodeView
from ganeti.collectors.cpu_load import SAMPLES_MAX, SPAN_S, LoadWindow

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


@pytest.mark.shows("maintd/harep/load-data")
def test_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "stat"
    collect = cpu_load.CpuLoad(str(source)).collect
    with pytest.raises(GenericError, match="No such file"):
        collect(VIEW)
    source.write_text(STAT)
    monkeypatch.setattr(cpu_load.clock, "monotonic", lambda: 10.0)
    assert collect(VIEW) == {"cpu_number": 3, "cpus": [0, 0, 0], "cpu_total": 0}
    source.write_text(STAT.replace("cpu1 50", "cpu1 250").replace("cpu10 1", "cpu10 101"))
    monkeypatch.setattr(cpu_load.clock, "monotonic", lambda: 14.0)
    found: Any = collect(VIEW)
    assert found == {"cpu_number": 3, "cpus": pytest.approx([0, 0.5, 0.25]), "cpu_total": 0.75}


def test_nothing_is_known_at_first_and_one_sample_is_no_average() -> None:
    window = LoadWindow()
    assert window.loads() == {}
    window.add(100.0, {"a": 50.0})
    assert window.loads() == {"a": 0.0}


def test_the_average_is_use_over_time() -> None:
    window = LoadWindow()
    for number in range(5):
        window.add(100.0 + 5 * number, {"a": 10.0 + 4 * number, "b": 7.0})
    assert window.loads() == {"a": 0.8, "b": 0.0}


def test_what_came_later_counts_from_its_first_sample() -> None:
    window = LoadWindow()
    window.add(0.0, {"a": 0.0})
    window.add(10.0, {"a": 10.0, "b": 5.0})
    window.add(20.0, {"a": 10.0, "b": 15.0})
    assert window.loads() == {"a": 0.5, "b": 1.0}


def test_what_has_gone_is_forgotten_and_begins_anew() -> None:
    window = LoadWindow()
    window.add(0.0, {"a": 100.0})
    window.add(10.0, {})
    assert window.loads() == {}
    window.add(20.0, {"a": 200.0})
    window.add(30.0, {"a": 201.0})
    assert window.loads() == {"a": 0.1}


def test_a_counter_that_began_anew_is_not_negative() -> None:
    window = LoadWindow()
    window.add(0.0, {"a": 100.0})
    window.add(10.0, {"a": 2.0})
    assert window.loads() == {"a": 0.0}
    window.add(20.0, {"a": 7.0})
    assert window.loads() == {"a": 0.5}


def test_samples_leave_by_age() -> None:
    window = LoadWindow()
    window.add(0.0, {"a": 0.0})
    window.add(100.0, {"a": 100.0})
    window.add(SPAN_S + 50.0, {"a": 100.0})
    assert window.loads() == {"a": 0.0}


def test_an_interval_longer_than_the_window_still_gives_averages() -> None:
    window = LoadWindow()
    for number in range(4):
        window.add(number * 2 * SPAN_S, {"a": number * SPAN_S})
    assert window.loads() == {"a": 0.5}


def test_samples_leave_by_number() -> None:
    window = LoadWindow()
    for number in range(SAMPLES_MAX + 1):
        window.add(float(number), {"a": float(bool(number))})
    assert window.loads() == {"a": 0.0}


@given(
    st.lists(
        st.tuples(st.floats(0.1, 90), st.dictionaries(st.sampled_from("abc"), st.floats(0, 9e9))),
        max_size=40,
    )
)
def test_loads_are_never_negative_and_name_the_last_sample(
    steps: list[tuple[float, dict[str, float]]],
) -> None:
    window, now_s = LoadWindow(), 0.0
    for step_s, used_s in steps:
        now_s += step_s
        window.add(now_s, used_s)
        loads = window.loads()
        assert list(loads) == list(used_s)
        assert all(load >= 0 for load in loads.values())

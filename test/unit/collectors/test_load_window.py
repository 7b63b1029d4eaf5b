"""Tests of ganeti/collectors/load_window.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ganeti.collectors.load_window import SAMPLES_MAX, SPAN_S, LoadWindow


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

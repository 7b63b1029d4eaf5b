"""Tests of ganeti/collectors/history.py."""

from __future__ import annotations

from ganeti.collectors.history import (
    DAY_LENGTH,
    HOUR_LENGTH,
    NODE,
    TEN_MINUTES,
    WHOLE,
    Counters,
    History,
    average,
    difference,
    memory_used_mib,
)


def counters(cpu_s: float = 0.0, memory_mib: float = 0.0, *bytes_each: float) -> Counters:
    """Return the counters of a subject that has one of each thing."""
    return Counters({WHOLE: cpu_s}, memory_mib, *({WHOLE: each} for each in bytes_each))


def test_the_difference_of_counters_is_a_rate_and_memory_a_state() -> None:
    before = counters(10.0, 100.0, 0.0, 1000.0, 50.0, 0.0)
    after = counters(40.0, 300.0, 6000.0, 400.0, 50.0, 60.0)
    assert difference(before, after, 7.0, 60.0) == (7.0, 0.5, 300.0, 100.0, 6.667, 0.0, 1.0)


def test_a_part_that_comes_or_goes_is_no_traffic() -> None:
    one, both = {"tap0": 6000.0}, {"tap0": 6000.0, "tap1": 9e9}
    first, second = ((7.0, 0.0, 0.0, 0.0, 0.0, rate, 0.0) for rate in (0.0, 100.0))
    assert difference(Counters(net_in=both), Counters(net_in=one), 7.0, 60.0) == first
    assert difference(Counters(net_in=one), Counters(net_in=both), 7.0, 60.0) == first
    more = {"tap0": 12000.0, "tap2": 9e9}
    assert difference(Counters(net_in=both), Counters(net_in=more), 7.0, 60.0) == second


def test_rings_are_bounded_and_the_day_has_means() -> None:
    history = History()
    minutes = TEN_MINUTES * DAY_LENGTH + 5 * TEN_MINUTES
    for minute in range(minutes + 1):
        found_now = counters(30.0 * minute, float(minute))
        history.add(60.0 * minute, {NODE: found_now, "web1": found_now})
    found = history.of("web1")
    assert found is not None
    hour, day = found["hour"], found["day"]
    assert isinstance(hour, list)
    assert isinstance(day, list)
    assert (len(hour), len(day)) == (HOUR_LENGTH, DAY_LENGTH)
    assert hour[-1][:3] == (60.0 * minutes, 0.5, float(minutes))
    assert day[-1][2] == minutes - (TEN_MINUTES - 1) / 2


def test_a_subject_that_is_gone_is_forgotten() -> None:
    history = History()
    history.add(1.0, {NODE: Counters(), "web1": Counters()})
    history.add(2.0, {NODE: Counters()})
    assert history.of("web1") is None
    history.add(3.0, {NODE: Counters(), "web1": counters(5.0)})
    history.add(4.0, {NODE: Counters(), "web1": counters(6.0)})
    found = history.of("web1")
    assert found is not None
    assert found["hour"] == [(4.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)]


def test_the_mean_of_points_is_at_the_time_of_the_last() -> None:
    assert average([(1.0, 2.0), (3.0, 4.0)]) == (3.0, 3.0)


def test_memory_that_can_be_had_is_not_used() -> None:
    text = "MemTotal: 4096 kB\nMemFree: 10 kB\nMemAvailable: 1024 kB\n"
    assert memory_used_mib(text) == 3.0

"""Tests of ganeti/base/complaints.py."""

from __future__ import annotations

from ganeti.base.complaints import ORIGINS_MAX, QUIET_S, Complaints


def test_an_origin_is_told_of_once_a_minute_with_the_number_of_lines_left_out() -> None:
    complaints = Complaints()
    assert complaints.ending("a", 0.0) == ""
    assert [complaints.ending("a", now / 10) for now in range(500)] == [None] * 500
    assert complaints.ending("b", 1.0) == ""
    assert complaints.ending("a", QUIET_S) == (
        "; 500 more about a were not written since the one before"
    )
    assert complaints.ending("a", QUIET_S + 1) is None
    assert complaints.ending("b", QUIET_S + 1) == ""


def test_origins_beyond_so_many_count_as_one_until_there_is_room() -> None:
    complaints = Complaints()
    told = [complaints.ending(f"origin {number}", 1.0) for number in range(10 * ORIGINS_MAX)]
    assert told.count("") == ORIGINS_MAX + 1
    assert told.count(None) == len(told) - ORIGINS_MAX - 1
    assert len(complaints._origins) == ORIGINS_MAX + 1
    told = [complaints.ending(f"other {number}", 1.0 + QUIET_S) for number in range(ORIGINS_MAX)]
    assert set(told) == {""}
    assert len(complaints._origins) <= ORIGINS_MAX + 1

"""The pool of user ids: the text form, and ranges as sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import ParameterError
from ganeti.objects.uid_pool import (
    UID_MAX,
    UidRange,
    format_uid_pool,
    normal_form,
    parse_uid_pool,
    problem_of,
    without,
)

RANGES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 8)).map(lambda pair: (pair[0], sum(pair)))
)


def ids(pool: list[UidRange]) -> set[int]:
    """The slow, obvious form of a pool."""
    return {uid for low, high in pool for uid in range(low, high + 1)}


@pytest.mark.shows("2.1/uid-storage/ranges", "2.1/uid-storage/single", "2.1/uid-change/form")
@pytest.mark.parametrize(
    ("text", "pool"),
    [
        ("", []),
        ("7000", [(7000, 7000)]),
        ("5000-5999, 7000", [(5000, 5999), (7000, 7000)]),
        ("20-30,1-9", [(1, 9), (20, 30)]),
        ("1-10,5-20", [(1, 20)]),
        ("1-10,11", [(1, 11)]),
        (f"0,{UID_MAX}", [(0, 0), (UID_MAX, UID_MAX)]),
    ],
)
def test_text_becomes_ranges_in_normal_form(text: str, pool: list[UidRange]) -> None:
    assert parse_uid_pool(text) == pool
    assert parse_uid_pool(format_uid_pool(pool)) == pool
    assert parse_uid_pool(format_uid_pool(pool, "\n"), "\n") == pool


@pytest.mark.shows("2.1/uid-change/checked")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x", "not a user id"),
        ("1-", "not a user id"),
        ("-5", "not a user id"),
        ("1-2-3", "not a user id"),
        ("\u0661", "not a user id"),
        ("1" * 5000, "not a user id"),
        ("9-1", "upside down"),
        ("4294967296", "does not lie between"),
    ],
)
def test_text_that_is_no_pool(text: str, problem: str) -> None:
    with pytest.raises(ParameterError, match=problem):
        parse_uid_pool(f"1000,{text}")


@pytest.mark.shows("2.1/uid-storage/single")
def test_single_ids_are_written_without_a_dash() -> None:
    assert format_uid_pool([(1, 1), (3, 9)]) == "1,3-9"


@given(RANGES, RANGES)
def test_ranges_behave_like_sets(pool: list[UidRange], other: list[UidRange]) -> None:
    joined = normal_form([*pool, *other])
    left = without(pool, other)
    assert ids(joined) == ids(pool) | ids(other)
    assert ids(left) == ids(pool) - ids(other)
    for ranges in (joined, left):
        assert ranges == normal_form(ranges)
        assert all(problem_of(uids) is None for uids in ranges)


def test_removal_splits_a_range_without_counting_its_ids() -> None:
    assert without([(0, UID_MAX)], [(10, 10)]) == [(0, 9), (11, UID_MAX)]

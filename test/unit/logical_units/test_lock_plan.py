"""Needs of locks as plain values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.locking.names import in_order
from ganeti.logical_units.locks import (
    LockLevel,
    all_shared,
    covers,
    exclusive,
    shared,
    slice_s,
    to_request,
    union,
)
from ganeti.protocol.wconfd import LockMode

names = st.sampled_from(["node/a", "node/b", "node/[lockset]", "instance/x", "cluster/BGL"])
modes = st.sampled_from([LockMode.SHARED, LockMode.EXCLUSIVE])
needs = st.dictionaries(names, modes)


@given(needs, needs)
def test_a_union_covers_both(one: dict[str, LockMode], two: dict[str, LockMode]) -> None:
    both = union(one, two)
    assert covers(both, one)
    assert covers(both, two)


@pytest.mark.shows("backend/locks/set", "2.12/locking/levels", "2.0/locking-library/right-order")
@given(needs)
def test_requests_are_in_the_order_of_locks(need: dict[str, LockMode]) -> None:
    asked = [name for name, _ in to_request(need)]
    assert asked == in_order(need)


@pytest.mark.shows("2.0/metalocks/all-nodes")
def test_all_locks_of_a_level_cover_each() -> None:
    level = LockLevel.NODE
    assert covers(all_shared(level), shared(level, ["a"]))
    assert not covers(all_shared(level), exclusive(level, ["a"]))
    assert not covers(shared(level, ["a"]), all_shared(level))
    assert covers(exclusive(level, ["a"]), shared(level, ["a"]))


@pytest.mark.shows("2.1/lock-retry/longer")
def test_each_try_waits_longer_up_to_a_limit() -> None:
    lengths = [slice_s(attempts) for attempts in range(12)]
    assert lengths[:3] == [5.0, 7.5, 11.25]
    assert lengths == sorted(lengths)
    assert lengths[-1] == lengths[-2] == 75.0

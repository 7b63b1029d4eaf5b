"""The members of etcd follow the master candidates, one at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ganeti.availability.members import SIZE, choose, next_change

names = st.lists(st.sampled_from("abcdefg"), unique=True)


@given(names)
def test_a_new_etcd_may_lose_a_member_or_is_none(candidates: list[str]) -> None:
    found = choose(candidates)
    assert len(found) == (SIZE if len(candidates) >= SIZE else 0)
    assert found == candidates[: len(found)]


@given(names.filter(bool), names)
def test_changes_end_with_as_many_candidates_as_there_can_be(
    members: list[str], usable: list[str]
) -> None:
    now, steps = list(members), 0
    while change := next_change(now, usable):
        before = set(now)
        if change.remove:
            now.remove(change.remove)
        if change.add:
            now.append(change.add)
        assert len(before - set(now)) <= 1  # most of those that were members agree
        assert len(set(now) - before) <= 1
        assert len(now) >= len(before)
        steps += 1
        assert steps <= len(members) + SIZE
    assert len(now) >= len(members)
    gone, free = set(now) - set(usable), set(usable) - set(now)
    assert not gone or not free
    assert len(now) >= min(SIZE, len(set(usable)))


@given(names.filter(bool), names)
def test_a_member_on_a_candidate_stays(members: list[str], usable: list[str]) -> None:
    change = next_change(members, usable)
    assert change is None or change.remove not in usable

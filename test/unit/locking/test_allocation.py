"""Scenarios of locking, each a few lines; the generated ones are in test_model."""

from __future__ import annotations

import pytest

from ganeti.base.errors import LockError
from ganeti.locking.allocation import LockAllocation
from ganeti.locking.names import Request, group_of, in_order, order_key, parse_request
from ganeti.locking.waiting import OVERTAKEN_MAX
from ganeti.protocol.wconfd import ClientId, LockMode

EX, SH, REL = LockMode.EXCLUSIVE, LockMode.SHARED, LockMode.RELEASE
A, B, C, D = (ClientId(number, f"/l/{number}", number) for number in range(1, 5))


def want(*pairs: tuple[str, LockMode]) -> Request:
    return tuple(pairs)


def one(lock: str, mode: LockMode = EX) -> Request:
    return ((lock, mode),)


def settle(locks: LockAllocation) -> list[ClientId]:
    granted = []
    while (owner := locks.grantable()) is not None:
        locks.grant(owner)
        granted.append(owner)
    return granted


@pytest.fixture
def locks() -> LockAllocation:
    return LockAllocation()


@pytest.mark.shows(
    "backend/locks/levels",
    "backend/locks/node-res",
    "2.12/locking/order",
    "2.12/locking/levels",
    "2.12/locking/group-first",
    "2.12/locking/group-between",
    "2.0/locks/ordered",
    "2.0/locks/alphabetical",
)
def test_order_is_the_specified_one() -> None:
    expected = [
        "cluster/[lockset]", "cluster/BGL", "instance/[lockset]", "instance/a", "nodegroup/x",
        "node/[lockset]", "node/[a", "node/a", "node-res/[lockset]", "node-res/a",
        "network/[lockset]", "network/a", "cluster/config",
    ]  # fmt: skip
    assert in_order(reversed(expected)) == expected
    assert [group_of(name) for name in ("node/a", "cluster/BGL", "cluster/config", "node/[lockset]")] == [
        "node/[lockset]", "cluster/[lockset]", None, None,
    ]  # fmt: skip


@pytest.mark.shows("2.12/locking/named")
@pytest.mark.parametrize("name", ["", "node", "node/", "/x", "config/x", "cluster/x", "nodes/a"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(LockError, match="no lock"):
        order_key(name)


@pytest.mark.shows("2.12/locking/update")
@pytest.mark.parametrize(
    "value", [None, {}, [1], [["node/a"]], [["node/a", "x"]], [["node/a", "shared", 1]]]
)
def test_malformed_requests_are_refused(value: object) -> None:
    with pytest.raises(LockError, match="request"):
        parse_request(value)


@pytest.mark.shows(
    "backend/locks/shared",
    "2.12/locking/group-covers",
    "2.0/locks/shared",
    "2.0/metalocks/all-nodes",
    "2.0/add-remove/with-all",
    "2.1/lock-wait/try",
)
def test_groups_and_members_exclude_each_other(locks: LockAllocation) -> None:
    assert not locks.try_update(A, one("node/a", SH))
    assert not locks.try_update(B, one("node/[lockset]", SH))
    assert locks.try_update(C, one("node/[lockset]", EX)) == {A, B}
    assert locks.try_update(C, one("node/a", EX)) == {A, B}
    assert locks.try_update(C, one("node/b", EX)) == {B}
    assert not locks.try_update(C, one("node/b", SH))
    assert locks.list_all() == ["node/[lockset]", "node/a", "node/b"]
    assert dict(locks.list_all_owners())["node/[lockset]"] == [(B, SH)]


@pytest.mark.shows("2.12/locking/group-shared")
def test_exclusive_below_a_shared_group_is_refused(locks: LockAllocation) -> None:
    locks.try_update(A, one("node/[lockset]", SH))
    with pytest.raises(LockError, match="shared"):
        locks.try_update(A, one("node/a", EX))
    locks.try_update(B, one("instance/a", SH))
    assert not locks.try_update(A, one("node/a", SH))


@pytest.mark.shows(
    "backend/locks/increasing",
    "2.12/locking/update",
    "2.12/locking/update-order",
    "2.12/locking/upgrade-order",
    "2.0/locking-library/wrong-order",
)
def test_out_of_order_is_refused_and_changes_nothing(locks: LockAllocation) -> None:
    locks.try_update(A, want(("node/b", EX), ("node-res/a", SH)))
    before = locks.list_locks(A)
    for request in (
        one("node/a", SH),
        one("node/[lockset]", SH),
        one("node/b", EX)[:0] + one("instance/a"),
    ):
        with pytest.raises(LockError, match="out of order"):
            locks.try_update(A, want(*request, ("network/a", SH)))
    assert locks.list_locks(A) == before
    assert not locks.try_update(A, want(("node/b", SH), ("node-res/a", REL), ("network/a", EX)))
    assert locks.list_locks(A) == [("node/b", SH), ("network/a", EX)]


@pytest.mark.shows(
    "2.12/locking/update-only", "2.12/locking/pessimistic", "2.0/add-remove/with-all"
)
def test_a_group_covers_its_members_whatever_the_order(locks: LockAllocation) -> None:
    locks.try_update(A, want(("node/[lockset]", EX), ("network/a", SH)))
    assert not locks.try_update(A, want(("node/a", EX), ("node/b", SH), ("node/[lockset]", REL)))
    assert locks.list_locks(A) == [("node/a", EX), ("node/b", SH), ("network/a", SH)]
    assert not locks.try_update(B, one("node/b", SH))
    assert locks.try_update(B, one("node/c", SH)) == set()


@pytest.mark.shows(
    "2.0/granular/no-starvation", "2.1/lock-retry/not-held", "2.1/lock-retry/in-the-end"
)
def test_waiting_for_four_delays_nobody_and_is_not_starved(locks: LockAllocation) -> None:
    four = want(*((f"node/{name}", EX) for name in "abcd"))
    locks.try_update(B, one("node/d"))
    assert locks.wait_update(A, 0, four) == {B}
    for _ in range(3 * OVERTAKEN_MAX):  # as long as an elder is in the way, others pass freely
        assert not locks.try_update(C, one("node/a"))
        locks.remove_owner(C)
        assert settle(locks) == []
    locks.try_update(C, one("node/a", SH))
    locks.remove_owner(B)
    passed = 0
    taking, leaving = D, C
    while not locks.try_update(taking, one("node/a", SH)):
        locks.remove_owner(leaving)
        assert settle(locks) == []
        taking, leaving = leaving, taking
        passed += 1
    assert passed == OVERTAKEN_MAX
    locks.remove_owner(leaving)
    assert settle(locks) == [A]


@pytest.mark.shows(
    "backend/opcodes/other-order", "2.0/granular/no-starvation", "2.1/lock-retry/in-the-end"
)
def test_priority_is_served_first_but_not_for_ever(locks: LockAllocation) -> None:
    locks.try_update(A, one("node/a"))
    locks.wait_update(B, 10, one("node/a"))
    served = []
    holder, other = A, C
    for _ in range(2 * OVERTAKEN_MAX):
        locks.wait_update(other, -10, one("node/a"))
        locks.remove_owner(holder)
        served += settle(locks)
        if served[-1] == B:
            break
        holder, other = other, holder
    assert served[-1] == B
    assert len(served) <= OVERTAKEN_MAX + 2


def test_a_starving_waiter_does_not_bar_those_it_waits_for(locks: LockAllocation) -> None:
    locks.try_update(A, one("node/a"))
    locks.wait_update(B, 0, want(("node/a", EX), ("node/b", EX)))
    starve(locks, B)
    assert locks.try_update(C, one("node/b", SH)) == {B}
    assert not locks.try_update(A, one("node/b", SH)), "B waits for A, so A must go on"
    assert locks.wait_update(C, 0, one("node/b", SH)) == {B}


@pytest.mark.shows("2.12/aims/wait-for")
def test_who_becomes_waited_for_is_barred_no_more(locks: LockAllocation) -> None:
    """C stands behind starving B; then A, for whom B waits, begins to wait for C."""
    locks.try_update(A, one("node/a"))
    locks.try_update(C, one("network/z"))
    locks.try_update(C, one("network/z"))
    locks.wait_update(B, 0, want(("node/a", EX), ("network/zz", EX)))
    starve(locks, B)
    assert locks.wait_update(C, 0, one("network/zz", SH)) == {B}
    assert settle(locks) == []
    locks.wait_update(A, 0, one("network/z", SH))
    assert settle(locks) == [C]
    locks.remove_owner(C)
    assert settle(locks) == [A]
    locks.remove_owner(A)
    assert settle(locks) == [B]


def starve(locks: LockAllocation, owner: ClientId) -> None:
    waiter = next(waiter for waiter in locks.pending() if waiter.owner == owner)
    waiter.elders.clear()
    while not waiter.is_starving:
        locks._queue.count_overtaken(waiter)


@pytest.mark.shows(
    "backend/library/many-shared",
    "backend/library/by-priority",
    "backend/library/in-order",
    "backend/library/readers-together",
)
def test_waiters_of_one_priority_are_served_in_order_and_readers_together(
    locks: LockAllocation,
) -> None:
    owners = [ClientId(number, f"/l/{number}", number) for number in range(10, 17)]
    asked = [(0, SH), (-5, EX), (0, SH), (0, EX), (0, SH), (0, EX), (5, SH)]
    locks.try_update(A, one("node/a"))
    for owner, (priority, mode) in zip(owners, asked, strict=True):
        assert locks.wait_update(owner, priority, one("node/a", mode))
    locks.remove_owner(A)
    turns = []
    while turn := settle(locks):
        turns.append([owners.index(owner) for owner in turn])
        for owner in turn:
            locks.remove_owner(owner)
    assert turns == [[1], [0, 2, 4, 6], [3], [5]]


@pytest.mark.shows("2.12/locking/no-deadlock", "2.12/aims/wait-for", "2.0/granular/no-deadlock")
def test_two_upgrades_would_wait_for_each_other(locks: LockAllocation) -> None:
    for owner in (A, B):
        locks.try_update(owner, one("node/a", SH))
    assert locks.wait_update(A, 0, one("node/a")) == {B}
    with pytest.raises(LockError, match="job 2 would wait for job 1"):
        locks.wait_update(B, 0, one("node/a"))
    assert locks.list_locks(B) == [("node/a", SH)]
    locks.remove_owner(B)
    assert settle(locks) == [A]
    assert locks.list_locks(A) == [("node/a", EX)]


def test_a_pending_owner_can_only_repeat_itself(locks: LockAllocation) -> None:
    locks.try_update(A, one("node/a"))
    locks.wait_update(B, 0, want(("node/a", SH), ("node/b", SH)))
    with pytest.raises(LockError, match="pending"):
        locks.try_update(B, one("node/c"))
    assert locks.opportunistic_union(B, one("node/c")) == [], "it takes nothing, and never fails"
    assert locks.wait_update(B, -1, want(("node/b", SH), ("node/a", SH))) == {A}
    assert [waiter.priority for waiter in locks.pending()] == [-1]
    locks.remove_owner(A)
    assert settle(locks) == [B]
    assert locks.wait_update(B, 0, want(("node/a", SH), ("node/b", SH))) == set()


@pytest.mark.shows("backend/locks/released-early", "2.12/locking/pessimistic")
def test_releasing_a_group_wakes_waiters_for_members(locks: LockAllocation) -> None:
    locks.try_update(A, one("node/[lockset]"))
    locks.wait_update(B, 0, one("node/a"))
    locks.wait_update(C, 0, one("node/[lockset]", SH))
    locks.wait_update(D, 0, one("node/b", SH))
    assert settle(locks) == []
    locks.downgrade_level(A, "node")
    assert settle(locks) == [C, D]
    locks.remove_owner(A)
    assert settle(locks) == []
    locks.remove_owner(C)
    assert settle(locks) == [B]


@pytest.mark.shows("2.12/locking/opportunistic", "2.12/locking/opportunistic-order")
def test_opportunistic_union_takes_what_it_can(locks: LockAllocation) -> None:
    locks.try_update(A, one("node/b"))
    wanted = want(("node/c", SH), ("node/a", EX), ("node/b", SH))
    assert locks.opportunistic_union(B, wanted, 3) == []
    assert locks.opportunistic_union(B, wanted, 2) == ["node/a", "node/c"]
    assert locks.opportunistic_union(B, wanted) == []
    assert locks.opportunistic_union(B, want(("instance/a", SH), ("node/d", SH))) == ["node/d"]

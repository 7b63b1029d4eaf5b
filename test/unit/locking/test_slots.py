"""Slots: how many jobs may work at once is part of the decision about locks."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ganeti.locking.allocation import LockAllocation
from ganeti.locking.names import BGL, Request
from ganeti.locking.serialisation import decode_locks, encode_locks
from ganeti.protocol.wconfd import PRIORITY_BEYOND_LIMIT, ClientId, LockMode

EX, SH = LockMode.EXCLUSIVE, LockMode.SHARED
ONE, TWO, THREE, FOUR = (ClientId(number, f"/l/{number}", number) for number in range(1, 5))
CLIENT = ClientId("luxid-7", "/l/luxid", 7)


def work(*instances: str) -> Request:
    return ((BGL, SH), *((f"instance/{name}", EX) for name in instances))


def settle(locks: LockAllocation) -> list[ClientId]:
    granted = []
    while (owner := locks.grantable()) is not None:
        locks.grant(owner)
        granted.append(owner)
    return granted


@pytest.fixture
def locks() -> LockAllocation:
    made = LockAllocation()
    made.set_jobs_max(1)
    return made


def test_a_job_waits_for_a_slot_and_holds_nothing_meanwhile(locks: LockAllocation) -> None:
    assert locks.wait_update(ONE, 0, work("a")) == set()
    assert locks.wait_update(TWO, 0, work("b")) == {ONE}
    assert settle(locks) == []
    assert not locks.held(TWO)
    assert locks.blockers(TWO, work("b")) == {ONE}
    locks.remove_owner(ONE)
    assert settle(locks) == [TWO]


def test_who_waits_for_a_lock_has_no_slot(locks: LockAllocation) -> None:
    locks.set_jobs_max(2)
    assert locks.wait_update(ONE, 0, work("a")) == set()
    assert locks.wait_update(TWO, 0, work("a")) == {ONE}
    assert locks.wait_update(THREE, 0, work("a")) == {ONE}
    assert locks.wait_update(FOUR, 0, work("b")) == set()


def test_the_most_urgent_gets_the_slot_and_then_the_oldest(locks: LockAllocation) -> None:
    locks.wait_update(ONE, 0, work("a"))
    locks.wait_update(TWO, 0, work("b"))
    locks.wait_update(THREE, -1, work("c"))
    locks.wait_update(FOUR, 0, work("d"))
    for running, following in ((ONE, THREE), (THREE, TWO), (TWO, FOUR)):
        locks.remove_owner(running)
        assert settle(locks) == [following]


@pytest.mark.shows("backend/jobs/back-in-queue")
def test_between_two_opcodes_an_urgent_job_comes_in(locks: LockAllocation) -> None:
    locks.wait_update(ONE, 0, work("a"))
    locks.wait_update(TWO, -20, work("b"))
    locks.remove_owner(ONE)
    assert settle(locks) == [TWO]
    assert locks.wait_update(ONE, 0, work("a")) == {TWO}


def test_a_job_that_works_gets_more_locks_without_another_slot(locks: LockAllocation) -> None:
    locks.wait_update(ONE, 0, work("a"))
    assert locks.wait_update(ONE, 0, (("node/x", SH),)) == set()


def test_clients_that_are_no_jobs_need_none(locks: LockAllocation) -> None:
    locks.wait_update(ONE, 0, work("a"))
    assert locks.wait_update(CLIENT, 0, work("b")) == set()


def test_jobs_that_mend_the_cluster_need_none(locks: LockAllocation) -> None:
    locks.wait_update(ONE, 0, work("a"))
    assert locks.wait_update(TWO, PRIORITY_BEYOND_LIMIT, work("b")) == set()
    locks.wait_update(THREE, 0, work("c"))
    assert settle(locks) == []
    locks.change_priority(THREE, PRIORITY_BEYOND_LIMIT)
    assert settle(locks) == [THREE]


def test_another_limit_counts_at_once(locks: LockAllocation) -> None:
    for owner in (ONE, TWO, THREE):
        locks.wait_update(owner, 0, work(str(owner.identifier)))
    locks.set_jobs_max(2)
    assert settle(locks) == [TWO]
    locks.set_jobs_max(1)
    locks.remove_owner(ONE)
    assert settle(locks) == [], "two may not work any more"
    locks.remove_owner(TWO)
    assert settle(locks) == [THREE]


def test_slots_are_found_again_in_the_file(locks: LockAllocation) -> None:
    locks.wait_update(ONE, 0, work("a"))
    locks.wait_update(TWO, 0, work("b"))
    again = decode_locks(encode_locks(locks))
    again.set_jobs_max(1)
    assert settle(again) == []
    again.remove_owner(ONE)
    assert settle(again) == [TWO]


def transfer(*nodes: str) -> Request:
    return ((BGL, SH), *((f"node-res/{name}", SH) for name in nodes))


def test_what_a_node_has_is_shared_by_so_many_jobs_only() -> None:
    locks = LockAllocation()
    locks.set_jobs_max(3)
    locks.set_sharers_max(2)
    assert locks.wait_update(ONE, 0, transfer("a", "b")) == set()
    assert locks.wait_update(TWO, 0, transfer("b", "c")) == set()
    assert locks.wait_update(THREE, 0, transfer("b")) == {ONE, TWO}
    assert settle(locks) == []
    assert not locks.held(THREE)  # neither lock nor slot
    assert locks.wait_update(FOUR, -1, transfer("b", "d")) == {ONE, TWO}
    assert locks.wait_update(CLIENT, 0, transfer("a", "c")) == set()
    assert locks.blockers(THREE, transfer("b")) == {ONE, TWO}
    locks.remove_owner(ONE)
    assert settle(locks) == [FOUR], "the most urgent comes first"
    locks.set_sharers_max(None)
    assert settle(locks) == [THREE]


def test_disks_that_get_into_step_share_what_was_exclusive() -> None:
    locks = LockAllocation()
    locks.set_sharers_max(1)
    locks.wait_update(ONE, 0, ((BGL, SH), ("node-res/a", EX)))
    assert locks.wait_update(TWO, 0, transfer("a")) == {ONE}
    locks.downgrade_level(ONE, "node-res")
    assert settle(locks) == []
    assert locks.opportunistic_union(CLIENT, (("node-res/a", SH), ("node-res/b", SH))) == [
        "node-res/b"
    ]
    locks.release_level(ONE, "node-res")
    assert settle(locks) == [TWO]


def test_other_locks_are_shared_by_any_number() -> None:
    locks = LockAllocation()
    locks.set_sharers_max(1)
    for owner in (ONE, TWO, THREE):
        assert locks.wait_update(owner, 0, ((BGL, SH), ("node/a", SH))) == set()


def test_a_starving_waiter_for_a_slot_does_not_keep_those_from_ending_who_have_one(
    locks: LockAllocation,
) -> None:
    locks.wait_update(ONE, 0, work("a"))
    locks.wait_update(TWO, 0, (*work(), ("node/x", EX)))
    for _ in range(20):  # others take the node's lock again and again
        locks.try_update(CLIENT, (("node/x", SH),))
        locks.remove_owner(CLIENT)
    assert locks.blockers(CLIENT, (("node/x", SH),)) == {TWO}, "it starves"
    assert locks.wait_update(ONE, 0, (("node/x", SH),)) == set()


JOBS = [ClientId(number, f"/l/{number}", number) for number in range(6)]
jobs = st.sampled_from(JOBS)
names = st.lists(st.sampled_from(["a", "b", "c"]), max_size=2, unique=True)


class SlotMachine(RuleBasedStateMachine):
    """Jobs ask, work and end in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.locks = LockAllocation()
        self.limit = 2
        self.locks.set_jobs_max(2)
        self.priorities: dict[ClientId, int] = {}
        self.order: list[ClientId] = []

    def running(self) -> set[ClientId]:
        return {owner for owner in JOBS if BGL in self.locks.held(owner)}

    def serve(self) -> None:
        while (owner := self.locks.grantable()) is not None:
            better = [
                other
                for other in self.order
                if (self.priorities[other], self.order.index(other))
                < (self.priorities[owner], self.order.index(owner))
            ]
            for other in better:  # those before it wait for a lock, not for the slot
                request = self.locks.pending_request(other)
                assert request is not None
                assert self.lock_is_held(other, request)
            assert len(self.running()) < self.limit
            self.locks.grant(owner)
            self.order.remove(owner)

    def lock_is_held(self, owner: ClientId, request: Request) -> bool:
        return any(
            holder != owner and EX in (mode, theirs)
            for lock, mode in request
            for holder, theirs in self.locks.holders(lock).items()
        )

    @rule(owner=jobs, wanted=names, priority=st.integers(-2, 2), alone=st.booleans())
    def ask(self, owner: ClientId, wanted: list[str], priority: int, alone: bool) -> None:
        if owner in self.order or self.locks.held(owner):
            return
        request = ((BGL, EX),) if alone else work(*sorted(wanted))
        before = len(self.running())
        if self.locks.wait_update(owner, priority, request):
            self.priorities[owner] = priority
            self.order.append(owner)
        else:
            assert before < self.limit
        self.serve()

    @rule(owner=jobs)
    def end(self, owner: ClientId) -> None:
        self.locks.remove_owner(owner)
        if owner in self.order:
            self.order.remove(owner)
        self.serve()

    @rule(limit=st.integers(1, 4))
    def change_limit(self, limit: int) -> None:
        self.limit = limit
        self.locks.set_jobs_max(limit)
        self.serve()

    @invariant()
    def nobody_waits_without_a_reason(self) -> None:
        full = len(self.running()) >= self.limit
        for owner in self.order:
            request = self.locks.pending_request(owner)
            assert request is not None
            assert full or self.locks.blockers(owner, request)
            assert not self.locks.held(owner), "a job that waits for its slot holds locks"


SlotMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestSlotMachine = SlotMachine.TestCase

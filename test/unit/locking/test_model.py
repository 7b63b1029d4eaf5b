"""The allocation, played against a slow obvious model by generated commands."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ganeti.base.errors import LockError
from ganeti.locking import waiting
from ganeti.locking.allocation import LockAllocation
from ganeti.locking.names import LEVELS, Request, group_of, order_key
from ganeti.locking.serialisation import decode_locks, encode_locks
from ganeti.protocol.wconfd import ClientId, LockMode

EX, SH, REL = LockMode.EXCLUSIVE, LockMode.SHARED, LockMode.RELEASE
OWNERS = [ClientId(number, f"/livelocks/job_{number}", number) for number in range(4)]
LOCKS = [
    "cluster/[lockset]",
    "cluster/BGL",
    "node/[lockset]",
    "node/a",
    "node/b",
    "network/[lockset]",
    "network/x",
    "cluster/config",
]

owners = st.sampled_from(OWNERS)
locks = st.sampled_from(LOCKS)
modes = st.sampled_from([EX, SH, REL])
hot_locks = st.sampled_from(["node/[lockset]", "node/a", "node/b"])
requests = st.one_of(
    st.dictionaries(hot_locks, st.sampled_from([EX, SH]), min_size=1, max_size=2),
    st.dictionaries(locks, modes, min_size=1, max_size=3),
).map(lambda wanted: tuple(wanted.items()))
priorities = st.integers(-2, 2)


def related(one: str, other: str) -> bool:
    return one == other or group_of(one) == other or group_of(other) == one


def clash(lock: str, mode: LockMode, other: str, theirs: LockMode) -> bool:
    return related(lock, other) and EX in (mode, theirs)


@dataclass
class Wait:
    owner: ClientId
    priority: int
    request: Request
    sequence: int
    elders: set[ClientId]
    overtaken: int = 0

    @property
    def starving(self) -> bool:
        return self.overtaken >= waiting.OVERTAKEN_MAX

    @property
    def rank(self) -> tuple[int, int, int]:
        return (0, 0, self.sequence) if self.starving else (1, self.priority, self.sequence)

    @property
    def wants(self) -> list[tuple[str, LockMode]]:
        return [(lock, mode) for lock, mode in self.request if mode is not REL]


@dataclass
class Model:
    """Everything is looked up by going through everything."""

    held: dict[tuple[ClientId, str], LockMode] = field(default_factory=dict)
    waits: list[Wait] = field(default_factory=list)
    sequence: int = 0

    def strong(self, owner: ClientId, lock: str, mode: LockMode) -> bool:
        have = {self.held.get((owner, lock)), self.held.get((owner, group_of(lock) or lock))}
        return EX in have or (mode is SH and SH in have)

    def wanted(self, owner: ClientId, request: Request) -> list[tuple[str, LockMode]]:
        return [(k, m) for k, m in request if m is not REL and not self.strong(owner, k, m)]

    def holders_against(self, owner: ClientId, request: Request) -> set[ClientId]:
        return {
            other
            for lock, mode in self.wanted(owner, request)
            for (other, theirs), held_mode in self.held.items()
            if other != owner and clash(lock, mode, theirs, held_mode)
        }

    def wait_of(self, owner: ClientId) -> Wait | None:
        return next((wait for wait in self.waits if wait.owner == owner), None)

    def highest(self, owner: ClientId) -> tuple[int, int, str] | None:
        return max((order_key(k) for o, k in self.held if o == owner), default=None)

    def breaks_rule(self, owner: ClientId, request: Request) -> bool:
        wait = self.wait_of(owner)
        if wait is not None:
            return dict(wait.request) != dict(request)
        highest = self.highest(owner)
        for lock, mode in request:
            if mode is REL:
                continue
            group_mode = self.held.get((owner, group_of(lock) or ""))
            if mode is EX and group_mode is SH and self.held.get((owner, lock)) is not EX:
                return True
            if highest and order_key(lock) < highest and not self.strong(owner, lock, mode):
                return True
        return False

    def apply(self, owner: ClientId, request: Request, sequence: int | None) -> None:
        newly = self.wanted(owner, request)
        for lock, mode in request:
            if mode is REL:
                self.held.pop((owner, lock), None)
            else:
                self.held[owner, lock] = mode
        if not newly or not self.waits:
            return
        if sequence is None:
            self.sequence += 1
            sequence = self.sequence
        for wait in self.waits:
            if wait.sequence > sequence or wait.owner == owner:
                continue
            if any(clash(k, m, w, wm) for k, m in newly for w, wm in wait.wants):
                wait.elders.discard(owner)
                wait.elders &= self.holders_against(wait.owner, wait.request)
                if not wait.elders and not wait.starving:
                    wait.overtaken += 1

    def circle_by_holders(self, owner: ClientId, request: Request) -> bool:
        reached = set(self.holders_against(owner, request))
        while True:
            more = {
                other
                for wait in self.waits
                if wait.owner in reached
                for other in self.holders_against(wait.owner, wait.request)
            }
            if owner in more:
                return True
            if more <= reached:
                return False
            reached |= more


class LockMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.limit = waiting.OVERTAKEN_MAX
        waiting.OVERTAKEN_MAX = 1  # so that fifty commands see many starve
        self.real = LockAllocation()
        self.model = Model()
        self.dead: set[ClientId] = set()

    def teardown(self) -> None:
        waiting.OVERTAKEN_MAX = self.limit

    def settle(self) -> None:
        """Grant in the real allocation, checking each grant against the model."""
        while (owner := self.real.grantable()) is not None:
            wait = self.model.wait_of(owner)
            assert wait is not None
            if owner in self.dead:
                self.real.remove_owner(owner)
                self.model_remove(owner)
                continue
            assert not self.model.holders_against(owner, wait.request)
            better = [
                other
                for other in self.model.waits
                if other.rank < wait.rank
                and not self.model.holders_against(other.owner, other.request)
                and not self.starving_before(other)
            ]
            assert not better, f"{better} should have been served before {wait}"
            self.real.grant(owner)
            self.model.waits.remove(wait)
            self.model.apply(owner, wait.request, wait.sequence)
        self.dead.clear()

    def starving_before(self, wait: Wait) -> list[Wait]:
        return [
            other
            for other in self.model.waits
            if other.starving and other.sequence < wait.sequence and other is not wait
        ]

    def model_remove(self, owner: ClientId) -> None:
        self.model.waits = [wait for wait in self.model.waits if wait.owner != owner]
        for key in [key for key in self.model.held if key[0] == owner]:
            del self.model.held[key]

    @rule(owner=owners, request=requests)
    def try_update(self, owner: ClientId, request: Request) -> None:
        self.update(owner, request, priority=None)

    @rule(owner=owners, request=requests, priority=priorities)
    def wait_update(self, owner: ClientId, request: Request, priority: int) -> None:
        self.update(owner, request, priority=priority)

    @rule(owner=owners, priority=priorities, lock=hot_locks, mode=st.sampled_from([SH, EX]))
    def wait_for_hot_lock(self, owner: ClientId, priority: int, lock: str, mode: LockMode) -> None:
        self.update(owner, ((lock, mode),), priority=priority)

    @rule(owner=owners, lock=hot_locks, mode=modes)
    def try_hot_lock(self, owner: ClientId, lock: str, mode: LockMode) -> None:
        self.update(owner, ((lock, mode),), priority=None)

    @rule(owner=owners, lock=hot_locks)
    def release_hot_lock(self, owner: ClientId, lock: str) -> None:
        self.real.release(owner, [lock])
        self.model.held.pop((owner, lock), None)
        self.settle()

    @precondition(lambda self: self.model.waits)
    @rule(data=st.data(), priority=priorities)
    def repeat_wait(self, data: st.DataObject, priority: int) -> None:
        wait = data.draw(st.sampled_from(self.model.waits))
        self.update(wait.owner, wait.request, priority=priority)

    def update(self, owner: ClientId, request: Request, priority: int | None) -> None:
        before = dict(self.model.held)
        wait = self.model.wait_of(owner)
        refused = self.model.breaks_rule(owner, request)
        against = self.model.holders_against(owner, request)
        circle = (
            priority is not None
            and wait is None
            and bool(against)
            and self.model.circle_by_holders(owner, request)
        )
        try:
            if priority is None:
                blockers = self.real.try_update(owner, request)
            else:
                blockers = self.real.wait_update(owner, priority, request)
        except LockError:
            assert refused or circle
            assert self.held_in_real() == before
            return
        assert not refused
        assert not circle
        if blockers:
            others = blockers - against
            assert against <= blockers
            assert all(self.is_starving(other) for other in others)
            assert self.held_in_real() == before
            if priority is not None and wait is not None:
                wait.priority = priority
            elif priority is not None:
                self.model.sequence += 1
                self.model.waits.append(
                    Wait(owner, priority, request, self.model.sequence, against)
                )
        else:
            assert not against
            self.model.apply(owner, request, None)
        self.settle()

    def is_starving(self, owner: ClientId) -> bool:
        wait = self.model.wait_of(owner)
        return wait is not None and wait.starving

    @rule(owner=owners, request=requests, count=st.integers(0, 2))
    def opportunistic_union(self, owner: ClientId, request: Request, count: int) -> None:
        before = dict(self.model.held)
        got = self.real.opportunistic_union(owner, request, count)
        if self.model.wait_of(owner) is not None:
            assert got == []
            return
        assert len(got) >= count or not got
        wanted = dict(request)
        for lock in got:
            assert (owner, lock) not in before or before[owner, lock] is not wanted[lock]
        if not count and not any(wait.starving for wait in self.model.waits):
            self.expect_all_that_can_be_had(owner, request, got)
        self.model.apply(owner, tuple((lock, wanted[lock]) for lock in got), None)
        self.settle()

    def expect_all_that_can_be_had(self, owner: ClientId, request: Request, got: list[str]) -> None:
        highest = self.model.highest(owner)
        taken: dict[str, LockMode] = {}
        for lock, mode in sorted(request, key=lambda item: order_key(item[0])):
            if mode is REL or self.model.strong(owner, lock, mode):
                continue
            if highest and order_key(lock) < highest:
                continue
            group = group_of(lock) or ""
            if mode is EX and taken.get(group, self.model.held.get((owner, group))) is SH:
                continue
            if not self.model.holders_against(owner, ((lock, mode),)):
                taken[lock] = mode
        assert got == list(taken)

    @rule(owner=owners, names=st.sets(locks))
    def intersect(self, owner: ClientId, names: set[str]) -> None:
        self.real.intersect(owner, names)
        for key in [k for k in self.model.held if k[0] == owner and k[1] not in names]:
            del self.model.held[key]
        self.settle()

    @rule(owner=owners, level=st.sampled_from(LEVELS))
    def release_level(self, owner: ClientId, level: str) -> None:
        self.real.release_level(owner, level)
        number = LEVELS.index(level)
        for key in [k for k in self.model.held if k[0] == owner and order_key(k[1])[0] == number]:
            del self.model.held[key]
        self.settle()

    @rule(owner=owners, level=st.sampled_from(LEVELS))
    def downgrade_level(self, owner: ClientId, level: str) -> None:
        self.real.downgrade_level(owner, level)
        number = LEVELS.index(level)
        for key in self.model.held:
            if key[0] == owner and order_key(key[1])[0] == number:
                self.model.held[key] = SH
        self.settle()

    @rule(owner=owners)
    def free(self, owner: ClientId) -> None:
        self.real.remove_owner(owner)
        self.model_remove(owner)
        self.settle()

    @rule(owner=owners, victim=owners)
    def free_while_another_is_dead(self, owner: ClientId, victim: ClientId) -> None:
        if self.model.wait_of(victim) is not None:
            self.dead = {victim}
        self.free(owner)

    @rule(owner=owners)
    def withdraw(self, owner: ClientId) -> None:
        wait = self.model.wait_of(owner)
        assert self.real.withdraw(owner) == (wait is not None)
        if wait is not None:
            self.model.waits.remove(wait)
        self.settle()

    @rule(owner=owners, priority=priorities)
    def change_priority(self, owner: ClientId, priority: int) -> None:
        wait = self.model.wait_of(owner)
        assert self.real.change_priority(owner, priority) == (wait is not None)
        if wait is not None:
            wait.priority = priority
        self.settle()

    @precondition(lambda self: not any(wait.overtaken for wait in self.model.waits))
    @rule()
    def restart(self) -> None:
        self.real = decode_locks(encode_locks(self.real))
        for wait in self.model.waits:
            wait.elders = self.model.holders_against(wait.owner, wait.request)
        self.model.waits.sort(key=lambda wait: wait.sequence)
        for number, wait in enumerate(self.model.waits, 1):
            wait.sequence = number
        self.model.sequence = len(self.model.waits)
        self.settle()

    def held_in_real(self) -> dict[tuple[ClientId, str], LockMode]:
        return {
            (owner, lock): mode
            for lock, holders in self.real.list_all_owners()
            for owner, mode in holders
        }

    @invariant()
    def same_locks(self) -> None:
        assert self.held_in_real() == self.model.held
        for owner in OWNERS:
            expected = {lock: mode for (who, lock), mode in self.model.held.items() if who == owner}
            assert dict(self.real.list_locks(owner)) == expected
            assert self.real.is_pending(owner) == (self.model.wait_of(owner) is not None)

    @invariant()
    def same_queue(self) -> None:
        served = [(waiter.owner, waiter.overtaken) for waiter in self.real.waiters()]
        expected = sorted(self.model.waits, key=lambda wait: wait.rank)
        assert served == [(wait.owner, wait.overtaken) for wait in expected]

    @invariant()
    def no_conflicting_owners(self) -> None:
        entries = list(self.model.held.items())
        for (one, lock), mode in entries:
            for (other, theirs), their_mode in entries:
                assert one == other or not clash(lock, mode, theirs, their_mode)

    @invariant()
    def no_lost_wake_up(self) -> None:
        """Whoever waits is blocked by a holder or stands behind a starving one."""
        for wait in self.model.waits:
            if not self.model.holders_against(wait.owner, wait.request):
                older = self.starving_before(wait)
                assert any(
                    clash(k, m, o, om) for k, m in wait.wants for s in older for o, om in s.wants
                )

    @invariant()
    def no_deadlock(self) -> None:
        """As long as anybody waits, somebody who does not wait holds something in the way."""
        if self.model.waits:
            waiting = {wait.owner for wait in self.model.waits}
            assert any(
                self.model.holders_against(wait.owner, wait.request) - waiting
                for wait in self.model.waits
            )


LockMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestLockModel = LockMachine.TestCase


# Generated commands rarely make two owners share a lock that both then want exclusively, so long
# walks, weighted towards waiting for few locks, look where the generator does not.

INVARIANTS = [
    LockMachine.same_locks,
    LockMachine.same_queue,
    LockMachine.no_conflicting_owners,
    LockMachine.no_lost_wake_up,
    LockMachine.no_deadlock,
]


def random_step(machine: LockMachine, chance: random.Random) -> None:
    owner = chance.choice(OWNERS)
    lock = chance.choice(["node/[lockset]", "node/a", "node/b", "network/x"])
    mode = chance.choice([SH, SH, EX])
    priority = chance.randint(-1, 1)
    match chance.choices(
        ["wait", "wait two", "try", "release", "free", "level", "again", "union", "dead"],
        [12, 6, 3, 6, 2, 1, 1, 2, 1],
    )[0]:
        case "wait":
            machine.update(owner, ((lock, mode),), priority)
        case "wait two":
            names = chance.sample(LOCKS, 2)
            wanted = tuple((name, chance.choice([SH, EX, REL])) for name in names)
            machine.update(owner, wanted, priority)
        case "try":
            machine.update(owner, ((lock, mode),), None)
        case "release":
            machine.release_hot_lock(owner, lock)
        case "free":
            machine.free(owner)
        case "level":
            machine.downgrade_level(owner, "node")
        case "again":
            machine.change_priority(owner, priority)
        case "union":
            machine.opportunistic_union(owner, tuple({lock: mode, "node/b": SH}.items()), 0)
        case "dead":
            machine.free_while_another_is_dead(owner, chance.choice(OWNERS))


@pytest.mark.shows(
    "backend/locks/free",
    "backend/locks/shared",
    "backend/locks/exclusive",
    "2.12/locking/sets",
    "2.12/locking/update-only",
    "2.0/granular/no-deadlock",
    "2.0/locks/unlocked",
)
@pytest.mark.parametrize("seed", range(40))
def test_long_walks_agree_with_the_model(seed: int) -> None:
    chance = random.Random(seed)
    machine = LockMachine()
    try:
        for _ in range(400):
            random_step(machine, chance)
            for holds in INVARIANTS:
                holds(machine)
    finally:
        machine.teardown()

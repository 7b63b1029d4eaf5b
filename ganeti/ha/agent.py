"""The agent of a node: shows that the node lives, and finds out whether others do.

Theory of operation.  Two loops.  `feed` looks at the clock several times a second, and feeds the
watchdog while `Keeper` allows it; it waits for nothing else.  `beat` renews the node's lease in
etcd once a second, or makes the node present there first; asks the other agents where that is
needed; and, on a master candidate, decides about the master's lease, and on the master about nodes
that are missed.  What is decided, and why, is in `ganeti.availability`; here it is carried out.

Whatever is written to etcd names what it is based on, so that it is refused if that has changed:
a presence the loss that was read before, all orders of the master the key that makes it one.

Other settings are taken up while the agent runs.  What etcd says of this node's watchdog is true
at every moment: until etcd knows the new times, the node keeps to the stricter ones of both, and
etcd gets the longer ones first.  While all is paused no watchdog runs, after etcd was told so:
nobody is proved dead meanwhile, and nodes that are cut off or stopped are not to be reset.

A lease disk is looked at by a thread of its own, which tells the loop what it found.  It keeps the
node alive only while etcd's record of the node says so: it is told of it first, of its end last.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from ganeti.availability.disk import Round, Slot, Verdict
from ganeti.availability.electorate import counts_alike
from ganeti.availability.keeper import Keeper, guard_for, is_dead, may_arm
from ganeti.availability.mastership import (
    Claim,
    Claimant,
    Companion,
    Lone,
    Outlook,
    Report,
    mark_wanted,
)
from ganeti.availability.proof import Act, DiskView, Judge, NodeView, Order, Power, View, is_unsafe
from ganeti.availability.records import (
    ACTING,
    ALONE_KEY,
    FENCING,
    GUARDS,
    LOSSES,
    MASTER_KEY,
    NODES,
    OUTDATED,
    PAUSE_KEY,
    Fencing,
    Guard,
    Loss,
    Mastership,
    Outdated,
    Pause,
    Presence,
)
from ganeti.availability.timing import Timing, longest, strictest
from ganeti.base.errors import GenericError, ProtocolError, TransportError
from ganeti.base.json import dumps
from ganeti.clients.etcd import Delete, EtcdClient, Put, Snapshot, Unchanged
from ganeti.ha.disk import DiskLease, Place, SlotWriter
from ganeti.ha.facts import Facts
from ganeti.ha.friends import Ask, Friends, Question, names_of
from ganeti.ha.watchdog import Watchdog
from ganeti.objects.record import Record
from ganeti.store.availability import State

logger = logging.getLogger(__name__)

FEEDS_PER_BEAT: Final = 4
FEED_S_MAX: Final = 0.25  # no watchdog is set to less than a second
CONDEMNED_AT_ONCE: Final = 8  # so that the answers of a large cluster do not overrun a socket
_SETTLE_S: Final = 5.0
_SETTLE_OTHERS_S: Final = 60.0  # what others wrote is theirs, unless they have no copy any more
_LEAVES: Final = "its agent is being stopped"


class Hands(Protocol):
    """What an agent does outside of etcd; none of it may keep the caller waiting for long."""

    def now(self) -> float:
        """Return the time of the monotonic clock."""

    def time(self) -> float:
        """Return the time since the epoch."""

    def is_master(self) -> bool:
        """Tell whether the daemons of the master run here."""

    def has_jobs(self) -> bool:
        """Tell whether jobs of a master run here."""

    def arm(self, timeout_s: float, until_s: float) -> Watchdog | None:
        """Let the watchdog run, if the node has one; not later than that by `now`."""

    @property
    def watchdog(self) -> str:
        """The watchdog that is to run; "" for none."""

    def place_on_disk(self, node: str) -> Place | None:
        """Return where a node's slot on the lease disk is; None for nowhere."""

    async def publish(self, state: State) -> None:
        """Let the daemons of this node know."""

    def reports(self) -> Sequence[Report]:
        """Return what the daemons of the master say of the copies that they make."""

    def condemned(self) -> None:
        """This boot was proved dead: let the node be reset, watchdog or not."""

    async def fail_over(self) -> bool:
        """Make this node the master; returns whether it is."""

    async def switch_off(self, node: str) -> tuple[Power, str]:
        """Have a node switched off; returns what the helper says then, and its trouble."""

    async def settle(self) -> bool:
        """Tell etcd which copies were written off or are good again; returns whether it knows."""


@dataclass(frozen=True, slots=True)
class Means:
    """What an agent works with, as the settings with that digest say."""

    digest: str
    timing: Timing
    etcd: EtcdClient
    hands: Hands


@dataclass(slots=True)
class Agent:
    """The agent's memory, and what it does with it.

    Attributes:
        shelf: what etcd held at the last beat; None if it did not answer.
        state: what the daemons of this node were told last.
        digest: of the settings that are in use.
        is_leaving: it is being stopped, so this node takes nothing over any more.
    """

    own: str
    boot_id: str
    timing: Timing
    facts: Facts
    etcd: EtcdClient
    hands: Hands
    friends: Friends | None = None
    shelf: Snapshot | None = None
    state: State = field(default_factory=lambda: State(time=0.0))
    keeper: Keeper = field(init=False)
    judge: Judge = field(init=False)
    claimant: Claimant = field(init=False)
    companion: Companion = field(init=False)
    digest: str = ""
    is_leaving: bool = False
    _mastership: Mastership = field(init=False)
    _next: Means | None = None
    _watchdog: Watchdog | None = None
    _watchdog_path: str = ""
    _stands_down: bool = False
    _lease: int = 0
    _renewed_s: float = 0.0
    _known_s: float = 0.0
    _publishing: asyncio.Task[None] | None = None
    _answered_s: dict[str, float] = field(default_factory=dict)
    _fail_over: asyncio.Task[bool] | None = None
    _switching: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _said: str = ""
    _settling: asyncio.Task[None] | None = None
    _settled_s: float = -math.inf
    _is_settled: bool = False
    _place: Place | None = None
    _disk: DiskLease | None = None
    _round: Round | None = None
    _verdicts: dict[str, Verdict] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.keeper = Keeper(self.timing, self.own, self.boot_id, self.hands.now())
        self.judge, self.claimant = Judge(self.timing), Claimant(self.timing)
        self.companion = Companion(self.timing)
        self._mastership = Mastership(node=self.own, boot_id=self.boot_id)

    def take(self, means: Means) -> None:
        """Take up other settings with the next beat."""
        self._next = means

    def answer(self, question: Question) -> bool:
        """Answer another agent."""
        now_s = self.hands.now()
        if question.ask is Ask.CONDEMN:
            self.keeper.condemn(question.node, question.boot_id, now_s, question.hold_s)
            return True
        is_alike = counts_alike(question.nodes, self.facts.digest)
        return is_alike and self.keeper.vouches_for(question.node, question.boot_id, now_s)

    async def feed(self) -> None:
        """Feed the watchdog, for ever."""
        while True:
            if self.keeper.gives_up(self.hands.now()):
                logger.critical("This node is condemned on the lease disk: it gives up")
                if self._watchdog is not None:
                    self._watchdog.let_go()
                self._write_to_disk()
            if self._watchdog is not None and self.keeper.may_feed(self.hands.now()):
                self._watchdog.feed(self.keeper.dies_at())
            await asyncio.sleep(min(self.timing.beat_s / FEEDS_PER_BEAT, FEED_S_MAX))

    async def beats(self) -> None:
        """Beat, for ever."""
        while True:
            started_s = self.hands.now()
            await self.beat()
            await asyncio.sleep(max(started_s + self.timing.beat_s - self.hands.now(), 0.0))

    async def beat(self) -> None:
        """Show that the node lives; decide what there is to decide."""
        is_candidate = self.own in self.facts.candidates
        asking = asyncio.create_task(self._ask_friends()) if is_candidate else None
        means = self._next  # others may come while this beat waits
        if means is not None and means.etcd is not self.etcd:
            self.etcd.close()
            self.etcd, self.hands = means.etcd, means.hands
        self._follow_disk()
        try:
            await self._renew()
            self.shelf = await self._read()
            if means is not None and self._lease:
                await self._take_times(self.shelf, means)
                self.shelf = await self._read()
            await self._look_to_watchdog(self.shelf)
            self._say("")
            self._settle(self.shelf)
        except (TransportError, ProtocolError) as err:
            self.shelf = None
            self._say(err.message)
        if asking is not None:
            await asking
        elif self.keeper.needs_friends(self.hands.now()):
            await self._ask_friends()
        if self.shelf is not None:
            try:
                await self._mark(self.shelf)
                if is_candidate:
                    await self._claim(self.shelf)
                    if self._is_own(self.shelf):
                        await self._go_alone(self.shelf)
                        await self._lead(self.shelf)
            except (TransportError, ProtocolError) as err:
                self._say(err.message)
        self._write_to_disk()
        self._publish()

    async def _read(self) -> Snapshot:
        """Return what etcd has; what the disk said before, and etcd does not know, is void."""
        sentence = self.keeper.sentence
        shelf = await self.etcd.read()
        self.keeper.reprieve(sentence, shelf.one(LOSSES + self.own, Loss))
        losses = shelf.below(LOSSES, Loss)
        self._verdicts = {
            name: each
            for name, each in self._verdicts.items()
            if name in losses and losses[name].uuid == each.loss
        }
        return shelf

    async def leave(self) -> None:
        """Stop in order: say so in etcd, and only then end the watchdog.

        The mark goes unless jobs of a master may still run here: nobody would take it away later.

        Raises:
            TransportError, ProtocolError: the watchdog runs on, and will reset the node.
        """
        left = Guard(boot_id=self.boot_id, has_left=True)
        changes: list[Put | Delete] = [
            Delete(NODES + self.own),
            Put(GUARDS + self.own, _encode(left)),
        ]
        if self.shelf is not None and self._is_own(self.shelf):
            changes.append(Delete(MASTER_KEY))
        if not self.acts_for_master:
            changes.append(Delete(ACTING + self.own))
        await self.hands.publish(State(time=self.hands.now(), alone=self.state.alone))
        await self.etcd.change([], *changes)
        self.end_watchdog()
        self.end_disk()

    @property
    def acts_for_master(self) -> bool:
        """Whether jobs of a master may run here, by what this node sees."""
        return self._mark_wanted(None) is not None

    @property
    def is_guarded(self) -> bool:
        """Whether a watchdog runs, by which etcd may call this node dead."""
        return self._watchdog is not None

    def end_watchdog(self) -> None:
        """Let nothing reset the node any more."""
        self.keeper.uses_disk = False
        if self._watchdog is not None:
            self._watchdog.end()
            self._watchdog = None

    # --- other settings, and pauses

    async def _take_times(self, shelf: Snapshot, means: Means) -> None:
        """Take up other times, and another watchdog; etcd has renewed the lease just now."""
        old, new, path = self.timing, means.timing, self.hands.watchdog
        has_other = bool(path) and path != self._watchdog_path and not self._pause(shelf)
        if has_other and self._watchdog is None:
            self._arm(new.watchdog_s)
            has_other = False
        if old != new:
            self._use(strictest(old, new))
            self._publish()
            loss = shelf.one(LOSSES + self.own, Loss)
            if not await self._appear(shelf, loss, new.lease_s, longest(old, new)):
                return  # the next beat tries it again
            self._use(new)
            self.judge = Judge(new)  # who was told to condemn somebody was told other times
        if has_other:
            self._arm(new.watchdog_s)
        elif self._watchdog is not None:
            self._watchdog.change(new.watchdog_s, self.keeper.dies_at())
        self.digest = means.digest
        if self._next is means:
            self._next = None
        logger.info("Other settings are taken up")

    def _use(self, timing: Timing) -> None:
        self.timing = self.keeper.timing = timing
        self.claimant.timing = self.companion.timing = timing

    async def _look_to_watchdog(self, shelf: Snapshot) -> None:
        """Let none run while all is paused; let etcd's record of it be true."""
        is_paused = bool(self._pause(shelf))
        is_wanted = bool(self.hands.watchdog) and not is_paused
        is_present = bool(self._lease) and NODES + self.own in shelf.entries
        if is_wanted and self._stands_down and is_present:
            if self._watchdog is None:
                self._arm(self.timing.watchdog_s)
            self._stands_down = False
        guard = self._guard(self.timing)
        if not is_wanted:
            guard = msgspec.structs.replace(guard, watchdog_s=None, disk="")
        self._promise(guard)
        if shelf.one(GUARDS + self.own, Guard) != guard:
            keys = (NODES + self.own, LOSSES + self.own, PAUSE_KEY)
            unchanged = [Unchanged(key, shelf.revision_of(key)) for key in keys]
            put = Put(GUARDS + self.own, _encode(guard))
            if not is_present or not await self.etcd.change(unchanged, put):
                return
        self.keeper.uses_disk = bool(guard.disk)
        if not is_wanted:
            if self._watchdog is not None:
                logger.info("No watchdog runs: %s", self._pause(shelf) or "none is wanted")
            self.end_watchdog()
            self._stands_down = is_paused

    def _arm(self, timeout_s: float) -> None:
        """Let the watchdog run that is wanted; another one goes on if that cannot be."""
        watchdog = self.hands.arm(timeout_s, self.keeper.dies_at())
        if watchdog is None:
            return
        self.end_watchdog()
        self._watchdog, self._watchdog_path = watchdog, self.hands.watchdog

    def _guard(self, timing: Timing) -> Guard:
        watchdog_s = None if self._watchdog is None else self._watchdog.timeout_s
        is_held = self._watchdog is not None and self.keeper.holds_disk(self.hands.now())
        disk = self._place.lease if self._place is not None and is_held else ""
        return guard_for(self.boot_id, timing, watchdog_s, disk, self.facts.digest)

    def _promise(self, guard: Guard) -> None:
        """Live on by nothing that etcd will not know of; what is new counts once it does."""
        if not guard.disk:
            self.keeper.uses_disk = False

    # --- the lease disk

    def end_disk(self) -> None:
        """Write nothing on the lease disk any more."""
        if self._disk is not None:
            self._disk.end()

    def _follow_disk(self) -> None:
        """Use the slot that the settings give this node."""
        place = self.hands.place_on_disk(self.own)
        if place == self._place:
            return
        self.end_disk()
        self.keeper.forget_disk()
        self._place, self._disk, self._round = place, None, None
        if place is not None:
            slot = Slot(lease=place.lease, node=self.own, boot_id=self.boot_id)
            writer = SlotWriter(place, slot)
            self._disk = DiskLease(writer, lambda: self.timing.beat_s, self._saw_disk)
            self._write_to_disk()
            self._disk.start()

    def _write_to_disk(self) -> None:
        if self._disk is not None:
            self._disk.say(self.keeper.gave_up, self._verdicts)

    def _saw_disk(self, found: Round) -> None:
        """The thread has looked at the disk, and has written this node's slot if it could."""
        before = "" if self._round is None else self._round.trouble
        if found.trouble != before:
            logger.warning("Lease disk: %s", found.trouble or "it can be used again")
        self._round = found
        if found.written is None:
            return
        self.keeper.read_disk(found.began_s, found.verdicts_on(self.own))
        if self.keeper.gave_up and found.written.gave_up == self.keeper.gave_up:
            self.hands.condemned()

    def _disk_trouble(self) -> str | None:
        """Return why the lease on the disk is not held; "" if it is, None where there is none."""
        if self._place is None:
            return None
        if self.keeper.holds_disk(self.hands.now()):
            return ""
        if self.keeper.sentence:
            return "this node is condemned there"
        return "" if self._round is None else self._round.trouble or "it does not answer"

    def _on_disk(self, name: str) -> DiskView | None:
        """Return what the disk says of a node."""
        found = self._round
        if found is None or found.written is None or name not in found.slots:
            return None
        slot, verdict = found.slots[name], found.written.verdicts.get(name)
        standing = "" if verdict is None else verdict.loss
        return DiskView(slot.lease, slot.boot_id, slot.gave_up, standing)

    # --- copies that are written off

    def _settle(self, shelf: Snapshot) -> None:
        """Have it told to etcd what is not there yet, and taken back what is over."""
        records = shelf.below(OUTDATED, Outdated)
        if not self._is_settled or any(each.by == self.own for each in records.values()):
            rest_s = _SETTLE_S
        elif any(name.startswith(f"{self.own}/") for name in records):
            rest_s = _SETTLE_OTHERS_S
        else:
            return
        now_s = self.hands.now()
        if self._settling is None and now_s >= self._settled_s + rest_s:
            self._settled_s, self._is_settled = now_s, True  # unless there is trouble meanwhile
            self._settling = asyncio.create_task(self._settle_now())

    async def _settle_now(self) -> None:
        is_done = False
        try:
            is_done = await self.hands.settle()
        except GenericError as err:
            logger.warning("Cannot settle which copies are outdated: %s", err.message)
        finally:
            self._is_settled &= is_done
            self._settling = None

    # --- what the daemons of this node hear

    def _publish(self) -> None:
        """Tell them, unless they are still being told the last time."""
        self.state = self._state()
        if self._publishing is None or self._publishing.done():
            self._publishing = asyncio.create_task(self.hands.publish(self.state))

    def _state(self) -> State:
        now_s, shelf = self.hands.now(), self.shelf
        if shelf is None:
            etcd = self._said or "it was not asked yet"
            return msgspec.structs.replace(
                self.state,
                time=now_s,
                etcd=etcd,
                vouched=self.keeper.vouched_s,
                known=self._known_s,
                settings=self.digest,
                disk=self._disk_trouble(),
            )
        holder, alone = shelf.one(MASTER_KEY, Mastership), shelf.one(ALONE_KEY, Mastership)
        entry = shelf.entries.get(MASTER_KEY)
        is_bound = entry is not None and entry.lease == self._lease != 0
        return State(
            time=now_s,
            master_until=self._renewed_s + self.timing.lease_s if is_bound else None,
            holder="" if holder is None else holder.node,
            alone="" if alone is None or self.companion.rejoins_s is not None else alone.node,
            pause=self._pause(shelf),
            vouched=self.keeper.vouched_s,
            known=self._known_s,
            settings=self.digest,
            disk=self._disk_trouble(),
            absent=self._absent(shelf) if self.own in self.facts.candidates else [],
        )

    def _absent(self, shelf: Snapshot) -> list[str]:
        guards, losses = shelf.below(GUARDS, Guard), shelf.below(LOSSES, Loss)
        return [
            name
            for name in self.facts.addresses
            if is_unsafe(
                guards.get(name), losses.get(name), is_present=NODES + name in shelf.entries
            )
        ]

    # --- present in etcd

    async def _renew(self) -> None:
        sent_s = self.hands.now()
        if self._lease and (ttl_s := await self.etcd.keep_alive(self._lease)):
            self._was_renewed(sent_s, ttl_s)
            return
        self._lease, asked_s = 0, self.hands.now()
        shelf = await self.etcd.read()
        loss = shelf.one(LOSSES + self.own, Loss)
        if is_dead(loss, self.boot_id):
            self.keeper.is_condemned = True
            self.hands.condemned()
            return
        if self._watchdog is None:
            guard = shelf.one(GUARDS + self.own, Guard)
            is_late = self.hands.now() >= asked_s + self.timing.lease_s
            is_safe = not is_late and may_arm(self.boot_id, self.timing, guard, loss)
            if self._pause(shelf) or not is_safe:
                self._stands_down = True  # the node has to be there first
            else:
                self.keeper.armed(asked_s)
                self._arm(self.timing.watchdog_s)
        await self._appear(shelf, loss, self.timing.lease_s, self.timing)

    async def _appear(
        self, shelf: Snapshot, loss: Loss | None, lease_s: float, guarding: Timing
    ) -> bool:
        """Make the node present, unless its loss has changed meanwhile; returns whether it is.

        Args:
            guarding: what its watchdog promises.
        """
        self._lease = 0  # of a transaction whose answer is lost nobody knows what was done
        sent_s = self.hands.now()  # the lease counts from when it was granted
        lease = await self.etcd.grant(round(lease_s))
        guard = self._guard(guarding)
        self._promise(guard)
        changes: list[Put | Delete] = [
            Put(GUARDS + self.own, _encode(guard)),
            Put(NODES + self.own, _encode(Presence(boot_id=self.boot_id)), lease),
        ]
        if loss is not None and loss.proof is None:
            changes.append(Delete(LOSSES + self.own))
        changes += self._marking(shelf)
        keys = [LOSSES + self.own, ACTING + self.own]
        if self._is_own(shelf):
            keys.append(MASTER_KEY)
            changes.append(Put(MASTER_KEY, _encode(self._mastership), lease))
        unchanged = [Unchanged(key, shelf.revision_of(key)) for key in keys]
        if not await self.etcd.change(unchanged, *changes):
            return False
        self._lease = lease
        self.keeper.uses_disk = bool(guard.disk)
        self._was_renewed(sent_s, lease_s)
        logger.info("This node is present, in boot %s", self.boot_id)
        return True

    def _was_renewed(self, sent_s: float, ttl_s: float) -> None:
        self._renewed_s, self._known_s = sent_s, sent_s + ttl_s
        self.keeper.renewed(sent_s)

    # --- other agents

    async def _ask_friends(self) -> None:
        if self.friends is None:
            return
        sent_s = self.hands.now()
        facts = self.facts  # others may come while this waits
        others = {n: a for n, a in facts.addresses.items() if n != self.own}
        answers = await self.friends.ask(
            *(Ask.VOUCH, self.own, self.boot_id, others, self.timing.friend_s), nodes=facts.digest
        )
        for name in answers:
            self._answered_s[name] = max(sent_s, self._answered_s.get(name, sent_s))
        self.keeper.vouched(sent_s, set(names_of(answers)), set(facts.addresses))

    def _seen(self) -> set[str]:
        fresh_s = self.hands.now() - self.timing.answer_s
        return {n for n, sent_s in self._answered_s.items() if sent_s > fresh_s} | {self.own}

    # --- the master's lease

    def _is_own(self, shelf: Snapshot) -> bool:
        holder = shelf.one(MASTER_KEY, Mastership)
        return holder is not None and holder.boot_id == self.boot_id

    def _pause(self, shelf: Snapshot) -> str:
        pause = shelf.one(PAUSE_KEY, Pause)
        if pause is None or pause.until <= self.hands.time():
            return ""
        return f"high availability is paused by {pause.by}: {pause.why}"

    async def _claim(self, shelf: Snapshot) -> None:
        """Do what is to be done about the key ``master``."""
        alone = shelf.one(ALONE_KEY, Mastership)
        seen = self._seen()
        outlook = Outlook(
            self.hands.now(),
            self.own,
            self.boot_id,
            shelf.one(MASTER_KEY, Mastership),
            self._lease != 0,
            self.hands.is_master(),
            self._fail_over is not None,
            self.facts.master in seen - {self.own},
            len(seen),
            len(self.facts.addresses),
            "" if alone is None else alone.node,
            _LEAVES if self.is_leaving else self._pause(shelf),
            self.own == self.facts.witness,
        )
        unchanged = Unchanged(MASTER_KEY, shelf.revision_of(MASTER_KEY))
        match self.claimant.look(outlook):
            case Claim.TAKE:
                await self.etcd.change(
                    [unchanged],
                    Put(MASTER_KEY, _encode(self._mastership), self._lease),
                    Put(ACTING + self.own, _encode(self._mastership)),
                )
            case Claim.GIVE_BACK:
                await self.etcd.change([unchanged], Delete(MASTER_KEY))
            case Claim.FAIL_OVER if not self._marking(shelf):
                logger.warning("The master is lost: this node begins to take over")
                self._fail_over = asyncio.create_task(self._take_over())
            case _:
                pass

    async def _mark(self, shelf: Snapshot) -> None:
        """Let etcd know whether jobs of a master may run here."""
        changes = self._marking(shelf)
        if changes and self._lease and NODES + self.own in shelf.entries:
            keys = (ACTING + self.own, NODES + self.own, MASTER_KEY)
            unchanged = [Unchanged(key, shelf.revision_of(key)) for key in keys]
            await self.etcd.change(unchanged, *changes)

    def _marking(self, shelf: Snapshot) -> list[Put | Delete]:
        """Return what makes the mark true that says so; nothing if it is."""
        key, wanted = ACTING + self.own, self._mark_wanted(shelf.one(MASTER_KEY, Mastership))
        if wanted == shelf.one(key, Mastership):
            return []
        return [Delete(key)] if wanted is None else [Put(key, _encode(wanted))]

    def _mark_wanted(self, holder: Mastership | None) -> Mastership | None:
        return mark_wanted(
            self._mastership,
            holder,
            is_master=self.hands.is_master(),
            is_failing_over=self._fail_over is not None,
            has_jobs=self.hands.has_jobs(),
        )

    async def _take_over(self) -> bool:
        try:
            done = await self.hands.fail_over()
        except GenericError as err:
            logger.warning("This node cannot take over: %s", err.message)
            done = False
        if not done:
            self.claimant.failed(self.hands.now())
        self._fail_over = None
        return done

    async def _go_alone(self, shelf: Snapshot) -> None:
        """Say in etcd whether the master goes on without the other one of two candidates."""
        candidates = self.facts.candidates
        answering = {n for n in candidates if n in self._seen() or NODES + n in shelf.entries}
        alone = shelf.one(ALONE_KEY, Mastership)
        name, reports = "" if alone is None else alone.node, self.hands.reports()
        now_s = self.hands.now()
        verdict = self.companion.look(now_s, self.own, candidates, name, answering, reports)
        if verdict is Lone.NOTHING:
            return
        conditions = [Unchanged(key, shelf.revision_of(key)) for key in (MASTER_KEY, ALONE_KEY)]
        if verdict is Lone.ERASE:
            if await self.etcd.change(conditions, Delete(ALONE_KEY)):
                logger.info("What counts is on both master candidates again")
            return
        if await self.etcd.change(conditions, Put(ALONE_KEY, _encode(self._mastership))):
            others = ", ".join(sorted({*candidates} - {self.own})) or "any other candidate"
            logger.warning("This node goes on without %s, which cannot take over now", others)

    # --- nodes that are missed

    async def _lead(self, shelf: Snapshot) -> None:
        view = self._view(shelf)
        orders = self.judge.look(view)
        await self._condemn([each for each in orders if each.act is Act.CONDEMN], view)
        for order in orders:
            await self._carry_out(order, shelf, view)

    def _view(self, shelf: Snapshot) -> View:
        nodes = {
            name: NodeView(
                is_present=NODES + name in shelf.entries,
                is_offline=name in self.facts.offline,
                is_witness=name == self.facts.witness,
                answered_s=self._answered_s.get(name),
                guard=shelf.one(GUARDS + name, Guard),
                loss=shelf.one(LOSSES + name, Loss),
                revision=shelf.revision_of(LOSSES + name),
                has_helper=name in self.facts.helped,
                disk=self._on_disk(name),
            )
            for name in self.facts.addresses
        }
        is_current = self.hands.is_master()
        return View(self.hands.now(), self.own, nodes, is_current, self._pause(shelf))

    async def _carry_out(self, order: Order, shelf: Snapshot, view: View) -> None:
        """Do what was ordered; what etcd refuses is decided anew with the next beat."""
        name = order.node
        conditions = [
            Unchanged(MASTER_KEY, shelf.revision_of(MASTER_KEY)),
            Unchanged(NODES + name, 0),
            Unchanged(LOSSES + name, order.revision),
        ]
        loss = view.nodes[name].loss
        match order.act:
            case Act.SUSPECT:
                loss = Loss(
                    uuid=f"{order.boot_id or name}@{shelf.revision}",
                    node=name,
                    boot_id=order.boot_id,
                    since=self.hands.time(),
                )
                if await self.etcd.change(conditions, Put(LOSSES + name, _encode(loss))):
                    logger.warning("Node %s is missed", name)
            case Act.ABSOLVE:
                del conditions[1]
                if await self.etcd.change(conditions, Delete(LOSSES + name)):
                    logger.info("Node %s is there again", name)
            case Act.PROVE if loss is not None and order.proof is not None:
                proved = msgspec.structs.replace(loss, proof=order.proof, by=self.own)
                if await self.etcd.change(conditions, Put(LOSSES + name, _encode(proved))):
                    logger.warning("Node %s is proved dead: %s", name, order.proof)
            case Act.SWITCH_OFF if name not in self._switching:
                self._switching[name] = asyncio.create_task(self._switch_off(order))
            case _:
                pass

    async def _condemn(self, orders: Sequence[Order], view: View) -> None:
        """Have nodes condemned, several at a time: a lease has to be renewed meanwhile."""
        missed, gate = {order.node for order in orders}, asyncio.Semaphore(CONDEMNED_AT_ONCE)

        async def condemn(order: Order) -> None:
            async with gate:
                await self._condemn_one(order, view, missed)

        await asyncio.gather(*map(condemn, orders))

    async def _condemn_one(self, order: Order, view: View, missed: Collection[str]) -> None:
        """Tell all nodes, and wait for those that are not missed themselves."""
        told_s = self.hands.now()
        loss, guard = view.nodes[order.node].loss, view.nodes[order.node].guard
        if loss is not None and guard is not None and guard.disk:
            self._verdicts[order.node] = Verdict(boot_id=order.boot_id, loss=loss.uuid)
            self._write_to_disk()
        self.keeper.condemn(order.node, order.boot_id, told_s, order.hold_s)
        others = {n: self.facts.addresses[n] for n in order.to if n != self.own}
        answers = {self.own: True}
        if self.friends is not None:
            answers |= await self.friends.ask(
                Ask.CONDEMN,
                order.node,
                order.boot_id,
                others,
                self.timing.friend_s,
                enough=lambda found: all(name in found or name in missed for name in others),
                hold_s=order.hold_s,
            )
        heard_s = self.hands.now()
        for name in names_of(answers):
            self.judge.condemned(order.node, order.revision, name, told_s=told_s, heard_s=heard_s)

    async def _switch_off(self, order: Order) -> None:
        name = order.node
        try:
            power, trouble = await self.hands.switch_off(name)
        except GenericError as err:
            power, trouble = Power.UNKNOWN, err.message
        finally:
            del self._switching[name]
        self.judge.told(name, order.revision, power, trouble, now_s=self.hands.now())
        fencing = Fencing(by=self.own, at=self.hands.time(), power=power, trouble=trouble)
        with contextlib.suppress(TransportError, ProtocolError):  # only for people to read
            await self.etcd.change([], Put(FENCING + name, _encode(fencing)))

    def _say(self, trouble: str) -> None:
        """Log what keeps the agent from working, once."""
        if trouble:
            self._is_settled = False  # DRBD may have lost a copy meanwhile
        if trouble and not self._said:
            logger.warning("%s", trouble)
        elif self._said and not trouble:
            logger.info("Etcd answers again")
        self._said = trouble


def _encode(record: Record) -> bytes:
    return dumps(record.to_wire())

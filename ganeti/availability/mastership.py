"""What the agent of a master candidate decides about the master's lease.  Pure.

Theory of operation.  The agent of the master keeps the key ``master`` in etcd.  When its lease has
ended, another candidate that sees most nodes, and does not see the master, takes the key, and only
then starts the ordinary fail-over, whose votes decide; if they refuse, it gives the key back and
rests.  The key alone makes nobody the master.

Of two candidates both have to have each record: one copy would otherwise be enough, and the other
candidate would not know what was acknowledged.  When the other one is away, the master first writes
the key ``alone``, and then goes on with one copy; while it stands, the other one never takes over
by itself.

Each node has a *mark*, the key ``acting/NODE``, while jobs of a master may run there: from before
the first one begins until after the last one has ended.  So it stands as long as the node has the
key ``master``, is the master, becomes it, or still runs jobs.  While it stands, and the node is not
dead, no other master restarts anything.

Source: ARCHITECTURE, invariant 9.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ganeti.availability.records import Mastership
from ganeti.availability.timing import Timing
from ganeti.copies.quorum import copies_needed
from ganeti.jobs.votes import answers_needed, votes_needed

PAIR: Final = 2
REPORTERS: Final = 2  # WConfD and LuxiD
REPORT_S: Final = 10.0  # how long a report is good for
REJOIN_S_MAX: Final = 10.0  # from where both count to the last report


class Claim(StrEnum):
    """What is to be done about the key."""

    NOTHING = "nothing"
    TAKE = "take"  # if nobody has it
    KEEP = "keep"
    FAIL_OVER = "fail over"  # to this node
    GIVE_BACK = "give back"


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a candidate sees, at a time of its monotonic clock, in seconds.

    Attributes:
        holder: of the key; None if nobody has it.
        is_current: that was read from etcd just now.
        is_master: this node is the master, as far as it knows.
        is_failing_over: a fail-over to this node runs.
        sees_master: the master answers this node.
        seen, nodes: how many nodes answer, this one included, and how many there are.
        alone: the candidate that went on without the other; "" for none.
        pause: why nobody is to act; "" if they may.
        is_witness: this node only votes.
    """

    now_s: float
    own: str
    boot_id: str
    holder: Mastership | None
    is_current: bool
    is_master: bool
    is_failing_over: bool
    sees_master: bool
    seen: int
    nodes: int
    alone: str = ""
    pause: str = ""
    is_witness: bool = False


@dataclass(slots=True)
class Claimant:
    """A candidate's memory.

    Attributes:
        says: why this node does not take over; "" if nothing keeps it.
    """

    timing: Timing
    says: str = ""
    _vacant_s: float | None = None
    _rests_until_s: float = 0.0

    def look(self, outlook: Outlook) -> Claim:
        """Decide what is to be done now."""
        self.says = ""
        if not outlook.is_current:
            self._vacant_s = None
            return Claim.NOTHING
        holder = outlook.holder
        is_own = holder is not None and holder.node == outlook.own
        if is_own and holder is not None and holder.boot_id != outlook.boot_id:
            return Claim.NOTHING  # of the boot before; its lease ends by itself
        if outlook.is_master:
            return Claim.KEEP if is_own else Claim.TAKE if holder is None else Claim.NOTHING
        if outlook.is_failing_over:
            return Claim.KEEP if is_own else Claim.NOTHING
        if is_own:
            return Claim.GIVE_BACK if self._resists(outlook) else Claim.FAIL_OVER
        if holder is not None:
            self._vacant_s = None
            return Claim.NOTHING
        if self._vacant_s is None:
            self._vacant_s = outlook.now_s
        return Claim.NOTHING if self._resists(outlook) else Claim.TAKE

    def failed(self, now_s: float) -> None:
        """The fail-over was refused."""
        self._rests_until_s = now_s + self.timing.retry_s

    def _resists(self, outlook: Outlook) -> bool:
        """Tell whether something speaks against taking over, and keep what it is."""
        vacant_s = self._vacant_s
        if outlook.pause:
            self.says = outlook.pause
        elif outlook.is_witness:
            self.says = "it is the witness"
        elif outlook.alone not in ("", outlook.own):
            self.says = f"{outlook.alone} went on alone; this node does not know what it did"
        elif outlook.sees_master:
            self.says = "the master answers"
        elif outlook.seen < votes_needed(outlook.nodes):
            self.says = f"only {outlook.seen} of {outlook.nodes} nodes answer"
        elif outlook.now_s < self._rests_until_s:
            self.says = "the last attempt was refused"
        elif vacant_s is not None and outlook.now_s < vacant_s + self.timing.margin_s:
            self.says = "the master's lease has ended a moment ago"
        return bool(self.says)


def mark_wanted(
    own: Mastership,
    holder: Mastership | None,
    *,
    is_master: bool,
    is_failing_over: bool,
    has_jobs: bool,
) -> Mastership | None:
    """Return what has to stand under ``acting/NODE`` of this node; None for nothing.

    Args:
        own: this boot of this node.
        holder: of the key ``master``; None if nobody has it.
        is_failing_over: a fail-over to this node runs.
        has_jobs: jobs of a master run here.
    """
    return own if holder == own or is_master or is_failing_over or has_jobs else None


class Lone(StrEnum):
    """What is to be done about the key ``alone``."""

    NOTHING = "nothing"
    WRITE = "write"
    ERASE = "erase"


def copies_wanted(candidates: Collection[str], alone: str, own: str) -> int:
    """Return on how many candidates a record has to be before it counts, the master included."""
    if len(candidates) == PAIR and alone != own:
        return PAIR
    return copies_needed(len(candidates))


def answers_wanted(
    candidates: Collection[str], alone: str, own: str, *, holds_key: bool = True
) -> int:
    """Return how many candidates, this one included, have to answer one that takes over.

    Args:
        holds_key: it holds the key ``master``, so nobody else writes ``alone`` meanwhile.
    """
    if alone == own:
        return 1  # the other one cannot know more
    if alone or not holds_key:
        return answers_needed(candidates)
    return len(candidates) - copies_wanted(candidates, alone, own) + 1


def judge_lone(
    candidates: Collection[str], own: str, alone: str, up_to_date: Collection[str]
) -> Lone:
    """Decide whether a master that holds its key goes on without the other candidate.

    A single candidate is alone, so that a second one counts from when it has everything.

    Args:
        up_to_date: the candidates that answer and have everything that is acknowledged.
    """
    having = {*up_to_date, own} & {*candidates}
    if len(candidates) == 1 or (len(candidates) == PAIR and len(having) < PAIR):
        return Lone.NOTHING if alone == own else Lone.WRITE
    is_enough = len(having) >= copies_wanted(candidates, "", own)
    return Lone.ERASE if alone and is_enough else Lone.NOTHING


@dataclass(frozen=True, slots=True)
class Report:
    """What a daemon of the master says of the copies that it makes.

    Attributes:
        seen_s: the time of the agent's state that its rule was based on, for all that it has
            acknowledged since it looked for what is missing.
        lacking: candidates that lack something that was wanted by then.
    """

    seen_s: float
    lacking: Sequence[str] = ()


@dataclass(slots=True)
class Companion:
    """The memory of a master's agent about the other one of two candidates.

    Theory of operation.  The key ``alone`` is written as soon as the other one does not answer, or
    lacks something for long.  It is erased in three steps: all daemons say that the other one has
    everything; they are told that both count again (`rejoins_s`), while the key still stands; and
    they say once more that it has everything, all of which was acknowledged by the rule for both
    or is there by now.  If that takes too long they are told again that one is enough.

    Attributes:
        rejoins_s: since when both count again although the key stands; None if they do not.
    """

    timing: Timing
    rejoins_s: float | None = None
    _rests_until_s: float = 0.0
    _candidates: frozenset[str] = frozenset()
    _changed_s: float = 0.0
    _lacks_s: dict[str, float] = field(default_factory=dict)

    def look(
        self,
        now_s: float,
        own: str,
        candidates: Collection[str],
        alone: str,
        answering: Collection[str],
        reports: Collection[Report],
    ) -> Lone:
        """Decide what is to be done now about the key.

        Args:
            answering: the candidates that answer.
            reports: of the daemons of this node that copy something.
        """
        if self._candidates != frozenset(candidates):
            self._changed_s = now_s if self._candidates else 0.0
            self._candidates = frozenset(candidates)
        having = [
            name
            for name in candidates
            if name != own and name in answering and self._has_all(name, now_s, alone, reports)
        ]
        verdict = judge_lone(candidates, own, alone, having)
        if verdict is not Lone.ERASE:
            self.rejoins_s = None
            return verdict
        if self.rejoins_s is None:
            self.rejoins_s = now_s if now_s >= self._rests_until_s else None
        elif min(each.seen_s for each in reports) >= self.rejoins_s:
            return Lone.ERASE
        elif now_s >= self.rejoins_s + REJOIN_S_MAX:
            self.rejoins_s, self._rests_until_s = None, now_s + self.timing.retry_s
        return Lone.NOTHING

    def _has_all(self, name: str, now_s: float, alone: str, reports: Collection[Report]) -> bool:
        """Tell whether a candidate counts as one that has everything."""
        oldest_s = max(now_s - REPORT_S, self._changed_s)
        current = [each for each in reports if each.seen_s >= oldest_s]
        lacks = any(name in each.lacking for each in current)
        is_told = len(current) == REPORTERS and not lacks
        if is_told:
            self._changed_s = 0.0
        if alone or self._changed_s:
            return is_told
        # Both count, so it has what was acknowledged; but nothing goes on while it takes nothing.
        if not lacks:
            self._lacks_s.pop(name, None)
            return True
        return now_s < self._lacks_s.setdefault(name, now_s) + self.timing.lease_s

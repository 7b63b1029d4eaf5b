"""The times of high availability, and what follows from them.

A node's agent feeds the watchdog only until `Timing.lease_s` after it *sent* the last question
whose answer let it live on.  etcd forgets a node that long after it *received* that question at the
earliest; so once etcd has forgotten a node, its watchdog is not fed any more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

_ELECTION_MS_MAX: Final = 50_000  # what etcd takes


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds.

    Attributes:
        lease_s: how long a node lives on without an answer.
        beat_s: between two questions.
        answer_s: an answer that came straight from a node is good for so long.
        margin_s: added to each wait, for clocks that do not run alike.
        watchdog_s: from the last time that a watchdog was fed to the reset, at most.
        helper_s: the time an out-of-band helper has.
        retry_s: between two attempts of the same thing that failed.
    """

    lease_s: float = 4.0
    beat_s: float = 1.0
    answer_s: float = 3.0
    watchdog_s: float = 5.0
    margin_s: float = 1.0
    helper_s: float = 20.0
    retry_s: float = 10.0

    @property
    def dead_after_s(self) -> float:
        """How long after most nodes have condemned a node its watchdog has reset it.

        Twice the time of the watchdog: the kernel feeds it once more if the agent dies.
        """
        return self.lease_s + 2 * self.watchdog_s + self.margin_s

    @property
    def ask_s(self) -> float:
        """How long an agent waits for etcd: several questions fit into a lease."""
        return self.lease_s / 4

    @property
    def friend_s(self) -> float:
        """How long an agent waits for other agents, which answer at once or are away."""
        return self.lease_s / 8

    @property
    def command_s(self) -> float:
        """How long a command, or whatever else nobody's life hangs on, waits for etcd."""
        return 3 * self.ask_s

    @property
    def election_ms(self) -> int:
        """After how many milliseconds without its leader etcd looks for another one.

        A new leader is there before a lease ends; on machines that are slower than that every
        pause would be a loss of the leader, and etcd would never answer.
        """
        return min(max(round(1000 * self.ask_s), 500), _ELECTION_MS_MAX)

    @property
    def noticed_s(self) -> float:
        """How long after etcd may forget a node most nodes have condemned it, if it has.

        It counts from its answer; the master sees that, writes it, and tells the nodes.
        """
        return self.ask_s + 3 * self.beat_s + self.margin_s

    @property
    def held_s(self) -> float:
        """How long a node holds on to a condemnation that nobody repeats.

        An agent that has begun anew vouches for nobody for so long, as it may have forgotten one.
        """
        return 2 * self.dead_after_s

    @property
    def repeat_s(self) -> float:
        """How long a node counts that has condemned another one, unless it does so again.

        It is less than the time that anybody holds on, also by shorter times than these.
        """
        return self.dead_after_s - self.margin_s


def strictest(old: Timing, new: Timing) -> Timing:
    """Return the times by which a node lives until etcd knows the new ones."""
    lease_s, beat_s = min(old.lease_s, new.lease_s), min(old.beat_s, new.beat_s)
    return replace(old, lease_s=lease_s, beat_s=beat_s)


def longest(old: Timing, new: Timing) -> Timing:
    """Return the times that etcd is told first: by none of the two a node lives for longer."""
    return replace(
        new,
        lease_s=max(old.lease_s, new.lease_s),
        watchdog_s=max(old.watchdog_s, new.watchdog_s),
        margin_s=max(old.margin_s, new.margin_s),
    )

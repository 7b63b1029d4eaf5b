"""What the agent of a node decides: may the watchdog be fed, and may other nodes live on.  Pure.

Theory of operation.  The watchdog is fed for `Timing.lease_s` after the agent sent a question whose
answer was good.  There are two: etcd has renewed the node's lease; or, where etcd does not answer,
most nodes of the cluster have said that nobody condemned this one.  The second keeps a cluster
alive that has lost etcd: no node can be proved dead by its watchdog meanwhile, because whoever
wants that has to have it condemned by most nodes first, and two majorities share a node (that lists
of nodes change meanwhile is dealt with in `ganeti.availability.electorate`).

The watchdog runs before etcd is told that there is one; told first, a node whose agent dies in
between would be believed dead and run on.  But the watchdog of an agent that was killed in the same
boot runs on, and what etcd knows of it may prove the node dead.  So the next agent lets it wait
anew only if nobody missed the node when etcd was asked, and lives on from that question; and not by
times that are longer than etcd knows.  Otherwise the node is present first, without a watchdog.

A condemnation is in memory only.  An agent that began anew vouches for nobody for as long as it
would have held on to one; `ganeti.availability.proof` tells why that is enough.

Whoever reads in etcd that this boot of the node was proved dead lets the watchdog run out.

Where the nodes share a lease disk there is a third answer: the node has read all slots, and none
condemns it.  That counts only while etcd's record of the node says so, as it takes more then to
prove the node dead.  A verdict on the disk ends that at once; when the node has no other good
answer either, it gives up for good, and says so on the disk, which is a proof soon after.  A
verdict is void when etcd, asked after it was read, does not have the loss any more that it names.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from ganeti.availability.disk import Verdict
from ganeti.availability.records import Guard, Loss
from ganeti.availability.timing import Timing
from ganeti.jobs.votes import votes_needed


def is_dead(loss: Loss | None, boot_id: str) -> bool:
    """Tell whether that boot of a node was proved dead; then it may not appear in etcd."""
    return loss is not None and loss.proof is not None and loss.boot_id == boot_id


def guard_for(
    boot_id: str, timing: Timing, watchdog_s: float | None, disk: str, nodes: str = ""
) -> Guard:
    """Return what etcd is to know of a node that lives by these times, or by shorter ones.

    Args:
        watchdog_s: of the watchdog that runs; None where none does.
        disk: the lease disk by which it may live on, too; "" for none.
        nodes: by which list of nodes it counts.
    """
    longest_s = max(timing.watchdog_s, watchdog_s or 0.0)
    return Guard(
        boot_id=boot_id,
        watchdog_s=None if watchdog_s is None else longest_s,
        dead_after_s=replace(timing, watchdog_s=longest_s).dead_after_s,
        disk=disk,
        nodes=nodes,
    )


def may_arm(boot_id: str, timing: Timing, guard: Guard | None, loss: Loss | None) -> bool:
    """Tell whether an agent that begins lets the watchdog run before etcd knows of it.

    Args:
        guard: what etcd knows of the node, perhaps by an earlier agent in this boot.
        loss: of the node; its death may be proved at any moment.
    """
    if loss is not None and loss.boot_id == boot_id:
        return False
    if guard is None or guard.boot_id != boot_id or guard.watchdog_s is None:
        return True
    is_known_longer = guard.dead_after_s >= timing.dead_after_s
    return is_known_longer and guard.watchdog_s >= timing.watchdog_s


@dataclass(slots=True)
class Keeper:
    """The agent's memory.  Times are those of the node's own monotonic clock, in seconds.

    Attributes:
        is_condemned: this boot was proved dead; that does not end.
        vouched_s: when the question was sent to which most nodes said that it is not condemned.
        uses_disk: etcd knows that the node lives on by the lease disk, too.
        sentence: the loss because of which the disk condemns this boot; "" for none.
        gave_up: the loss because of which it feeds no watchdog any more; "" for none.
    """

    timing: Timing
    own: str
    boot_id: str
    started_s: float
    is_condemned: bool = False
    vouched_s: float = 0.0
    uses_disk: bool = False
    sentence: str = ""
    gave_up: str = ""
    _good_s: float = -math.inf
    _disk_s: float = -math.inf
    _mute_until_s: float = field(init=False)
    _condemned: dict[tuple[str, str], float] = field(default_factory=dict)
    _void: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._mute_until_s = self.started_s + self.timing.held_s

    def armed(self, asked_s: float) -> None:
        """The watchdog is to run, which etcd does not know; it was asked then; `may_arm` held."""
        self._good_s = max(self._good_s, asked_s)

    def renewed(self, sent_s: float) -> None:
        """Etcd has renewed the lease; the question was sent then."""
        self._good_s = max(self._good_s, sent_s)

    def vouched(self, sent_s: float, friends: Collection[str], nodes: Collection[str]) -> None:
        """These nodes have said that this one is not condemned; the question was sent then.

        Args:
            nodes: all of the cluster.
        """
        counted = ({*friends} | {self.own}) & {*nodes}
        if len(counted) >= votes_needed(len(nodes)) and self.vouches_for(
            self.own, self.boot_id, sent_s
        ):
            self._good_s = max(self._good_s, sent_s)
            self.vouched_s = max(self.vouched_s, sent_s)

    def dies_at(self) -> float:
        """Return when the watchdog may not be fed any more."""
        if self.is_condemned:
            return -math.inf
        last_s = max(self._good_s, self._disk_s) if self.uses_disk else self._good_s
        return last_s + self.timing.lease_s

    def may_feed(self, now_s: float) -> bool:
        """Tell whether the watchdog may be fed now."""
        return now_s < self.dies_at()

    def needs_friends(self, now_s: float) -> bool:
        """Tell whether etcd has been silent for so long that the nodes are to be asked."""
        return not self.is_condemned and now_s >= self._good_s + 2 * self.timing.beat_s

    def read_disk(self, began_s: float, verdicts: Collection[Verdict]) -> None:
        """All slots were read, from then on, and this node's own was written.

        Args:
            verdicts: on this node, of whatever boot.
        """
        standing = [
            each.loss
            for each in verdicts
            if each.boot_id == self.boot_id and each.loss not in self._void
        ]
        self.sentence = standing[0] if standing else ""
        self._disk_s = -math.inf if standing else max(self._disk_s, began_s)

    def forget_disk(self) -> None:
        """The node has no lease disk any more, or another one."""
        self._disk_s, self.uses_disk, self.sentence = -math.inf, False, ""

    def holds_disk(self, now_s: float) -> bool:
        """Tell whether the node holds its lease on the disk."""
        return now_s < self._disk_s + self.timing.lease_s

    def reprieve(self, sentence: str, loss: Loss | None) -> None:
        """Etcd says what is the loss of this node; it was asked after that sentence was read."""
        if sentence and (loss is None or loss.uuid != sentence):
            self._void.add(sentence)
            if self.sentence == sentence:
                self.sentence = ""

    def gives_up(self, now_s: float) -> bool:
        """Tell whether this boot is over just now: condemned on the disk, and no good answer."""
        if self.is_condemned or not (self.uses_disk and self.sentence) or self.may_feed(now_s):
            return False
        self.is_condemned, self.gave_up = True, self.sentence
        return True

    def condemn(self, node: str, boot_id: str, now_s: float, hold_s: float = 0.0) -> None:
        """Whoever acts on losses wants that node dead.

        It takes nothing back of what was condemned before, as it may be an old question.

        Args:
            boot_id: "" for any boot.
            hold_s: for so long at least, by the times of that node, which may be others.
        """
        until_s = now_s + max(hold_s, self.timing.held_s)
        standing = {key: end_s for key, end_s in self._condemned.items() if now_s < end_s}
        key = (node, boot_id)
        self._condemned = standing | {key: max(until_s, standing.get(key, until_s))}

    def vouches_for(self, node: str, boot_id: str, now_s: float) -> bool:
        """Tell whether that boot of a node may live on, as far as this agent knows."""
        if now_s < self._mute_until_s and node != self.own:
            return False  # what was heard before is forgotten
        ends_s = (self._condemned.get((node, each), -math.inf) for each in (boot_id, ""))
        return now_s >= max(ends_s)

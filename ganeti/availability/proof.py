"""What the master decides about nodes that are missed: when is one dead for sure.  Pure.

Theory of operation.  A node is *missed* when etcd has forgotten it and it does not answer the
master either.  Then the master, which has to see most nodes itself, writes down that it is
*suspected*, and has most nodes *condemn* it; from then on none of them vouches for it.  It is
*proved* dead

- when its out-of-band helper has switched it off and said just now that it is off;
- when its watchdog must have reset it: `Timing.dead_after_s` after most nodes have condemned it,
  which all did so again and again since, as it cannot have had a good answer in that time; one that
  lives on by a lease disk has to be condemned there, too;
- when it has written on the lease disk that it has let go of its watchdog, so that nothing feeds
  that any more, not even the end of its agent, and the watchdog has run out;
- when a person says so.

Each step is a transaction in etcd that holds only while this node is the master there and the
node has not come back.  Without a proof nothing starts.  What is remembered here is lost with the
process, and whenever nobody may act on losses, as somebody may switch the node on meanwhile; then
all begins with condemning anew.

The proof by the watchdog, in full.  Let most nodes have condemned a node X since the time C, when
the last of their answers had come.  To live on X needs most nodes that vouch for it, itself among
them, so one of these nodes has to be a Y that has condemned it.  Y vouched last before C, in answer
to a question that X sent earlier still; by that X feeds its watchdog for `lease_s` at most (where
it stands still just then, it dies in place of feeding).  If its agent dies before the reset, up to
`watchdog_s` later, the kernel feeds it once more, and X is reset `watchdog_s` after that.  All of
it, and `margin_s`, is `dead_after_s`, by X's own times if they are longer: that long after C X is
dead.  (Etcd had forgotten X before it was suspected: no answer of etcd lets it live longer.  That
there is a Y although X and the master may know other nodes is shown in `electorate`.)  Y must not
vouch again until then.  It holds on to the condemnation for `held_s` at least, and for two proofs
of X; an agent of Y that began anew has forgotten it, and vouches for nobody for `held_s`.
The master lets Y count only while not more than `repeat_s` lies between the times at which Y was
asked and the answer to the next question, or the proof.  That is half of `held_s`, less the margin:
so Y was neither out of time nor begun anew and mute no more, even where the times of the two differ
by half, or Y is mute for `dead_after_s` only, as agents of an earlier version are.
When the master comes to know other nodes, all of them count from then on only: fewer of them may be
most nodes now, and X may have lived on by nodes that were removed until they heard of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from ganeti.availability.records import Guard, Loss, Proof
from ganeti.availability.timing import Timing
from ganeti.jobs.votes import votes_needed

CONFIRM_COMMAND: Final = "gnt-cluster ha-confirm-dead"


class Power(StrEnum):
    """What an out-of-band helper says of a node."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DiskView:
    """What the lease disk says of a node, as the master reads it.

    Attributes:
        lease: which disk it is.
        boot_id: the boot in which the node wrote its slot last.
        gave_up: the loss because of which it feeds no watchdog any more; "" for none.
        verdict: the loss because of which the master's slot condemns it; "" for none.
    """

    lease: str
    boot_id: str
    gave_up: str = ""
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class NodeView:
    """What is known of a node now.

    Attributes:
        is_present: etcd has its presence.
        is_offline: the configuration says so; such a node counts among all, but nobody misses it.
        is_witness: it only votes; nothing runs there that could run twice.
        answered_s: when it last answered the master itself, by the master's clock.
        guard: what etcd keeps of it.
        loss: the record of its loss, and the revision of that.
        has_helper: it can be switched off from outside.
        disk: what the lease disk says of it; None where the master cannot read that.
    """

    is_present: bool = False
    is_offline: bool = False
    is_witness: bool = False
    answered_s: float | None = None
    guard: Guard | None = None
    loss: Loss | None = None
    revision: int = 0
    has_helper: bool = False
    disk: DiskView | None = None


@dataclass(frozen=True, slots=True)
class View:
    """Everything the master knows at one time of its monotonic clock, in seconds.

    Attributes:
        nodes: all of the cluster, the master's own too.
        is_current: this was read from etcd just now, and the master holds its lease there.
        pause: why nobody is to act; "" if they may.
    """

    now_s: float
    own: str
    nodes: Mapping[str, NodeView]
    is_current: bool = True
    pause: str = ""


class Act(StrEnum):
    """The kinds of orders."""

    SUSPECT = "suspect"  # write the loss, if the node is still absent
    ABSOLVE = "absolve"  # take a suspicion back
    CONDEMN = "condemn"  # tell the nodes in `Order.to`
    SWITCH_OFF = "switch off"  # by the helper
    PROVE = "prove"  # write the proof, if the node is still absent


@dataclass(frozen=True, slots=True)
class Order:
    """One thing to be done about a node.

    Attributes:
        revision: that of the loss it is based on.
        hold_s: how long a condemnation is to hold.
    """

    act: Act
    node: str
    revision: int = 0
    boot_id: str = ""
    proof: Proof | None = None
    to: frozenset[str] = frozenset()
    hold_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Ack:
    """A node has condemned another one.

    Attributes:
        since_s: when it had done so first, and did so again and again since.
        told_s: when it was told to the last time.
    """

    since_s: float
    told_s: float


@dataclass(slots=True)
class _Suspect:
    """What is remembered of a suspicion.

    Attributes:
        acks: of the nodes that have condemned it.
        asked_s: when the helper was last told to switch it off.
        power: its last answer, and what it says beside.
        told_s: when it answered.
        sentenced_s: since when it is condemned on the disk.
        gave_up_s: when it was read there that it gave up.
    """

    revision: int
    acks: dict[str, _Ack] = field(default_factory=dict)
    asked_s: float | None = None
    power: Power = Power.UNKNOWN
    trouble: str = ""
    told_s: float = 0.0
    sentenced_s: float | None = None
    gave_up_s: float | None = None


@dataclass(slots=True)
class Judge:
    """The master's memory about missed nodes.

    Attributes:
        says: for each node that is missed, what is waited for or missing, and what to type.
    """

    timing: Timing
    says: dict[str, str] = field(default_factory=dict)
    _suspects: dict[str, _Suspect] = field(default_factory=dict)
    _nodes: Collection[str] = frozenset()

    def look(self, view: View) -> list[Order]:
        """Return what is to be done now."""
        self.says = {}
        if view.nodes.keys() != self._nodes:
            self._nodes = frozenset(view.nodes)
            for suspect in self._suspects.values():
                suspect.acks.clear()
        if not view.is_current:
            self._suspects.clear()
            return []
        gone = [name for name in view.nodes if not self._is_alive(view, name)]
        missed = [name for name in gone if self._is_watched(view, name)]
        for name in self._suspects.keys() - missed:
            del self._suspects[name]
        orders = [
            Order(Act.ABSOLVE, name, node.revision)
            for name, node in view.nodes.items()
            if name not in gone and node.loss is not None and node.loss.proof is None
        ]
        seen = len(view.nodes) - len(gone)
        if view.pause or seen < votes_needed(len(view.nodes)):
            why = view.pause or f"only {seen} of {len(view.nodes)} nodes are there"
            self.says |= dict.fromkeys(missed, why)
            self._suspects.clear()
            return orders
        for name in missed:
            orders += self._about(view, name)
        return orders

    def condemned(
        self, node: str, revision: int, by: str, *, told_s: float, heard_s: float
    ) -> None:
        """A node has condemned another one.

        Args:
            by: the node that has done so.
            told_s: before it was told to.
            heard_s: when it had answered.
        """
        suspect = self._suspects.get(node)
        if suspect is None or suspect.revision != revision or by == node:
            return
        known = suspect.acks.get(by)
        is_kept = known is not None and heard_s <= known.told_s + self.timing.repeat_s
        since_s = known.since_s if known is not None and is_kept else heard_s
        suspect.acks[by] = _Ack(since_s, told_s)

    def told(
        self, node: str, revision: int, power: Power, trouble: str = "", *, now_s: float
    ) -> None:
        """The helper has answered just now, or has failed to.

        Args:
            revision: that of the loss because of which it was asked.
        """
        suspect = self._suspects.get(node)
        if suspect is not None and suspect.revision == revision:
            suspect.power, suspect.trouble, suspect.told_s = power, trouble, now_s

    def _condemning(self, view: View, suspect: _Suspect) -> list[float]:
        """Return since when nodes have condemned it without a break, the first ones first."""
        oldest_s = view.now_s - self.timing.repeat_s
        acks = [ack for name, ack in suspect.acks.items() if name in view.nodes]
        return sorted(ack.since_s for ack in acks if ack.told_s >= oldest_s)

    def _is_alive(self, view: View, name: str) -> bool:
        node = view.nodes[name]
        if name == view.own or node.is_present:
            return True
        return node.answered_s is not None and view.now_s < node.answered_s + self.timing.answer_s

    def _is_watched(self, view: View, name: str) -> bool:
        node = view.nodes[name]
        if node.is_offline:
            return False
        if node.is_witness:
            self.says[name] = "it is the witness: nothing runs there, and its vote is missing"
            return False
        if node.guard is None:  # it may just be about to start for the first time
            self.says[name] = "its agent was never there; nobody watches over it"
            return False
        if node.guard.has_left:
            self.says[name] = "its agent was stopped; nobody watches over it"
            return False
        return True

    def _about(self, view: View, name: str) -> Iterator[Order]:
        """Yield what is to be done about a node that is missed."""
        node = view.nodes[name]
        boot_id = node.guard.boot_id if node.guard else ""
        # A proof is of one boot; the node may have come back meanwhile.
        is_of_another = node.loss is not None and node.loss.proof is not None
        if node.loss is None or (is_of_another and boot_id not in ("", node.loss.boot_id)):
            yield Order(Act.SUSPECT, name, node.revision, boot_id)
            self.says[name] = "it is missed"
            return
        if node.loss.proof is not None:
            self.says[name] = f"it is dead ({node.loss.proof}, by {node.loss.by})"
            return
        suspect = self._suspects.get(name)
        if suspect is None or suspect.revision != node.revision:
            suspect = self._suspects[name] = _Suspect(node.revision)
        if suspect.power is Power.OFF and view.now_s >= suspect.told_s + self.timing.lease_s:
            # Etcd did not take the proof, and somebody may have switched the node on since.
            suspect.power, suspect.trouble = Power.UNKNOWN, "it was off, but that is no news now"
        others = frozenset(view.nodes) - {name}
        # Again and again, as each of them forgets.
        hold_s = 2 * self._wait_s(node)
        yield Order(Act.CONDEMN, name, node.revision, node.loss.boot_id, to=others, hold_s=hold_s)
        proof, waits = self._proof(view, node, suspect)
        if proof is not None:
            yield Order(Act.PROVE, name, node.revision, node.loss.boot_id, proof)
        elif node.has_helper and suspect.power is not Power.OFF:
            asked_s = suspect.asked_s
            again_s = self.timing.helper_s + self.timing.retry_s
            if asked_s is None or view.now_s >= asked_s + again_s:
                suspect.asked_s = view.now_s
                yield Order(Act.SWITCH_OFF, name, node.revision)
        self.says[name] = "; ".join(waits) or "it is dead"

    def _wait_s(self, node: NodeView) -> float:
        """Return how long its watchdog takes at most; its times may not be those of the others."""
        guard_s = 0.0 if node.guard is None else node.guard.dead_after_s
        return max(self.timing.dead_after_s, guard_s)

    def _proof(
        self, view: View, node: NodeView, suspect: _Suspect
    ) -> tuple[Proof | None, list[str]]:
        """Return the proof, or else what is waited for."""
        waits = []
        if node.has_helper:
            if suspect.power is Power.OFF:
                return Proof.FENCED, []
            waits.append(
                f"its helper was asked to switch it off: {suspect.trouble or suspect.power}"
                if suspect.asked_s is not None
                else "its helper is asked to switch it off"
            )
        guard = node.guard
        if guard is not None and guard.watchdog_s is not None:
            _read_disk(view, node, suspect)
            condemning, needed = self._condemning(view, suspect), votes_needed(len(view.nodes))
            if suspect.gave_up_s is not None:
                left_s = suspect.gave_up_s + guard.watchdog_s + self.timing.margin_s - view.now_s
                if left_s <= 0:
                    return Proof.DISK, []
                waits.append(f"it gave up, as the lease disk says; it is reset in {left_s:.0f} s")
            elif len(condemning) < needed:
                waits.append(f"{len(condemning)} nodes have condemned it")
            elif guard.disk and suspect.sentenced_s is None:
                waits.append("it may live on by the lease disk, where it cannot be condemned")
            else:
                since_s = max(condemning[needed - 1], suspect.sentenced_s or 0.0)
                left_s = since_s + self._wait_s(node) - view.now_s
                if left_s <= 0:
                    return Proof.WATCHDOG, []
                waits.append(f"its watchdog has reset it in {left_s:.0f} s")
        if not waits:
            waits.append(
                "nothing proves that it is dead: it has neither a watchdog nor a helper; if you"
                f" know that it is off, type '{CONFIRM_COMMAND} NODE'"
            )
        return None, waits


def _read_disk(view: View, node: NodeView, suspect: _Suspect) -> None:
    """Remember what the lease disk says of a node that lives on by it."""
    guard, loss, disk = node.guard, node.loss, node.disk
    if guard is None or not guard.disk or loss is None or disk is None:
        return
    # Its boot has to be there: a copy of the disk, or another one, tells nothing.
    is_same = disk.lease == guard.disk and disk.boot_id == guard.boot_id == loss.boot_id
    if not is_same or disk.verdict != loss.uuid:
        suspect.sentenced_s = None
    elif suspect.sentenced_s is None:
        suspect.sentenced_s = view.now_s
    if is_same and disk.gave_up == loss.uuid and suspect.gave_up_s is None:
        suspect.gave_up_s = view.now_s


def is_unsafe(guard: Guard | None, loss: Loss | None, *, is_present: bool) -> bool:
    """Tell whether what starts on a node now might start elsewhere, too.

    So it is while a loss with a proof is not dealt with, although the node may be back: jobs about
    it still wait.  A node that is not present may be proved dead by the watchdog of its last boot,
    and that says nothing of what a later boot does that etcd does not know.
    """
    if loss is not None and loss.proof is not None:
        return True
    is_provable = guard is not None and guard.watchdog_s is not None and not guard.has_left
    return is_provable and not is_present


def confirmed(loss: Loss, by: str) -> Loss:
    """Return the record of a loss that a person confirms."""
    return replace(loss, proof=Proof.CONFIRMED, by=by)

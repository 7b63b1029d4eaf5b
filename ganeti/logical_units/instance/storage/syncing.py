"""Waiting until disks and their copies on other nodes have the same data.

The primary node is asked how far they are.  The next look follows from the time that it expects, so
a short rest is not waited for long and a long one costs few calls; a request to cancel the job ends
the wait at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from ganeti.base.errors import OpExecError
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage.copying import ask_patiently
from ganeti.logical_units.instance.storage.disks import mirrored
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.disk_templates import LocalDiskStatus
from ganeti.objects.model import Disk, Node
from ganeti.protocol.node_calls import NodeCalls

LOOK_S_MIN: Final = 0.5
LOOK_S_MAX: Final = 15.0
MESSAGE_S_FIRST: Final = 5.0  # between two messages; then twice as long each time, up to
MESSAGE_S_MAX: Final = 60.0
SETTLES_S: Final = 10.0  # a copy that is not connected yet may be in a moment


@dataclass(frozen=True, slots=True)
class SyncState:
    """One side of a disk with a copy.

    Attributes:
        percent: how much of the copy is up to date, None while nothing is copied.
        left_s: the time until all is, as the node expects it.
        is_degraded: there is no complete copy.
        local: state of this side's own data, a `LocalDiskStatus`; None where it was not told.
        problem: the node cannot look at it.
    """

    percent: float | None = None
    left_s: float | None = None
    is_degraded: bool = False
    local: int | None = None
    problem: str | None = None

    @classmethod
    def of(cls, answer: object) -> Self:
        """Make it from one part of an answer of ``blockdev_getmirrorstatus_multi``."""
        match answer:
            case [True, Mapping() as status]:
                percent, left_s = status.get("sync_percent"), status.get("estimated_time")
                local = status.get("ldisk_status")
                return cls(
                    float(percent) if isinstance(percent, int | float) else None,
                    float(left_s) if isinstance(left_s, int | float) else None,
                    status.get("is_degraded") is True,
                    local if isinstance(local, int) else None,
                )
            case [False, str(text)]:
                return cls(is_degraded=True, problem=text)
        return cls(is_degraded=True, problem=f"its state is unknown: {answer!r}")

    @property
    def is_syncing(self) -> bool:
        """Whether data is being copied."""
        return self.percent is not None

    @property
    def is_whole(self) -> bool:
        """Whether this side has all data."""
        return self.problem is None and self.local == LocalDiskStatus.OKAY

    @property
    def is_complete(self) -> bool:
        """Whether both sides have all data."""
        return self.is_whole and not self.is_degraded

    @property
    def is_lost(self) -> bool:
        """Whether this side has no data of its own and gets none now: it uses that of the other."""
        is_faulty = self.local == LocalDiskStatus.FAULTY
        return self.problem is None and is_faulty and not self.is_syncing

    def words(self) -> str:
        """Return the state for messages."""
        if self.problem is not None:
            return self.problem
        local = _LOCAL_WORDS.get(self.local or 0, "in an unknown state")
        copied = f", {self.percent:.1f} % copied" if self.percent is not None else ""
        return f"its data is {local}{', no complete copy' if self.is_degraded else ''}{copied}"


_LOCAL_WORDS: Final = {
    LocalDiskStatus.OKAY: "up to date",
    LocalDiskStatus.SYNC: "not complete yet",
    LocalDiskStatus.UNKNOWN: "in an unknown state",
    LocalDiskStatus.FAULTY: "not usable",
}


def sync_states(
    context: JobContext, view: InstanceView, node: Node, disks: Sequence[Disk], doing: str
) -> list[SyncState]:
    """Ask one node about disks; patient with a node daemon that is being restarted.

    Raises:
        OpExecError: it does not answer.
    """
    wires = [view.disk_wire(disk, node) for disk in disks]
    call = NodeCalls.blockdev_getmirrorstatus_multi
    answers = ask_patiently(context, doing, call, node, wires)
    return [SyncState.of(answer) for answer in answers]


def wait_for_sync(
    context: JobContext,
    view: InstanceView,
    disks: Sequence[Disk] | None = None,
    *,
    node: Node | None = None,
) -> None:
    """Wait until disks and their copies are in sync, telling how far they are.

    Args:
        disks: those of the instance that have copies, if not given.
        node: the one to ask, the primary one if not given.

    Raises:
        OpExecError: a disk ended without a complete copy; names it and the next command.
        JobCanceled: canceled meanwhile; the copying goes on.
    """
    _Sync(context, view, node or view.primary, disks, at_once=False).follow()


def tell_degraded(context: JobContext, view: InstanceView) -> None:
    """Warn of disks whose copies are neither complete nor being made, and say why.

    A node that is marked offline is known to lack them, so nothing is told then.
    """
    if any(node.offline for node in view.nodes):
        return
    try:
        check_syncing(context, view)
    except OpExecError as err:
        context.warn(err.message)


def check_syncing(context: JobContext, view: InstanceView) -> None:
    """Refuse disks whose copies are neither complete nor being made; errors as `wait_for_sync`."""
    _Sync(context, view, view.primary, None, at_once=True).follow()


class _Sync:
    """One wait."""

    def __init__(
        self,
        context: JobContext,
        view: InstanceView,
        node: Node,
        disks: Sequence[Disk] | None,
        *,
        at_once: bool,
    ) -> None:
        self._context = context
        self._view = view
        self._node = node
        self._disks = mirrored(view) if disks is None else list(disks)
        self._at_once = at_once
        self._doing = f"follow the disks of instance {view.name!r}"
        self._seen: dict[str, tuple[float, float]] = {}  # disk -> time and percentage of last look

    def follow(self) -> None:
        if not self._disks:
            return
        context = self._context
        if not self._at_once:
            context.feedback(f"Waiting for instance {self._view.name} to sync disks")
        start_s = context.monotonic()
        pause_s, message_at = MESSAGE_S_FIRST, start_s
        while True:
            context.check_canceled()
            states = sync_states(context, self._view, self._node, self._disks, self._doing)
            now_s = context.monotonic()
            syncing = any(state.is_syncing for state in states)
            if syncing and self._at_once:
                return
            if not syncing and not self._degraded(states):
                if not self._at_once:
                    context.feedback(f"Instance {self._view.name}'s disks are in sync")
                return
            if not syncing and now_s - start_s >= SETTLES_S:
                raise self._failure(states)
            if syncing:
                start_s = now_s  # the next disk may take a moment to begin
            if syncing and now_s >= message_at:
                self._tell(states, now_s)
                message_at, pause_s = now_s + pause_s, min(2 * pause_s, MESSAGE_S_MAX)
            context.wait(_next_look_s(states))

    def _degraded(self, states: Sequence[SyncState]) -> bool:
        return any(state.is_degraded for state in states)

    def _index(self, disk: Disk) -> int:
        return self._view.instance.disks.index(disk.uuid)

    def _tell(self, states: Sequence[SyncState], now_s: float) -> None:
        for disk, state in zip(self._disks, states, strict=True):
            if state.percent is None:
                continue
            speed = self._speed(disk, state.percent, now_s)
            left = "" if state.left_s is None else f", {_duration(state.left_s)} left"
            self._context.feedback(
                f"- device disk/{self._index(disk)}: {state.percent:5.2f}% done{speed}{left}"
            )

    def _speed(self, disk: Disk, percent: float, now_s: float) -> str:
        before = self._seen.get(disk.uuid)
        self._seen[disk.uuid] = (now_s, percent)
        if before is None or now_s <= before[0] or percent <= before[1]:
            return ""
        mib = disk.size * (percent - before[1]) / 100
        return f", {mib / (now_s - before[0]):.1f} MiB/s"

    def _failure(self, states: Sequence[SyncState]) -> OpExecError:
        view = self._view
        bad = [
            f"disk {self._index(disk)}: {state.words()}"
            for disk, state in zip(self._disks, states, strict=True)
            if state.is_degraded
        ]
        reasons = "; ".join(self._reasons())
        hint = (
            f"connect them again with 'gnt-instance activate-disks {view.name}', or replace a"
            f" broken side with 'gnt-instance replace-disks -a {view.name}'"
        )
        return OpExecError(
            f"there are degraded disks of instance {view.name!r} (node {self._node.name!r}:"
            f" {'; '.join(bad)}); {reasons or hint}"
        )

    def _reasons(self) -> list[str]:
        """Return why sides are not connected, where a node knows that and what to do about it."""
        view, call = self._view, NodeCalls.drbd_wait_sync
        found = []
        for node in view.nodes:
            wires = [view.disk_wire(disk, node) for disk in self._disks if node.uuid in disk.nodes]
            if wires and not node.offline:
                said = self._context.failure(self._doing, call, node, wires)
                if said is not None and "gnt-instance" in said:
                    found.append(said.replace(" INSTANCE", f" {view.name}"))
        return found


def _duration(seconds: float) -> str:
    """Return a time as people read it: ``1h 5m``, ``2m 7s``, ``9s``."""
    minutes, rest_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m {rest_s}s" if minutes else f"{rest_s}s"


def _next_look_s(states: Sequence[SyncState]) -> float:
    """Return when something new is to be expected."""
    left = [state.left_s for state in states if state.is_syncing and state.left_s is not None]
    return min(max(max(left, default=LOOK_S_MIN), LOOK_S_MIN), LOOK_S_MAX)

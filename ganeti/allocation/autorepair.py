"""Automatic repair of instances whose nodes are out of order, as far as tags allow it.

An operator allows repairs by the tag ``ganeti:watcher:autorepair:KIND`` of an instance, its node
group or the cluster: the nearest object that has such a tag decides, and there the weakest kind.
Each kind allows those before it. ``...:suspend`` or ``...:suspend:UNIXTIME`` of the same object
stops new repairs.

A repair is kept in tags of its instance: ``...:pending:KIND:ID:UNIXTIME:JOBS`` while its jobs
(joined by ``+``) are under way, afterwards ``...:result:KIND:ID:UNIXTIME:RESULT:JOBS``. After a
failure nothing more is done until somebody removes that tag; ``enoperm`` says that no tag allows
the repair needed. So any number of runs, whoever makes them, lead an instance through one repair
after the other: first away from an offline primary node, then to a new secondary node.

`decide` is the whole decision. To carry out a `Decision`: submit ``settled`` (if any) as a change
of tags, then the opcodes of ``repair`` as one job and ``repair.pending(job)`` as a change of tags.
The statuses of jobs have to be older than the state of instances and nodes: a job that ends in
between would be taken for done and its instance for broken still.

Differences from harep of 3.0, which takes a drained node for an offline one: an instance is
migrated away from a drained primary node (kind ``migrate``), and its disks are never given up while
a node that has them is online. A job that is not known any more has failed if the instance still
needs a repair; a suspension until a time that is not understood holds for good.

Source: constants.json, "autorepair_tags"; manual page harep(1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from ganeti.allocation.snapshot import Snapshot
from ganeti.jobs.status import FINAL, Status
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.opcodes.instance import (
    OpInstanceFailover,
    OpInstanceMigrate,
    OpInstanceRecreateDisks,
    OpInstanceReinstall,
    OpInstanceReplaceDisks,
    ReplaceDisksMode,
)
from ganeti.opcodes.opcode import OpCode

PREFIX: Final = "ganeti:watcher:autorepair:"
ALLOCATOR: Final = "hail"
_SUSPEND, _PENDING, _RESULT = "suspend", "pending", "result"


class Repair(StrEnum):
    """A kind of repair; each is stronger than those before it."""

    FIX_STORAGE = "fix-storage"
    MIGRATE = "migrate"
    FAILOVER = "failover"
    REINSTALL = "reinstall"


_STRENGTH: Final = {kind: place for place, kind in enumerate(Repair)}


class Result(StrEnum):
    """The end of a repair."""

    SUCCESS = "success"
    FAILURE = "failure"
    NOT_ALLOWED = "enoperm"


class Health(StrEnum):
    """The state of an instance, in the words of harep."""

    HEALTHY = "Healthy"
    NEEDS_REPAIR = "Needs repair"
    PENDING = "Pending repair"
    FAILED = "Failure"


class NodeState(StrEnum):
    """A node as far as repairs distinguish it."""

    GOOD = "good"
    DRAINED = "drained"
    OFFLINE = "offline"


class Patient(Struct, frozen=True):
    """An instance: its nodes (the primary node first), its tags and those of its node group."""

    name: str
    template: DiskTemplate
    nodes: tuple[str, ...]
    tags: tuple[str, ...] = ()
    group_tags: tuple[str, ...] = ()


class Attempt(Struct, frozen=True):
    """A repair of an instance; without a result it is under way.

    Attributes:
        time: Unix time in seconds.
    """

    kind: Repair
    uuid: str
    time: int
    jobs: tuple[int, ...] = ()
    result: Result | None = None

    @property
    def tag(self) -> str:
        """The tag that says it."""
        which = f"{self.kind}:{self.uuid}:{self.time}"
        jobs = "+".join(map(str, self.jobs))
        if self.result is None:
            return f"{PREFIX}{_PENDING}:{which}:{jobs}"
        return f"{PREFIX}{_RESULT}:{which}:{self.result}:{jobs}"


class TagChange(Struct, frozen=True):
    """Tags of an instance to be set first, and then those to be removed."""

    add: tuple[str, ...]
    remove: tuple[str, ...]


class Planned(Struct, frozen=True):
    """A repair to be submitted as one job."""

    attempt: Attempt
    opcodes: tuple[OpCode, ...]
    replaced: tuple[str, ...]

    def pending(self, jobs: Iterable[int]) -> TagChange:
        """Return the change of tags once these jobs are submitted."""
        made = Attempt(self.attempt.kind, self.attempt.uuid, self.attempt.time, tuple(jobs))
        return TagChange((made.tag,), self.replaced)


class Decision(Struct, frozen=True):
    """The next step for an instance.

    Attributes:
        before: its state as its tags say it.
        after: its state once this is done.
        settled: change of tags because its repair has ended.
        repair: the repair to be submitted.
        refused: change of tags because the repair needed is not allowed, unless told already.
        text: why nothing is done, though it needs a repair; for people.
    """

    instance: str
    before: Health
    after: Health
    settled: TagChange | None = None
    repair: Planned | None = None
    refused: TagChange | None = None
    text: str = ""


class _History(Struct, frozen=True):
    """The repairs that the tags of an instance tell of."""

    pending: Sequence[Attempt]
    ended: Sequence[Attempt]

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(each.tag for each in (*self.ended, *self.pending))

    @property
    def health(self) -> Health:
        if any(each.result is Result.FAILURE for each in self.ended):
            return Health.FAILED
        return Health.PENDING if self.pending else Health.HEALTHY

    @property
    def problem(self) -> str:
        """Why the tags make no sense, if so: one repair is over before the next begins."""
        first = self.pending[0] if self.pending else None
        for each in (*self.pending, *self.ended):
            is_later = each.result is None or (first is not None and each.time > first.time)
            if first and each.uuid != first.uuid and is_later:
                return f"of an unfinished repair is {first.tag!r}, of another one {each.tag!r}"
        return ""

    def refuses(self, kind: Repair) -> bool:
        """Tell whether the last tag says already that this kind is not allowed."""
        last = self.ended[-1] if self.ended else None
        return last is not None and last.result is Result.NOT_ALLOWED and last.kind is kind


def patients_of(snapshot: Snapshot) -> list[Patient]:
    """Return the instances of a snapshot; forthcoming ones have nothing to be repaired."""
    groups, nodes = snapshot.groups, snapshot.nodes
    return [
        Patient(
            each.name,
            each.template,
            each.nodes,
            each.tags,
            groups[nodes[each.primary].group].tags if each.nodes else (),
        )
        for each in snapshot.instances.values()
        if not each.is_forthcoming
    ]


def node_states(snapshot: Snapshot) -> dict[str, NodeState]:
    """Return the states of the nodes of a snapshot."""
    return {
        name: NodeState.OFFLINE
        if node.is_offline
        else NodeState.GOOD
        if node.is_usable
        else NodeState.DRAINED
        for name, node in snapshot.nodes.items()
    }


def jobs_under_way(patients: Iterable[Patient]) -> list[int]:
    """Return the jobs whose statuses `decide` wants to know."""
    histories = [_history(patient.tags) for patient in patients]
    return sorted({job for each in histories for attempt in each.pending for job in attempt.jobs})


def decide(
    patients: Iterable[Patient],
    nodes: Mapping[str, NodeState],
    cluster_tags: Collection[str],
    jobs: Mapping[int, Status | None],
    now: float,
    new_uuid: Callable[[], str],
) -> list[Decision]:
    """Return the next step for each instance.

    Args:
        nodes: by name; one that is missing counts as offline.
        jobs: status of those of `jobs_under_way`; None, or left out, is not known any more.
        now: Unix time in seconds.
    """
    return [_decide(each, nodes, cluster_tags, jobs, int(now), new_uuid) for each in patients]


def _decide(
    patient: Patient,
    nodes: Mapping[str, NodeState],
    cluster_tags: Collection[str],
    jobs: Mapping[int, Status | None],
    now: int,
    new_uuid: Callable[[], str],
) -> Decision:
    history = _history(patient.tags)
    before, needed = history.health, _needed(patient, nodes)
    if history.problem:
        return Decision(patient.name, Health.FAILED, Health.FAILED, text=history.problem)
    settled = None
    if before is Health.PENDING:
        result = _result(history.pending, jobs, is_broken=needed is not None)
        if result is None:
            return Decision(patient.name, before, before)
        history, settled = _settle(history, result, now)
    if history.health is Health.FAILED or needed is None:
        return Decision(patient.name, before, history.health, settled)
    found = _policy((patient.tags, patient.group_tags, cluster_tags), now)
    if not isinstance(found, Repair):
        return Decision(patient.name, before, Health.HEALTHY, settled, text=found)
    attempt = Attempt(needed, new_uuid(), now)
    if _STRENGTH[needed] > _STRENGTH[found]:
        change = None if history.refuses(needed) else _refused(attempt, history)
        text = f"it needs {needed}, and only repairs up to {found} are allowed"
        return Decision(
            patient.name, before, Health.NEEDS_REPAIR, settled, refused=change, text=text
        )
    planned = Planned(attempt, _OPCODES[needed](patient.name), history.tags)
    return Decision(patient.name, before, Health.PENDING, settled, planned)


def _refused(attempt: Attempt, history: _History) -> TagChange:
    refused = Attempt(attempt.kind, attempt.uuid, attempt.time, result=Result.NOT_ALLOWED)
    return TagChange((refused.tag,), history.tags)


def _needed(patient: Patient, nodes: Mapping[str, NodeState]) -> Repair | None:
    """Return the repair that an instance needs, if one would help."""
    if patient.template not in (DiskTemplate.DRBD, DiskTemplate.PLAIN) or not patient.nodes:
        return None
    states = [nodes.get(name, NodeState.OFFLINE) for name in patient.nodes]
    if all(state is NodeState.OFFLINE for state in states):
        return Repair.REINSTALL
    if states[0] is NodeState.OFFLINE:
        return Repair.FAILOVER
    if any(state is not NodeState.GOOD for state in states[1:]):
        return Repair.FIX_STORAGE
    return Repair.MIGRATE if len(states) > 1 and states[0] is not NodeState.GOOD else None


def _fix_storage(name: str) -> tuple[OpCode, ...]:
    mode = ReplaceDisksMode.NEW_SECONDARY
    return (OpInstanceReplaceDisks(instance_name=name, mode=mode, iallocator=ALLOCATOR),)


def _reinstall(name: str) -> tuple[OpCode, ...]:
    return (
        OpInstanceRecreateDisks(instance_name=name, iallocator=ALLOCATOR),
        OpInstanceReinstall(instance_name=name),
    )


_OPCODES: Final[Mapping[Repair, Callable[[str], tuple[OpCode, ...]]]] = {
    Repair.FIX_STORAGE: _fix_storage,
    Repair.MIGRATE: lambda name: (OpInstanceMigrate(instance_name=name, allow_failover=True),),
    Repair.FAILOVER: lambda name: (OpInstanceFailover(instance_name=name),),
    Repair.REINSTALL: _reinstall,
}


def _policy(objects: Iterable[Iterable[str]], now: int) -> Repair | str:
    """Return the strongest repair that the nearest object allows, or why there is none."""
    for tags in objects:
        words = [tag.removeprefix(PREFIX) for tag in tags if tag.startswith(PREFIX)]
        ends = [_suspended_until(word) for word in words if word.split(":")[0] == _SUSPEND]
        if None in ends:
            return "its repairs are suspended"
        last = max((end for end in ends if end is not None), default=now)
        if last > now:
            return f"its repairs are suspended until Unix time {last}"
        allowed = [Repair(word) for word in words if word in _STRENGTH]
        if allowed:
            return min(allowed, key=_STRENGTH.__getitem__)
    return "no tag allows repairs"


def _suspended_until(word: str) -> int | None:
    """Return the end of a suspension; None is never."""
    end = word.removeprefix(_SUSPEND).removeprefix(":")
    return int(end) if end.isdecimal() else None


def _history(tags: Iterable[str]) -> _History:
    found = sorted(filter(None, map(_attempt, tags)), key=lambda each: each.time)
    pending = [each for each in found if each.result is None]
    return _History(pending, [each for each in found if each.result is not None])


def _attempt(tag: str) -> Attempt | None:
    """Return the repair that a tag tells of; None if it tells of none."""
    if not tag.startswith(PREFIX):
        return None
    match tag.removeprefix(PREFIX).split(":"):
        case ["pending", kind, uuid, time, jobs]:
            result = None
        case ["result", kind, uuid, time, word, jobs] if word in Result.__members__.values():
            result = Result(word)
        case _:
            return None
    numbers = jobs.split("+") if jobs else []
    if kind not in _STRENGTH or not all(word.isdecimal() for word in (time, *numbers)):
        return None
    return Attempt(Repair(kind), uuid, int(time), tuple(map(int, numbers)), result)


def _result(
    pending: Iterable[Attempt], jobs: Mapping[int, Status | None], *, is_broken: bool
) -> Result | None:
    """Return how a repair has ended, None if it has not."""
    found = [jobs.get(job) for attempt in pending for job in attempt.jobs]
    if any(status is not None and status not in FINAL for status in found):
        return None
    lost = is_broken and None in found
    failed = any(status not in (None, Status.SUCCESS) for status in found)
    return Result.FAILURE if lost or failed else Result.SUCCESS


def _settle(history: _History, result: Result, now: int) -> tuple[_History, TagChange]:
    """Return the history after a repair has ended, and the change of tags that says so."""
    last = history.pending[-1]
    jobs = dict.fromkeys(job for each in history.pending for job in each.jobs)
    ended = Attempt(last.kind, last.uuid, now, tuple(jobs), result)
    old = tuple(each.tag for each in history.pending)
    return _History((), [*history.ended, ended]), TagChange((ended.tag,), old)

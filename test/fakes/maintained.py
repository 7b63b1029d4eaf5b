"""A cluster in memory for the maintenance daemon, which may be cut off before or after any call."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from ganeti.allocation.autorepair import NodeState, Patient
from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.base.ids import JobId
from ganeti.jobs.status import Status
from ganeti.maintd.balance import Answer, GroupAnswer, Move, Question
from ganeti.maintd.incidents import JobFacts, NodeFacts
from ganeti.maintd.repairs import Care, Work
from ganeti.maintd.rounds import BALANCING, InstanceFacts, Step
from ganeti.maintd.search import cares
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.tags import TagKind
from ganeti.opcodes.instance import OpInstanceFailover, OpInstanceMigrate, OpInstanceReplaceDisks
from ganeti.opcodes.node import OpNodeSetParams, OpRepairCommand
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.registry import encode_opcode
from ganeti.opcodes.tags import OpTagsDel, OpTagsSet, TagsChange
from ganeti.protocol.maintenance.diagnosis import Diagnosis
from ganeti.protocol.maintenance.stored import Action, Incident, Maintenance, RepairStatus


class Cut(GenericError):
    """The daemon was killed here."""


class Job:
    """A submitted job."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.status = Status.RUNNING


class FakeMaintained:
    """Nodes n1 (the master), n2, ...; jobs end when `run_jobs` is called.

    Attributes:
        broken: kinds of opcodes whose jobs fail.
        refused: kinds of opcodes whose jobs the queue does not take; `OpCode` for all.
        is_slow: the next request to submit jobs is carried out when `arrive` is called; its sender
            is killed before.
        under_way: that request.
        asked: how often each call was made that writes or submits.
        cut_at: the daemon is killed there; each call counts twice, before it is carried out and
            after.
    """

    def __init__(self, nodes: int = 4) -> None:
        names = [f"n{number}" for number in range(1, nodes + 1)]
        self.known = {
            name: NodeFacts(name, f"uuid-{name}", is_master=name == "n1") for name in names
        }
        self.guests: dict[str, InstanceFacts] = {}
        self.stored: Maintenance | None = Maintenance(round_delay=60)
        self.queue: dict[JobId, Job] = {}
        self.broken: set[type[OpCode]] = set()
        self.refused: set[type[OpCode]] = set()
        self.is_slow = False
        self.under_way: Sequence[Step] = ()
        self.asked: Counter[str] = Counter()
        self.now_s = 1000.0
        self.cut_at: int | None = None
        self.calls = 0
        self.chance = random.Random(0)
        self.questions: list[Question] = []
        self.guest_tags: dict[str, set[str]] = {}
        self.cluster_tags: tuple[str, ...] = ()

    # The interface.

    def _cut(self) -> None:
        self.calls += 1
        if self.calls == self.cut_at:
            raise Cut("killed")

    async def maintenance(self) -> Maintenance | None:
        return self.stored

    async def nodes(self) -> Mapping[str, NodeFacts]:
        return dict(self.known)

    async def instances(self, nodes: Collection[NodeFacts]) -> Sequence[InstanceFacts]:
        names = {node.name for node in nodes}
        return [
            each
            for _, each in sorted(self.guests.items())
            if names & {each.primary, each.secondary}
        ]

    def _set(self, **fields: Any) -> None:
        assert self.stored is not None
        self.stored = msgspec.structs.replace(self.stored, **fields)

    async def put(self, incident: Incident) -> None:
        assert self.stored is not None
        self.asked["put"] += 1
        self._cut()
        others = [each for each in self.stored.incidents if each.uuid != incident.uuid]
        [old] = [each for each in self.stored.incidents if each not in others] or [None]
        if incident.serial_no != (old.serial_no if old else 0):
            raise OpPrereqError("changed since it was read")
        ctime = old.ctime if old else self.now_s
        new = msgspec.structs.replace(
            incident, ctime=ctime, mtime=self.now_s, serial_no=incident.serial_no + 1
        )
        self._set(incidents=[*others, new])
        self._cut()

    async def forget(self, uuid: str) -> None:
        assert self.stored is not None
        self._cut()
        self._set(incidents=[each for each in self.stored.incidents if each.uuid != uuid])
        self._cut()

    async def clear_jobs(self) -> None:
        self.asked["clear"] += 1
        self._cut()
        self._set(jobs=[])
        self._cut()

    async def append_jobs(self, job_ids: Sequence[JobId]) -> None:
        assert self.stored is not None
        self.asked["append"] += 1
        self._cut()
        self._set(jobs=list(dict.fromkeys([*self.stored.jobs, *job_ids])))
        self._cut()

    async def add_evacuated(self, names: Sequence[str]) -> None:
        assert self.stored is not None
        self._set(evacuated=list(dict.fromkeys([*self.stored.evacuated, *names])))

    async def remove_evacuated(self, name: str) -> None:
        assert self.stored is not None
        self._set(evacuated=[each for each in self.stored.evacuated if each != name])

    async def submit(self, steps: Sequence[Step]) -> list[JobId | str]:
        self.asked["submit"] += 1
        self.under_way = steps
        self._cut()
        if self.is_slow:
            self.is_slow = False
            raise Cut("killed")
        found = self.arrive()
        self._cut()
        return found

    def arrive(self) -> list[JobId | str]:
        """Have the request that was sent last carried out, if it was not."""
        steps, self.under_way = self.under_way, ()
        taken = [step for step in steps if not self._is_refused(step)]
        self._check_new(taken)
        found: list[JobId | str] = []
        for step in steps:
            if step not in taken:
                found.append("the queue is closed")
                continue
            job_id = JobId(len(self.queue) + 1)
            self.queue[job_id] = Job(step)
            found.append(job_id)
        return found

    def _is_refused(self, step: Step) -> bool:
        return any(isinstance(op, kind) for op in step.opcodes for kind in self.refused)

    async def search(self, question: Question) -> Answer:
        self._cut()
        self.questions.append(question)
        groups = [GroupAnswer("all", 1.0, self._moves(question))] if question.balances else []
        return Answer(groups, [], self._cares() if question.repairs else [])

    def _cares(self) -> list[Care]:
        patients = [
            Patient(
                guest.name,
                DiskTemplate.PLAIN if guest.secondary is None else DiskTemplate.DRBD,
                tuple(name for name in (guest.primary, guest.secondary) if name),
                tuple(sorted(self.guest_tags.get(guest.name, ()))),
            )
            for guest in self.guests.values()
        ]
        states = {
            name: NodeState.OFFLINE
            if node.is_offline
            else NodeState.DRAINED
            if node.is_drained
            else NodeState.GOOD
            for name, node in self.known.items()
        }
        statuses = {job_id: job.status for job_id, job in self.queue.items()}
        return cares(patients, states, self.cluster_tags, statuses, self.now_s, self._new_uuid)

    def _new_uuid(self) -> str:
        return f"r{self.chance.randrange(10**9)}"

    async def tags(self, instance: str) -> Sequence[str] | None:
        self._cut()
        return sorted(self.guest_tags.get(instance, ())) if instance in self.guests else None

    def _moves(self, question: Question) -> list[Move]:
        """Move a guest from the fullest node to the emptiest, if that gains two guests."""
        counts = {
            name: sum(each.primary == name for each in self.guests.values())
            for name, node in self.known.items()
            if name not in question.busy and not node.is_drained
        }
        high, low = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
        for guest in self.guests.values():
            is_free = guest.primary == high and guest.name not in question.fixed
            if is_free and guest.secondary is None and counts[high] - counts[low] >= 2:
                move = Move(guest.name, [high, low], [f"fa:{low}"], guest.is_up, 0.0)
                return [move]
        return []

    async def jobs(self, job_ids: Collection[JobId]) -> Mapping[JobId, JobFacts]:
        return {
            job_id: JobFacts(self.queue[job_id].status, _tags(self.queue[job_id].step))
            for job_id in job_ids
            if job_id in self.queue
        }

    async def submitted(self) -> Mapping[str, list[Work]]:
        found: dict[str, list[Work]] = {}
        for job_id, job in self.queue.items():
            works = [(job_id, encode_opcode(op)) for op in job.step.opcodes]
            found.setdefault(job.step.event, []).extend(works)
        return found

    # Rules that hold whatever happens.

    def _check_new(self, steps: Sequence[Step]) -> None:
        assert self.stored is not None
        running = [job.step for job in self.queue.values() if job.status is Status.RUNNING]
        moving = [
            step for step in [*running, *steps] if not isinstance(step.opcodes[0], TagsChange)
        ]
        names = [step.instance for step in moving if step.instance]
        assert len(names) == len(set(names)), f"two jobs on one instance: {names}"
        incidents = {each.uuid: each for each in self.stored.incidents}
        for step in steps:
            if step.event == BALANCING:
                self._check_balancing(step)
                continue
            if not step.is_of_incident:
                self._check_repair(step)
                continue
            incident = incidents[step.event]
            tagging_only = all(isinstance(op, OpTagsSet) for op in step.opcodes)
            assert incident.repair_status is not RepairStatus.CANCELED, step
            if incident.repair_status is RepairStatus.FAILED:
                assert tagging_only, f"{step} after a job that failed"
            bad = [job for job in self.queue.values() if job.step.event == step.event]
            if any(job.status in (Status.ERROR, Status.CANCELED) for job in bad):
                assert tagging_only, f"{step} after a job that failed"

    def _check_repair(self, step: Step) -> None:
        if all(isinstance(op, OpTagsSet | OpTagsDel) for op in step.opcodes):
            return
        assert self.stored is not None
        assert self.stored.auto_repair
        same = [job for job in self.queue.values() if job.step.instance == step.instance]
        repairs = [
            job
            for job in same
            if not isinstance(job.step.opcodes[0], OpTagsSet) and not job.step.is_of_incident
        ]
        assert all(job.step.event != step.event for job in repairs), f"{step} twice"
        failed = [job for job in repairs if job.status in (Status.ERROR, Status.CANCELED)]
        assert not failed, f"{step} after a repair that failed"

    def _check_balancing(self, step: Step) -> None:
        assert self.stored is not None
        assert self.stored.balance
        over = (RepairStatus.CANCELED, RepairStatus.COMPLETED)
        busy = {each.node for each in self.stored.incidents if each.repair_status not in over}
        assert not step.nodes & busy, step
        running = [job.step for job in self.queue.values() if job.status is Status.RUNNING]
        assert not any(each.nodes & step.nodes for each in running), f"{step} beside {running}"

    # The rest of the world.

    def add(self, name: str, primary: str, secondary: str | None = None, **facts: Any) -> None:
        self.guests[name] = InstanceFacts(name, primary, secondary, **facts)

    def run_jobs(self) -> None:
        """Let all jobs end."""
        for job in self.queue.values():
            if job.status is not Status.RUNNING:
                continue
            job.status = Status.SUCCESS
            for op in job.step.opcodes:
                if type(op) in self.broken:
                    job.status = Status.ERROR
                    break
                self._carry_out(op)

    def _carry_out(self, op: OpCode) -> None:
        match op:
            case OpNodeSetParams():
                node = self.known[op.node_name]
                drained = bool(op.drained) if op.drained is not None else node.is_drained
                offline = bool(op.offline) if op.offline is not None else node.is_offline
                if offline:
                    left = [each.name for each in self.guests.values() if each.primary == node.name]
                    assert not left, f"{node.name} goes offline with {left}"
                self.known[node.name] = replace(
                    node, is_drained=drained and not offline, is_offline=offline
                )
            case OpTagsSet() if op.kind is TagKind.INSTANCE:
                self.guest_tags.setdefault(str(op.name), set()).update(op.tags)
            case OpTagsDel():
                assert self.guest_tags[str(op.name)] >= set(op.tags), op
                self.guest_tags[str(op.name)] -= set(op.tags)
            case OpTagsSet():
                assert op.name is not None
                node = self.known[op.name]
                self.known[node.name] = replace(node, tags=node.tags | set(op.tags))
            case OpInstanceMigrate() | OpInstanceFailover():
                guest = self.guests[op.instance_name]
                assert guest.can_leave
                if op.target_node is not None:
                    moved = replace(guest, primary=op.target_node)
                elif guest.secondary is not None:
                    moved = replace(guest, primary=guest.secondary, secondary=guest.primary)
                else:
                    moved = replace(guest, primary=self._target(guest))
                assert not self.known[moved.primary].is_drained, "moved to a drained node"
                self.guests[guest.name] = moved
            case OpInstanceReplaceDisks():
                guest = self.guests[op.instance_name]
                self.guests[guest.name] = replace(guest, secondary=self._target(guest))
            case OpRepairCommand():
                pass
            case _:
                raise AssertionError(op)

    def _target(self, guest: InstanceFacts) -> str:
        free = [
            name
            for name, node in self.known.items()
            if name not in (guest.primary, guest.secondary)
            and not (node.is_offline or node.is_drained)
        ]
        return self.chance.choice(free)

    def untag(self, name: str, tag: str) -> None:
        """Acknowledge."""
        self.known[name] = replace(self.known[name], tags=self.known[name].tags - {tag})

    def incident(self) -> Incident:
        """Return the only incident."""
        assert self.stored is not None
        [found] = self.stored.incidents
        return found


def _tags(step: Step) -> frozenset[str]:
    return frozenset(tag for op in step.opcodes if isinstance(op, OpTagsSet) for tag in op.tags)


def report(status: str, time_s: float = 0, **more: object) -> Diagnosis:
    """Return the report of a node."""
    action = Action(status)
    command = more.get("command") if action is Action.LIVE_REPAIR else None
    original = {"status": status, **more}
    return Diagnosis(original, action, None if command is None else str(command), int(time_s))

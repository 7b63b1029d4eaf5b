"""One run of the watcher for one node group, in a process of its own.

First instances are started and disks of booted nodes activated; only then are disks verified, by a
job that may have to wait for others.  Each has a lock of its own, so that a job that keeps the
second waiting never keeps instances down, and one that waits too long is canceled.  Where high
availability is on, instances start in an order (`ganeti.watcher.staggering`).

Source: cli.json, "ganeti-watcher"; constants.json, OPCODE_REASON_SRC_WATCHER.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ganeti.base.errors import JobQueueDrainError, JobQueueFull, LockError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.base.text import shown
from ganeti.clients.luxi import LuxiClient
from ganeti.objects.model import AdminStateSource
from ganeti.opcodes.group import OpGroupVerifyDisks
from ganeti.opcodes.instance import OpInstanceActivateDisks, OpInstanceShutdown, OpInstanceStartup
from ganeti.opcodes.opcode import Dependency, FinalStatus, OpCode, SubmitPriority
from ganeti.store import lease
from ganeti.system import clock
from ganeti.system.filelock import FileLock
from ganeti.watcher import memory
from ganeti.watcher.planning import (
    Facts,
    InstanceSeen,
    NodeSeen,
    Note,
    State,
    Step,
    Work,
    plan_activation,
    plan_group,
    without_refused,
)

if TYPE_CHECKING:
    from ganeti.watcher.staggering import Place

logger = logging.getLogger(__name__)

REASON_SOURCE: Final = "gnt:watcher"  # OPCODE_REASON_SRC_WATCHER
LOCKS_WAIT_S: Final = 60.0  # that the job that verifies disks may wait until others are done
VERIFY_S: Final = 240.0  # that it may take; the next run begins five minutes after this one
_LOOK_S: Final = 20.0
CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 60.0  # six times as long as LuxiD waits for nodes
_UNFINISHED: Final = ("queued", "waiting", "running", "canceling")
_FINAL: Final = frozenset(FinalStatus)
_NAMING: Final = ("instance_name", "instances")  # fields of opcodes


def connect(paths: Paths) -> LuxiClient:
    """Return a connection to LuxiD on which nothing waits for long."""
    return LuxiClient(paths, connect_timeout_s=CONNECT_TIMEOUT_S, answer_timeout_s=ANSWER_TIMEOUT_S)


def unfinished_jobs(client: LuxiClient) -> Iterator[tuple[JobId, list[Mapping[str, Any]]]]:
    """Yield all jobs that have not ended, with their opcodes."""
    wanted = ["|", *(["=", "status", status] for status in _UNFINISHED)]
    for job_id, opcodes in client.query("job", ["id", "ops"], wanted).rows():
        assert isinstance(job_id, int)
        known = opcodes if isinstance(opcodes, list) else []
        yield JobId(job_id), [each for each in known if isinstance(each, Mapping)]


def watch_group(paths: Paths, group: str, *, verifies_disks: bool = True) -> bool:
    """Look after the instances of one group once; returns whether all went well.

    Raises:
        GenericError: LuxiD or WConfD does not answer, or refuses; nothing more was done.
        OSError: the memory cannot be read or written; no job was submitted.
    """
    with connect(paths) as client:
        [uuid] = [row[0] for row in client.query("group", ["uuid"], _is(group)).rows()] or [None]
        if uuid is None:
            logger.error("There is no node group %s", group)
            return False
        run = _Run(client, paths, str(uuid))
        is_well = run.alone("", run.maintain)
        return run.alone("-disks", run.verify_disks) and is_well if verifies_disks else is_well


def _is(group: str) -> list[object]:
    return ["|", ["=", "uuid", group], ["=", "name", group]]


class _Run:
    """One run for one group."""

    def __init__(self, client: LuxiClient, paths: Paths, uuid: str) -> None:
        self._client = client
        self._paths = paths
        self._uuid = uuid
        self._has_active_disks = True

    def alone(self, task: str, work: Callable[[], bool]) -> bool:
        """Do a part of the work unless another run is at it; returns whether all went well."""
        lock = FileLock(self._paths.watcher_group_lock(self._uuid, task))
        try:
            lock.acquire()
        except LockError as err:
            logger.warning("Another run looks after group %s: %s", self._uuid, err.message)
            return False
        with lock:
            return work()

    def maintain(self) -> bool:
        """Start instances, and activate disks of nodes that have booted."""
        facts = self._facts()
        is_staggered = lease.is_on(self._paths)
        if is_staggered:
            facts = self._kept_down(facts)
        path = self._paths.watcher_data(self._uuid)
        before = memory.read(path, State)
        plan = plan_group(before, facts)
        if plan.steps:
            facts = self._as_meant_now(facts)
            plan = plan_group(before, facts)
        _tell(plan.notes)
        states = {name: instance.status for name, instance in facts.instances.items()}
        memory.write_status(self._paths, self._uuid, states)
        # Each try is on the disk before it is made: none is made without being counted.
        if plan.state != before:
            memory.write(path, plan.state)
        self._has_active_disks = any(each.disks_active for each in facts.instances.values())
        refused = self._submit_staggered(plan.steps) if is_staggered else self._submit(plan.steps)
        if refused:
            memory.write(path, without_refused(before, plan, refused))
        return not refused

    def verify_disks(self) -> bool:
        """Have the disks of the group verified, and activate those that are not in use."""
        if not self._has_active_disks:
            return True
        job_id = self._verification() or self._client.submit_job([_verification_of(self._uuid)])
        logger.info("Job %d verifies the disks of group %s", job_id, self._uuid)
        match self._result_of(job_id):
            case [[dict(failing), [*names], dict(missing)]]:
                pass
            case unknown:
                return unknown == []
        for node, text in failing.items():
            logger.warning("The disks of node %s cannot be verified: %s", node, text)
        for name, disks in missing.items():
            logger.warning("Instance %s misses disks: %s", name, shown(map(_disk_text, disks)))
        if not names:
            return True
        facts = self._facts()  # the job took its time
        wanted = [str(name) for name in names]
        steps, notes = plan_activation(wanted, facts)
        if steps:
            steps, notes = plan_activation(wanted, self._as_meant_now(facts))
        _tell(notes)
        return not self._submit(steps)

    # What is asked

    def _facts(self) -> Facts:
        """Ask for everything that a plan needs, by one query for each kind of object."""
        ask, uuid = self._client.query, self._uuid
        nodes = ask("node", ["name", "bootid", "offline"], ["=", "group.uuid", uuid])
        instances = ask(
            "instance",
            ["name", "status", "admin_state", "disks_active", "snodes"],
            ["=", "pnode.group.uuid", uuid],
        )
        return Facts(
            {
                str(name): NodeSeen(str(boot_id or ""), bool(is_offline))
                for name, boot_id, is_offline in nodes.rows()
            },
            {
                str(name): InstanceSeen(
                    str(status or ""), str(admin_state), bool(active), _texts(secondaries)
                )
                for name, status, admin_state, active, secondaries in instances.rows()
            },
            self._busy(),
            clock.now(),
        )

    def _as_meant_now(self, facts: Facts) -> Facts:
        """Ask again what the instances are meant to do, and no node.

        While the nodes were asked, a job may have begun, shut an instance down and ended, before it
        was asked for jobs: such an instance looks as if it had crashed.
        """
        fields, of_group = ["name", "admin_state"], ["=", "pnode.group.uuid", self._uuid]
        meant = {
            str(name): str(admin_state)
            for name, admin_state in self._client.query("instance", fields, of_group).rows()
        }
        instances = {
            name: replace(instance, admin_state=meant[name])
            for name, instance in facts.instances.items()
            if name in meant
        }
        return replace(facts, instances=instances)

    def _busy(self) -> dict[str, str]:
        """Return the instances that jobs work on, or will: those named, and those locked."""
        locks = self._client.query("lock", ["name", "owner"], ["=", "mode", "exclusive"]).rows()
        busy = {
            name.partition("/")[2]: f"it is locked by {shown(_texts(owners))}"
            for name, owners in ((str(name), owners) for name, owners in locks)
            if name.startswith("instance/")
        }
        for job_id, opcodes in unfinished_jobs(self._client):
            named = (name for opcode in opcodes for name in instances_of(opcode))
            busy |= dict.fromkeys(named, f"job {job_id} is about it")
        return busy

    def _verification(self) -> JobId | None:
        """Return the job of an earlier run that still verifies the disks of the group."""
        for job_id, opcodes in unfinished_jobs(self._client):
            if any(_is_verification(opcode, self._uuid) for opcode in opcodes):
                return job_id
        return None

    # What is done

    def _kept_down(self, facts: Facts) -> Facts:
        """Leave instances alone that are not to be started now, as high availability has it."""
        from ganeti.store import availability  # most clusters do without it
        from ganeti.watcher import staggering

        nodes = self._client.query("node", ["name", "bootid"], None).rows()
        state = availability.read_state(self._paths)
        kept = staggering.kept_down(
            facts,
            self._places(),
            seen=sum(bool(boot_id) for _, boot_id in nodes),
            nodes=len(nodes),
            pause="" if state is None else state.pause,
            absent=() if state is None else state.absent,
        )
        return replace(facts, busy={**kept, **facts.busy})

    def _places(self) -> dict[str, Place]:
        from ganeti.watcher.staggering import Place  # most clusters do without it

        fields, of_group = ["name", "pnode", "tags"], ["=", "pnode.group.uuid", self._uuid]
        rows = self._client.query("instance", fields, of_group).rows()
        return {str(name): Place(str(node), _texts(tags)) for name, node, tags in rows}

    def _submit_staggered(self, steps: Sequence[Step]) -> list[Step]:
        """As `_submit`, the starts in their order and a few at a time."""
        from ganeti.store import availability  # most clusters do without it
        from ganeti.watcher import staggering

        limits, places = availability.limits_of(self._paths), self._places()
        ordered = staggering.in_order(steps, places)
        return self._submit(ordered, staggering.dependencies(ordered, places, limits))

    def _submit(
        self, steps: Sequence[Step], depends: Sequence[list[Dependency]] = ()
    ) -> list[Step]:
        """Submit a job for each step; returns the steps whose jobs were refused.

        Args:
            depends: for each step, what its job waits for.

        Raises:
            TransportError: it is not known which were submitted.
        """
        if not steps:
            return []
        try:
            opcodes = [
                msgspec.structs.replace(_opcode_of(step), depends=before or None)
                for step, before in itertools.zip_longest(steps, depends)
            ]
            answers = self._client.submit_many_jobs([[opcode] for opcode in opcodes])
        except (JobQueueDrainError, JobQueueFull) as err:
            logger.warning("Cannot maintain the cluster: %s", err.message)
            return list(steps)
        refused = []
        for step, (is_submitted, answer) in zip(steps, answers, strict=True):
            if is_submitted:
                logger.info("Submitted job %s for %s, to %s", answer, step.instance, step.work)
            else:
                logger.error("Cannot %s, %s: %s", step.work, step.instance, answer)
                refused.append(step)
        return refused

    def _result_of(self, job_id: JobId) -> object:
        """Wait for a job; returns its opcodes' results, [] for lack of time, None if it failed."""
        began, seen = clock.monotonic(), None
        while (waited_s := clock.monotonic() - began) < VERIFY_S:
            change = self._client.wait_for_job_change(
                job_id, ["status", "opresult"], seen, None, min(_LOOK_S, VERIFY_S - waited_s)
            )
            if change is not None and change.fields is not None:
                seen = change.fields
            status, results = seen or ("queued", None)
            if status == FinalStatus.SUCCESS:
                return results
            if status in _FINAL:
                logger.error("Job %d has not verified the disks: %s", job_id, results or status)
                return None
            if status in _UNFINISHED[:2] and waited_s >= LOCKS_WAIT_S:
                self._client.cancel_job(job_id)
                logger.warning(
                    "Canceled job %d: it waited %g s for others before it could verify disks;"
                    " the next run tries again",
                    *(job_id, LOCKS_WAIT_S),
                )
                return []
        logger.warning("Job %d verifies disks since %g s; the next run looks", job_id, VERIFY_S)
        return []


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _disk_text(disk: object) -> str:
    return " ".join(_texts(disk))


def instances_of(opcode: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the instances that an opcode is about."""
    for field in _NAMING:
        value = opcode.get(field)
        yield from [value] if isinstance(value, str) else _texts(value)


def _tell(notes: Iterable[Note]) -> None:
    for level, text in notes:
        logger.log(level, "%s", text)


def reason(text: str) -> list[Any]:
    """Return the origin of a job of the watcher."""
    return [[REASON_SOURCE, text, clock.now_ns()]]


def _opcode_of(step: Step) -> OpCode:
    name, why = step.instance, reason(f"{step.work}: {step.instance}")
    match step.work:
        case Work.RESTART:
            return OpInstanceStartup(instance_name=name, reason=why, priority=SubmitPriority.HIGH)
        case Work.CLEAN_UP:
            source = AdminStateSource.USER
            return OpInstanceShutdown(instance_name=name, admin_state_source=source, reason=why)
        case Work.ACTIVATE:
            return OpInstanceActivateDisks(instance_name=name, reason=why)


def _verification_of(uuid: str) -> OpCode:
    why = reason(f"verify the disks of group {uuid}")
    return OpGroupVerifyDisks(group_name=uuid, reason=why, priority=SubmitPriority.LOW)


def _is_verification(opcode: Mapping[str, Any], uuid: str) -> bool:
    if (opcode.get("OP_ID"), opcode.get("group_name")) != ("OP_GROUP_VERIFY_DISKS", uuid):
        return False
    match opcode.get("reason"):
        case [[source, *_], *_]:
            return bool(source == REASON_SOURCE)
        case _:  # of clients, which may write anything there
            return False

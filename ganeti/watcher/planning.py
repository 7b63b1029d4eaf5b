"""What the watcher does about the instances of one node group.  Pure: state + facts -> steps.

Theory of operation.  An instance that should run and does not is started again, at most five times
until eight hours have passed since the last try or it was seen running.  One that its user shut
down from inside is shut down for good, with the same limit.  Each try is written down before it is
made, so that a watcher that dies in between never makes more of them; what the queue refuses is
taken back (`without_refused`).  A node whose boot id has changed has lost its disks: those of
instances that have a copy there are activated.

An instance is left alone while a job works on it, or will; while one of its nodes is offline or
silent; and whenever it is not meant to run.

Source: cli.json, "ganeti-watcher"; config.json, "WATCHER_GROUP_STATE_FILE".
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from ganeti.base.text import natural_sorted
from ganeti.objects.model import AdminState, InstanceStatus

TRIES_MAX: Final = 5
TRIES_EXPIRE_S: Final = 8 * 3600.0

Note = tuple[int, str]
"""A line for the log: its level and its text."""


class Work(StrEnum):
    """The things that are done to an instance; the text reads after "to"."""

    RESTART = "start it again"
    CLEAN_UP = "shut it down for good"
    ACTIVATE = "activate its disks"


class InstanceRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tries so far, and the last one's time in seconds since the epoch."""

    restart_count: int = 0
    restart_when: float = 0.0
    cleanup_count: int = 0
    cleanup_when: float = 0.0


class NodeRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The node as it was last seen; the kernel draws a boot id at each boot."""

    bootid: str = ""


class State(msgspec.Struct, frozen=True):
    """The memory of the watcher about one group, in the form in which 3.0 keeps it as JSON."""

    instance: Mapping[str, InstanceRecord] = {}
    node: Mapping[str, NodeRecord] = {}


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node; the boot id is "" where it did not answer."""

    boot_id: str
    is_offline: bool


@dataclass(frozen=True, slots=True)
class InstanceSeen:
    """An instance as a query shows it."""

    status: str
    admin_state: str
    disks_active: bool = False
    secondaries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """A group as it is now.

    Attributes:
        busy: {instance: the job that works on it, or will}.
        now: seconds since the epoch.
    """

    nodes: Mapping[str, NodeSeen]
    instances: Mapping[str, InstanceSeen]
    busy: Mapping[str, str]
    now: float


@dataclass(frozen=True, slots=True)
class Step:
    """One job to be submitted."""

    work: Work
    instance: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The jobs of one run, what is remembered once they are submitted, and lines for the log."""

    steps: tuple[Step, ...]
    state: State
    notes: tuple[Note, ...]


_WANTED: Final = {InstanceStatus.ERROR_DOWN: Work.RESTART, InstanceStatus.USER_DOWN: Work.CLEAN_UP}
_COUNTS: Final = {
    Work.RESTART: ("restart_count", "restart_when"),
    Work.CLEAN_UP: ("cleanup_count", "cleanup_when"),
}
# Whether it runs cannot be told, so tries are neither made nor forgotten.
_HELPLESS: Final = (InstanceStatus.ERROR_NODEDOWN, InstanceStatus.ERROR_NODEOFFLINE)


def plan_group(state: State, facts: Facts) -> Plan:
    """Decide what is to be done about a group."""
    steps: list[Step] = []
    notes: list[Note] = []
    records: dict[str, InstanceRecord] = {}
    for name in natural_sorted(facts.instances):
        known = _unexpired(state.instance.get(name, InstanceRecord()), facts.now)
        step, record, found = _look_at(name, known, facts)
        if record != InstanceRecord():
            records[name] = record
        if step is not None:
            steps.append(step)
        notes += found
    booted, found = _booted_nodes(state, facts)
    notes += found
    with_copy = {
        name
        for name, instance in facts.instances.items()
        if not booted.isdisjoint(instance.secondaries)
    }
    activated, found = plan_activation(with_copy, facts, {step.instance for step in steps})
    return Plan((*steps, *activated), State(records, _boot_ids(state, facts)), (*notes, *found))


def plan_activation(
    names: Collection[str], facts: Facts, done: Collection[str] = ()
) -> tuple[list[Step], list[Note]]:
    """Decide whose disks are activated, of instances that need it.

    Args:
        done: instances that are being started, which activates their disks.
    """
    steps: list[Step] = []
    notes: list[Note] = []
    for name in natural_sorted(set(names) - set(done)):
        obstacle = _obstacle(name, facts)
        if obstacle is None:
            steps.append(Step(Work.ACTIVATE, name))
        else:
            notes.append((logging.INFO, f"Not activating the disks of {name}: {obstacle}"))
    return steps, notes


def without_refused(before: State, plan: Plan, refused: Collection[Step]) -> State:
    """Return what is remembered when some of the jobs could not be submitted."""
    records, nodes = dict(plan.state.instance), plan.state.node
    for step in refused:
        if step.work is Work.ACTIVATE:
            nodes = before.node  # so that the next run takes them for booted again
        elif step.instance in before.instance:
            records[step.instance] = before.instance[step.instance]
        else:
            records.pop(step.instance, None)
    return State(records, nodes)


def _unexpired(record: InstanceRecord, now: float) -> InstanceRecord:
    """Forget tries that are long past; times to come are the mark of a clock that was wrong."""
    for count, when in _COUNTS.values():
        then = min(getattr(record, when), now)
        is_past = then <= now - TRIES_EXPIRE_S
        record = replace(record, **({count: 0, when: 0.0} if is_past else {when: then}))
    return record


def _look_at(
    name: str, record: InstanceRecord, facts: Facts
) -> tuple[Step | None, InstanceRecord, list[Note]]:
    """Return what is done about one instance, its tries afterwards, and lines for the log."""
    instance = facts.instances[name]
    wanted = _WANTED.get(InstanceStatus(instance.status)) if _is_known(instance.status) else None
    if wanted is None or instance.admin_state != AdminState.UP:
        return None, *_after(name, record, instance)
    if name in facts.busy:
        return None, record, [(logging.INFO, f"Leaving {name} alone: {facts.busy[name]}")]
    count, when = _COUNTS[wanted]
    tries = getattr(record, count)
    tried = replace(record, **{count: tries + 1, when: facts.now})
    if tries < TRIES_MAX:
        text = f"{name} is {instance.status}: trying to {wanted} (try {tries + 1} of {TRIES_MAX})"
        return Step(wanted, name), tried, [(logging.WARNING, text)]
    hours = TRIES_EXPIRE_S / 3600
    if tries == TRIES_MAX:  # counted as well: the hours begin now
        text = f"{name} is {instance.status} after {tries} tries to {wanted}: giving up"
        return None, tried, [(logging.ERROR, f"{text} for {hours:g} hours")]
    return None, record, [(logging.INFO, f"{name} is {instance.status}, its tries are used up")]


def _after(
    name: str, record: InstanceRecord, instance: InstanceSeen
) -> tuple[InstanceRecord, list[Note]]:
    """Return the tries of an instance for which nothing is to be done."""
    has_tries = record != InstanceRecord()
    if not _is_known(instance.status) or instance.status in _HELPLESS:
        text = f"{name} is {instance.status or 'unknown'}: its tries are kept"
        return record, [(logging.INFO, text)] if has_tries else []
    if has_tries and instance.status == InstanceStatus.RUNNING:
        return InstanceRecord(), [(logging.INFO, f"{name} is running again")]
    return InstanceRecord(), []


def _is_known(status: str) -> bool:
    return status in frozenset(InstanceStatus)


def _booted_nodes(state: State, facts: Facts) -> tuple[set[str], list[Note]]:
    """Return the nodes that have booted since they were last seen."""
    booted: set[str] = set()
    notes: list[Note] = []
    for name, node in facts.nodes.items():
        known = state.node.get(name, NodeRecord()).bootid
        if not node.boot_id:
            if not node.is_offline:
                notes.append((logging.WARNING, f"Node {name} does not answer; leaving it alone"))
        elif node.boot_id != known:
            booted.add(name)
            text = "has booted" if known else "is seen for the first time"
            notes.append((logging.INFO, f"Node {name} {text}"))
    return booted, notes


def _boot_ids(state: State, facts: Facts) -> dict[str, NodeRecord]:
    """Return the boot ids to remember; a node that does not answer keeps its last one."""
    seen = {
        name: NodeRecord(node.boot_id) if node.boot_id else state.node.get(name, NodeRecord())
        for name, node in facts.nodes.items()
    }
    return {name: record for name, record in seen.items() if record.bootid}


def _obstacle(name: str, facts: Facts) -> str | None:
    """Return the reason to leave the disks of an instance alone, if there is one."""
    instance = facts.instances.get(name)
    if instance is None:
        return "it is gone, or was moved to another group"
    if instance.admin_state != AdminState.UP or not instance.disks_active:
        return "they are not meant to be active"
    if instance.status in _HELPLESS or not _is_known(instance.status):
        return "its primary node is away"
    if name in facts.busy:
        return facts.busy[name]
    for secondary in instance.secondaries:
        node = facts.nodes.get(secondary)
        if node is not None and (node.is_offline or not node.boot_id):
            return f"node {secondary}, which has a copy, is away"
    return None

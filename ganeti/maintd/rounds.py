"""The jobs of a round, from the state of the cluster alone.  Pure.

Theory of operation.  A round is planned when all jobs of the last one ended.  Nothing of a plan
is remembered: the next step of an event follows from its node and its instances as they are, so
that a daemon that begins anew plans the same.  For each node the most invasive event that is still
to be acted on gets its next step; the others of that node wait for it.

- live-repair: the command that the object names, if it names one; then the tag.
- evacuate, evacuate-failover: drain the node, move each instance away (or its copy), set the node
  offline once it is empty, and tag it.

A planner yields steps in the order of their importance.  A step that touches an instance or a node
of an earlier one is left for another round, so that the jobs of a round run side by side.
Repairs of instances come after events, on nodes without an event (`Situation.affected`), balancing
comes last, on nodes that are well besides (`Situation.untouched`).

Source: seed document "Ganeti Maintenance Daemon", "Mode of operation".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ganeti.base.ids import JobId
from ganeti.base.json import dumps
from ganeti.base.text import shown
from ganeti.maintd.balance import Balance, opcodes_of
from ganeti.maintd.health import SWITCHED_OFF, Health
from ganeti.maintd.incidents import JobFacts, NodeFacts, is_active
from ganeti.maintd.repairs import WORD, Care, repair_of, retagging
from ganeti.objects.tags import TagKind
from ganeti.opcodes.instance import (
    OpInstanceFailover,
    OpInstanceMigrate,
    OpInstanceReplaceDisks,
    ReplaceDisksMode,
)
from ganeti.opcodes.node import OpNodeSetParams, OpRepairCommand
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.tags import OpTagsSet
from ganeti.protocol.iallocator import DEFAULT_SHORTCUT
from ganeti.protocol.maintenance.diagnosis import Diagnosis, Unknown
from ganeti.protocol.maintenance.stored import FAILED_TAG, Action, Incident, RepairStatus

TEXTS_MAX: Final = 20
BALANCING: Final = "balancing"  # in the place of an event
_LOST: Final = "the node is dead; high availability starts its instances elsewhere first"
_EVACUATING: Final = frozenset({Action.EVACUATE, Action.EVACUATE_FAILOVER})


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """An instance on a node with an event.

    Attributes:
        primary, secondary: names of nodes; None for an instance without a copy.
        can_leave: other nodes reach its disks, or a copy of them.
    """

    name: str
    primary: str
    secondary: str | None = None
    can_leave: bool = True
    is_up: bool = True


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that a round is planned from.

    Attributes:
        instances: all that have one of the nodes with an event as primary or secondary node.
        jobs: of the incidents.
        balance: the moves that would balance the untouched nodes.
        cares: the next steps for instances.
        lost: nodes whose instances high availability starts elsewhere.
    """

    incidents: Sequence[Incident]
    nodes: Mapping[str, NodeFacts]
    instances: Sequence[InstanceFacts] = ()
    healths: Mapping[str, Health] = field(default_factory=dict)
    jobs: Mapping[JobId, JobFacts] = field(default_factory=dict)
    balance: Balance = Balance()  # noqa: RUF009 - frozen
    cares: Sequence[Care] = ()
    lost: Collection[str] = ()

    @property
    def affected(self) -> frozenset[str]:
        """Names of the nodes with an event that failed or is acted on, and of those lost."""
        over = (RepairStatus.CANCELED, RepairStatus.COMPLETED)
        return frozenset(
            each.node for each in self.incidents if each.repair_status not in over
        ).union(self.lost)

    @property
    def untouched(self) -> frozenset[str]:
        """Names of the nodes that are well, without such an event."""
        online = {name for name, node in self.nodes.items() if not node.is_offline}
        return frozenset(filter(self._is_well, online - self.affected))

    def _is_well(self, name: str) -> bool:
        health = self.healths.get(name, Health())
        if health.report == SWITCHED_OFF:
            return True
        return isinstance(health.report, Diagnosis) and not health.is_flapping


@dataclass(frozen=True, slots=True)
class Step:
    """One job: its opcodes, the event that it is for, and what it touches.

    Attributes:
        event: UUID of an incident; `BALANCING`, or `WORD` with the repair of an instance.
        replaced: tags of the instance that give way to the one that tells of the repair.
        nodes: that no other job of the round may touch.
        between: nodes that an instance leaves or needs on its way; several may.
    """

    opcodes: tuple[OpCode, ...]
    event: str
    nodes: frozenset[str] = frozenset()
    between: frozenset[str] = frozenset()
    instance: str | None = None
    replaced: tuple[str, ...] = ()

    @property
    def is_of_incident(self) -> bool:
        """Whether it is for an incident."""
        return self.event != BALANCING and not self.event.startswith(WORD)

    @property
    def repair(self) -> str:
        """``KIND:ID:UNIXTIME`` of the repair that it is, or ""."""
        word, _, repair = self.event.partition(":")
        return repair if word == WORD else ""


@dataclass(frozen=True, slots=True)
class Waits:
    """Why nothing is done now about an event, or under `BALANCING` or `WORD` about those.

    Attributes:
        stuck: instances that cannot leave.
    """

    event: str
    why: str
    stuck: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """The jobs of a round, and {UUID of an event: why it waits}."""

    steps: tuple[Step, ...]
    waits: Mapping[str, Waits]

    @property
    def evacuated(self) -> list[str]:
        """Names of the instances that are moved away from nodes with an event."""
        return [
            step.instance
            for step in self.steps
            if step.instance is not None and step.is_of_incident
        ]


Planner = Callable[[Situation], Iterator[Step | Waits]]


def plan_round(situation: Situation) -> Round:
    """Decide the jobs of a round."""
    steps: list[Step] = []
    waits: dict[str, Waits] = {}
    nodes: set[str] = set()
    between: set[str] = set()
    instances: set[str] = set()
    for planner in PLANNERS:
        for found in planner(situation):
            if isinstance(found, Waits):
                waits[found.event] = found
                continue
            alone, others = found.nodes, found.between
            if alone & (nodes | between) or others & nodes or found.instance in instances:
                continue
            nodes |= alone
            between |= others
            instances |= {found.instance} if found.instance else set()
            steps.append(found)
    return Round(tuple(steps), waits)


def plan_events(situation: Situation) -> Iterator[Step | Waits]:
    """Yield the next steps of all events."""
    for name in sorted({each.node for each in situation.incidents}):
        node = situation.nodes.get(name)
        if node is None:
            continue
        of_node = [each for each in situation.incidents if each.node == name]
        yield from _failed_tags(situation, of_node)
        active = sorted(filter(is_active, of_node), key=_urgency)
        if name in situation.lost:
            yield from (Waits(each.uuid, _LOST) for each in active)
            continue
        if active:
            yield from _act(situation, node, active[0], of_node)
        for other in active[1:]:
            yield Waits(other.uuid, f"incident {active[0].uuid} of this node comes first")


def plan_repairs(situation: Situation) -> Iterator[Step | Waits]:
    """Yield the next steps for instances none of whose nodes has an event."""
    affected, texts = situation.affected, []
    for care in situation.cares:
        nodes, name = frozenset(care.nodes), care.instance
        if nodes & affected:
            texts.append(f"{name}: of its nodes {shown(nodes & affected)} has an event")
        elif care.repair:
            event, replaced = f"{WORD}:{care.repair}", tuple(care.remove)
            yield Step(repair_of(care), event, between=nodes, instance=name, replaced=replaced)
        elif care.add or care.remove:
            yield Step(retagging(name, care.add, care.remove), WORD, instance=name)
        if care.text:
            texts.append(f"{name}: {care.text}")
    if texts:
        yield Waits(WORD, "; ".join(texts[:TEXTS_MAX]))


def plan_balance(situation: Situation) -> Iterator[Step | Waits]:
    """Yield the moves that balance the nodes which no event concerns."""
    untouched = situation.untouched
    for move in situation.balance.moves:
        if untouched.issuperset(move.nodes):
            nodes = frozenset(move.nodes)
            yield Step(opcodes_of(move), BALANCING, nodes=nodes, instance=move.instance)
    if situation.balance.remarks:
        yield Waits(BALANCING, "; ".join(situation.balance.remarks))


PLANNERS: Final[tuple[Planner, ...]] = (plan_events, plan_repairs, plan_balance)


def _urgency(incident: Incident) -> tuple[int, float, str]:
    """Return a key that sorts the most invasive action first, then the oldest event."""
    return (-incident.action.severity, incident.ctime, incident.uuid)


def _failed_tags(situation: Situation, of_node: Sequence[Incident]) -> Iterator[Step]:
    """Yield the tags of events that failed; nobody tries a second time."""
    for incident in of_node:
        tag = FAILED_TAG + incident.uuid
        tried = any(tag in _job(situation, job_id).tags for job_id in incident.jobs)
        if incident.repair_status is RepairStatus.FAILED and incident.tag != tag and not tried:
            yield Step((_tagging(incident.node, tag),), incident.uuid)


def _job(situation: Situation, job_id: JobId) -> JobFacts:
    return situation.jobs.get(job_id, JobFacts(None))


def _act(
    situation: Situation, node: NodeFacts, incident: Incident, of_node: Sequence[Incident]
) -> Iterator[Step | Waits]:
    """Yield the next step of the first event of a node, or why there is none."""
    why = _objection(situation, node, incident, of_node)
    if why is not None:
        yield Waits(incident.uuid, why)
    elif incident.action in _EVACUATING:
        yield from _evacuate(situation, node, incident)
    else:
        yield _repair(incident)


def _objection(
    situation: Situation, node: NodeFacts, incident: Incident, of_node: Sequence[Incident]
) -> str | None:
    """Return why nobody may act on an event now."""
    if any(_job(situation, job_id).is_running for job_id in incident.jobs):
        return "its jobs have not ended"
    failed = [
        each
        for each in of_node
        if each.repair_status is RepairStatus.FAILED
        and each.action.severity >= incident.action.severity
    ]
    if failed:
        return (
            f"incident {failed[0].uuid} of this node has failed; remove the tag {failed[0].tag}"
            " from the node when it was looked into"
        )
    health = situation.healths.get(node.name, Health())
    if node.is_offline:
        is_evacuation = incident.action in _EVACUATING
        return None if is_evacuation else "the node is offline"
    if isinstance(health.report, Unknown):
        return f"the health of the node is not known: {health.report.why}"
    if health.is_flapping:
        return "the node reports something else again and again"
    if not incident.jobs and not (health.is_steady and health.reports(incident.original)):
        return "the node has to report it once more"
    if incident.action in _EVACUATING and node.is_master:
        return "it is the master node: fail the role over first (gnt-cluster master-failover)"
    return None


def _repair(incident: Incident) -> Step:
    """Return the repair, or after it the tag; without a command the tag is all there is to do."""
    command = incident.original.get("command")
    if not incident.jobs and isinstance(command, str):
        text = dumps(incident.original).decode()
        repair = OpRepairCommand(node_name=incident.node, command=command, input=text)
        return Step((repair,), incident.uuid, nodes=frozenset({incident.node}))
    return Step(
        (_tagging(incident.node, incident.tag),), incident.uuid, nodes=frozenset({incident.node})
    )


def _evacuate(situation: Situation, node: NodeFacts, incident: Incident) -> Iterator[Step | Waits]:
    """Yield the next steps on the way to an empty node that is offline and tagged."""
    tagging = _tagging(node.name, incident.tag)
    there = [each for each in situation.instances if node.name in (each.primary, each.secondary)]
    if node.is_offline:
        if there:
            names = shown(each.name for each in there)
            yield Waits(incident.uuid, f"the node is offline with instances on it: {names}")
        else:
            yield Step((tagging,), incident.uuid, nodes=frozenset({node.name}))
    elif not node.is_drained:
        drain = OpNodeSetParams(node_name=node.name, drained=True, auto_promote=True)
        yield Step((drain,), incident.uuid, nodes=frozenset({node.name}))
    elif there:
        stuck = tuple(sorted(each.name for each in there if not each.can_leave))
        if stuck:
            why = f"the only copy of the disks of {shown(stuck)} is on this node"
            yield Waits(incident.uuid, why, stuck)
        for instance in there:
            if instance.can_leave:
                move = _move(situation, node, instance, incident.action)
                ends = {instance.primary, instance.secondary or instance.primary}
                yield Step((move,), incident.uuid, between=frozenset(ends), instance=instance.name)
    else:
        offline = OpNodeSetParams(node_name=node.name, offline=True, auto_promote=True)
        yield Step((offline, tagging), incident.uuid, nodes=frozenset({node.name}))


def _move(situation: Situation, node: NodeFacts, instance: InstanceFacts, action: Action) -> OpCode:
    """Return the next move of an instance that leaves; it may need another copy first."""
    if instance.secondary is not None:
        other = situation.nodes.get(instance.secondary)
        can_go = other is not None and not (other.is_offline or other.is_drained)
        if instance.primary != node.name or not can_go:
            return OpInstanceReplaceDisks(
                instance_name=instance.name,
                mode=ReplaceDisksMode.NEW_SECONDARY,
                iallocator=DEFAULT_SHORTCUT,
            )
    allocator = None if instance.secondary is not None else DEFAULT_SHORTCUT
    if instance.is_up and action is Action.EVACUATE:
        return OpInstanceMigrate(
            instance_name=instance.name, allow_failover=True, iallocator=allocator
        )
    return OpInstanceFailover(instance_name=instance.name, iallocator=allocator)


def _tagging(node_name: str, tag: str) -> OpTagsSet:
    return OpTagsSet(kind=TagKind.NODE, name=node_name, tags=[tag])

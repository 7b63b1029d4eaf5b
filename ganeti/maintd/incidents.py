"""The life of an event, from the report of a node to its end.  Pure.

Theory of operation.  An event is a node and the very object that it reports; while the object stays
the same it is the same event.  It is *noted* at once, and *pending* from the intent on to submit
its first job; if that job is refused it is noted again.  It ends *completed* or *failed* with a tag
on its node, or is *canceled* by an operator: by a call, or by the tag `CANCEL_TAG` with its UUID on
the node.  It is forgotten

- noted or canceled: when the node reports something else;
- canceled or completed: also when the node is offline, where nobody looks;
- completed: only after its tag was removed;
- failed: when its tag was removed, whatever the node reports;
- any: with its node.

A node of which nothing is known reports nothing: nothing is forgotten for want of a report.

Source: seed document "Ganeti Maintenance Daemon", "Repair-event life cycle".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from ganeti.base.ids import JobId
from ganeti.jobs.status import FINAL, Status
from ganeti.maintd.health import Health, canonical
from ganeti.protocol.maintenance.diagnosis import Diagnosis
from ganeti.protocol.maintenance.stored import (
    CANCEL_TAG,
    FAILED_TAG,
    READY_TAG,
    Action,
    Incident,
    RepairStatus,
    canceled,
)

OF_A_NODE_MAX: Final = 20  # a command that prints something else each time fills no configuration

_ACTIVE: Final = frozenset({RepairStatus.NOTED, RepairStatus.PENDING})


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node, as the configuration has it."""

    name: str
    uuid: str
    address: str = ""
    tags: frozenset[str] = frozenset()
    is_master: bool = False
    is_offline: bool = False
    is_drained: bool = False


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job of an event.

    Attributes:
        status: None for a job that is not there any more.
        tags: that it adds.
    """

    status: Status | None
    tags: frozenset[str] = frozenset()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self.status is not None and self.status not in FINAL

    @property
    def is_bad(self) -> bool:
        """Whether it failed, or nobody knows."""
        return not self.is_running and self.status is not Status.SUCCESS


@dataclass(frozen=True, slots=True)
class Updates:
    """Incidents to be stored, new and changed ones, and the UUIDs of those to be forgotten."""

    stored: tuple[Incident, ...] = ()
    forgotten: tuple[str, ...] = ()


def is_active(incident: Incident) -> bool:
    """Tell whether something is still to be done about an event."""
    return incident.repair_status in _ACTIVE


def is_intent(incident: Incident) -> bool:
    """Tell whether a first job is about to be submitted for an event."""
    return incident.repair_status is RepairStatus.PENDING and not incident.jobs


def taken_back(incident: Incident) -> Incident:
    """Return an event for which no job was submitted after all."""
    return replace(incident, repair_status=RepairStatus.NOTED)


def look(
    incidents: Sequence[Incident],
    nodes: Mapping[str, NodeFacts],
    healths: Mapping[str, Health],
    new_uuid: Callable[[], str],
) -> Updates:
    """Note new events, and forget those that are over."""
    forgotten = tuple(
        each.uuid for each in incidents if _is_over(each, nodes.get(each.node), healths)
    )
    known = {(each.node, canonical(each.original)) for each in incidents}
    counts = {name: sum(1 for each in incidents if each.node == name) for name in healths}
    found = []
    for name, health in healths.items():
        report, node = health.report, nodes.get(name)
        if node is None or node.is_offline or not isinstance(report, Diagnosis):
            continue
        is_known = (name, canonical(report.original)) in known
        if report.action is Action.OK or is_known or counts[name] >= OF_A_NODE_MAX:
            continue
        found.append(_noted(name, report, new_uuid()))
    return Updates(tuple(found), forgotten)


def _noted(node_name: str, report: Diagnosis, uuid: str) -> Incident:
    return Incident(
        original=report.original,
        action=report.action,
        node=node_name,
        repair_status=RepairStatus.NOTED,
        tag=READY_TAG + uuid,
        uuid=uuid,
    )


def _is_over(incident: Incident, node: NodeFacts | None, healths: Mapping[str, Health]) -> bool:
    """Tell whether an event is to be forgotten."""
    if node is None:
        return True
    health = healths.get(node.name, Health())
    is_reported = health.reports(incident.original)
    reports_another = isinstance(health.report, Diagnosis) and not is_reported
    is_tagged = incident.tag in node.tags
    match incident.repair_status:
        case RepairStatus.NOTED:
            return reports_another and not node.is_offline
        case RepairStatus.PENDING:
            return False
        case RepairStatus.CANCELED:
            return node.is_offline or reports_another
        case RepairStatus.FAILED:
            return incident.tag.startswith(FAILED_TAG) and not is_tagged
        case RepairStatus.COMPLETED:
            return not is_tagged and (node.is_offline or reports_another)


def follow(
    incidents: Iterable[Incident], nodes: Mapping[str, NodeFacts], jobs: Mapping[JobId, JobFacts]
) -> list[Incident]:
    """Return the incidents that are not what they were, now that their jobs are as they are."""
    found = []
    for incident in incidents:
        node = nodes.get(incident.node)
        after = incident if node is None else _followed(incident, node, jobs)
        if after is not incident:
            found.append(after)
    return found


def _followed(incident: Incident, node: NodeFacts, jobs: Mapping[JobId, JobFacts]) -> Incident:
    if is_active(incident) and CANCEL_TAG + incident.uuid in node.tags:
        return canceled(incident)
    of_event = [jobs.get(job_id, JobFacts(None)) for job_id in incident.jobs]
    done = [each for each in of_event if each.status is Status.SUCCESS]
    added = node.tags.union(*(each.tags for each in done))
    ready, failed = READY_TAG + incident.uuid, FAILED_TAG + incident.uuid
    match incident.repair_status:
        case RepairStatus.PENDING if ready in added:
            return replace(incident, repair_status=RepairStatus.COMPLETED, tag=ready)
        case RepairStatus.PENDING if any(each.is_bad for each in of_event):
            return replace(incident, repair_status=RepairStatus.FAILED)
        case RepairStatus.FAILED if failed in added and incident.tag != failed:
            return replace(incident, tag=failed)
    return incident


def adopt(
    incidents: Iterable[Incident], submitted: Mapping[str, Sequence[JobId]]
) -> list[Incident]:
    """Return incidents with jobs that were submitted for them and are not noted yet.

    Args:
        submitted: {UUID: jobs whose reason names that event}.
    """
    found = []
    for incident in incidents:
        missing = [each for each in submitted.get(incident.uuid, ()) if each not in incident.jobs]
        if missing:
            found.append(with_jobs(incident, missing))
    return found


def with_jobs(incident: Incident, job_ids: Iterable[JobId]) -> Incident:
    """Return an incident with more jobs; the first ones make a noted event pending."""
    jobs = sorted({*incident.jobs, *job_ids})
    was_noted = incident.repair_status is RepairStatus.NOTED
    status = RepairStatus.PENDING if was_noted else incident.repair_status
    return replace(incident, jobs=jobs, repair_status=status)

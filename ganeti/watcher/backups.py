"""Backups by schedule: each run of the watcher on the master begins what is due.

It remembers nothing: `ganeti.backups.plan` decides by exports, jobs and the last rehearsals.
Loaded only where there is a policy or an instance that a rehearsal made.

Such an instance is known by its name and its tags, which name the job; it goes once that job is
over.  It is removed by its UUID: another one that gets the name meanwhile stays.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ganeti.backups.facts import gather, opcode_of
from ganeti.backups.plan import plan_backups
from ganeti.backups.rehearsals import left_over
from ganeti.base.errors import JobQueueDrainError, JobQueueFull
from ganeti.base.text import shown
from ganeti.clients.luxi import LuxiClient
from ganeti.opcodes.instance import OpInstanceRemove
from ganeti.system import clock
from ganeti.watcher.group import REASON_SOURCE, instances_of, reason, unfinished_jobs

logger = logging.getLogger(__name__)


def begin_backups(client: LuxiClient, cluster_tags: Sequence[str]) -> bool:
    """Submit a job for each backup that begins now; returns whether all were taken."""

    def ask(resource: str, fields: Sequence[str], wanted: Any) -> Sequence[Sequence[object]]:
        return client.query(resource, fields, wanted).rows()

    plan = plan_backups(gather(ask, cluster_tags, now=clock.now(), local=clock.local))
    late = [each.machine.name for each in plan.standings if each.is_late]
    if late:
        text = "The newest exports of %s are too old ('gnt-backup schedule')"
        logger.warning(text, shown(late))
    for each in plan.standings:
        if problem := each.rehearsal.problem:
            logger.warning("Instance %s: %s", each.machine.name, problem)
    if not plan.steps:
        return True
    opcodes = [[opcode_of(step, REASON_SOURCE, clock.now_ns())] for step in plan.steps]
    try:
        answers = client.submit_many_jobs(opcodes)
    except (JobQueueDrainError, JobQueueFull) as err:
        logger.warning("Cannot begin backups: %s", err.message)
        return False
    for step, (is_submitted, answer) in zip(plan.steps, answers, strict=True):
        if is_submitted:
            logger.info("Submitted job %s for %s, to %s", answer, step.instance, step.work)
        else:
            logger.error("Cannot %s, %s: %s", step.work, step.instance, answer)
    return all(is_submitted for is_submitted, _ in answers)


def remove_left_over(client: LuxiClient, rows: Sequence[Sequence[object]]) -> bool:
    """Submit a job for each instance that a rehearsal left; returns whether all were taken.

    Args:
        rows: name, UUID and tags of the instances with names of rehearsals.
    """
    instances = [
        (str(name), str(uuid), [str(tag) for tag in tags])
        for name, uuid, tags in rows
        if isinstance(tags, list)
    ]
    unfinished, busy = set(), dict[str, str]()
    for job_id, opcodes in unfinished_jobs(client):
        unfinished.add(int(job_id))
        for opcode in opcodes:
            busy |= dict.fromkeys(instances_of(opcode), f"job {job_id} is about it")
    found = left_over(instances, unfinished, busy)
    if not found:
        return True
    try:
        answers = client.submit_many_jobs([[_removal(name, uuid)] for name, uuid in found])
    except (JobQueueDrainError, JobQueueFull) as err:
        logger.warning("Cannot remove what rehearsals left: %s", err.message)
        return False
    for (name, _), (is_submitted, answer) in zip(found, answers, strict=True):
        if is_submitted:
            logger.info("Submitted job %s for %s, to remove what a rehearsal left", answer, name)
        else:
            logger.error("Cannot remove %s, which a rehearsal left: %s", name, answer)
    return all(is_submitted for is_submitted, _ in answers)


def _removal(name: str, uuid: str) -> OpInstanceRemove:
    return OpInstanceRemove(
        instance_name=name,
        instance_uuid=uuid,
        shutdown_timeout=0,
        reason=reason("remove what a rehearsal left"),
    )

"""Backups by schedule: each run of the watcher on the master begins those that are due.

It remembers nothing: `ganeti.backups.plan` decides by exports and jobs.  Loaded only where there is
a policy.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ganeti.backups.facts import gather, opcode_of
from ganeti.backups.plan import plan_backups
from ganeti.base.errors import JobQueueDrainError, JobQueueFull
from ganeti.base.text import shown
from ganeti.clients.luxi import LuxiClient
from ganeti.system import clock
from ganeti.watcher.group import REASON_SOURCE

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

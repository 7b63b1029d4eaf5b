"""Which instances are backed up by the watcher, and when next, for programs and the dashboard."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ganeti.backups.facts import Rows, facts_of, questions
from ganeti.backups.plan import Plan, Work, plan_backups
from ganeti.base.json import dumps, loads_as
from ganeti.protocol.luxi import QueryResponse
from ganeti.rapid.usage import Ask
from ganeti.system import clock


async def backup_schedule(ask: Ask) -> bytes:
    """Return how each instance stands.

    Raises:
        GenericError: LuxiD does not tell.
    """
    now, answers = clock.now(), dict[str, Rows]()
    tags = loads_as(list[str], bytes(await ask("QueryTags", ["cluster", None])))
    for resource, (fields, wanted) in questions(now).items():
        found = await ask("Query", [resource, fields, wanted])
        answers[resource] = loads_as(QueryResponse, bytes(found)).rows()
    return await asyncio.to_thread(_planned, answers, tags, now)


def _planned(answers: dict[str, Rows], tags: Sequence[str], now: float) -> bytes:
    plan = plan_backups(facts_of(answers, tags, now=now, local=clock.local))
    return dumps(list(_standings(plan)))


def _standings(plan: Plan) -> list[dict[str, object]]:
    steps = {step.instance: step for step in plan.steps}
    found: list[dict[str, object]] = []
    for each in plan.standings:
        policy, export, step = each.chosen.policy, each.export, steps.get(each.machine.name)
        last, rehearses = each.machine.rehearsed, step is not None and step.work is Work.REHEARSE
        found.append(
            {
                "instance": each.machine.name,
                "policy": None if policy is None else policy.text,
                "of": each.chosen.origin or None,
                "node": None if export is None else export.node,
                "newest": None if export is None else export.newest,
                "due": each.due,
                "wait": each.wait or None,
                "begins_on": None if step is None or rehearses else step.node,
                "is_late": each.is_late,
                "rehearsed": None if last is None else last.to_wire(),
                "rehearsal_due": each.rehearsal.due,
                "rehearsal_wait": each.rehearsal.wait or None,
                "rehearsal_begins_on": step.node if step is not None and rehearses else None,
                "rehearsal_problem": each.rehearsal.problem or None,
            }
        )
    return found

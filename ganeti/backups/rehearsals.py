"""Rehearsals by schedule: when the next one is due, and the warnings about the last one.  Pure.

The result of the last one is kept with the instance.  After one that failed the next one is due a
day later, whatever the policy says: so a warning goes as soon as its reason has gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from ganeti.backups.policy import DAY_S, Chosen, Policy, age_text
from ganeti.backups.times import due_at
from ganeti.base.text import utc
from ganeti.objects.model import Rehearsal
from ganeti.objects.tags import job_of_rehearsal


@dataclass(frozen=True, slots=True)
class RehearsalStanding:
    """How the rehearsals of an instance stand.

    Attributes:
        due: from when on the next one may begin; None if the policy wants none.
        wait: why it is not begun although it is due; "" for no reason.
        problem: the warning about the last one; "" for none.
    """

    due: float | None = None
    wait: str = ""
    problem: str = ""


def judge(
    chosen: Chosen,
    last: Rehearsal | None,
    *,
    made: float,
    now: float,
    local: Callable[[float], float],
) -> RehearsalStanding:
    """Judge the rehearsals of one instance.

    Args:
        last: the result of the last one.
        made: when the instance was made.
    """
    policy = chosen.policy
    if policy is None or not policy.rehearse_s:
        return RehearsalStanding()
    every_s, newest = policy.rehearse_s, None
    if last is not None:
        newest = last.ended
        every_s = min(every_s, DAY_S) if last.failure else every_s
    due = due_at(every_s, policy.hours, newest, now, local)
    return RehearsalStanding(due, problem=_problem(policy, chosen.origin, last, made, now))


def _problem(policy: Policy, origin: str, last: Rehearsal | None, made: float, now: float) -> str:
    limit_s = policy.rehearsal_too_old_s
    if last is None:
        if now - made <= limit_s:
            return ""
        return f"no export of it was ever rehearsed, and the policy of its {origin} wants that"
    if last.failure:
        what = f"the rehearsal of its export of {utc(last.exported)} on {last.node}"
        return f"{what} failed (job {last.job}): {last.failure}"
    if now - last.ended <= limit_s:
        return ""
    days = (now - last.ended) / DAY_S
    return (
        f"its last rehearsal is {days:.0f} days old, which is too old by the policy of its {origin}"
        f" ({age_text(limit_s)})"
    )


def left_over(
    instances: Iterable[tuple[str, str, Collection[str]]],
    unfinished: Collection[int],
    busy: Mapping[str, str],
) -> list[tuple[str, str]]:
    """Return name and UUID of the instances that rehearsals left whose jobs are over.

    Args:
        instances: name, UUID and tags of each; asked for before the jobs.
        unfinished: the jobs that are not over.
        busy: the instances that a job is about, with the reason to leave each alone.
    """
    found = []
    for name, uuid, tags in instances:
        job_id = job_of_rehearsal(name, tags)
        if job_id is not None and job_id not in unfinished and name not in busy:
            found.append((name, uuid))
    return found

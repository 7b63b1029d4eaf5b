"""``harep``: repairs instances whose nodes are out of order, as far as tags allow it.

Each run takes every instance one step further; run it often, for example by cron.  What to do is
decided by `ganeti.allocation.autorepair`.  A job that a run submitted and could not note in a tag,
as when it was killed, is known by its comment: the next run notes it, and submits no other.

Source: cli.json, "htools"; manual page harep(1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ganeti.allocation.autorepair import (
    Decision,
    Health,
    Planned,
    TagChange,
    decide,
    jobs_under_way,
    node_states,
    patients_of,
)
from ganeti.base.errors import GenericError
from ganeti.base.ids import JobId
from ganeti.base.json import dumps
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options
from ganeti.cli.declaration.program import single_program
from ganeti.cli.htools.options import shared
from ganeti.cli.run.jobs import changes
from ganeti.clients.snapshots import from_luxi
from ganeti.jobs.status import FINAL, Status
from ganeti.objects.tags import TagKind
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.registry import encode_opcode
from ganeti.opcodes.tags import OpTagsDel, OpTagsSet
from ganeti.opcodes.test import OpTestDelay
from ganeti.system import clock

_COMMENT: Final = "automated repairs by harep"
_LINE: Final = "-" * 21


def repair(context: Context, options: Options, _args: list[str]) -> int:
    """Take each instance one step further.

    Raises:
        GenericError: the cluster cannot be read, or a job was not accepted.
    """
    if options.job_delay < 0:
        raise GenericError("--job-delay: a delay cannot be negative")
    submitted = _submitted(context)  # older than what is known about instances, too
    snapshot = from_luxi(context.client)
    jobs = _statuses(context, jobs_under_way(patients_of(snapshot)))
    if jobs:  # their statuses must be older than what is known about instances
        snapshot = from_luxi(context.client)
    decisions = decide(
        patients_of(snapshot),
        node_states(snapshot),
        snapshot.tags,
        jobs,
        clock.now(),
        clock.new_uuid,
    )
    unclear = [
        each for each in decisions if not _carry_out(context, each, submitted.get(each.instance))
    ]
    counts = Counter(each.after for each in decisions)
    context.terminal.write_lines([_LINE, "Instance status count", _LINE])
    shown = [each for each in Health if counts[each]]
    context.terminal.write_lines([f"{each}: {counts[each]}" for each in shown])
    return EXIT_FAILURE if unclear else EXIT_SUCCESS


def _statuses(context: Context, jobs: Sequence[int]) -> Mapping[int, Status | None]:
    if not jobs:
        return {}
    rows = context.client.query_jobs(list(jobs), ["status"])
    found = zip(jobs, rows, strict=True)
    return {job: Status(str(row[0])) if row and row[0] else None for job, row in found}


def _submitted(context: Context) -> Mapping[str, JobId]:
    """Return the repairs in the queue that have not ended, by their instances."""
    unfinished = ["|", *(["=", "status", each] for each in Status if each not in FINAL)]
    return {
        str(op["instance_name"]): JobId(job)
        for job, ops in context.client.query("job", ["id", "ops"], unfinished).rows()
        if isinstance(job, int) and isinstance(ops, list)
        for op in ops
        if op.get("comment") == _COMMENT and "instance_name" in op
    }


def _carry_out(context: Context, decision: Decision, submitted: JobId | None) -> bool:
    """Do what was decided; returns whether it was clear what to do.

    Args:
        submitted: a job that repairs the instance already.
    """
    name, write = decision.instance, context.write
    if decision.settled is not None:
        after = Health.FAILED if decision.after is Health.FAILED else Health.HEALTHY
        write(f'Moving {name} from "{decision.before}" to "{after}"')
        _change_tags(context, name, decision.settled)
    if decision.text and decision.after is Health.FAILED:
        context.terminal.error(f"Not repairing {name}: {decision.text}")
        return False
    if decision.text:
        write(f"Not repairing {name}: {decision.text}")
    if decision.refused is not None:
        _change_tags(context, name, decision.refused)
    if decision.repair is not None:
        if submitted is not None:
            write(f"Job {submitted} of an earlier run repairs {name}")
            jobs = [submitted]
        else:
            write(f"Executing {decision.repair.attempt.kind} repair on {name}")
            jobs = _submit_repair(context, decision.repair)
        _change_tags(context, name, decision.repair.pending(jobs))
    return True


def _submit_repair(context: Context, planned: Planned) -> list[JobId]:
    delay = context.options.job_delay
    before = [OpTestDelay(duration=delay)] if delay else []
    wire = [_encoded(context, each) for each in (*before, *planned.opcodes)]
    if context.options.dry_run:
        context.write(f"jobs: {dumps([wire]).decode()}")
        return []
    return [context.client.submit_job(wire)]


def _change_tags(context: Context, instance: str, change: TagChange) -> None:
    """Add tags, and remove others once that is done; shows which."""
    for word, preposition, tags, opcode in (
        ("Adding", "to", change.add, OpTagsSet),
        ("Removing", "from", change.remove, OpTagsDel),
    ):
        if not tags:
            continue
        what = "tag" if len(tags) == 1 else "tags"
        context.write(f">>> {word} the following {what} {preposition} {instance}:")
        context.terminal.write_lines(tags)
        if not context.options.dry_run:
            wire = opcode(kind=TagKind.INSTANCE, name=instance, tags=list(tags))
            _wait(context, context.client.submit_job([_encoded(context, wire)]), tags)


def _wait(context: Context, job: JobId, tags: Iterable[str]) -> None:
    status = ""
    for change in changes(context, job):
        status = str(change.fields[0]) if change.fields else ""
    if status != Status.SUCCESS:
        raise GenericError(
            f"job {job}, which was to change the tags {', '.join(tags)}, ended as {status};"
            " see 'gnt-job info'"
        )


def _encoded(context: Context, opcode: OpCode) -> dict[str, object]:
    return {**encode_opcode(opcode), "comment": _COMMENT, "reason": context.reason_trail()}


PROGRAM: Final = single_program(
    "harep",
    "repair instances whose nodes are out of order",
    """Finds instances on disk templates plain and drbd that have lost a node, and repairs them by
jobs as far as tags ganeti:watcher:autorepair:KIND of the instance, its node group or the cluster
allow it.  Repairs under way are kept in tags of the instance.""",
    repair,
    options=shared("luxi job-delay reason dry-run"),
    value_status=EXIT_FAILURE,
    manual_section=1,
)

"""How a cluster has grown, from its jobs: instances, their memory and disks, week by week.

A job that has ended gives a few facts (`facts_of`), which are all that is to be kept of it; the
weeks follow from the facts of many jobs (`growth`).  Sizes are those of instances as they were
ordered: memory is the maximum, disks count once however many copies they have.  Where a job changes
an instance whose size no fact tells, because it is older than the facts, the change is counted as
unknown, and its amount is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from ganeti.base.errors import UnitParseError
from ganeti.base.units import parse_unit
from ganeti.jobs.record import QueuedJob, QueuedOp
from ganeti.jobs.status import Status
from ganeti.protocol.luxi import Week

WEEK_S: Final = 7 * 86400


class Kind(StrEnum):
    """What a job did to an instance."""

    PLANNED = "planned"  # only its size counts, once it is made
    CREATED = "created"
    REMOVED = "removed"
    RENAMED = "renamed"
    RESIZED = "resized"


class Fact(Struct, frozen=True):
    """One change of an instance.

    Attributes:
        ended: when its opcode ended, in seconds since the epoch.
        memory: MiB that it has from now on; None for no change, or for the default of a new one.
        disk: MiB of the disks of a new one; None for those that were planned.
        more_disk: MiB by which the disks have become larger; None if that is not known.
    """

    ended: int
    kind: Kind
    instance: str
    memory: int | None = None
    disk: int | None = None
    more_disk: int | None = 0
    new_name: str = ""


class _Size(Struct):
    memory: int
    disk: int


# Facts.


def facts_of(job: QueuedJob) -> list[Fact]:
    """Return what a job has changed of instances; nothing for most jobs."""
    found = (_fact(op) for op in job.ops if op.status is Status.SUCCESS)
    return [fact for fact in found if fact is not None]


def _fact(op: QueuedOp) -> Fact | None:
    params, ended = op.input, op.end_timestamp
    name = params.get("instance_name")
    if ended is None or params.get("dry_run") or not isinstance(name, str):
        return None
    at = ended[0]
    match op.op_id:
        case "OP_INSTANCE_CREATE":
            kind = Kind.PLANNED if params.get("forthcoming") else Kind.CREATED
            disks = params.get("disks")
            sizes = [_mib(_get(disk, "size")) for disk in disks] if isinstance(disks, list) else []
            known = [size for size in sizes if size is not None]
            disk = None if params.get("commit") and not known else sum(known)
            return Fact(at, kind, name, _memory(params), disk)
        case "OP_INSTANCE_REMOVE":
            return Fact(at, Kind.REMOVED, name)
        case "OP_INSTANCE_RENAME":
            new_name = op.result if isinstance(op.result, str) else str(params.get("new_name", ""))
            return Fact(at, Kind.RENAMED, name, new_name=new_name)
        case "OP_INSTANCE_GROW_DISK":
            amount = None if params.get("absolute") else _mib(params.get("amount"))
            return Fact(at, Kind.RESIZED, name, more_disk=amount)
        case "OP_INSTANCE_SET_PARAMS":
            memory, more = _memory(params), _more_disk(params.get("disks"))
            return (
                Fact(at, Kind.RESIZED, name, memory, more_disk=more)
                if memory or more != 0
                else None
            )
    return None


def _memory(params: Mapping[str, object]) -> int | None:
    beparams = params.get("beparams")
    return _mib(_get(beparams, "maxmem")) or _mib(_get(beparams, "memory"))


def _more_disk(changes: object) -> int | None:
    """Return the size of disks that are added; None as soon as one is taken away."""
    total = 0
    for change in changes if isinstance(changes, list) else []:
        action, settings = (
            (change[0], change[-1]) if isinstance(change, list) and change else ("", 0)
        )
        size = _mib(_get(settings, "size"))
        if action == "add" and size is not None:
            total += size
        elif action in ("add", "attach", "detach", "remove"):
            return None
    return total


def _get(params: object, key: str) -> object:
    return params.get(key) if isinstance(params, Mapping) else None


def _mib(value: object) -> int | None:
    if isinstance(value, int):
        return value
    try:
        return parse_unit(value) if isinstance(value, str) else None
    except UnitParseError:
        return None  # "default", and what else there may be in the files of others


# Weeks.


def growth(facts: Iterable[Fact], *, now: int, weeks: int, default_memory_mib: int) -> list[Week]:
    """Return the last weeks, counted back from now, the oldest first.

    Args:
        facts: of whatever jobs there are, in any order; older ones tell the sizes of instances.
        default_memory_mib: memory of new instances for which none was given.
    """
    found = [Week(now - (number + 1) * WEEK_S) for number in range(weeks)]
    sizes: dict[str, _Size] = {}
    for fact in sorted(facts, key=lambda fact: fact.ended):
        number = max(0, now - fact.ended) // WEEK_S
        week = found[number] if number < weeks else Week(0)  # one that nobody sees
        _apply(fact, sizes, week, default_memory_mib)
    return found[::-1]


def _apply(fact: Fact, sizes: dict[str, _Size], week: Week, default_memory_mib: int) -> None:
    name = _known_name(fact.instance, sizes)
    before = sizes.get(name)
    if fact.kind in (Kind.PLANNED, Kind.CREATED):
        planned = before or _Size(default_memory_mib, 0)
        size = _Size(
            planned.memory if fact.memory is None else fact.memory,
            planned.disk if fact.disk is None else fact.disk,
        )
        sizes[name] = size
        if fact.kind is Kind.CREATED:
            week.created += 1
            week.memory += size.memory
            week.disk += size.disk
            week.unknown += fact.disk is None and before is None
    elif fact.kind is Kind.RENAMED:
        if before is not None:
            sizes[fact.new_name] = sizes.pop(name)
    elif fact.kind is Kind.REMOVED:
        week.removed += 1
        if before is None:
            week.unknown += 1
        else:
            week.memory -= before.memory
            week.disk -= before.disk
            del sizes[name]
    else:
        _resize(fact, before, week)


def _resize(fact: Fact, before: _Size | None, week: Week) -> None:
    if fact.more_disk is None or (fact.memory is not None and before is None):
        week.unknown += 1
    week.disk += fact.more_disk or 0
    if before is not None:
        before.disk += fact.more_disk or 0
        if fact.memory is not None:
            week.memory += fact.memory - before.memory
            before.memory = fact.memory


def _known_name(name: str, sizes: Mapping[str, object]) -> str:
    """Return the name by which an instance is known: jobs may name it without its domain."""
    short = name.partition(".")[0]
    if name in sizes or (short != name and short not in sizes):
        return name
    if short != name:
        return short
    return next((known for known in sizes if known.partition(".")[0] == short), name)

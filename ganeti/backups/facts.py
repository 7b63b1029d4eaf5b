"""The facts that backups are planned by, from the answers of LuxiD.  Pure.

Jobs are asked for first: one that ends meanwhile is taken for under way, and its export not for
missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ganeti.backups.plan import RETRY_S, Export, Facts, Machine, NodeState, Place, Step, Work
from ganeti.base.text import shown
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.model import Rehearsal
from ganeti.objects.tags import REHEARSAL_PREFIX
from ganeti.opcodes.backup import OpBackupExport, OpBackupRehearse, OpBackupRemove
from ganeti.opcodes.opcode import FinalStatus, OpCode, SubmitPriority

Rows = Sequence[Sequence[object]]
Ask = Callable[[str, Sequence[str], Any], Rows]  # about a resource, its fields and a filter

REASON: Final = "backup by schedule"  # in the reason trail of the jobs
_UNFINISHED: Final = ("queued", "waiting", "running", "canceling")
_REHEARSAL: Final = "OP_BACKUP_REHEARSE"
_BACKUPS: Final = ("OP_BACKUP_EXPORT", "OP_BACKUP_REMOVE")
_NODES: Final = ("target_node", "src_node", "pnode", "snode")  # of opcodes of backups
_NAMING: Final = ("instance_name", "instances")  # fields of opcodes


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """A backup or rehearsal that is under way, and the nodes that its opcode names."""

    name: str
    nodes: tuple[str, ...]
    is_rehearsal: bool


@dataclass(slots=True)
class _Jobs:
    """The jobs that matter to backups."""

    busy: dict[str, str] = field(default_factory=dict)
    failed: dict[str, float] = field(default_factory=dict)
    rehearsals_failed: dict[str, float] = field(default_factory=dict)
    under_way: list[_UnderWay] = field(default_factory=list)


def questions(now: float) -> dict[str, tuple[Sequence[str], Any]]:
    """Return what LuxiD is to be asked, {resource: fields and filter}, in this order."""
    ended = [">=", "end_ts", now - RETRY_S]
    return {
        "job": (
            ["id", "status", "end_ts", "ops"],
            ["|", *(["=", "status", each] for each in _UNFINISHED), ended],
        ),
        "lock": (["name", "owner"], ["=", "mode", "exclusive"]),
        "export": (["node", "export", "newest", "points"], None),
        "group": (["name", "tags"], None),
        "instance": (
            [
                *("name", "pnode", "snodes", "ctime", "tags", "pnode.group"),
                *("rehearsal", "be/maxmem", "disk_template"),
            ],
            None,
        ),
        "node": (["name", "offline", "drained", "vm_capable", "bootid", "group", "mfree"], None),
    }


def gather(
    ask: Ask, cluster_tags: Sequence[str], *, now: float, local: Callable[[float], float]
) -> Facts:
    """Ask for everything that a plan needs."""
    answers = {resource: ask(resource, *about) for resource, about in questions(now).items()}
    return facts_of(answers, cluster_tags, now=now, local=local)


def facts_of(
    answers: Mapping[str, Rows],
    cluster_tags: Sequence[str],
    *,
    now: float,
    local: Callable[[float], float],
) -> Facts:
    """Return the facts that the answers to `questions` tell."""
    jobs = _jobs(answers["job"])
    for name, owners in answers["lock"]:
        level, _, instance = str(name).partition("/")
        if level == "instance":
            jobs.busy.setdefault(instance, f"it is locked by {shown(_texts(owners))}")
    exports: dict[str, list[Export]] = defaultdict(list)
    untold: dict[str, str] = {}
    for node, name, newest, points in answers["export"]:
        if name is not None and newest is not None:
            exports[str(name)].append(Export(str(node), _seconds(newest), _numbers(points)))
        elif name is not None and points is None:  # one that is broken has an empty list
            untold[str(name)] = str(node)
    machines = list(_machines(answers))
    primaries = {each.name: each.primary for each in machines}
    return Facts(
        machines=machines,
        nodes=dict(_nodes(answers["node"])),
        now=now,
        cluster_tags=cluster_tags,
        exports=exports,
        untold=untold,
        busy=jobs.busy,
        under_way=[_touched(each, primaries, exports) for each in jobs.under_way],
        failed=jobs.failed,
        rehearsals_failed=jobs.rehearsals_failed,
        places={
            str(name): Place(str(group), free if isinstance(free, int) else None)
            for name, _, _, can_run, _, group, free in answers["node"]
            if can_run
        },
        local=local,
    )


def _jobs(rows: Rows) -> _Jobs:
    found = _Jobs()
    for job_id, status, end, opcodes in rows:
        for opcode in opcodes if isinstance(opcodes, list) else ():
            is_rehearsal = opcode.get("OP_ID") == _REHEARSAL
            is_backup = is_rehearsal or opcode.get("OP_ID") in _BACKUPS
            for name in _named(opcode):
                if status in _UNFINISHED:
                    found.busy[name] = f"job {job_id} is about it"
                    if is_backup:
                        nodes = tuple(str(opcode[key]) for key in _NODES if opcode.get(key))
                        found.under_way.append(_UnderWay(name, nodes, is_rehearsal))
                elif status != FinalStatus.SUCCESS and is_backup and _is_ours(opcode):
                    failed = found.rehearsals_failed if is_rehearsal else found.failed
                    failed[name] = max(failed.get(name, 0.0), _seconds(end))
    return found


def _named(opcode: Mapping[str, Any]) -> Iterator[str]:
    for key in _NAMING:
        value = opcode.get(key)
        yield from [value] if isinstance(value, str) else _texts(value)


def _is_ours(opcode: Mapping[str, Any]) -> bool:
    steps = opcode.get("reason")  # of clients, which may write anything there
    texts = (_texts(step)[1:2] for step in (steps if isinstance(steps, list) else ()))
    return any(text.startswith(REASON) for found in texts for text in found)


def _touched(
    job: _UnderWay, primaries: Mapping[str, str], exports: Mapping[str, Sequence[Export]]
) -> frozenset[str]:
    """Return the nodes that a job is at work on; one without nodes shortens chains.

    Of a rehearsal whose node was chosen by an allocator the instance tells it, once it is there.
    """
    nodes = job.nodes or tuple(each.node for each in exports.get(job.name, ()))
    copied = f"{REHEARSAL_PREFIX}{job.name}" if job.is_rehearsal else job.name
    if copied in primaries and (job.nodes or job.is_rehearsal):
        nodes = (*nodes, primaries[copied])
    return frozenset(nodes)


def _machines(answers: Mapping[str, Rows]) -> Iterator[Machine]:
    groups = {str(name): _texts(tags) for name, tags in answers["group"]}
    for name, primary, others, made, tags, group, last, memory, template in answers["instance"]:
        if primary is None:
            continue  # it is forthcoming
        yield Machine(
            str(name),
            str(primary),
            _texts(others),
            made=_seconds(made),
            group=str(group),
            rehearsed=Rehearsal.from_wire(last) if isinstance(last, Mapping) else None,
            memory_mib=memory if isinstance(memory, int) else 0,
            disk_template=str(template),
            tags={"instance": _texts(tags), "nodegroup": groups.get(str(group), ())},
        )


def _nodes(rows: Rows) -> Iterator[tuple[str, NodeState]]:
    for name, is_offline, is_drained, can_run, boot_id, *_ in rows:
        if is_offline:
            yield str(name), NodeState.OFFLINE
        elif can_run and not boot_id:  # of the others nobody tells whether they are silent
            yield str(name), NodeState.SILENT
        else:
            yield str(name), NodeState.DRAINED if is_drained else NodeState.GOOD


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()


def _numbers(value: object) -> tuple[int, ...]:
    return tuple(map(int, value)) if isinstance(value, list) else (0,)


def _seconds(value: object) -> float:
    """Return seconds: a time is that, or a pair of seconds and microseconds."""
    if isinstance(value, list | tuple):
        return float(value[0]) + float(value[1]) / 1e6
    return float(value) if isinstance(value, int | float) else 0.0


def opcode_of(step: Step, origin: str, now_ns: int) -> OpCode:
    """Return the opcode of a step.

    Args:
        origin: the program that submits it.
    """
    name = step.instance
    reason: list[object] = [[origin, f"{REASON}: {step.work}, {name}", now_ns]]
    if step.work is Work.SHORTEN:
        return OpBackupRemove(
            instance_name=name, before=step.before, reason=reason, priority=SubmitPriority.LOW
        )
    if step.work is Work.REHEARSE:
        return OpBackupRehearse(
            instance_name=name,
            src_node=step.source,
            pnode=step.node,
            disk_template=DiskTemplate(step.disk_template) if step.disk_template else None,
            reason=reason,
            priority=SubmitPriority.LOW,
        )
    return OpBackupExport(
        instance_name=name,
        target_node=step.node,
        shutdown=step.policy.stops,
        incremental=bool(step.policy.keep) or None,
        reason=reason,
        priority=SubmitPriority.LOW,
    )

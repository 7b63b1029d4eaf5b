"""Repairs of instances as harep makes them, in the rounds of the daemon.  Pure.

Theory of operation.  `ganeti.allocation.autorepair` decides, in the search program; the tags of an
instance are all that is remembered, as with harep.  A repair is a job, and the tag that tells of it
is another one, submitted as soon as the number of the first is known.  Both name the repair in
their reasons, `WORD:KIND:ID:UNIXTIME`.  So whoever finds a repair in the queue without a tag that
tells of it (the daemon was killed in between) sets that tag before anything is decided.  The other
job may have been archived earlier, so the tags of the instance count as well.

An instance of whose nodes one has an event is left to that.

Source: constants.json, "autorepair_tags"; manual page harep(1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import Struct

from ganeti.base.ids import JobId
from ganeti.objects.tags import TagKind
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.registry import decode_opcode
from ganeti.opcodes.tags import OpTagsDel, OpTagsSet

WORD: Final = "autorepair"  # in the place of an event
_PENDING: Final = "ganeti:watcher:autorepair:pending:"
_OURS: Final = ("ganeti:watcher:autorepair:pending:", "ganeti:watcher:autorepair:result:")
_UUID: Final = 5  # its place in such a tag, before the time


class Care(Struct, frozen=True):
    """The next step for an instance.

    Attributes:
        add: tags to be set, because a repair has ended or is not allowed.
        remove: tags to be removed after that.
        repair: ``KIND:ID:UNIXTIME`` of the repair, "" for none.
        opcodes: of the repair, in their JSON form.
        text: why nothing is done, though it needs a repair.
    """

    instance: str
    nodes: list[str]
    add: list[str] = []
    remove: list[str] = []
    repair: str = ""
    opcodes: list[dict[str, Any]] = []
    text: str = ""


Work = tuple[JobId, Mapping[str, Any]]  # an opcode in its JSON form, with the number of its job


@dataclass(frozen=True, slots=True)
class Submitted:
    """A repair in the queue; ``is_told`` if a job sets the tag that tells of it."""

    instance: str
    repair: str
    jobs: tuple[JobId, ...]
    is_told: bool


def repair_of(care: Care) -> tuple[OpCode, ...]:
    """Return the job of a repair."""
    return tuple(map(decode_opcode, care.opcodes))


def retagging(instance: str, add: Sequence[str], remove: Sequence[str]) -> tuple[OpCode, ...]:
    """Return the job that changes tags of an instance."""
    kind = TagKind.INSTANCE
    added = (OpTagsSet(kind=kind, name=instance, tags=list(add)),) if add else ()
    removed = (OpTagsDel(kind=kind, name=instance, tags=list(remove)),) if remove else ()
    return (*added, *removed)


def pending_tag(repair: str, job_ids: Sequence[JobId]) -> str:
    """Return the tag that tells of a repair under way."""
    return f"{_PENDING}{repair}:{'+'.join(map(str, job_ids))}"


def outdated(tags: Sequence[str], repair: str) -> list[str]:
    """Return the tags of an instance that a repair replaces."""
    uuid = repair.split(":")[1]
    return [tag for tag in tags if tag.startswith(_OURS) and f":{uuid}:" not in tag]


def tells_of(tags: Sequence[str], repair: str) -> bool:
    """Tell whether the tags of an instance tell of a repair, or of one that began after it."""
    _kind, uuid, begun = repair.split(":")
    for tag in tags:
        words = tag.split(":")[_UUID : _UUID + 2] if tag.startswith(_OURS) else ()
        match words:
            case [known, _] if known == uuid:
                return True
            case [_, time] if time.isdecimal() and begun.isdecimal() and int(time) > int(begun):
                return True
    return False


def repairs_in(submitted: Mapping[str, Sequence[Work]]) -> Iterator[Submitted]:
    """Yield the repairs in the queue.

    Args:
        submitted: {reason: the work that names it}.
    """
    for reason, found in submitted.items():
        word, _, repair = reason.partition(":")
        if word != WORD or repair.count(":") != 2:
            continue
        tags = [tag for _, op in found if op.get("OP_ID") == "OP_TAGS_SET" for tag in op["tags"]]
        jobs = {job_id: op["instance_name"] for job_id, op in found if "instance_name" in op}
        is_told = any(tag.startswith(f"{_PENDING}{repair}:") for tag in tags)
        for name in sorted(set(jobs.values())):
            yield Submitted(name, repair, tuple(sorted(jobs)), is_told)

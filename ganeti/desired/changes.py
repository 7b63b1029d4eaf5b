"""What the plans of all kinds of objects share: a job in the making, and what differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import UnsetType

from ganeti.base.errors import OpPrereqError
from ganeti.desired.document import Path
from ganeti.desired.living import Living
from ganeti.desired.spec import Problem
from ganeti.objects.parameters import VALUE_DEFAULT
from ganeti.objects.record import plain
from ganeti.objects.tags import TagKind
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.registry import OP_ID_KEY, decode_opcode, op_id_of
from ganeti.opcodes.tags import OpTagsDel, OpTagsSet

_MISSING: Final = object()


@dataclass(frozen=True)
class Facts:
    """The cluster, and whether anything may be taken away."""

    living: Living
    removes: bool


@dataclass
class Draft:
    """The job of one object in the making."""

    name: str
    path: Path
    texts: list[str] = field(default_factory=list)
    opcodes: list[OpCode] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    removes: bool = False

    def do(self, text: str, opcode: type[OpCode], /, **params: object) -> None:
        """Add an opcode, checked as LuxiD will."""
        wire = {key: plain(value) for key, value in params.items()}
        try:
            self.opcodes.append(decode_opcode({OP_ID_KEY: op_id_of(opcode), **wire}))
        except OpPrereqError as err:
            self.wrong(err.message)
        self.texts.append(text)

    def wrong(self, text: str, *path: str | int) -> None:
        """Note a mistake, at a place within the object."""
        self.problems.append(Problem((*self.path, *path), text))


def holds(given: object, have: object) -> bool:
    """Tell whether a value is so already; of mappings only the keys that are given count."""
    if isinstance(given, Mapping):
        if not isinstance(have, Mapping):
            return False
        return all(
            key not in have if value == VALUE_DEFAULT else holds(value, have.get(key, _MISSING))
            for key, value in given.items()
        )
    if isinstance(given, Sequence) and not isinstance(given, str):
        return (
            isinstance(have, Sequence) and len(given) == len(have) and all(map(holds, given, have))
        )
    if isinstance(given, bool) or isinstance(have, bool):
        return given is have
    return given == have


def differing(given: Mapping[str, object], have: Mapping[str, object]) -> dict[str, object]:
    """Return the parameters that are not so yet."""
    return {key: value for key, value in given.items() if not holds({key: value}, have)}


def tag_changes(
    draft: Draft, kind: TagKind, given: Iterable[str] | UnsetType, have: frozenset[str]
) -> None:
    """Make the tags of an object exactly those that are given."""
    if isinstance(given, UnsetType):
        return
    wanted = frozenset(given)
    for text, opcode, tags in (
        ("add tags", OpTagsSet, wanted - have),
        ("remove tags", OpTagsDel, have - wanted),
    ):
        if tags:
            names = sorted(tags)
            draft.do(f"{text} {', '.join(names)}", opcode, kind=kind, name=draft.name, tags=names)

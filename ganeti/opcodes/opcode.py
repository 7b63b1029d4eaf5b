"""The common base of all opcodes.

An opcode is one typed operation.  Its class is the only declaration: its fields, with their
types, limits and defaults, are accepted, checked, written and shown.

Source: opcodes.json.
"""

from enum import IntEnum, StrEnum
from typing import Annotated, ClassVar, TypeAlias

import msgspec
from msgspec import Meta

from ganeti.base.json import JsonValue
from ganeti.opcodes.values import NonEmptyStr, NonNegativeInt, VersionText


class SubmitPriority(IntEnum):
    """Priorities that a job can be submitted with; smaller is more urgent."""

    HIGH = -10
    NORMAL = 0
    LOW = 10


class FinalStatus(StrEnum):
    """Status of a job that has ended."""

    CANCELED = "canceled"
    ERROR = "error"
    SUCCESS = "success"


JobReference: TypeAlias = int | Annotated[str, Meta(pattern=r"\A[0-9]{1,18}\Z")]
"""A job id; negative counts back within one submission (-1 is the job before this one)."""

Dependency: TypeAlias = tuple[JobReference, list[FinalStatus]]
"""A job to wait for and the final statuses that will do; an empty list means success."""


class OpCode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One operation; subclasses declare its parameters."""

    SUMMARY_FIELD: ClassVar[str | None] = None
    """The parameter whose value is shown behind the name in lists of jobs."""
    RESULT: ClassVar[object] = None
    """Type of the result; None if there is none."""
    WRITTEN_WHEN_UNSET: ClassVar[frozenset[str]] = frozenset({"depends", "comment"})
    """Parameters written as null when they are unset; all others are left out then."""
    REQUIRED_BY_LUXID: ClassVar[frozenset[str]] = frozenset({"reason"})
    """Parameters with a default whose key 3.0's LuxiD still insists on; always written."""

    dry_run: bool | None = None
    debug_level: NonNegativeInt | None = None
    priority: SubmitPriority = SubmitPriority.NORMAL
    depends: list[Dependency] | None = None
    comment: str | None = None
    reason: list[JsonValue] | None = []
    """The programs and reasons behind it: [source, text, nanoseconds since the epoch] per step."""
    expected_version: VersionText | None = None
    """Refuses the work unless an object, such as the instance, is at this version once all locks
    are held: its UUID, a slash and its serial number.  Ours."""


COMMON_PARAMS = OpCode.__struct_fields__


class InstanceOpCode(OpCode, frozen=True, kw_only=True):
    """Base of the operations on one instance."""

    SUMMARY_FIELD: ClassVar[str | None] = "instance_name"

    instance_name: str
    instance_uuid: NonEmptyStr | None = None

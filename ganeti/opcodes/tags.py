"""Operations on tags.

Source: opcodes.json.
"""

from ganeti.objects.tags import TagKind
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.values import NonEmptyStr


class TagsChange(OpCode, frozen=True, kw_only=True):
    """Base of the operations that change tags."""

    kind: TagKind
    tags: list[str]
    name: str | None = None


class OpTagsDel(TagsChange, frozen=True, kw_only=True):
    """Remove tags."""


class OpTagsGet(OpCode, frozen=True, kw_only=True):
    """Answer the tags of a thing."""

    SUMMARY_FIELD = "name"
    RESULT = list[NonEmptyStr]

    kind: TagKind
    use_locking: bool = False
    name: str | None = None


class OpTagsSearch(OpCode, frozen=True, kw_only=True):
    """Answer [path, tag] of every tag that matches a regular expression."""

    SUMMARY_FIELD = "pattern"
    RESULT = list[tuple[NonEmptyStr, NonEmptyStr]]

    pattern: NonEmptyStr


class OpTagsSet(TagsChange, frozen=True, kw_only=True):
    """Add tags."""

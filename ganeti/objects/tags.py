"""Tags: their allowed forms, and the kinds of objects that have them.

Source: constants.json, "tags".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from ganeti.base.errors import TagError


class TagKind(StrEnum):
    """Kinds of objects that carry tags."""

    CLUSTER = "cluster"
    INSTANCE = "instance"
    NETWORK = "network"
    NODE = "node"
    NODEGROUP = "nodegroup"


TAG_LENGTH_MAX: Final = 128
TAGS_PER_OBJECT_MAX: Final = 4096
BACKUP_TAGS: Final = "ganeti:backup:"  # the tags that begin so are policies of backups
_TAG: Final = re.compile(r"[\w.+*/:@-]+")


def check_tag(tag: object) -> str:
    """Return the tag if it is well-formed.

    Raises:
        TagError: it is empty, too long or has a character that is not allowed.
    """
    if not isinstance(tag, str):
        raise TagError(f"a tag must be text, got {type(tag).__name__}")
    if not tag:
        raise TagError("a tag cannot be empty")
    if len(tag) > TAG_LENGTH_MAX:
        raise TagError(f"the tag {tag[:20]!r}... is longer than {TAG_LENGTH_MAX} characters")
    if _TAG.fullmatch(tag) is None:
        raise TagError(
            f"the tag {tag!r} is not allowed; use letters, digits and any of . + * / : @ - _"
        )
    return tag


def add_tags(old: Iterable[str], new: Iterable[str]) -> list[str]:
    """Return the old tags with new ones added, each once.

    Raises:
        TagError: a tag is not well-formed, or the object would have too many.
    """
    tags = list(dict.fromkeys([*old, *map(check_tag, new)]))
    if len(tags) > TAGS_PER_OBJECT_MAX:
        raise TagError(f"an object can have at most {TAGS_PER_OBJECT_MAX} tags")
    return tags


def remove_tags(old: Iterable[str], removed: Iterable[str]) -> list[str]:
    """Return the old tags without some of them.

    Raises:
        TagError: the object does not have one of them; names all that are missing.
    """
    tags = list(old)
    gone = set(removed)
    missing = sorted(gone.difference(tags))
    if missing:
        raise TagError(f"tag(s) not found: {', '.join(missing)}")
    return [tag for tag in tags if tag not in gone]

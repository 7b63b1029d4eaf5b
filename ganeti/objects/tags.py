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
REHEARSAL_TAG: Final = "ganeti:rehearsal"  # of an instance that a rehearsal made
REHEARSAL_PREFIX: Final = "rehearsal."  # its name begins so
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


def rehearsal_job_tag(job_id: int) -> str:
    """Return the tag that names the job of a rehearsal, by which it is known to be over."""
    return f"{REHEARSAL_TAG}:job-{job_id}"


def job_of_rehearsal(name: str, tags: Iterable[str]) -> int | None:
    """Return the job whose rehearsal made an instance; None if it is another one."""
    found = set(tags)
    if not name.startswith(REHEARSAL_PREFIX) or REHEARSAL_TAG not in found:
        return None
    prefix = f"{REHEARSAL_TAG}:job-"
    numbers = [each.removeprefix(prefix) for each in found if each.startswith(prefix)]
    if len(numbers) != 1 or not re.fullmatch("[0-9]{1,18}", numbers[0]):
        return None
    return int(numbers[0])


def inherited(tags: Iterable[str], *, is_other: bool) -> tuple[list[str], list[str]]:
    """Return the tags that an instance made of an export gets, and those that it does not.

    Another instance than the exported one is not backed up as well just because that one was; and
    none is removed as the rest of a rehearsal.
    """
    kept: list[str] = []
    left: list[str] = []
    for tag in tags:
        is_left = is_of_rehearsal(tag) or (is_other and tag.startswith(BACKUP_TAGS))
        (left if is_left else kept).append(tag)
    return kept, left


def is_of_rehearsal(tag: str) -> bool:
    """Tell whether a tag marks what a rehearsal made."""
    return tag == REHEARSAL_TAG or tag.startswith(f"{REHEARSAL_TAG}:")


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

"""Tags of the cluster that give tags of nodes and instances a meaning for placement.

Source: manual page hbal(1), "Exclusion tags", "Migration tags", "Location tags", "Desired location
tags".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

EXCLUSION: Final = "htools:iextags:"
LOCATION: Final = "htools:nlocation:"
DESIRED_LOCATION: Final = "htools:desiredlocation:"
MIGRATION: Final = "htools:migration:"
ALLOW_MIGRATION: Final = "htools:allowmigration:"
_FROM_TO: Final = "::"


class TagMeanings(Struct, frozen=True):
    """The meanings of the beginnings of tags, and the migrations that are allowed besides.

    ``allowed_sources`` are, by a tag of the target, the tags that a source may have.
    """

    exclusion: tuple[str, ...] = ()
    location: tuple[str, ...] = ()
    desired_location: tuple[str, ...] = ()
    migration: tuple[str, ...] = ()
    allowed_sources: Mapping[str, frozenset[str]] = {}

    def accepted(self, tags: frozenset[str]) -> frozenset[str]:
        """Return the migration tags that sources for a node with these tags may have."""
        found = tags
        for tag in tags:
            found |= self.allowed_sources.get(tag, frozenset())
        return found


def meanings_of(cluster_tags: Iterable[str], more_exclusion: Iterable[str] = ()) -> TagMeanings:
    """Read the tags of the cluster.

    Args:
        more_exclusion: further beginnings of exclusion tags, without colon.
    """
    tags = sorted(cluster_tags)
    allowed: dict[str, frozenset[str]] = {}
    for pair in _after(ALLOW_MIGRATION, tags):
        source, separator, target = pair.partition(_FROM_TO)
        if separator and source and target:
            allowed[target] = allowed.get(target, frozenset()) | {source}
    return TagMeanings(
        (*_prefixes(EXCLUSION, tags), *(f"{name}:" for name in more_exclusion if name)),
        _prefixes(LOCATION, tags),
        _prefixes(DESIRED_LOCATION, tags),
        _prefixes(MIGRATION, tags),
        allowed,
    )


def _after(kind: str, tags: Iterable[str]) -> list[str]:
    return [tag.removeprefix(kind) for tag in tags if tag.startswith(kind) and tag != kind]


def _prefixes(kind: str, tags: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{name}:" for name in _after(kind, tags))


def select(prefixes: tuple[str, ...], tags: Iterable[str]) -> frozenset[str]:
    """Return the tags that begin with one of these."""
    return frozenset([tag for tag in tags if tag.startswith(prefixes)] if prefixes else ())

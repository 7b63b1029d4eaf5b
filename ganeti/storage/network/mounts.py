"""What is mounted on this machine, by the kernel's own table.

Source: proc_pid_mountinfo(5).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_TABLE: Final = "/proc/self/mountinfo"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount; ``source`` is what is mounted at ``place``."""

    place: str
    kind: str
    source: str


def parse(table: str) -> list[Mount]:
    """Return the mounts of such a table, a later one at the same place lies over the others."""
    return list(_parsed(table))


def _parsed(table: str) -> Iterator[Mount]:
    for line in table.splitlines():
        head, _dash, tail = line.partition(" - ")
        kind, source, *_options = map(_plain, tail.split())
        yield Mount(_plain(head.split()[4]), kind, source)


def _plain(word: str) -> str:
    """Return a word without its escapes: blanks are octal numbers."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), word)


def read() -> list[Mount]:
    """Return all mounts that this process sees."""
    with open(_TABLE, encoding="utf-8") as file:
        return parse(file.read())


def at(place: str) -> Mount | None:
    """Return the mount at a directory or file, None where there is none."""
    real = os.path.realpath(place)  # the table knows no links, as /var/run is one
    found = [mount for mount in read() if mount.place == real]
    return found[-1] if found else None


def below(directory: str) -> list[str]:
    """Return the places below a directory at which something is mounted, deepest first."""
    start = os.path.realpath(directory).rstrip("/") + "/"
    return sorted({mount.place for mount in read() if mount.place.startswith(start)}, reverse=True)

"""The file of the master that remembers whether the volume groups of all nodes were consistent.

A new master has none: then it is not known.
"""

from __future__ import annotations

from typing import Final

from ganeti.base.paths import Paths
from ganeti.system import files

KNOWN: Final = ("good", "bad")
UNKNOWN: Final = "unknown"
_BYTES_MAX: Final = 64
_MODE: Final = 0o640


def read(paths: Paths) -> str:
    """Return what is remembered, one of `KNOWN`, or `UNKNOWN`."""
    data = files.read_bytes_or_none(paths.volume_group_health, _BYTES_MAX)
    word = (data or b"").decode("ascii", "replace").strip()
    return word if word in KNOWN else UNKNOWN


def write(paths: Paths, word: str) -> None:
    """Remember a word, durably."""
    files.write_durable(paths.volume_group_health, f"{word}\n".encode(), _MODE)

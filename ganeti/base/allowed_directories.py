"""Directories of a node that its administrator allows for a use, in a list that only this node has.

The list is a file in ``/etc/ganeti``: one absolute path per line, comments after ``#``.  It is no
part of the configuration, so whoever may change that cannot reach more of a node by it.
Directories that belong to the system are never allowed, even if a list names them.

Source: config.json, "well_known_paths".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_SYSTEM_DIRECTORIES: Final = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/root",
    "/sbin",
    "/sys",
    "/usr/bin",
    "/usr/include",
    "/usr/lib",
    "/usr/local/bin",
    "/usr/local/lib",
    "/usr/local/sbin",
    "/usr/sbin",
    "/usr/share",
    "/var/lib/ganeti",
)
_TOO_WIDE: Final = frozenset({"/", "/home", "/opt", "/srv", "/tmp", "/usr", "/usr/local", "/var"})  # noqa: S108 - names to refuse


def is_below(path: str, directory: str) -> bool:
    """Tell whether a path lies below a directory; it is not the directory itself."""
    return path.startswith(directory.rstrip("/") + "/")


def refused_directories(allowed: Iterable[str]) -> list[str]:
    """Return the directories of a list that nobody may allow, in natural order."""
    return sorted(
        directory
        for directory in allowed
        if directory in _TOO_WIDE
        or any(directory == system or is_below(directory, system) for system in _SYSTEM_DIRECTORIES)
    )


def usable_directories(allowed: Iterable[str]) -> list[str]:
    """Return the other directories of a list."""
    listed = list(allowed)
    refused = frozenset(refused_directories(listed))
    return [directory for directory in listed if directory not in refused]

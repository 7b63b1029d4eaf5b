"""Where files that serve as disks may lie on this node.

The node's own list, ``/etc/ganeti/file-storage-paths``, names the directories: one absolute path
per line, comments after ``#``.  Without that file the default directories are allowed.  Directories
that belong to the system are never allowed, even if the list names them.

Paths here are those of the wire, without the node's root.

Source: config.json, "well_known_paths"; node_rpc.json, "node_verify_checks".
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final

from ganeti.base.errors import FileStoragePathError
from ganeti.base.paths import Paths
from ganeti.base.text import listed_paths
from ganeti.system.files import read_bytes_or_none

FILE_BYTES_MAX: Final = 1 << 20
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


def load_allowed_paths(paths: Paths) -> list[str]:
    """Read the node's list of allowed directories."""
    data = read_bytes_or_none(paths.file_storage_paths_file, FILE_BYTES_MAX)
    if data is not None:
        return listed_paths(data.decode("utf-8", "replace"))
    defaults = (paths.file_storage_dir, paths.shared_file_storage_dir, paths.gluster_storage_dir)
    return [paths.globalize(path) for path in defaults]


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip("/") + "/")


def refused_directories(allowed: Iterable[str]) -> list[str]:
    """Return the directories of a list that nobody may allow, in natural order."""
    return sorted(
        directory
        for directory in allowed
        if directory in _TOO_WIDE
        or any(
            directory == system or _is_below(directory, system) for system in _SYSTEM_DIRECTORIES
        )
    )


def check_path(path: str, allowed: Sequence[str]) -> None:
    """Check that a path lies below an allowed directory.

    Raises:
        FileStoragePathError: it does not; the text names the allowed directories.
    """
    if not path.startswith("/") or os.path.normpath(path) != path or "\0" in path:
        raise FileStoragePathError(f"file storage path {path!r} is not absolute and plain")
    refused = frozenset(refused_directories(allowed))
    usable = [directory for directory in allowed if directory not in refused]
    if not any(_is_below(path, directory) for directory in usable):
        raise FileStoragePathError(
            f"path {path} is not below an allowed file storage directory"
            f" ({', '.join(usable) or 'none is allowed'}; see /etc/ganeti/file-storage-paths)"
        )


def local_path(path: str, paths: Paths) -> str:
    """Check a path from the wire and return where it is on this node.

    Raises:
        FileStoragePathError: it is not below an allowed directory.
    """
    plain = paths.globalize(paths.localize(path))
    check_path(plain, load_allowed_paths(paths))
    return paths.localize(plain)


def storage_directory_problem(path: str, paths: Paths, *, must_exist: bool = True) -> str | None:
    """Return the problem of the cluster's file storage directory on this node, or None.

    Args:
        must_exist: False for a directory that is made when it is needed.
    """
    local = paths.localize(path)
    allowed = load_allowed_paths(paths)
    plain = paths.globalize(local)
    refused = refused_directories(allowed)
    if not any(plain == d or _is_below(plain, d) for d in allowed if d not in refused):
        return f"path {path} is not an allowed file storage directory on this node"
    try:
        os.stat(local)
    except FileNotFoundError:
        if not must_exist:
            return None
    except OSError as err:  # of a mounted volume whose server, or client, is gone
        return f"path {path} cannot be used: {err.strerror}"
    if not os.path.isdir(local):
        return f"path {path} is not an existing directory"
    return None if os.access(local, os.W_OK) else f"path {path} is not writable"

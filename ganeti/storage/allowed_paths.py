"""Where files that serve as disks may lie on this node.

The node's own list, ``/etc/ganeti/file-storage-paths``, names the directories.  Without that file
the default directories are allowed.  See `ganeti.base.allowed_directories`.

Paths here are those of the wire, without the node's root.

Source: config.json, "well_known_paths"; node_rpc.json, "node_verify_checks".
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ganeti.base.allowed_directories import is_below, usable_directories
from ganeti.base.errors import FileStoragePathError
from ganeti.base.paths import Paths
from ganeti.system.files import read_listed_paths


def load_allowed_paths(paths: Paths) -> list[str]:
    """Read the node's list of allowed directories."""
    listed = read_listed_paths(paths.file_storage_paths_file)
    if listed is not None:
        return listed
    defaults = (paths.file_storage_dir, paths.shared_file_storage_dir, paths.gluster_storage_dir)
    return [paths.globalize(path) for path in defaults]


def check_path(path: str, allowed: Sequence[str]) -> None:
    """Check that a path lies below an allowed directory.

    Raises:
        FileStoragePathError: it does not; the text names the allowed directories.
    """
    if not path.startswith("/") or os.path.normpath(path) != path or "\0" in path:
        raise FileStoragePathError(f"file storage path {path!r} is not absolute and plain")
    usable = usable_directories(allowed)
    if not any(is_below(path, directory) for directory in usable):
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
    if not any(plain == d or is_below(plain, d) for d in usable_directories(allowed)):
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

"""The directories that hold the file disks of one instance.

Source: node_rpc.json, file_storage_dir_create, file_storage_dir_remove, file_storage_dir_rename.
"""

from __future__ import annotations

import os

from ganeti.base.errors import StorageError
from ganeti.storage.allowed_paths import local_path
from ganeti.storage.interface import StorageEnv
from ganeti.system.files import ensure_directory


def create_directory(path: str, env: StorageEnv) -> None:
    """Make a directory, unless it is there."""
    local = local_path(path, env.paths)
    try:
        ensure_directory(local)
    except OSError as err:
        raise StorageError(f"cannot create directory {local}: {err.strerror}") from err
    if not os.path.isdir(local):
        raise StorageError(f"{local} is not a directory")


def remove_directory(path: str, env: StorageEnv) -> None:
    """Remove an empty directory; does nothing when it is gone already."""
    local = local_path(path, env.paths)
    try:
        os.rmdir(local)
    except FileNotFoundError:
        return
    except OSError as err:
        raise StorageError(f"cannot remove directory {local}: {err.strerror}") from err


def rename_directory(old_path: str, new_path: str, env: StorageEnv) -> None:
    """Rename a directory with all that is in it; repeating it does nothing more."""
    old, new = local_path(old_path, env.paths), local_path(new_path, env.paths)
    if os.path.lexists(new):
        if os.path.lexists(old):
            raise StorageError(f"cannot rename {old} to {new}: both exist")
        return
    try:
        ensure_directory(os.path.dirname(new))
        os.rename(old, new)
    except OSError as err:
        raise StorageError(f"cannot rename {old} to {new}: {err.strerror}") from err

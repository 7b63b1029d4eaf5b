"""Symbolic links by which an instance's disks have stable names on the node that runs it.

``RUN_DIR/instance-disks/<instance>:<index>`` points at the device that the disk has now.
"""

from __future__ import annotations

import os

from ganeti.base.errors import BlockDeviceError
from ganeti.storage.interface import StorageEnv
from ganeti.system.files import ensure_directory, remove_if_exists


def link_path(instance_name: str, index: int, env: StorageEnv) -> str:
    """Return the path of the link of one disk."""
    return os.path.join(env.paths.disk_links_dir, f"{instance_name}:{index}")


def make_link(instance_name: str, index: int, dev_path: str, env: StorageEnv) -> str:
    """Make the link of a disk point at its device, in one step; returns the path of the link."""
    path = link_path(instance_name, index, env)
    temporary = f"{path}.{os.getpid()}.new"
    try:
        ensure_directory(env.paths.disk_links_dir, 0o755)
        if os.path.islink(path) and os.readlink(path) == dev_path:
            return path
        remove_if_exists(temporary)
        os.symlink(dev_path, temporary)
        os.rename(temporary, path)
    except OSError as err:
        raise BlockDeviceError(f"cannot make the link {path}: {err.strerror}") from err
    return path


def remove_link(instance_name: str, index: int, env: StorageEnv) -> None:
    """Remove the link of a disk, if it is there."""
    remove_if_exists(link_path(instance_name, index, env))

"""The directories that hold the file disks of instances.

Source: node_rpc.json, calls file_storage_dir_*.
"""

from ganeti.node_ops import drivers
from ganeti.node_ops.context import NodeContext
from ganeti.storage import directories


def file_storage_dir_create(context: NodeContext, file_storage_dir: str) -> None:
    """Make a directory, below one that this node allows for file storage."""
    directories.create_directory(file_storage_dir, drivers.node_env(context))


def file_storage_dir_remove(context: NodeContext, file_storage_dir: str) -> None:
    """Remove an empty directory; one that is gone already is no error."""
    directories.remove_directory(file_storage_dir, drivers.node_env(context))


def file_storage_dir_rename(
    context: NodeContext, old_file_storage_dir: str, new_file_storage_dir: str
) -> None:
    """Rename a directory with all that is in it."""
    env = drivers.node_env(context)
    directories.rename_directory(old_file_storage_dir, new_file_storage_dir, env)

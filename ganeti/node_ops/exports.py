"""Exported instances that lie on this node.

Source: node_rpc.json, calls export_*; constants.json, "export_import".
"""

import os
import re
import shutil
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext
from ganeti.system import files

CONFIG_NAME: Final = "config.ini"
_EXPORT_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CONFIG_BYTES_MAX: Final = 1 << 20


def export_list(context: NodeContext) -> list[str]:
    """Return the names of the exports, one directory each."""
    try:
        names = os.listdir(context.paths.export_dir)
    except FileNotFoundError:
        return []
    return sorted(
        name
        for name in names
        if _EXPORT_NAME.fullmatch(name)
        and os.path.isdir(os.path.join(context.paths.export_dir, name))
    )


def export_info(context: NodeContext, path: str) -> str:
    """Return the description of an export, as its INI file has it.

    Raises:
        GenericError: there is none.
    """
    config_path = os.path.join(_local(context.paths, path), CONFIG_NAME)
    data = files.read_bytes_or_none(config_path, _CONFIG_BYTES_MAX)
    if data is None:
        raise GenericError(f"there is no export in {path!r}")
    return data.decode("utf-8", "replace")


def export_remove(context: NodeContext, export: str) -> None:
    """Remove an export with all its data.

    Raises:
        GenericError: there is none of that name.
    """
    if not _EXPORT_NAME.fullmatch(export):
        raise GenericError(f"{export!r} is not the name of an export")
    path = os.path.join(context.paths.export_dir, export)
    if not os.path.isdir(path):
        raise GenericError(f"there is no export {export!r}")
    shutil.rmtree(path)


def _local(paths: Paths, path: str) -> str:
    """Return where an export lies: a name, or a path below the export directory.

    Raises:
        GenericError: somewhere else.
    """
    if _EXPORT_NAME.fullmatch(path):
        return os.path.join(paths.export_dir, path)
    local = paths.localize(path)
    if not local.startswith(paths.export_dir + "/"):
        raise GenericError(f"{path!r} does not lie in the export directory")
    return local

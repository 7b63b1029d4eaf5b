"""What the ends of a transfer are on this node: devices, files of exports, scripts.

Source: node_rpc.json, ED_IMPEXP_IO; hooks_os_ext.json, "env_import" and "env_export".
"""

import os
from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.node_ops import drivers
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.disks import exports
from ganeti.node_ops.instances import os_definitions
from ganeti.node_ops.instances.os_scripts import log_path, os_environment
from ganeti.node_ops.instances.running import snapshots_of
from ganeti.node_ops.transfers.ends import End
from ganeti.objects.rpc_instance import RpcDisk, RpcInstance
from ganeti.system.files import ensure_directory

_DIRECTORY_MODE: Final = 0o750


def find_end(
    context: NodeContext,
    instance: RpcInstance,
    component: str,
    place: tuple[str, Sequence[object]],
    *,
    receives: bool,
) -> End:
    """Return what one end of a transfer is on this node.

    Raises:
        BlockDeviceError: the disk is not there.
        GenericError: a file that cannot belong to an export.
        ProtocolError: nothing of that form is known.
    """
    match place:
        case ("raw", [disk]):
            return End(kind="raw", path=_device(context, instance, disk))
        case ("file", [str(path), *rest]):
            return _file(context, path, rest, receives=receives)
        case ("script", [disk, int(index)]):
            device = _device(context, instance, disk)
            return _script(context, instance, component, device, index, receives=receives)
        case ("snapshot", [str(uuid)]) if not receives:
            found = snapshots_of(context, instance).address(instance.name, uuid)
            return End(kind="snapshot", path=found.socket_path, export=found.export)
        case (kind, args):
            raise ProtocolError(f"no end of a transfer: {kind!r} with {len(args)} value(s)")


def _device(context: NodeContext, instance: RpcInstance, wire: object) -> str:
    """Return the local path of the disk that is meant."""
    disk = RpcDisk.from_wire(wire)  # type: ignore[arg-type]  # it says what is wrong itself
    index = int(disk.iv_name.rpartition("/")[2]) if disk.iv_name else 0
    path = drivers.assemble_disk(context, instance.name, index, disk).dev_path
    if not path:
        raise GenericError(
            f"disk {disk.uuid} has no device on node {context.hostname}, so it cannot be copied"
        )
    return path


def _file(context: NodeContext, path: str, rest: Sequence[object], *, receives: bool) -> End:
    local = exports.local_path(context.paths, path)
    if receives:
        ensure_directory(os.path.dirname(local), _DIRECTORY_MODE)
    elif not os.path.isfile(local):
        raise GenericError(f"node {context.hostname} has no file {path}")
    return End(kind="file", path=local, sha256=str(rest[0]) if rest and rest[0] else "")


def _script(
    context: NodeContext,
    instance: RpcInstance,
    component: str,
    device: str,
    index: int,
    *,
    receives: bool,
) -> End:
    kind = os_definitions.IMPORT if receives else os_definitions.EXPORT
    if not instance.os:
        return End(kind="script", path=device)
    definition = os_definitions.load(context.paths, instance.os)
    if kind not in definition.scripts:
        return End(kind="script", path=device)
    env = os_environment(context, definition, instance, 0)
    env |= {f"{kind.upper()}_DEVICE": device, f"{kind.upper()}_INDEX": str(index)}
    return End(
        kind="script",
        path=device,
        argv=[definition.script(kind)],
        env=env,
        cwd=definition.path,
        log=log_path(context, kind, definition.name, f"{instance.name}-{component}"),
    )

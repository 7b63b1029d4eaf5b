"""The hypervisor and storage drivers of this node, as handlers ask for them."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from ganeti.base.errors import BlockDeviceError, GenericError, ResolverError
from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import AssembledDisk, Hypervisor, NodeEnv, get_hypervisor
from ganeti.node_ops.context import NodeContext
from ganeti.objects.rpc_instance import RpcDisk, RpcInstance
from ganeti.storage.interface import Volume, bottom_up
from ganeti.storage.registry import volume_of
from ganeti.store import ssconf
from ganeti.system import environment
from ganeti.system.files import ensure_directory, remove_if_exists

_INSTANCE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def node_env(context: NodeContext) -> NodeEnv:
    """Return the node as drivers see it."""
    return NodeEnv(context.paths, context.hostname, own_address(context))


def own_address(context: NodeContext) -> str:
    """Return the primary address of this node, "" if it cannot be found out."""
    if ssconf.read_key_or_none(context.paths, "node_primary_ips") is not None:
        address = ssconf.node_primary_ips(context.paths).get(context.hostname)
        if address is not None:
            return address
    try:
        return environment.resolve(context.hostname, context.paths)[1]
    except ResolverError:
        return ""


def hypervisor(context: NodeContext, name: str, hvparams: Mapping[str, object]) -> Hypervisor:
    """Return a hypervisor of this node; errors as of `get_hypervisor`."""
    return get_hypervisor(name, node_env(context), hvparams)


def hypervisors(
    context: NodeContext, names: Iterable[str], all_hvparams: Mapping[str, object]
) -> Iterator[Hypervisor]:
    """Yield hypervisors of this node, with the cluster's parameters {hypervisor: parameters}."""
    for name in names:
        params = all_hvparams.get(name)
        yield hypervisor(context, name, params if isinstance(params, Mapping) else {})


def hypervisor_of(context: NodeContext, instance: RpcInstance) -> Hypervisor:
    """Return the hypervisor of an instance on this node; errors as of `get_hypervisor`."""
    return hypervisor(context, instance.hypervisor, instance.hvparams)


def volume(context: NodeContext, disk: RpcDisk) -> Volume:
    """Return a disk as it is on this node; errors as of `volume_of`."""
    return volume_of(disk, node_env(context))


def check_instance_name(name: str) -> None:
    """Refuse a name that could lead out of a directory of files named after instances.

    Raises:
        GenericError: it is no host name.
    """
    if not _INSTANCE_NAME.fullmatch(name):
        raise GenericError(f"{name!r} is not a valid instance name")


def assemble_disks(context: NodeContext, instance: RpcInstance) -> list[AssembledDisk]:
    """Assemble the disks of an instance, which may be assembled already.

    Raises:
        BlockDeviceError: a disk does not exist, or cannot be assembled; the text names it.
    """
    return [
        assemble_disk(context, instance.name, index, disk)
        for index, disk in enumerate(instance.disks_info)
    ]


def open_disks(context: NodeContext, instance: RpcInstance, *, exclusive: bool = True) -> None:
    """Make the assembled disks of an instance writable here; ``exclusive`` means nowhere else."""
    for disk in instance.disks_info:
        volume(context, disk).open(exclusive=exclusive)


def assemble_disk(
    context: NodeContext, instance_name: str, index: int, disk: RpcDisk
) -> AssembledDisk:
    """Assemble one disk; errors as of `assemble_disks`."""
    try:
        *_children, assembled = [part.assemble() for part in bottom_up(volume(context, disk))]
    except BlockDeviceError as err:
        raise BlockDeviceError(
            f"disk {index} of instance {instance_name!r} cannot be used on node"
            f" {context.hostname}: {err.message}"
        ) from err
    return AssembledDisk(
        index=index,
        uuid=str(disk.uuid),
        dev_path=assembled.dev_path,
        size_mib=disk.size,
        mode=disk.mode,
        uri=assembled.uri,
        # A provider may attach a file, which QEMU opens in another way than a device.
        dev_type="file" if os.path.isfile(assembled.dev_path) else disk.dev_type,
    )


def link_disk(context: NodeContext, instance_name: str, index: int, dev_path: str) -> str:
    """Point the link of a disk at its device, in one step; returns the path of the link.

    By its link a disk has the same name whenever the instance runs here, whatever its device is.
    """
    check_instance_name(instance_name)
    directory = context.paths.disk_links_dir
    path = os.path.join(directory, f"{instance_name}:{index}")
    temporary = f"{path}.{os.getpid()}.new"
    try:
        ensure_directory(directory, 0o755)
        if os.path.islink(path) and os.readlink(path) == dev_path:
            return path
        remove_if_exists(temporary)
        os.symlink(dev_path, temporary)
        os.rename(temporary, path)
    except OSError as err:
        raise BlockDeviceError(f"cannot make the link {path}: {err.strerror}") from err
    return path


def unlink_disks(paths: Paths, instance_name: str) -> None:
    """Remove all disk links of an instance."""
    check_instance_name(instance_name)
    prefix = f"{instance_name}:"
    try:
        names = os.listdir(paths.disk_links_dir)
    except FileNotFoundError:
        return
    for name in names:
        if name.startswith(prefix) and name[len(prefix) :].isdigit():
            os.unlink(os.path.join(paths.disk_links_dir, name))


def wire_path(paths: Paths, local_path: str) -> str:
    """Return a path for the wire: without the root of a virtual node, where it lies below it."""
    if paths.root and local_path.startswith(paths.root + "/"):
        return paths.globalize(local_path)
    return local_path


def with_links(
    context: NodeContext, instance_name: str, disks: Sequence[AssembledDisk]
) -> list[AssembledDisk]:
    """Link assembled disks and return them under their links."""
    return [
        AssembledDisk(
            index=disk.index,
            uuid=disk.uuid,
            dev_path=link_disk(context, instance_name, disk.index, disk.dev_path),
            size_mib=disk.size_mib,
            mode=disk.mode,
            uri=disk.uri,
            dev_type=disk.dev_type,
        )
        if disk.dev_path
        else disk
        for disk in disks
    ]

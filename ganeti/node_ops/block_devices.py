"""Disks on this node, through the storage drivers.

Source: node_rpc.json, calls blockdev_* and "BlockDevStatus".
"""

import logging
import os

from ganeti.base.errors import BlockDeviceError, GenericError
from ganeti.node_ops import drivers
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.leftovers import alone_with_disk
from ganeti.objects.rpc_instance import RpcDisk, RpcInstance
from ganeti.storage.interface import BlockDevStatus

logger = logging.getLogger(__name__)

_BYTES_PER_MIB = 1 << 20


def blockdev_create(
    context: NodeContext,
    bdev: RpcDisk,
    size: int,
    owner: str,
    on_primary: bool,
    info: str,
    exclusive_storage: bool,
) -> list[object] | None:
    """Make a disk for an instance; returns its final logical id where creation decides it.

    Raises:
        BlockDeviceError: it was not made, and nothing of it is left.
    """
    driver = drivers.device(context, bdev)
    with alone_with_disk(context, bdev.uuid, owner=owner):
        try:
            logical_id = driver.create(size, exclusive_storage=exclusive_storage)
        except Exception:
            raise  # a driver that fails leaves nothing
        except BaseException:  # this call is ended from outside, midway
            driver.remove()
            raise
        try:
            if on_primary:
                driver.assemble()
                driver.open()
            driver.set_info(info)
        except BaseException:
            driver.remove()
            raise
    return logical_id


def blockdev_remove(context: NodeContext, bdev: RpcDisk) -> None:
    """Remove a disk and its data; one that is gone already is no error."""
    driver = drivers.device(context, bdev)
    with alone_with_disk(context, bdev.uuid):
        driver.shutdown()
        driver.remove()


def blockdev_assemble(
    context: NodeContext, disk: RpcDisk, instance: RpcInstance, on_primary: bool, idx: int
) -> list[object]:
    """Make a disk usable on this node.

    Returns:
        On the primary node [device path, link or null, address or null], else [true, true].
    """
    assembled = drivers.assemble_disk(context, instance.name, idx, disk)
    if not on_primary:
        return [True, True]
    drivers.device(context, disk).open()
    paths = context.paths
    link = None
    if assembled.dev_path:
        link = drivers.link_disk(context, instance.name, idx, assembled.dev_path)
    return [
        drivers.wire_path(paths, assembled.dev_path),
        None if link is None else drivers.wire_path(paths, link),
        assembled.uri,
    ]


def blockdev_shutdown(context: NodeContext, disk: RpcDisk) -> None:
    """Undo `blockdev_assemble`, which opens a disk as well."""
    driver = drivers.device(context, disk)
    driver.close()
    driver.shutdown()


def blockdev_find(context: NodeContext, disk: RpcDisk) -> dict[str, object] | None:
    """Return the state of a disk; null when it does not exist."""
    status = drivers.device(context, disk).find()
    return None if status is None else _status_to_wire(context, status)


def blockdev_open(
    context: NodeContext, _instance_name: str, disks: list[RpcDisk], exclusive: bool
) -> None:
    """Make the assembled disks of an instance writable here."""
    for disk in disks:
        drivers.device(context, disk).open(exclusive=exclusive)


def blockdev_close(context: NodeContext, instance_name: str, disks: list[RpcDisk]) -> None:
    """Undo `blockdev_open` for the disks of an instance, which does not run here any more."""
    for disk in disks:
        drivers.device(context, disk).close()
    drivers.unlink_disks(context.paths, instance_name)


def blockdev_grow(
    context: NodeContext,
    cf_bdev: RpcDisk,
    amount: int,
    dryrun: bool,
    backingstore: bool,
    _es_flag: bool,
) -> None:
    """Add MiB to a disk; ``dryrun`` only checks that it could be done."""
    driver = drivers.device(context, cf_bdev)
    with alone_with_disk(context, cf_bdev.uuid):
        driver.grow(amount, dryrun=dryrun, backingstore=backingstore)


def blockdev_getdimensions(context: NodeContext, disks: list[RpcDisk]) -> list[list[object] | None]:
    """Return [bytes, spindles or null] of each disk; null for one that does not exist."""
    found = (drivers.device(context, disk).dimensions() for disk in disks)
    return [None if size is None else size.to_wire() for size in found]


def blockdev_getmirrorstatus(context: NodeContext, disks: list[RpcDisk]) -> list[dict[str, object]]:
    """Return the state of each disk.

    Raises:
        BlockDeviceError: one does not exist.
    """
    return [_status_to_wire(context, _status(context, disk)) for disk in disks]


def blockdev_getmirrorstatus_multi(
    context: NodeContext, node_disks: list[RpcDisk]
) -> list[tuple[bool, object]]:
    """Return [true, state] or [false, message] for each disk."""
    answers: list[tuple[bool, object]] = []
    for disk in node_disks:
        try:
            answers.append((True, _status_to_wire(context, _status(context, disk))))
        except GenericError as err:
            answers.append((False, err.message))
    return answers


def blockdev_setinfo(context: NodeContext, disk: RpcDisk, info: str) -> None:
    """Note on a disk what it is for, where its kind has room for it."""
    drivers.device(context, disk).set_info(info)


def blockdev_rename(context: NodeContext, devlist: list[tuple[RpcDisk, list[object]]]) -> None:
    """Give disks new logical ids.

    Raises:
        BlockDeviceError: one could not be renamed; the text names it, those before it are.
    """
    for disk, new_logical_id in devlist:
        drivers.device(context, disk).rename(new_logical_id)


def blockdev_wipe(context: NodeContext, bdev: RpcDisk, offset: int, size: int) -> None:
    """Write zeroes over ``size`` MiB of a disk, from ``offset`` MiB on."""
    driver = drivers.device(context, bdev)
    with alone_with_disk(context, bdev.uuid):
        driver.wipe(offset, size)


def blockdev_snapshot(
    context: NodeContext, cf_bdev: RpcDisk, snap_name: str, snap_size: int
) -> list[object]:
    """Take a snapshot of a disk and return its logical id."""
    driver = drivers.device(context, cf_bdev)
    with alone_with_disk(context, cf_bdev.uuid):
        return driver.snapshot(snap_name, snap_size)


def bdev_sizes(_context: NodeContext, devices: list[str]) -> dict[str, int]:
    """Return the size in MiB of block devices of this node; what is none is left out."""
    sizes: dict[str, int] = {}
    for path in devices:
        name = os.path.basename(os.path.realpath(path))
        try:
            with open(f"/sys/class/block/{name}/size", encoding="ascii") as file:
                sectors = int(file.read())
        except (OSError, ValueError):
            logger.debug("%s is not a block device, ignoring", path)
            continue
        sizes[path] = sectors * 512 // _BYTES_PER_MIB
    return sizes


def _status(context: NodeContext, disk: RpcDisk) -> BlockDevStatus:
    """Return the state of a disk that must exist."""
    status = drivers.device(context, disk).find()
    if status is None:
        raise BlockDeviceError(
            f"disk {disk.iv_name or disk.uuid} does not exist on node {context.hostname}"
        )
    return status


def _status_to_wire(context: NodeContext, status: BlockDevStatus) -> dict[str, object]:
    """Return a state for the wire."""
    wire = status.to_wire()
    wire["dev_path"] = drivers.wire_path(context.paths, status.dev_path)
    return wire

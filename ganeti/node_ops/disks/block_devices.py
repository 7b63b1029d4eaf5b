"""Disks on this node, through the storage drivers.

Source: node_rpc.json, calls blockdev_* and "BlockDevStatus".
"""

import logging
import os
from collections.abc import Sequence

from ganeti.base.errors import BlockDeviceError, GenericError
from ganeti.node_ops.context import NodeHandler, assemble_all
from ganeti.node_ops.disks.images import copy_image, image_bytes
from ganeti.node_ops.leftovers import alone_with_disk
from ganeti.objects.rpc_instance import RpcDisk, RpcInstance
from ganeti.storage.interface import Look, contents, top_down
from ganeti.storage.registry import dimensions, look

logger = logging.getLogger(__name__)

_BYTES_PER_MIB = 1 << 20


class BlockDevices(NodeHandler):
    """Disks."""

    def blockdev_create(
        self,
        disk: RpcDisk,
        size: int,
        owner: str,
        *,
        on_primary: bool,
        info: str,
        exclusive_storage: bool,
    ) -> list[object] | None:
        driver = self.node.volume(disk)
        driver.owner = owner
        with alone_with_disk(self.node, disk.uuid, owner=owner):
            try:
                logical_id = driver.create(size, exclusive_storage=exclusive_storage)
            except Exception:
                raise  # a driver that fails leaves nothing
            except BaseException:  # this call is ended from outside, midway
                driver.remove()
                raise
            try:
                if on_primary or driver.traits.mirrored:  # a copy is connected at once
                    assemble_all(driver)
                if on_primary:
                    driver.open_new()
                driver.set_info(info)
            except BaseException as err:
                try:
                    driver.shutdown()
                    driver.remove()
                except GenericError as left:
                    raise BlockDeviceError(f"{err}; nor was it removed again: {left}") from err
                raise
        return logical_id

    def blockdev_remove(self, disk: RpcDisk) -> None:
        parts = list(top_down(self.node.volume(disk)))
        with alone_with_disk(self.node, disk.uuid):
            for part in parts:
                part.shutdown()
                part.remove()

    def blockdev_assemble(
        self, disk: RpcDisk, instance: RpcInstance, *, on_primary: bool, idx: int
    ) -> list[object]:
        assembled = self.node.assemble_disk(instance.name, idx, disk)
        if not on_primary:
            return [True, True]
        self.node.volume(disk).open()
        linked = self.node.linked(instance.name, assembled).dev_path
        link = self.node.wire_path(linked) if linked else None
        return [self.node.wire_path(assembled.dev_path), link, assembled.uri]

    def blockdev_shutdown(self, disk: RpcDisk) -> None:
        for part in top_down(self.node.volume(disk)):
            part.close()
            part.shutdown()

    def blockdev_find(self, disk: RpcDisk) -> dict[str, object] | None:
        [status] = look([disk], self.node.env)
        return None if status is None else self._status(disk, status)

    def blockdev_open(
        self, instance_name: str, disks: Sequence[RpcDisk], *, exclusive: bool
    ) -> None:
        for disk in disks:
            self.node.volume(disk).open(exclusive=exclusive)

    def blockdev_close(self, instance_name: str, disks: Sequence[RpcDisk]) -> None:
        for disk in disks:
            self.node.volume(disk).close()
        self.node.unlink_disks(instance_name)

    def blockdev_grow(
        self,
        disk: RpcDisk,
        amount: int,
        *,
        dryrun: bool,
        backingstore: bool,
        exclusive_storage: bool,
    ) -> None:
        driver = self.node.volume(disk)
        driver.exclusive_storage = exclusive_storage
        with alone_with_disk(self.node, disk.uuid):
            driver.grow(amount, dryrun=dryrun, backingstore=backingstore)

    def blockdev_getdimensions(
        self, disks: Sequence[RpcDisk]
    ) -> list[tuple[int, int | None] | None]:
        found = dimensions(disks, self.node.env)
        return [None if each is None else (each.size_bytes, each.spindles) for each in found]

    def blockdev_getmirrorstatus(self, disks: Sequence[RpcDisk]) -> list[dict[str, object]]:
        return list(map(self._status, disks, look(disks, self.node.env)))

    def blockdev_getmirrorstatus_multi(self, disks: Sequence[RpcDisk]) -> Sequence[object]:
        answers: list[tuple[bool, object]] = []
        for disk, state in zip(disks, look(disks, self.node.env), strict=True):
            try:
                answers.append((True, self._status(disk, state)))
            except GenericError as err:
                answers.append((False, err.message))
        return answers

    def blockdev_setinfo(self, disk: RpcDisk, info: str) -> None:
        self.node.volume(disk).set_info(info)

    def blockdev_rename(self, devlist: Sequence[tuple[RpcDisk, list[object]]]) -> None:
        for disk, new_logical_id in devlist:
            self.node.volume(disk).rename(new_logical_id)

    def blockdev_wipe(self, disk: RpcDisk, offset: int, size: int) -> None:
        driver = self.node.volume(disk)
        with alone_with_disk(self.node, disk.uuid):
            driver.wipe(offset, size)

    def blockdev_image(self, disk: RpcDisk, image: str, size: int) -> None:
        driver = self.node.volume(disk)
        with alone_with_disk(self.node, disk.uuid), contents(driver) as target:
            copy_image(image, target, size * _BYTES_PER_MIB, self.paths)

    def image_size(self, image: str) -> int | None:
        return image_bytes(image, self.paths)

    def blockdev_snapshot(self, disk: RpcDisk, snap_name: str, snap_size: int) -> list[object]:
        driver = self.node.volume(disk)
        with alone_with_disk(self.node, disk.uuid):
            return driver.snapshot(snap_name, snap_size)

    def bdev_sizes(self, devices: Sequence[str]) -> dict[str, int]:
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

    def _status(self, disk: RpcDisk, state: Look) -> dict[str, object]:
        """Return the state of a disk for the wire.

        Raises:
            GenericError: it does not exist, or cannot be looked at.
        """
        if isinstance(state, GenericError):
            raise state
        if state is None:
            name = disk.iv_name or disk.uuid
            lacks = "is not active" if disk.traits.mirrored else "does not exist"
            raise BlockDeviceError(f"disk {name} {lacks} on node {self.hostname}")
        return {**state.to_wire(), "dev_path": self.node.wire_path(state.dev_path)}

"""Disks that have a copy on another node: their connection, their synchronization, their halves.

Source: node_rpc.json, calls drbd_*, blockdev_addchildren, blockdev_removechildren and
blockdev_pause_resume_sync.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Final

from ganeti.base.errors import BlockDeviceError, GenericError
from ganeti.node_ops.context import NodeHandler
from ganeti.node_ops.leftovers import alone_with_disk
from ganeti.objects.rpc_instance import RpcDisk
from ganeti.protocol.node_rpc_values import CopySide
from ganeti.storage.drbd.status import usermode_helper
from ganeti.storage.interface import BlockDevStatus, Link, Look, Mirror, MirrorState, Volume
from ganeti.storage.registry import look
from ganeti.system import clock

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S: Final = 60.0  # the other node connects its half in the same moment
_IN_SYNC: Final = 100.0


class Mirrors(NodeHandler):
    """Disks with a copy on another node."""

    def blockdev_addchildren(self, bdev: RpcDisk, ndevs: Sequence[RpcDisk]) -> None:
        mirror, children = self._mirror(bdev), self._volumes(ndevs)
        with alone_with_disk(self.node, bdev.uuid):
            for child in children:
                child.assemble()
            mirror.attach(children)

    def blockdev_removechildren(self, bdev: RpcDisk, ndevs: Sequence[RpcDisk]) -> None:
        self._mirror(bdev).detach(self._volumes(ndevs))

    def blockdev_pause_resume_sync(
        self, disks: Sequence[RpcDisk], pause: bool
    ) -> list[tuple[bool, str | None]]:
        answers: list[tuple[bool, str | None]] = []
        for disk in disks:
            try:
                self._mirror(disk).pause_sync(pause=pause)
                answers.append((True, None))
            except GenericError as err:
                answers.append((False, err.message))
        return answers

    def drbd_attach_net(self, disks: Sequence[RpcDisk], multimaster: bool) -> None:
        mirrors = [self._mirror(disk) for disk in disks]
        for mirror in mirrors:
            mirror.connect(dual_primary=multimaster)
        deadline_s = clock.monotonic() + CONNECT_TIMEOUT_S
        for mirror in mirrors:
            mirror.wait_connected(deadline_s - clock.monotonic())

    def drbd_disconnect_net(self, disks: Sequence[RpcDisk]) -> None:
        for disk in disks:
            self._mirror(disk).disconnect()

    def drbd_wait_sync(self, disks: Sequence[RpcDisk]) -> tuple[bool, float]:
        states = list(self._states(disks))
        for disk, _status, mirror in states:
            if mirror.link is not Link.CONNECTED:
                raise BlockDeviceError(f"disk {_name(disk)} on node {self.hostname}: {mirror.text}")
        percents = [status.sync_percent for _disk, status, _mirror in states]
        running = [percent for percent in percents if percent is not None]
        return not running, min(running, default=_IN_SYNC)

    def drbd_needs_activation(self, disks: Sequence[RpcDisk]) -> list[str]:
        found = []
        for disk, state in zip(disks, look(disks, self.node.env), strict=True):
            if isinstance(state, GenericError):
                logger.info("disk %s needs to be activated: %s", _name(disk), state.message)
            if not isinstance(state, BlockDevStatus) or (
                state.mirror is not None and state.mirror.needs_activation
            ):
                found.append(str(disk.uuid))
        return found

    def drbd_sides(self, disks: Sequence[RpcDisk]) -> list[CopySide | None]:
        states = look(disks, self.node.env)
        return [self._side(disk, state) for disk, state in zip(disks, states, strict=True)]

    def _side(self, disk: RpcDisk, state: Look) -> CopySide | None:
        """Ask for details of a side only where it is alone."""
        if not isinstance(state, BlockDevStatus) or state.mirror is None:
            return None
        seen = state.mirror
        if seen.link is Link.CONNECTED:
            return CopySide(True, seen.is_open, seen.is_open_there)
        return self._mirror(disk).side()

    def drbd_outdate(self, disks: Sequence[RpcDisk]) -> None:
        for disk in disks:
            self._mirror(disk).outdate()

    def drbd_accept(self, disks: Sequence[RpcDisk]) -> None:
        for volume in self._volumes(disks):
            volume.open_new()
            volume.close()

    def drbd_helper(self) -> str:
        return usermode_helper()

    def _volumes(self, disks: Sequence[RpcDisk]) -> list[Volume]:
        return [self.node.volume(disk) for disk in disks]

    def _mirror(self, disk: RpcDisk) -> Mirror:
        mirror = self.node.volume(disk).mirror
        if mirror is None:
            raise BlockDeviceError(
                f"disk {_name(disk)} of template {disk.dev_type} has no copy on another node"
            )
        return mirror

    def _states(
        self, disks: Sequence[RpcDisk]
    ) -> Iterator[tuple[RpcDisk, BlockDevStatus, MirrorState]]:
        """Yield the disks as they are; raises the first error among them."""
        for disk, state in zip(disks, look(disks, self.node.env), strict=True):
            if isinstance(state, GenericError):
                raise state
            if state is None or state.mirror is None:
                raise BlockDeviceError(f"disk {_name(disk)} is not active on node {self.hostname}")
            yield disk, state, state.mirror


def _name(disk: RpcDisk) -> str:
    return disk.iv_name or str(disk.uuid)

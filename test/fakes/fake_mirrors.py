"""Disks in memory with a copy on another node: both sides, their connection, their synchronization.

A side remembers the generations of its data, as DRBD does: data that was changed without the other
side is of a new one.  When two sides meet, the side with fewer generations gets the data of the
other; two sides of which each has a generation of its own do not connect.

A synchronization goes on by one step whenever somebody looks at it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from ganeti.base.errors import BlockDeviceError
from ganeti.objects.disk_templates import LocalDiskStatus
from ganeti.protocol.node_rpc_values import CopySide
from ganeti.storage.interface import (
    Assembled,
    BlockDevStatus,
    Dimensions,
    Link,
    MirrorState,
    Volume,
)

if TYPE_CHECKING:
    from fakes.fake_nodes import FakeNode

_generations = itertools.count(1)


@dataclass
class Metadata:
    """What a side keeps on its storage.

    Attributes:
        history: the generations of its data, the first one first; none for a new side.
        is_complete: it has all data of the last of them.
        is_outdated: it is noted that the other side was written alone.
    """

    history: list[int] = field(default_factory=list)
    is_complete: bool = False
    is_outdated: bool = False


@dataclass
class Side:
    """A device that is set up on a node: one minor."""

    uuid: str
    node: FakeNode
    data: str
    meta: str
    is_attached: bool = True
    is_primary: bool = False
    link: Link = Link.NONE
    is_dual: bool = False
    is_paused: bool = False
    peer: Side | None = None
    secret: str = ""
    alone_since: float | None = None
    parting: str = ""
    expects: str = ""  # address of the node that it connects with
    steps_left: int = 0  # of the synchronization, while it is the side that gets data

    @property
    def metadata(self) -> Metadata:
        return self.node.metadata[self.meta]

    @property
    def history(self) -> list[int]:
        return self.metadata.history if self.is_attached else []

    @property
    def is_complete(self) -> bool:
        return self.is_attached and self.metadata.is_complete and not self.metadata.is_outdated

    @property
    def has_data(self) -> bool:
        """Whether all data can be read here, from this side or from the other."""
        return self.is_complete or (self.peer is not None and self.peer.is_complete)

    def become_primary(self) -> None:
        peer = self.peer
        if peer is not None and peer.is_primary and not (self.is_dual and peer.is_dual):
            raise BlockDeviceError("Multiple primaries not allowed by config")
        if not self.has_data:
            raise BlockDeviceError("Need access to UpToDate data")
        self.is_primary = True
        self.note_alone()

    def note_alone(self) -> None:
        """Begin a new generation: the data changes from now on without the other side."""
        if self.is_primary and self.peer is None and self.is_attached:
            self.metadata.history.append(next(_generations))

    def lose_half(self) -> None:
        """Go on without storage of its own; what is written from now on is of a new generation."""
        self.is_attached, peer = False, self.peer
        if peer is not None and peer.is_attached and (self.is_primary or peer.is_primary):
            peer.metadata.history.append(next(_generations))

    def part(self, link: Link) -> None:
        """Lose the other side, which waits for this one from now on."""
        peer, self.peer, self.link = self.peer, None, link
        self.note_alone()
        if peer is not None:
            self.alone_since = peer.alone_since = self.node.cluster.now_s
            peer.peer, peer.link = None, Link.WAITING
            peer.note_alone()

    def meet(self, other: Side) -> None:
        """Connect both sides, and decide which one gets data."""
        have_both = self.is_attached and other.is_attached
        if have_both and self.is_apart(other):
            self.link = other.link = Link.NONE
            self.parting = other.parting = "split brain"
            raise BlockDeviceError("Split-Brain detected, dropping connection")
        self.peer, other.peer = other, self
        self.link = other.link = Link.CONNECTED
        if not have_both:
            return
        self.metadata.is_outdated = other.metadata.is_outdated = False
        for behind, ahead in ((self, other), (other, self)):
            is_older = len(behind.metadata.history) < len(ahead.metadata.history)
            if ahead.is_complete and (is_older or not behind.is_complete):
                behind.begin_sync()

    def is_apart(self, other: Side) -> bool:
        """Whether each has a generation of its own."""
        mine, others = self.metadata.history, other.metadata.history
        shared = min(len(mine), len(others))
        return mine[:shared] != others[:shared]

    def begin_sync(self) -> None:
        assert self.peer is not None
        self.metadata.is_complete = False
        self.metadata.history[:] = self.peer.metadata.history
        self.steps_left = self.node.cluster.sync_steps
        self.finish_sync()

    def finish_sync(self) -> None:
        if self.steps_left == 0 and self.peer is not None and self.peer.is_complete:
            self.metadata.is_complete = True
            self.node.data[self.data] = self.peer.node.data.get(self.peer.data, "")

    @property
    def is_target(self) -> bool:
        return (
            self.peer is not None
            and self.is_attached
            and not self.is_complete
            and self.peer.is_complete
        )

    def percent(self) -> float | None:
        """Return how much is copied, and go on by one step."""
        target = self if self.is_target else self.peer
        if target is None or not target.is_target:
            return None
        total = max(1, self.node.cluster.sync_steps)
        done = 100.0 * (total - target.steps_left) / total
        if not target.is_paused:
            target.steps_left = max(0, target.steps_left - 1)
            target.finish_sync()
        return done

    def write(self, content: str) -> None:
        """Let the guest write; it is done when both sides have it."""
        assert self.is_primary
        assert self.has_data
        if self.is_attached:
            self.node.data[self.data] = content
        if self.peer is not None and self.peer.is_attached:
            self.peer.node.data[self.peer.data] = content


class MirroredVolume(Volume):
    """A disk with a copy on another node."""

    def _locate(self, logical_id: list[object]) -> None:
        if len(logical_id) != 6:
            raise self._malformed()
        self._params = getattr(self._disk, "dynamic_params", {})
        self._node = cast("FakeNode", self._env.paths)
        self._port, self._secret = logical_id[2], str(logical_id[5])
        self._data, self._meta = (str(child._name) for child in self.children)  # type: ignore[attr-defined]

    @property
    def _minor(self) -> int:
        if not self._params:
            raise BlockDeviceError(f"disk {self._disk.uuid} is not for node {self._node.name}")
        return int(self._params["local-minor"])

    @property
    def _side(self) -> Side | None:
        side = self._node.sides.get(self._minor)
        return side if side is not None and side.uuid == self._disk.uuid else None

    def _existing(self) -> Side:
        if self._side is None:
            raise BlockDeviceError(f"minor {self._minor} is not set up")
        return self._side

    def _check_free(self) -> None:
        side = self._node.sides.get(self._minor)
        if side is not None and side.uuid != self._disk.uuid:
            raise BlockDeviceError(f"minor {self._minor} is used by a stranger")

    @property
    def mirror(self) -> MirroredVolume | None:
        return self

    def create(self, size_mib: int, *, exclusive_storage: bool = False) -> None:
        self._check_free()
        for child in self.children:
            child.assemble()
        self._node.metadata[self._meta] = Metadata()

    def remove(self) -> None:
        self.shutdown()

    def find(self) -> BlockDevStatus | None:
        side = self._side
        if side is None:
            return None
        percent = side.percent()
        local = LocalDiskStatus.FAULTY
        if side.is_attached:
            local = LocalDiskStatus.OKAY if side.is_complete else LocalDiskStatus.SYNC
        if side.is_attached and side.meta in self._node.broken:
            local = LocalDiskStatus.FAULTY
        peer = side.peer
        is_degraded = peer is None or not (side.is_complete and peer.is_complete)
        return BlockDevStatus(
            f"/dev/drbd{self._minor}",
            147,
            self._minor,
            percent,
            None if percent is None else 10.0,
            is_degraded,
            local,
            MirrorState(
                side.link,
                side.is_attached,
                str(side.link),
                side.is_primary,
                peer is not None and peer.is_primary,
            ),
        )

    def assemble(self) -> Assembled:
        self._check_free()
        has_half = {self._data, self._meta} <= self._node.disks
        if has_half and self._meta not in self._node.metadata:
            raise BlockDeviceError(f"{self._meta} has no metadata")
        side = self._side
        if side is None:
            side = self._new_side(is_attached=has_half)
        elif has_half and not side.is_attached:
            self._attach(side)
        if side.link is Link.NONE and self._port is not None:
            self._connect(side, dual_primary=False)
        return Assembled(f"/dev/drbd{self._minor}")

    def _new_side(self, *, is_attached: bool) -> Side:
        side = Side(str(self._disk.uuid), self._node, self._data, self._meta, is_attached)
        self._node.sides[self._minor] = side
        return side

    def _attach(self, side: Side) -> None:
        side.data, side.meta, side.is_attached = self._data, self._meta, True
        peer = side.peer
        if peer is not None:
            side.peer = peer.peer = None
            side.meet(peer)

    def open(self, *, exclusive: bool = True) -> None:
        side = self._existing()
        if not side.is_primary:
            side.become_primary()

    def open_new(self) -> None:
        side = self._existing()
        side.metadata.is_complete, side.is_primary = True, True
        side.metadata.is_outdated = False
        side.metadata.history.append(next(_generations))
        peer = side.peer
        if peer is not None:
            side.peer = peer.peer = None
            side.meet(peer)

    def close(self) -> None:
        if self._side is not None:
            self._side.is_primary = False

    def shutdown(self) -> None:
        side = self._side
        if side is None:
            return
        side.is_primary = False
        side.part(Link.NONE)
        del self._node.sides[self._minor]

    def connect(self, *, dual_primary: bool) -> None:
        side = self._existing()
        if side.link is Link.CONNECTED and side.expects == self._params["remote-ip"]:
            side.is_dual = dual_primary
            return
        self._connect(side, dual_primary=dual_primary)

    def _connect(self, side: Side, *, dual_primary: bool) -> None:
        side.part(Link.WAITING)
        side.is_dual, side.secret = dual_primary, self._secret
        side.expects = str(self._params["remote-ip"])
        other = self._node.cluster.node_at(str(self._params["remote-ip"]))
        peer = other.sides.get(int(self._params["remote-minor"]))
        if peer is None or peer.uuid != side.uuid or peer.link is not Link.WAITING:
            return
        if self._node.cluster.is_link_cut or peer.expects != self._params["local-ip"]:
            return
        if (peer.secret, peer.is_dual) == (side.secret, side.is_dual) and not other.is_dead:
            side.meet(peer)

    def wait_connected(self, timeout_s: float) -> None:
        if self._existing().link is Link.NONE:
            raise BlockDeviceError(f"minor {self._minor} is not connected")

    def disconnect(self) -> None:
        side = self._side
        if side is not None:
            side.part(Link.NONE)

    def attach(self, children: Sequence[Volume]) -> None:
        self._check_free()
        side = self._side or self._new_side(is_attached=False)
        if side.is_attached:
            raise BlockDeviceError(f"minor {self._minor} has local storage already")
        self._data, self._meta = (str(child._name) for child in children)  # type: ignore[attr-defined]
        self._node.metadata[self._meta] = Metadata()
        self._attach(side)

    def detach(self, children: Sequence[Volume]) -> None:
        side = self._side
        if side is None or not side.is_attached:
            return
        if side.is_primary and (side.peer is None or not side.peer.is_complete):
            raise BlockDeviceError("the other side does not have all data")
        side.lose_half()

    def pause_sync(self, *, pause: bool) -> None:
        self._existing().is_paused = pause

    def side(self) -> CopySide | None:
        found = self._side
        if found is None:
            return None
        peer = found.peer
        return CopySide(
            is_connected=peer is not None,
            is_open=found.is_primary,
            is_open_there=peer is not None and peer.is_primary,
            is_outdated=found.is_attached and found.metadata.is_outdated,
            generations=[f"{each:X}0" for each in reversed(found.history)],
            alone_since=found.alone_since,
            parting=found.parting if found.link is Link.NONE else "",
        )

    def outdate(self) -> None:
        side = self._existing()
        if side.is_primary:
            raise BlockDeviceError("Device is held open")
        if side.peer is None:  # the driver passes over one that is connected
            side.metadata.is_outdated = True

    def dimensions(self) -> Dimensions | None:
        return self.children[0].dimensions()

    def grow(self, amount_mib: int, *, dryrun: bool = False, backingstore: bool = True) -> None:
        data = self.children[0]
        if backingstore:
            data.grow(amount_mib, dryrun=dryrun)
        elif not dryrun:
            side = self._existing()
            if side.peer is None:
                raise BlockDeviceError("cannot be resized without the other side")

    def wipe(self, offset_mib: int, size_mib: int) -> None:
        if not self._existing().is_primary:
            raise BlockDeviceError(f"minor {self._minor} is not open")

"""The agent's own slot on the lease disk: a thread that looks and writes, as disks may hang.

With each beat it reads all slots, sees that the disk is still the one that was prepared, and then
writes its own slot, which it takes back if the disk was cleared meanwhile; what came of it is told
to the agent's loop.  A thread that hangs tells nothing, so the lease ends; nothing waits for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ganeti.availability.disk import (
    BLOCK_BYTES,
    Round,
    Slot,
    Verdict,
    area_bytes,
    encode,
    place_of,
    read_header,
    read_slots,
)
from ganeti.base.errors import ProtocolError
from ganeti.store.lease_disk import opened
from ganeti.system import clock


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node's slot is.

    Attributes:
        path: of the disk on this node.
        is_virtual: a file may stand for it.
        cluster: the UUID of the cluster.
        lease: which preparation of the disk.
    """

    path: str
    is_virtual: bool
    cluster: str
    lease: str
    slot: int


@dataclass(slots=True)
class SlotWriter:
    """Looks and writes, each time that it is told to.

    Attributes:
        own: what is to be written next; its count is set here.
    """

    place: Place
    own: Slot
    _tried: int = 0
    _written: Slot | None = None

    def round(self) -> Round:
        """Look, and write."""
        began_s = clock.monotonic()
        try:
            return self._round(began_s)
        except OSError as err:
            return Round(began_s, trouble=err.strerror or str(err))
        except ProtocolError as err:
            return Round(began_s, trouble=err.message)

    def _round(self, began_s: float) -> Round:
        place = self.place
        with opened(place.path, is_virtual=place.is_virtual) as disk:
            header = read_header(disk.read(0, BLOCK_BYTES), place.cluster, place.lease)
            if place.slot >= header.slots:
                raise ProtocolError("it has no slot for this node")
            area = disk.read(BLOCK_BYTES, area_bytes(header.slots) - BLOCK_BYTES)
            slots = read_slots(area, place.lease)
            found = slots.get(self.own.node)
            if self._written is not None and not self._is_ours(found, self._written):
                raise ProtocolError("the slot of this node is not as it left it")
            count = max(self._tried, 0 if found is None else found.count) + 1
            slot = Slot(
                lease=place.lease,
                node=self.own.node,
                boot_id=self.own.boot_id,
                count=count,
                gave_up=self.own.gave_up,
                verdicts=self.own.verdicts,
            )
            self._tried = count
            block = encode(slot)
            disk.write(place_of(place.slot), block)
            self._written = slot
            try:
                read_header(disk.read(0, BLOCK_BYTES), place.cluster, place.lease)
            except ProtocolError:  # it was cleared since, and is nobody's or somebody else's
                disk.write(place_of(place.slot), bytes(BLOCK_BYTES))
                raise
        [written] = read_slots(block, place.lease).values()  # not all verdicts may have had room
        return Round(began_s, slots, written)

    def _is_ours(self, found: Slot | None, written: Slot) -> bool:
        """Tell whether the slot is one that this process wrote, and no older one."""
        return (
            found is not None
            and found.boot_id == written.boot_id
            and written.count <= found.count <= self._tried
        )


@dataclass(slots=True)
class DiskLease:
    """The thread.

    Args:
        beat_s: returns how long it waits between two rounds.
        tell: is called in the loop with what came of each round.
    """

    writer: SlotWriter
    beat_s: Callable[[], float]
    tell: Callable[[Round], None]
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _wake: threading.Event = field(default_factory=threading.Event)
    _is_over: bool = False

    def start(self) -> None:
        """Begin; nobody waits for the end."""
        threading.Thread(target=self._run, name="lease disk", daemon=True).start()

    def say(self, gave_up: str, verdicts: Mapping[str, Verdict]) -> None:
        """Write that, at once if it is something else than before."""
        before, place = self.writer.own, self.writer.place
        if (before.gave_up, before.verdicts) == (gave_up, verdicts):
            return
        self.writer.own = Slot(
            lease=place.lease,
            node=before.node,
            boot_id=before.boot_id,
            gave_up=gave_up,
            verdicts=dict(verdicts),
        )
        self._wake.set()

    def end(self) -> None:
        """Write nothing more, and tell nothing, from the next round on."""
        self._is_over = True
        self._wake.set()

    def _run(self) -> None:
        while not self._is_over:
            self._wake.clear()
            found = self.writer.round()
            try:
                self._loop.call_soon_threadsafe(self._told, found)
            except RuntimeError:  # the loop is closed
                return
            self._wake.wait(self.beat_s())

    def _told(self, found: Round) -> None:
        if not self._is_over:
            self.tell(found)

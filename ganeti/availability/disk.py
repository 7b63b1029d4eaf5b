"""The lease on a disk that all nodes share: its blocks, and what they say.  Pure.

    block 0            Header: whose it is, and how many slots follow
    block 1, 2, ...    Slot: of one node each, which alone writes it

A slot has two parts.  By one the node shows that it lives, or says that it gives up.  By the other
it condemns nodes, if it is the master: a node looks for itself in all slots.  Since each block has
one writer, nothing that is written is lost to another writer, and a late write of a node that was
the master once takes nothing back that the next one wrote.

A block is its magic number, a checksum, the length of its JSON, the JSON, and zeros.  A block of
zeros is an empty one.  What cannot be understood is never a proof of anything: a node that cannot
read all slots does not know whether it is condemned, so it does not hold its lease.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from ganeti.base.errors import ProtocolError
from ganeti.base.json import dumps, loads_as
from ganeti.objects.record import Record

RecordT = TypeVar("RecordT", bound=Record)

MAGIC: Final = b"GNTLEASE"
BLOCK_BYTES: Final = 4096
VERSION: Final = 1
SLOTS_MIN: Final = 32
_HEAD: Final = struct.Struct("<8sII")
_TEXT_BYTES_MAX: Final = BLOCK_BYTES - _HEAD.size


class Header(Record, frozen=True, kw_only=True):
    """What the disk is.

    Attributes:
        cluster: the UUID of the cluster.
        lease: another one each time that the disk is prepared.
        slots: how many there are.
    """

    version: int
    cluster: str
    lease: str
    slots: int


class Verdict(Record, frozen=True, kw_only=True):
    """A boot of a node is condemned, because of that loss."""

    boot_id: str
    loss: str


class Slot(Record, frozen=True, kw_only=True):
    """What a node says.

    Attributes:
        count: one more with each writing.
        gave_up: the loss because of which this boot feeds no watchdog any more; "" for none.
        verdicts: {node: what this one has condemned}.
    """

    lease: str
    node: str
    boot_id: str
    count: int = 0
    gave_up: str = ""
    verdicts: Mapping[str, Verdict] = {}


def slots_for(nodes: int) -> int:
    """Return how many slots a disk for so many nodes gets: there is room for as many again."""
    return max(SLOTS_MIN, 2 * nodes)


def area_bytes(slots: int) -> int:
    """Return how many bytes header and slots take."""
    return (1 + slots) * BLOCK_BYTES


def place_of(slot: int) -> int:
    """Return where on the disk a slot is, in bytes; slots are counted from 0."""
    return (1 + slot) * BLOCK_BYTES


def place_nodes(known: Mapping[str, int], nodes: Iterable[str], slots: int) -> dict[str, int]:
    """Return the slot of each node: that which it has, or else a free one; some may get none."""
    names = list(nodes)
    found = {name: known[name] for name in names if known.get(name, slots) < slots}
    free = (number for number in range(slots) if number not in found.values())
    for name in names:
        if name not in found and (number := next(free, None)) is not None:
            found[name] = number
    return found


def encode(record: Header | Slot) -> bytes:
    """Return the block of a record; of verdicts, as many as fit, the first ones first."""
    text = dumps(record.to_wire())
    while len(text) > _TEXT_BYTES_MAX and isinstance(record, Slot) and record.verdicts:
        kept = list(record.verdicts.items())[:-1]
        record = msgspec.structs.replace(record, verdicts=dict(kept))
        text = dumps(record.to_wire())
    head = _HEAD.pack(MAGIC, zlib.crc32(text), len(text))
    return (head + text).ljust(BLOCK_BYTES, b"\0")


def decode(block: bytes, kind: type[RecordT]) -> RecordT | None:
    """Return the record in a block; None if it is empty.

    Raises:
        ProtocolError: it holds something else, or half of it.
    """
    if not any(block):
        return None
    magic, checksum, length = _HEAD.unpack_from(block)
    if magic != MAGIC:
        raise ProtocolError("it holds something else than leases")
    text = block[_HEAD.size : _HEAD.size + length]
    if len(text) != length or zlib.crc32(text) != checksum:
        raise ProtocolError("its checksum is wrong")
    return loads_as(kind, text)


def read_header(block: bytes, cluster: str, lease: str = "") -> Header:
    """Return the header of a disk of ours.

    Args:
        lease: of that preparation only; "" for any.

    Raises:
        ProtocolError: it is not ours.
    """
    header = decode(block, Header)
    if header is None:
        raise ProtocolError("it is empty: it was never prepared, or is another disk")
    if header.version != VERSION:
        raise ProtocolError(f"it has version {header.version}, and {VERSION} is known here")
    if header.cluster != cluster:
        raise ProtocolError(f"it belongs to another cluster, {header.cluster}")
    if lease not in ("", header.lease):
        raise ProtocolError("it was prepared another time, or is a copy: it is not the one in use")
    return header


def read_slots(area: bytes, lease: str) -> dict[str, Slot]:
    """Return the slots in the bytes behind the header, by node; what an earlier lease left is none.

    Raises:
        ProtocolError: one cannot be understood; nobody knows whom it condemns.
    """
    found: dict[str, Slot] = {}
    for number, start in enumerate(range(0, len(area), BLOCK_BYTES)):
        try:
            slot = decode(area[start : start + BLOCK_BYTES], Slot)
        except ProtocolError as err:
            raise ProtocolError(f"slot {number}: {err.message}") from err
        if slot is not None and slot.lease == lease:
            known = found.get(slot.node)
            if known is None or known.count <= slot.count:
                found[slot.node] = slot
    return found


@dataclass(frozen=True, slots=True)
class Round:
    """One look at the disk, and one writing.

    Attributes:
        began_s: before anything was read, by the node's monotonic clock, in seconds.
        slots: what was read, by node.
        written: this node's slot, which is on the disk now; None if it could not be written.
        trouble: why the disk could not be used; "" if it could.
    """

    began_s: float
    slots: Mapping[str, Slot] = field(default_factory=dict)
    written: Slot | None = None
    trouble: str = ""

    def verdicts_on(self, node: str) -> list[Verdict]:
        """Return by what the node is condemned."""
        return [slot.verdicts[node] for slot in self.slots.values() if node in slot.verdicts]

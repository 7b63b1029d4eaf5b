"""The list of all instances in full, which programs ask for again and again.

What the configuration says of an instance, LuxiD has ready as text, and the same text as long as
nothing changes; only what the nodes say is found out each time.  So it is asked in two questions,
and a row of the first becomes a part of the answer once, by its text.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Raw

from ganeti.base.json import dumps
from ganeti.protocol.rapi.answers import with_memory
from ganeti.protocol.rapi.values import FIELDS
from ganeti.rapid.luxi_pool import LuxiPool
from ganeti.rapid.planning import luxi_request

LIVE: Final = ("oper_state", "oper_ram", "oper_vcpus", "status")
RECORDED: Final = tuple(field for field in FIELDS["instance"] if field not in LIVE)
_KEY_BYTES: Final = 16

Part = tuple[bytes, bytes]
"""An instance's name as JSON, and what the configuration says of it; the object is not closed."""


class _Rows(msgspec.Struct):
    data: list[Raw]


class _LiveRows(msgspec.Struct):
    data: list[list[tuple[int, Raw]]]


class _NotTheSame(Exception):
    """The two answers are about different instances: one came or went in between."""


_rows = msgspec.json.Decoder(_Rows)
_live_rows = msgspec.json.Decoder(_LiveRows)
_cells = msgspec.json.Decoder(list[tuple[int, Raw]])


def _pairs(fields: Iterable[str]) -> bytes:
    return b",".join(dumps(field) + b":%b" for field in fields)


_RECORDED_TEMPLATE: Final = b"{" + _pairs(RECORDED)
_LIVE_TEMPLATE: Final = b"," + _pairs(LIVE) + b"}"
_BEPARAMS: Final = RECORDED.index("beparams")


class InstanceLists:
    """Makes the list; remembers the parts that it was made of the last time."""

    def __init__(self, luxi: LuxiPool) -> None:
        self._luxi = luxi
        self._parts: dict[bytes, Part] = {}

    async def all(self) -> bytes | None:
        """Return all instances as a line of JSON; None if they changed meanwhile."""
        parts, live = await asyncio.gather(self._recorded(), self._query(["name", *LIVE]))
        try:
            return _joined(parts, live)
        except _NotTheSame:
            return None

    async def _recorded(self) -> list[Part]:
        """Return name and text of each instance, made while the nodes are still being asked."""
        return self._parts_of(_rows.decode(await self._query(list(RECORDED))).data)

    async def _query(self, fields: list[str]) -> Raw:
        request = luxi_request("Query", ["instance", fields, None])
        return await self._luxi.ask("Query", request)

    def _parts_of(self, rows: list[Raw]) -> list[Part]:
        """Return name and text of each row; what is not in this list is forgotten."""
        known, self._parts = self._parts, {}
        found = []
        for row in rows:
            key = hashlib.blake2b(row, digest_size=_KEY_BYTES).digest()  # a fortieth of the text
            part = known.get(key)
            if part is None:
                part = _part_of(row)
            self._parts[key] = part
            found.append(part)
        return found


def _part_of(row: Raw) -> Part:
    cells = [value for _, value in _cells.decode(row)]
    return bytes(cells[0]), _RECORDED_TEMPLATE % tuple(with_memory(cells, _BEPARAMS))


def _joined(parts: list[Part], live: Raw) -> bytes:
    live_rows = _live_rows.decode(live).data
    if len(parts) != len(live_rows):
        raise _NotTheSame
    pieces: list[bytes] = []
    before = b"["
    for (name, text), row in zip(parts, live_rows, strict=True):
        if bytes(row[0][1]) != name:
            raise _NotTheSame
        pieces += (before, text, _LIVE_TEMPLATE % tuple(value for _, value in row[1:]))
        before = b","
    pieces.append(b"]\n" if pieces else b"[]\n")
    return b"".join(pieces)

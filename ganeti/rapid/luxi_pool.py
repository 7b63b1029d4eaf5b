"""Connections to LuxiD, one for each question that is open.

Answers come in the order of the questions on a connection, so one that waits would hold up others:
each has a connection to itself for as long as it takes, and leaves it for the next.

Programs ask again and again for the list of all instances in full (`InstanceLists`).  LuxiD has the
recorded part of an instance ready as text, the same text as long as nothing changes; the live part
is asked of the nodes each time.  So there are two questions, and a row of the first becomes a part
of the answer once, by its text.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Raw

from ganeti.base.errors import TransportError
from ganeti.base.json import dumps
from ganeti.base.paths import Paths
from ganeti.base.versions import LUXI_VERSION
from ganeti.clients.luxi import check_is_master, perhaps_done
from ganeti.protocol.envelope import decode_response_as
from ganeti.protocol.luxi import LuxiCalls, Rules
from ganeti.protocol.rapi.answers import with_memory
from ganeti.protocol.rapi.values import FIELDS, HttpProblem
from ganeti.rapid.planning import luxi_request
from ganeti.transport.async_unix_client import AsyncUnixClient
from ganeti.transport.unix_client import AnswerTimeoutError, ConnectionLostError, NobodyListensError

CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 60.0
WAITING_MAX: Final = 500  # clients that wait for a job at the same time


class LuxiPool:
    """Asks LuxiD."""

    def __init__(self, paths: Paths, at_once_max: int) -> None:
        self._paths = paths
        self._turns = asyncio.Semaphore(at_once_max)
        self._waiting = 0
        self._free: list[AsyncUnixClient] = []

    async def ask(self, method: str, args: list[Any]) -> Raw:
        """Call a method and return its result.

        Raises:
            HttpProblem: wrong arguments, or no answer for a reason that has a status of its own.
            GenericError: LuxiD's refusal, or that it cannot be reached.
        """
        request = luxi_request(method, args)
        rules: Rules = LuxiCalls.calls[method].rules
        if rules.waits:
            return await self._wait(request)
        async with self._turns:
            try:
                return await self._exchange(request)
            except ConnectionLostError as err:
                if rules.changes:
                    raise perhaps_done(method, err) from err
            return await self._exchange(request)  # a question may be asked again

    async def _wait(self, request: bytes) -> Raw:
        if self._waiting >= WAITING_MAX:
            raise HttpProblem(503, f"{WAITING_MAX} clients wait for jobs already")
        self._waiting += 1
        try:
            return await self._exchange(request)
        finally:
            self._waiting -= 1

    async def _exchange(self, request: bytes) -> Raw:
        client = self._free.pop() if self._free else self._new_client()
        is_reusable = False
        try:
            answer = await client.exchange(request)
            result = decode_response_as(Raw, answer, LUXI_VERSION)
            is_reusable = True
        except AnswerTimeoutError as err:
            raise HttpProblem(504, f"LuxiD did not answer within {ANSWER_TIMEOUT_S:g} s") from err
        except NobodyListensError as err:
            check_is_master(self._paths, err)
            raise TransportError(f"{err.message}; is ganeti-luxid running here?") from err
        else:
            return result
        finally:
            if is_reusable:
                self._free.append(client)
            else:
                client.close()  # after an error of ours or a cancellation its answer may still come

    def _new_client(self) -> AsyncUnixClient:
        return AsyncUnixClient(
            self._paths.query_socket,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            timeout_s=ANSWER_TIMEOUT_S,
        )

    def close(self) -> None:
        """Close all connections that nobody uses."""
        for client in self._free:
            client.close()
        self._free.clear()


# The list of all instances.

LIVE: Final = ("oper_state", "oper_ram", "oper_vcpus", "status")
_ALL: Final = FIELDS["instance_copies"]
_WITH_COPIES: Final = (*LIVE, *_ALL[len(FIELDS["instance"]) :])
RECORDED: Final = tuple(field for field in FIELDS["instance"] if field not in LIVE)
_KEY_BYTES: Final = 16

Part = tuple[bytes, bytes]
"""An instance's name as JSON, and its object in the configuration, which is not closed yet."""


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
_LIVE_TEMPLATES: Final = {fields: b"," + _pairs(fields) + b"}" for fields in (LIVE, _WITH_COPIES)}
_BEPARAMS: Final = RECORDED.index("beparams")


class InstanceLists:
    """Makes the list; remembers the parts that it was made of the last time."""

    def __init__(self, luxi: LuxiPool) -> None:
        self._luxi = luxi
        self._parts: dict[bytes, Part] = {}

    async def all(self, *, copies: bool) -> bytes | None:
        """Return all instances as a line of JSON; None if they changed meanwhile.

        Args:
            copies: the states of their disks' copies too.
        """
        fields = _WITH_COPIES if copies else LIVE
        parts, live = await asyncio.gather(self._recorded(), self._query(["name", *fields]))
        try:
            return _joined(parts, live, _LIVE_TEMPLATES[fields])
        except _NotTheSame:
            return None

    async def _recorded(self) -> list[Part]:
        """Return name and text of each instance, made while the nodes are still being asked."""
        return self._parts_of(_rows.decode(await self._query(list(RECORDED))).data)

    async def _query(self, fields: list[str]) -> Raw:
        return await self._luxi.ask("Query", ["instance", fields, None])

    def _parts_of(self, rows: list[Raw]) -> list[Part]:
        """Return name and text of each row; instances missing in this list are forgotten."""
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


def _joined(parts: list[Part], live: Raw, template: bytes) -> bytes:
    live_rows = _live_rows.decode(live).data
    if len(parts) != len(live_rows):
        raise _NotTheSame
    pieces: list[bytes] = []
    before = b"["
    for (name, text), row in zip(parts, live_rows, strict=True):
        if bytes(row[0][1]) != name:
            raise _NotTheSame
        pieces += (before, text, template % tuple(value for _, value in row[1:]))
        before = b","
    pieces.append(b"]\n" if pieces else b"[]\n")
    return b"".join(pieces)

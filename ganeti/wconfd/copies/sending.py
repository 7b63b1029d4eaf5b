"""Sends a node what it lacks of the configuration, in the smallest form that it can use.

A change goes as records where a journal is kept, else as the parts in which the file differs from
the one that the node took last, else whole.  The simple values go as those that differ from the
state that the node took last, else all of them.  Who lacks what, and when it is sent, is decided
elsewhere (`wconfd.copies.distribution`).

Source: ARCHITECTURE, invariants 8 and 9; config.json, "ssconf"; node_rpc.json.
"""

from __future__ import annotations

import asyncio
import os
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Concatenate, Final, ParamSpec, TypeVar

from ganeti.clients import master_poll
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.couriers import Courier, NodeSilentError
from ganeti.clients.node_rpc import RpcResult, Target
from ganeti.config.deltas.journal import Record
from ganeti.config.ssconf_values import SsconfComposer
from ganeti.config.state import Flush, parts_since
from ganeti.jobs.votes import Answer
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import (
    CompressedText,
    ConfigPatch,
    ConfigVersion,
    NodeFacts,
    SsconfPatch,
)
from ganeti.store.config_file import FILE_MODE, digest_of
from ganeti.system import clock, files
from ganeti.wconfd.keeper import Keeper

P = ParamSpec("P")
R = TypeVar("R")

CONFIG: Final = "config"  # its versions are its serial numbers
FILE: Final = "config.data"  # where a journal is kept: the file as such, which follows later
SSCONF: Final = "ssconf"

RECORDS_MAX: Final = 256  # that a candidate may lack; one that lacks more is sent the file
RECENT_MAX: Final = 16  # versions that a patch may start from


@dataclass(frozen=True, slots=True)
class Content:
    """A version of the configuration, and the pieces of its file."""

    version: ConfigVersion
    pieces: list[bytes]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Packed:
    """A whole file as the node call takes it; in memory only while it is on its way to somebody."""

    serial_no: int
    content: CompressedText


@dataclass(frozen=True, slots=True)
class SsconfState:
    """A version of the simple values; no other process of ours has one of that name."""

    name: str
    version: int
    values: Mapping[str, str]

    def changed_since(self, before: SsconfState) -> dict[str, str]:
        """Return the values that differ, and the one by which a node knows its master."""
        return {
            key: value
            for key, value in self.values.items()
            if key == "master_node" or before.values.get(key) != value
        }


class SimpleValues:
    """The simple values of the newest configuration.

    Attributes:
        state: one object as long as no value changes, so that what is sent to many nodes is encoded
            once.
    """

    def __init__(self, keeper: Keeper) -> None:
        self._composer = SsconfComposer(keeper.durable)
        self._prefix = uuid.uuid4().hex
        self.state = self._make(1)

    def _make(self, version: int) -> SsconfState:
        return SsconfState(f"{self._prefix}.{version}", version, self._composer.values)

    def follow(self, flush: Flush) -> bool:
        """Take a change of the configuration; returns whether it changes any of the values."""
        has_changed = self._composer.follow(flush.changed)
        if has_changed:
            self.state = self._make(self.state.version + 1)
        return has_changed


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a file that was sent.

    Attributes:
        serial_no: of the version sent.
        error: why the node refused it.
        has_simple: it took the simple values by the same call.
    """

    serial_no: int
    error: str | None = None
    has_simple: bool = False


class Sender:
    """Makes the calls, and remembers what each node took last."""

    def __init__(self, keeper: Keeper, rpc: AsyncNodeRpcClient) -> None:
        self._keeper = keeper
        self._rpc = rpc
        self._packed: Callable[[], Packed | None] = lambda: None
        self._packing = asyncio.Lock()
        self._digest_of = (0, "")  # of the file with this serial number
        self._recent: dict[int, Content] = {}  # by serial number
        self._records: deque[Record] = deque(maxlen=RECORDS_MAX)
        # By the name of the node.
        self._facts: dict[str, NodeFacts] = {}  # which of our calls it knows
        self._file_no: dict[str, int] = {}  # serial number of the file that it took last
        self._states: dict[str, SsconfState] = {}  # the simple values that it took last

    def remember(self, record: Record) -> None:
        """Keep a change for the journals of nodes."""
        self._records.append(record)

    def forget(self, node_name: str) -> None:
        """Forget a node that is none of ours any more."""
        self.forget_facts(node_name)
        self._file_no.pop(node_name, None)
        self._states.pop(node_name, None)

    def forget_facts(self, node_name: str) -> None:
        """Ask a node again which calls it knows: another version may run there now."""
        self._facts.pop(node_name, None)

    # The configuration.

    async def append(self, courier: Courier) -> int | None:
        """Send the changes that a node lacks, for its journal.

        Returns:
            The serial number that it has now; None if it needs the file.

        Raises:
            NodeSilentError: it does not answer; so do the other calls.
        """
        has = courier.copies.has.get(CONFIG)
        records = list(self._records)
        first = next((n for n, r in enumerate(records) if r.change.base.serial_no == has), None)
        if first is None or not (await self._knows(courier)).patches_config:
            return None
        lines = b"".join(record.line for record in records[first:]).decode()
        result = await self._ask(NodeCalls.config_append, courier.target, CompressedText(lines))
        if result.error is not None or not result.payload:
            return None
        return records[-1].change.version.serial_no

    async def send_file(self, courier: Courier, simple: SsconfState | None) -> Sent:
        """Send the newest configuration, if possible as the parts that the node has not.

        Args:
            simple: values that the node is to be sent as well; they go along with such parts.
        """
        sent = await self._patch(courier, simple) or await self._confirm(courier)
        if sent is not None:
            return sent
        packed = await self._config()
        path = self._keeper.paths.globalize(self._keeper.paths.config_data)
        result = await self._ask(
            NodeCalls.upload_file_single,
            courier.target,
            path,
            packed.content,
            *self._file_details(),
        )
        if result.error is None:
            self._file_no[courier.name] = packed.serial_no
        return Sent(packed.serial_no, result.error)

    async def withdraw(self, courier: Courier) -> str | None:
        """Have a node put its file out of use; returns why it does not."""
        return (await self._ask(NodeCalls.node_demote_from_mc, courier.target)).error

    async def _patch(self, courier: Courier, simple: SsconfState | None) -> Sent | None:
        """Send parts of the file; returns None if the node did not take them."""
        newest = self._newest()
        base = self._recent.get(self._file_no.pop(courier.name, 0))
        if base is None or CONFIG not in courier.copies.has:
            return None
        facts = await self._knows(courier)
        if not facts.patches_config:
            return None
        parts = parts_since(base.pieces, newest.pieces)
        patch = ConfigPatch(base.version, newest.version, parts)
        has_simple = False
        if simple is not None and facts.patches_both:
            values = self._ssconf_patches(courier, simple)[0]
            both = await self._ask(
                NodeCalls.copies_patch, courier.target, patch, *self._file_details(), values
            )
            # Of an error nothing is known but that both are to be sent again, each by itself.
            is_taken, has_simple = both.payload if both.error is None else (False, False)
            if has_simple:
                self._states[courier.name] = simple
        else:
            alone = await self._ask(
                NodeCalls.config_patch, courier.target, patch, *self._file_details()
            )
            is_taken = alone.error is None and alone.payload
        if not is_taken:
            return None
        self._file_no[courier.name] = newest.version.serial_no
        return Sent(newest.version.serial_no, has_simple=has_simple)

    async def _confirm(self, courier: Courier) -> Sent | None:
        """Ask a node whether it has the newest file already; returns None if it has not.

        That is so where only this daemon, or the node's, has been started again.
        """
        newest = self._newest()
        if CONFIG in courier.copies.has:
            return None
        facts = await self._knows(courier)
        if not facts.confirms_config or facts.config_serial != newest.version.serial_no:
            return None
        digest = await self._digest(newest)
        details = self._file_details()[:3]
        result = await self._ask(
            NodeCalls.config_confirm, courier.target, newest.version, digest, *details
        )
        if result.error is not None or not result.payload:
            return None
        self._file_no[courier.name] = newest.version.serial_no
        return Sent(newest.version.serial_no)

    async def _digest(self, content: Content) -> str:
        """Return the digest of a file, made once for all nodes that are asked about it."""
        async with self._packing:
            serial_no = content.version.serial_no
            if self._digest_of[0] != serial_no:
                digest = await asyncio.to_thread(digest_of, content.pieces)
                self._digest_of = serial_no, digest
            return self._digest_of[1]

    async def _config(self) -> Packed:
        """Return the newest configuration, packed once for all that get it at the same time."""
        async with self._packing:
            newest = self._newest()
            serial_no = newest.version.serial_no
            packed = self._packed()
            if packed is None or packed.serial_no != serial_no:
                packed = Packed(serial_no, await asyncio.to_thread(_pack, newest.pieces))
                self._packed = weakref.ref(packed)
            return packed

    def _newest(self) -> Content:
        """Return the newest configuration; it is remembered, as the base of the next ones."""
        state = self._keeper.state
        found = self._recent.get(state.serial_no)
        if found is None:
            found = Content(state.version, state.pieces)
            self._recent[state.serial_no] = found
            while len(self._recent) > RECENT_MAX:
                del self._recent[next(iter(self._recent))]
        return found

    def _file_details(self) -> tuple[int, str, str, float, float]:
        """Return mode, user, group and times of the file."""
        uid, gid = files.owner_names(os.stat(self._keeper.paths.config_data))
        now = clock.now()
        return FILE_MODE, uid, gid, now, now

    # The simple values.

    async def send_simple(self, courier: Courier, state: SsconfState) -> str | None:
        """Send what a node lacks of the simple values; returns why it refused them."""
        facts, target = await self._knows(courier), courier.target
        if not facts.keeps_ssconf:
            return (await self._ask(NodeCalls.write_ssconf_files, target, state.values)).error
        if not facts.patches_ssconf:
            serial_no = self._keeper.state.serial_no
            return (await self._ask(NodeCalls.ssconf_accept, target, serial_no, state.values)).error
        for each in self._ssconf_patches(courier, state):
            result = await self._ask(
                NodeCalls.ssconf_patch,
                target,
                *(each.serial_no, each.base, each.state, each.values),
            )
            if result.error is not None:
                return result.error
            if result.payload:
                break
        self._states[courier.name] = state
        return None

    def _ssconf_patches(self, courier: Courier, state: SsconfState) -> list[SsconfPatch]:
        """Return what may be sent: the values that changed, if it is known which, then all."""
        serial_no = self._keeper.state.serial_no
        patches = [SsconfPatch(serial_no, "", state.name, state.values)]
        before = self._states.pop(courier.name, None)
        if before is not None and SSCONF in courier.copies.has:
            changed = state.changed_since(before)
            patches.insert(0, SsconfPatch(serial_no, before.name, state.name, changed))
        return patches

    # Calls.

    async def _knows(self, courier: Courier) -> NodeFacts:
        """Return the facts that tell which of our calls a node knows."""
        known = self._facts.get(courier.name)
        if known is None:
            answer = await master_poll.ask_one(self._rpc, courier.target)
            facts = answer.facts if isinstance(answer, Answer) else None
            known = self._facts[courier.name] = facts or NodeFacts(master_name="")
        return known

    async def _ask(
        self,
        method: Callable[Concatenate[NodeCalls, P], R],
        target: Target,
        *args: P.args,
        **named: P.kwargs,
    ) -> RpcResult[R]:
        """Make a call on a node that answers."""
        result = await self._rpc.call_one(method, target, *args, **named)
        if result.address or result.offline:
            raise NodeSilentError(result.error)
        return result


def _pack(pieces: list[bytes]) -> CompressedText:
    """Return the content of the file as the node call takes it."""
    content = CompressedText(b"".join(pieces))
    content.to_wire()
    return content

"""Brings the configuration to the other nodes: whole to the candidates, in parts to all.

A node gets the newest version there is; changes made while it is being called go with the next
call (`clients.couriers`).  The log says once that a node has become unreachable, and once that it
is back.  A node that was away may follow another master by now, so it is asked first: one that is
behind missed the change of the master, one that is ahead follows another one.

Source: ARCHITECTURE, invariants 8 and 9; config.json, "ssconf"; node_rpc.json.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Concatenate, Final, ParamSpec, TypeVar

from ganeti.base import metrics
from ganeti.base.errors import GenericError, OpExecError
from ganeti.clients import master_poll
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.couriers import (
    GREETING_S_MAX,
    Courier,
    Couriers,
    Delivery,
    NodeSilentError,
    Spawn,
)
from ganeti.clients.node_rpc import RpcResult, Target
from ganeti.config.deltas.journal import Record, record_of
from ganeti.config.index import NODES
from ganeti.config.ssconf_values import SsconfComposer
from ganeti.config.state import Flush, parts_since
from ganeti.copies.node import PATIENCE_S, NodeCopies, Versions, Wanted
from ganeti.copies.quorum import Tally
from ganeti.daemon.master_watch import MasterWatch
from ganeti.daemon.tally import Histogram, written
from ganeti.jobs.votes import Answer
from ganeti.objects.model import Node
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import (
    CompressedText,
    ConfigPatch,
    ConfigVersion,
    NodeFacts,
    SsconfPatch,
)
from ganeti.store import lease, ssconf
from ganeti.store.config_file import FILE_MODE
from ganeti.system import clock, files
from ganeti.wconfd.keeper import Keeper

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

CONFIG: Final = "config"  # its versions are its serial numbers
FILE: Final = "config.data"  # where a journal is kept: the file as such, which follows later
SSCONF: Final = "ssconf"

FLUSH_S_MAX: Final = 10.0  # the time for enough candidates
FINISH_S_MAX: Final = 2.0
TRIP_S_MAX: Final = 60.0  # a large configuration over a slow line
RECORDS_MAX: Final = 256  # that a candidate may lack; one that lacks more is sent the file
RECENT_MAX: Final = 16  # versions that a patch may start from
_CANDIDATE_DELAY_S_MAX: Final = 1.5  # it is to have everything soon after it is back
_OTHERS_DELAY_S_MAX: Final = 60.0


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
    """A version of the simple configuration; no other process of ours has one of that name."""

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


class Distributor:
    """Keeps the other nodes up to date with every write of the configuration.

    Args:
        watch: asks for the master's name, for nodes that follow another one; None without a vote.
    """

    def __init__(
        self,
        keeper: Keeper,
        rpc: AsyncNodeRpcClient,
        own_name: str,
        spawn: Spawn,
        watch: MasterWatch | None,
    ) -> None:
        self._keeper = keeper
        self._rpc = rpc
        self._own_name = own_name
        self._watch = watch
        self._nodes: dict[str, Node] = {}  # by name
        self._strangers: dict[str, int] = {}  # node -> serial number that was told
        self._couriers = Couriers(self, spawn, files_max=3, trip_s_max=TRIP_S_MAX)
        self._ssconf = SsconfComposer(keeper.durable)
        self._ssconf_version = 1
        self._ssconf_prefix = uuid.uuid4().hex
        self._taken_ssconf: dict[str, SsconfState] = {}  # by node
        self._packed: Callable[[], Packed | None] = lambda: None
        self._packing = asyncio.Lock()
        self._recent: dict[int, Content] = {}  # by serial number
        self._file_no: dict[str, int] = {}  # node -> serial number of the file that it took last
        self._records: deque[Record] = deque(maxlen=RECORDS_MAX)
        self._due_since: dict[str, float] = {}  # candidate -> the first change that it lacks
        self._replications = Histogram(metrics.WCONFD_REPLICATION_S)
        self._facts: dict[str, NodeFacts] = {}  # node -> which of our calls it knows
        self._write_own_ssconf({})
        self._renew_nodes()
        keeper.on_flush(self.changed)
        keeper.on_file(self.start)

    # The files, and the nodes that should have them.

    def changed(self, flush: Flush) -> None:
        """Note that the configuration was written."""
        if self._keeper.checkpoints is not None:
            self._records.append(record_of(flush.base, flush.version, flush.changed))
        before = self._ssconf.values
        if self._ssconf.follow(flush.changed):
            self._ssconf_version += 1
            self._write_own_ssconf(before)
        if any(table == NODES for table, _ in flush.changed):
            self._renew_nodes()
        now = clock.monotonic()
        for each in self._candidates():
            if not each.target.offline:
                self._due_since.setdefault(each.name, now)
        self.start()

    async def finish(self) -> None:
        """Wait a little until the candidates that answer have the whole file, not its journal."""
        assert self._keeper.checkpoints is not None
        serial_no = self._keeper.checkpoints.file_version.serial_no

        def is_done() -> bool:
            return all(
                each.copies.is_missing
                or each.target.offline
                or each.copies.has_version(FILE, serial_no)
                for each in self._candidates()
            )

        await self._couriers.wait_until(FILE, is_done, FINISH_S_MAX)

    def start(self) -> None:
        """Bring every node the files that it lacks."""
        for courier in self._couriers:
            if self._nodes[courier.name].master_candidate:
                courier.copies.want(CONFIG, self._keeper.state.serial_no)
                if self._keeper.checkpoints is not None:
                    courier.copies.want(FILE, self._keeper.checkpoints.file_version.serial_no)
            courier.copies.want(SSCONF, self._ssconf_version)
        self._couriers.start_soon()

    async def begin_again(self) -> None:
        """Bring everything to every node, also the versions that it has.

        Returns when each node that had failed before is back, or has failed again.
        """
        self._write_own_ssconf({})
        for courier in self._couriers:
            courier.copies.forget([CONFIG, FILE, SSCONF])
        self._couriers.hurry()
        self.start()

        def are_tried() -> bool:
            now = clock.monotonic()
            online = (each.copies for each in self._couriers if not each.target.offline)
            return not any(copies.is_missing and not copies.rests(now) for copies in online)

        await self._couriers.wait_until(CONFIG, are_tried, GREETING_S_MAX + PATIENCE_S)

    def _write_own_ssconf(self, before: Mapping[str, str]) -> None:
        now = self._ssconf.values
        changed = {key: value for key, value in now.items() if before.get(key) != value}
        try:
            ssconf.write_values(self._keeper.paths, changed)
        except (OSError, GenericError) as err:
            logger.warning("Cannot write the simple configuration here: %s; going on", err)

    def _renew_nodes(self) -> None:
        view = self._keeper.durable
        found = {node.name: node for node in map(view.node, view.tables[NODES]) if node is not None}
        found.pop(self._own_name, None)
        for name, node in found.items():
            before = self._nodes.get(name)
            if before is not None and before.uuid != node.uuid:
                self._couriers.remove(name)
                before = None
            target = Target(name, node.primary_ip, offline=node.offline)
            courier = self._couriers.get(name)
            if courier is None:
                courier = self._couriers.add(target, NodeCopies(trips_max=1))
            courier.takes_many = True  # there are few files, and each has its own call
            courier.is_known = True
            courier.target = target
            if before is not None and before.offline and not node.offline:
                courier.copies.forget([SSCONF])  # it may have been reinstalled meanwhile
            if not node.master_candidate or node.offline:
                courier.copies.forget([CONFIG, FILE])
                self._due_since.pop(name, None)
            courier.is_urgent = node.master_candidate
            courier.copies.silent_delay_s_max = (
                _CANDIDATE_DELAY_S_MAX if node.master_candidate else _OTHERS_DELAY_S_MAX
            )
        for name in self._nodes.keys() - found.keys():
            self._couriers.remove(name)
            self._due_since.pop(name, None)
            self._taken_ssconf.pop(name, None)
        self._nodes = found

    async def _config(self) -> Packed:
        """Return the newest configuration, packed once for all that get it at the same time."""
        async with self._packing:
            serial_no, pieces = self._keeper.state.serial_no, self._keeper.state.pieces
            packed = self._packed()
            if packed is None or packed.serial_no != serial_no:
                packed = Packed(serial_no, await asyncio.to_thread(_pack, pieces))
                self._packed = weakref.ref(packed)
            return packed

    def _newest(self) -> Content:
        """Return the newest configuration; it is remembered, as the base of the next ones."""
        state = self._keeper.state
        found = self._recent.get(state.serial_no)
        if found is None:
            found = Content(ConfigVersion(state.serial_no, state.mtime), state.pieces)
            self._recent[state.serial_no] = found
            while len(self._recent) > RECENT_MAX:
                del self._recent[next(iter(self._recent))]
        return found

    def _newest_ssconf(self) -> SsconfState:
        version = self._ssconf_version
        return SsconfState(f"{self._ssconf_prefix}.{version}", version, self._ssconf.values)

    # The interface for the couriers.

    def may_send(self, _file: str) -> bool:
        """As declared."""
        return True

    async def greet(self, courier: Courier) -> str | None:
        """As declared; a node that follows another master gets nothing."""
        if self._watch is None:
            return None
        answer = await master_poll.ask_one(self._rpc, courier.target)
        if isinstance(answer, str):
            return answer
        if answer.master_name in ("", self._own_name):
            return None
        if await self._may_overrule(answer, self._watch):
            return None
        self._tell_stranger(courier.name, answer)
        return f"it follows {answer.master_name} as the master"

    def _tell_stranger(self, name: str, answer: Answer) -> None:
        """Say once that a node has a configuration that was written apart from the others."""
        serial_no = answer.facts.config_serial if answer.facts is not None else 0
        if self._strangers.get(name) != serial_no:
            self._strangers[name] = serial_no
            logger.warning(
                "Node %s follows %s as the master, with a configuration of serial number %s; it"
                " gets nothing.  'gnt-node modify --offline=yes %s', then '--offline=no', has"
                " that looked at and set aside",
                *(name, answer.master_name, serial_no, name),
            )

    async def _may_overrule(self, answer: Answer, watch: MasterWatch) -> bool:
        facts = answer.facts
        if facts is not None:
            if max(facts.config_serial, facts.claim_serial) <= self._keeper.state.serial_no:
                return True
            watch.prompt()
            return False
        try:
            return await watch.check()
        except GenericError as err:
            logger.warning("Cannot ask who is master: %s; trying again", err.message)
            return False

    async def deliver(self, courier: Courier, versions: Versions) -> Delivery:
        """As declared; the whole configuration first, and without it nothing."""
        taken: dict[str, int] = {}
        due_s = self._due_since.pop(courier.name, None) if CONFIG in versions else None
        if courier.copies.is_missing:
            due_s = None  # it was away
        if CONFIG in versions or FILE in versions:
            appended = None if FILE in versions else await self._append(courier)
            serial_no, error = (
                (appended, None)
                if appended is not None
                else await self._bring_file(courier, versions, taken)
            )
            if error is not None:
                if self._watch is not None:
                    self._watch.prompt()  # it may follow another master
                return Delivery({}, {CONFIG: error})
            taken[CONFIG] = serial_no
            if due_s is not None:
                self._replications.add(clock.monotonic() - due_s)
            if appended is None:
                taken[FILE] = serial_no
        if SSCONF in versions and SSCONF not in taken:
            state = self._newest_ssconf()
            error = await self._bring_ssconf(courier, state)
            if error is not None:
                return Delivery(taken, {SSCONF: error})
            taken[SSCONF] = state.version
        return Delivery(taken)

    async def _append(self, courier: Courier) -> int | None:
        """Send the changes that a node lacks, for its journal.

        Returns:
            The serial number that it has now; None if it needs the whole file.
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

    async def _bring_file(
        self, courier: Courier, versions: Versions, taken: dict[str, int]
    ) -> tuple[int, str | None]:
        """Send the newest configuration, if possible as the parts that the node has not.

        Args:
            taken: gets the version of the simple configuration, if that went with it.

        Returns:
            The serial number of the version sent, and why the node refused it.
        """
        newest = self._newest()
        if await self._patch(courier, newest, versions, taken):
            return newest.version.serial_no, None
        packed = await self._config()
        path = self._keeper.paths.globalize(self._keeper.paths.config_data)
        error = await self._call(
            NodeCalls.upload_file_single,
            courier.target,
            path,
            packed.content,
            *self._file_details(),
        )
        if error is None:
            self._file_no[courier.name] = packed.serial_no
        return packed.serial_no, error

    async def _patch(
        self, courier: Courier, newest: Content, versions: Versions, taken: dict[str, int]
    ) -> bool:
        """Send parts of the file; returns whether the node took them."""
        base = self._recent.get(self._file_no.pop(courier.name, 0))
        if base is None or CONFIG not in courier.copies.has:
            return False
        facts = await self._knows(courier)
        if not facts.patches_config:
            return False
        parts = parts_since(base.pieces, newest.pieces)
        patch = ConfigPatch(base.version, newest.version, parts)
        if SSCONF in versions and facts.patches_both:
            is_taken = await self._patch_both(courier, patch, taken)
        else:
            result = await self._ask(
                NodeCalls.config_patch, courier.target, patch, *self._file_details()
            )
            is_taken = result.error is None and result.payload
        if is_taken:
            self._file_no[courier.name] = newest.version.serial_no
        return is_taken

    async def _patch_both(
        self, courier: Courier, patch: ConfigPatch, taken: dict[str, int]
    ) -> bool:
        """Send parts of the file, with the simple values; returns whether the node took the parts.

        Of a refusal nothing is known but that both are to be sent again, each by itself.
        """
        state = self._newest_ssconf()
        simple = self._ssconf_patches(courier, state)[0]
        result = await self._ask(
            NodeCalls.copies_patch, courier.target, patch, *self._file_details(), simple
        )
        if result.error is not None:
            return False
        has_file, has_values = result.payload
        if has_values:
            self._taken_ssconf[courier.name] = state
            taken[SSCONF] = state.version
        return has_file

    async def _bring_ssconf(self, courier: Courier, state: SsconfState) -> str | None:
        """Send what a node lacks of the simple configuration; returns why it did not arrive."""
        facts, target = await self._knows(courier), courier.target
        if not facts.keeps_ssconf:
            return await self._call(NodeCalls.write_ssconf_files, target, state.values)
        if facts.patches_ssconf:
            error = await self._patch_ssconf(courier, state)
        else:
            serial_no = self._keeper.state.serial_no
            error = await self._call(NodeCalls.ssconf_accept, target, serial_no, state.values)
        if error is not None and self._watch is not None:
            self._watch.prompt()  # it may follow another master
        return error

    async def _patch_ssconf(self, courier: Courier, state: SsconfState) -> str | None:
        """Send the values that changed, or all if the node does not have the others."""
        for each in self._ssconf_patches(courier, state):
            result = await self._ask(
                NodeCalls.ssconf_patch,
                courier.target,
                *(each.serial_no, each.base, each.state, each.values),
            )
            if result.error is not None:
                return result.error
            if result.payload:
                break
        self._taken_ssconf[courier.name] = state
        return None

    def _ssconf_patches(self, courier: Courier, state: SsconfState) -> list[SsconfPatch]:
        """Return what may be sent: the values that changed, if it is known which, then all."""
        serial_no = self._keeper.state.serial_no
        patches = [SsconfPatch(serial_no, "", state.name, state.values)]
        before = self._taken_ssconf.pop(courier.name, None)
        if before is not None and SSCONF in courier.copies.has:
            changed = state.changed_since(before)
            patches.insert(0, SsconfPatch(serial_no, before.name, state.name, changed))
        return patches

    async def _knows(self, courier: Courier) -> NodeFacts:
        """Return the facts that tell which of our calls a node knows."""
        known = self._facts.get(courier.name)
        if known is None:
            answer = await master_poll.ask_one(self._rpc, courier.target)
            facts = answer.facts if isinstance(answer, Answer) else None
            known = self._facts[courier.name] = facts or NodeFacts(master_name="")
        return known

    def _file_details(self) -> tuple[int, str, str, float, float]:
        """Return mode, user, group and times of the file."""
        uid, gid = files.owner_names(os.stat(self._keeper.paths.config_data))
        now = clock.now()
        return FILE_MODE, uid, gid, now, now

    async def _call(
        self,
        method: Callable[Concatenate[NodeCalls, P], object],
        target: Target,
        *args: P.args,
        **named: P.kwargs,
    ) -> str | None:
        """Make a call; returns why the node refused."""
        return (await self._ask(method, target, *args, **named)).error

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

    def on_result(self, courier: Courier, *, was_missing: bool, error_before: str | None) -> None:
        """As declared."""
        error = courier.copies.error
        if was_missing or courier.copies.has_version(CONFIG, self._keeper.state.serial_no):
            self._due_since.pop(courier.name, None)
        if error is not None and error_before is None:
            logger.warning(
                "Cannot bring the configuration to node %s: %s; trying again", courier.name, error
            )
        if was_missing:
            self._facts.pop(courier.name, None)  # another version may run there now
        if error is None and error_before is not None:
            logger.info("Node %s has the configuration again", courier.name)

    # Which nodes have it.

    def wanted(self) -> Wanted:
        """Return what other nodes should have and have not; files that follow do not count."""
        return {
            name: {file: version for file, version in versions.items() if file != FILE}
            for name, versions in self._couriers.wanted().items()
        }

    def lacking(self, wanted: Wanted) -> list[str]:
        """Return the nodes that do not answer, or still lack some of that."""
        return self._couriers.lacking(wanted)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the page of metrics about the copies."""
        behind = self._behind(self._keeper.state.serial_no)
        count = sum(not each.target.offline for each in behind)
        yield from written(metrics.WCONFD_BEHIND, {(): count})
        yield from self._replications.lines()

    def status(self) -> list[dict[str, object]]:
        """Return the versions that each other node has, and its errors."""
        return [
            {
                "node": courier.name,
                "candidate": self._nodes[courier.name].master_candidate,
                "offline": courier.target.offline,
                "serial_no": courier.copies.has.get(CONFIG, 0),
                "wanted_serial_no": self._keeper.state.serial_no,
                "ssconf_is_current": courier.copies.has_version(SSCONF, self._ssconf_version),
                "error": courier.copies.error,
            }
            for courier in self._couriers
        ]

    async def flush(self, group: str | None) -> None:
        """Return once enough candidates have the configuration, and a little later.

        Enough is half of them, rounded up, the master counted (invariant 9); where high
        availability is on, both of two, unless the master goes on alone.  Nodes that are slow to
        answer are set aside.

        Args:
            group: wait for the nodes of this group only, however few have it.

        Raises:
            OpExecError: not enough candidates could be reached; names the others.
        """
        serial_no, ssconf_version = self._keeper.state.serial_no, self._ssconf_version
        self.start()

        def lacking() -> list[Courier]:
            return [
                courier
                for courier in self._couriers
                if group is None or self._nodes[courier.name].group == group
                if not courier.target.offline
                if not self._is_up_to_date(courier, serial_no, ssconf_version)
            ]

        paths, others = self._keeper.paths, [each.name for each in self._candidates()]
        needs_both = lease.needs_both(paths, others)

        def is_decided() -> bool:
            if self._tally(serial_no).is_enough:
                return True
            if needs_both:
                return False  # within seconds it is back, or the master goes on alone
            now = clock.monotonic()
            return all(each.copies.rests(now) for each in self._behind(serial_no))

        if group is None and not self._tally(serial_no).is_enough:
            self._couriers.hurry()  # then even the failed ones are tried now
            look_s = lease.LOOK_S if needs_both else None
            await self._couriers.wait_until(CONFIG, is_decided, FLUSH_S_MAX, look_s)
        if group is None and not self._tally(serial_no).is_enough:
            raise self._not_enough(serial_no)
        await self._couriers.wait_for_all(CONFIG, lacking)

    def _is_up_to_date(self, courier: Courier, serial_no: int, ssconf_version: int) -> bool:
        if not courier.copies.has_version(SSCONF, ssconf_version):
            return False
        is_candidate = self._nodes[courier.name].master_candidate
        return not is_candidate or courier.copies.has_version(CONFIG, serial_no)

    def _candidates(self) -> list[Courier]:
        return [each for each in self._couriers if self._nodes[each.name].master_candidate]

    def _behind(self, serial_no: int) -> list[Courier]:
        candidates = self._candidates()
        return [each for each in candidates if not each.copies.has_version(CONFIG, serial_no)]

    def _tally(self, serial_no: int) -> Tally:
        candidates = self._candidates()
        reached = [each.name for each in candidates if each.copies.has_version(CONFIG, serial_no)]
        others = [each.name for each in candidates]
        return lease.tally(self._keeper.paths, self._own_name, others, reached)

    def _not_enough(self, serial_no: int) -> OpExecError:
        missing = "; ".join(
            f"{each.name}: {each.copies.error or 'no answer yet'}"
            for each in self._behind(serial_no)
        )
        return OpExecError(
            f"the configuration is not on enough master candidates; missing are {missing}."
            " Mark nodes that are gone with 'gnt-node modify --offline yes NODE'"
        )


def _pack(pieces: list[bytes]) -> CompressedText:
    """Return the content of the file as the node call takes it."""
    content = CompressedText(b"".join(pieces))
    content.to_wire()
    return content

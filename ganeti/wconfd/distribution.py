"""Brings the configuration to the other nodes: whole to the candidates, in parts to all.

Each node has its own courier, so a slow or dead node delays nobody else.  A courier takes the
newest version there is, never an older one after a newer one; what changes while it is under way
is taken along with the next trip.  A trip that fails is repeated after a while that grows; the log
says once that a node has become unreachable, and once that it is back.

Source: ARCHITECTURE, invariants 8 and 9; config.json, "ssconf"; node_rpc.json.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

from msgspec import Raw

from ganeti.base.errors import GenericError, OpExecError
from ganeti.base.json import dumps
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.node_rpc import Target
from ganeti.config.index import NODES
from ganeti.config.ssconf_values import SsconfComposer
from ganeti.config.state import Flush
from ganeti.objects.node import Node
from ganeti.protocol.node_rpc_values import compress
from ganeti.store import ssconf
from ganeti.store.config_file import FILE_MODE
from ganeti.system import clock, files
from ganeti.wconfd.keeper import Keeper

logger = logging.getLogger(__name__)

RETRY_DELAYS_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
FLUSH_STRAGGLERS_S: Final = 5.0  # what a flush waits for nodes beyond those that it needs
FLUSH_S_MAX: Final = 60.0  # what it waits for those: as long as an urgent node call may take

Spawn = Callable[[Coroutine[Any, Any, None], str], object]


class Courier:
    """What one node has, and what it should have."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.config_serial = 0  # what it has; 0 while unknown
        self.ssconf_version = 0
        self.trips_begun = 0
        self.trips_done = 0
        self.error: str | None = None
        self.failures = 0
        self.is_running = False
        self.hurry = asyncio.Event()

    @property
    def target(self) -> Target:
        """How the node is reached."""
        return Target(self.node.name, self.node.primary_ip)


class Distributor:
    """All couriers; `changed` tells it of every write of the configuration."""

    def __init__(
        self, keeper: Keeper, rpc: AsyncNodeRpcClient, own_name: str, spawn: Spawn
    ) -> None:
        self._keeper = keeper
        self._rpc = rpc
        self._own_name = own_name
        self._spawn = spawn
        self.on_return: Callable[[Target], Awaitable[str | None]] | None = None
        self._couriers: dict[str, Courier] = {}
        self._ssconf = SsconfComposer(keeper.durable)
        self._ssconf_version = 1
        self._packed: tuple[int, Raw] | None = None  # serial number, ED_COMPRESS value
        self._packing = asyncio.Lock()
        self._progress = asyncio.Event()
        self._write_own_ssconf({})
        self._renew_couriers()

    # What there is to bring.

    def changed(self, flush: Flush) -> None:
        """Note that the configuration was written."""
        before = self._ssconf.values
        if self._ssconf.follow(flush.changed):
            self._ssconf_version += 1
            self._write_own_ssconf(before)
        if any(table == NODES for table, _ in flush.changed):
            self._renew_couriers()
        self.start()

    def start(self) -> None:
        """Send out every courier that has something to bring."""
        for courier in self._couriers.values():
            if not courier.is_running and self._has_work(courier):
                courier.is_running = True
                self._spawn(self._run(courier), f"courier to {courier.node.name}")

    def begin_again(self) -> None:
        """Bring everything to every node, whatever it has."""
        self._write_own_ssconf({})
        for courier in self._couriers.values():
            courier.config_serial = courier.ssconf_version = 0
            courier.hurry.set()
        self.start()

    def _write_own_ssconf(self, before: Mapping[str, str]) -> None:
        now = self._ssconf.values
        changed = {key: value for key, value in now.items() if before.get(key) != value}
        try:
            ssconf.write_values(self._keeper.paths, changed)
        except (OSError, GenericError) as err:
            logger.warning("Cannot write the simple configuration here: %s; going on", err)

    def _renew_couriers(self) -> None:
        view = self._keeper.durable
        for uuid in view.tables[NODES]:
            node = view.node(uuid)
            if node is None or node.name == self._own_name:
                continue
            courier = self._couriers.get(uuid)
            if courier is None:
                courier = self._couriers[uuid] = Courier(node)
            elif courier.node.offline and not node.offline:
                courier.ssconf_version = 0  # it may have been reinstalled meanwhile
            if not node.master_candidate or node.offline:
                courier.config_serial = 0
            courier.node = node
        for uuid in [uuid for uuid in self._couriers if uuid not in view.tables[NODES]]:
            self._couriers.pop(uuid).hurry.set()

    def _needs_config(self, courier: Courier) -> bool:
        behind = courier.config_serial < self._keeper.state.serial_no
        return courier.node.master_candidate and behind

    def _needs_ssconf(self, courier: Courier) -> bool:
        return courier.ssconf_version < self._ssconf_version

    def _has_work(self, courier: Courier) -> bool:
        if courier.node.offline or self._couriers.get(courier.node.uuid) is not courier:
            return False
        return self._needs_config(courier) or self._needs_ssconf(courier)

    async def _config(self) -> tuple[int, Raw]:
        """Return serial number and content of the newest configuration, packed once for all."""
        async with self._packing:
            serial_no, pieces = self._keeper.state.serial_no, self._keeper.state.pieces
            if self._packed is None or self._packed[0] != serial_no:
                self._packed = (serial_no, await asyncio.to_thread(_pack, pieces))
            return self._packed

    # The couriers.

    async def _run(self, courier: Courier) -> None:
        try:
            while self._has_work(courier):
                courier.hurry.clear()  # what is set from now on asks for another trip
                courier.trips_begun += 1
                error = await self._trip(courier)
                courier.trips_done = courier.trips_begun
                self._note(courier, error)
                if error is not None:
                    await _rest(courier)
        finally:
            courier.is_running = False

    async def _trip(self, courier: Courier) -> str | None:
        """Bring what is needed; returns what went wrong.

        A node that was away may follow another master by now, so it is asked first.
        """
        if courier.failures and self.on_return is not None:
            refusal = await self.on_return(courier.target)
            if refusal is not None:
                return refusal
        if self._needs_config(courier):
            serial_no, content = await self._config()
            error = await self._upload(courier.target, content)
            if error is not None:
                return error
            courier.config_serial = serial_no
        if self._needs_ssconf(courier):
            version, values = self._ssconf_version, self._ssconf.values
            error = await self._call("write_ssconf_files", courier.target, values)
            if error is not None:
                return error
            courier.ssconf_version = version
        return None

    async def _upload(self, target: Target, content: Raw) -> str | None:
        paths = self._keeper.paths
        path = paths.globalize(paths.config_data)
        owner = files.owner_names(os.stat(paths.config_data))
        now = clock.now()
        return await self._call(
            "upload_file_single", target, path, content, FILE_MODE, *owner, now, now
        )

    async def _call(self, name: str, target: Target, *args: object) -> str | None:
        try:
            result = await self._rpc.single(name, target, *args)
        except GenericError as err:
            return err.message
        return result.error

    def _note(self, courier: Courier, error: str | None) -> None:
        name = courier.node.name
        if error is not None:
            if courier.error is None:
                logger.warning(
                    "Cannot bring the configuration to node %s: %s; trying again", name, error
                )
            courier.failures += 1
        else:
            if courier.error is not None:
                logger.info("Node %s has the configuration again", name)
            courier.failures = 0
        courier.error = error
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()

    # Who has what.

    def status(self) -> list[dict[str, object]]:
        """Return what each other node has and what went wrong."""
        return [
            {
                "node": courier.node.name,
                "candidate": courier.node.master_candidate,
                "offline": courier.node.offline,
                "serial_no": courier.config_serial,
                "wanted_serial_no": self._keeper.state.serial_no,
                "ssconf_is_current": not self._needs_ssconf(courier),
                "error": courier.error,
            }
            for courier in self._couriers.values()
        ]

    async def flush(self, group: str | None) -> None:
        """Return once enough candidates have the configuration and all nodes were tried.

        Enough is half of them, rounded up, the master counted (invariant 9).  Nodes that are slow
        to answer are not waited for longer than necessary.

        Args:
            group: concern oneself with the nodes of this group only.

        Raises:
            OpExecError: not enough candidates could be reached; names the others.
        """
        serial_no = self._keeper.state.serial_no
        begun = clock.monotonic()
        self.start()
        waiting = {c: c.trips_begun for c in self._couriers.values() if self._has_work(c)}
        again = not self._is_enough(serial_no)  # then even those that failed are tried now
        if again:
            for courier in waiting:
                courier.hurry.set()
        while True:
            late = [
                courier
                for courier, trips in waiting.items()
                if group is None or courier.node.group == group
                if self._is_late(courier, trips, again=again)
            ]
            enough = group is not None or self._is_enough(serial_no)
            if not late:
                break
            left_s = begun + (FLUSH_STRAGGLERS_S if enough else FLUSH_S_MAX) - clock.monotonic()
            if left_s <= 0:
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._progress.wait()
        if not enough:
            raise self._not_enough(serial_no)

    def _is_late(self, courier: Courier, trips_before: int, *, again: bool) -> bool:
        """Tell whether a flush waits for a node: no trip since has brought all, or failed."""
        if not courier.is_running or not self._has_work(courier):
            return False
        return courier.trips_done <= trips_before and (again or courier.error is None)

    def _candidates(self) -> list[Courier]:
        return [c for c in self._couriers.values() if c.node.master_candidate]

    def _is_enough(self, serial_no: int) -> bool:
        candidates = self._candidates()
        have = 1 + sum(1 for courier in candidates if courier.config_serial >= serial_no)
        return have >= (len(candidates) + 2) // 2  # ceil(C / 2), and C counts the master as well

    def _not_enough(self, serial_no: int) -> OpExecError:
        behind = [c for c in self._candidates() if c.config_serial < serial_no]
        missing = "; ".join(f"{c.node.name}: {c.error or 'no answer yet'}" for c in behind)
        return OpExecError(
            f"the configuration is not on enough master candidates; missing are {missing}."
            " Mark those that are gone with 'gnt-node modify --offline yes NODE'"
        )


async def _rest(courier: Courier) -> None:
    """Wait before the next try; only a flush that needs the node shortens it."""
    delay_s = RETRY_DELAYS_S[min(courier.failures, len(RETRY_DELAYS_S)) - 1]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(delay_s):
            await courier.hurry.wait()


def _pack(pieces: list[bytes]) -> Raw:
    """Return the content of the file as the node call takes it."""
    return Raw(dumps(compress(b"".join(pieces))))

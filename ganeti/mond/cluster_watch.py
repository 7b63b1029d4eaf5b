"""Facts of the cluster on this node: asked of RConfD, so that it works without the master.

Every question is asked again from time to time; a missing answer leaves the known facts, and a note
of the reason.  The list of hypervisors stands in the simple configuration, on every node.

Source: mond.json, "intervals"; confd.json, "query_types".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from ganeti.base.errors import ConfigurationError, GenericError
from ganeti.base.paths import Paths
from ganeti.collectors import cluster_facts
from ganeti.collectors.cluster_facts import ClusterFacts, Need
from ganeti.collectors.node_lookup import Ask, NodeLookup
from ganeti.protocol.confd_queries import QueryType
from ganeti.store import ssconf
from ganeti.system import clock

logger = logging.getLogger(__name__)

REFRESH_S: Final = 15.0  # constants.json, MOND_CONFIG_TIME_INTERVAL
RECENT_S: Final = 1.0  # settings of that age are asked again for a request that depends on them
_PATIENCE_S: Final = 1.0  # of such a request; an answer takes milliseconds
_REGULAR: Final = (Need.SETTINGS, Need.INSTANCES, Need.DRBD)
_ROUNDS_KEPT: Final = 40  # ten minutes: then a problem is of somebody who does not ask any more
_SERIAL: Final = "/serial_no"
_DIAGNOSE_COMMAND: Final = "/cluster/diagnose_data_collector_filename"

Changes = Mapping[str, Any]  # fields of ClusterFacts


class ClusterWatch:
    """Keeps the facts; ``facts`` are the newest at any time."""

    def __init__(self, paths: Paths, hostname: str, ask: Ask) -> None:
        self.facts = ClusterFacts()
        self._paths = paths
        self._hostname = hostname
        self._ask = ask
        self._lookup = NodeLookup(hostname, ask)
        self._was_asked = asyncio.Event()
        self._settings_asked_s = -RECENT_S
        self._problems: dict[Need, str | None] = {}
        self._round = 0
        self._asked_in: dict[Need, int] = {}  # the round in which each need was looked up last
        self._lookups: Mapping[Need, Callable[[], Awaitable[Changes]]] = {
            Need.SETTINGS: self._settings,
            Need.INSTANCES: self._instances,
            Need.VOLUMES: self._volumes,
            Need.DRBD: self._drbd,
        }

    async def run(self, on_change: Callable[[ClusterFacts], None]) -> None:
        """Ask again and again, for ever."""
        while True:
            self._round += 1
            self._forget_old_problems()
            self.read_hypervisors()
            on_change(await self.refresh(_REGULAR))
            self._was_asked.set()
            await asyncio.sleep(REFRESH_S)

    def _forget_old_problems(self) -> None:
        for need, asked_in in self._asked_in.items():
            if self._round - asked_in > _ROUNDS_KEPT:
                self._problems.pop(need, None)

    async def look(self, needs: frozenset[Need]) -> ClusterFacts:
        """Return all facts, the needed ones as of now.

        Settings are needed too, but as of the last time that all was asked.
        """
        if not needs:
            return self.facts
        await self._was_asked.wait()
        return await self.refresh(needs - {Need.SETTINGS})

    async def recent_settings(self) -> ClusterFacts:
        """Return all facts, with settings as of now if RConfD answers soon."""
        is_recent = clock.monotonic() - self._settings_asked_s < RECENT_S
        if self._was_asked.is_set() and not is_recent:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE_S):
                    await self.refresh([Need.SETTINGS])
        return self.facts

    def read_hypervisors(self) -> None:
        """Look up which hypervisors are enabled."""
        try:
            listed = ssconf.read_key_or_none(self._paths, "hypervisor_list") or ""
        except ConfigurationError as err:
            logger.warning("Cannot tell which hypervisors are enabled: %s; ignoring", err.message)
            return
        self.facts = replace(self.facts, hypervisors=frozenset(listed.split()))

    async def refresh(self, needs: Iterable[Need]) -> ClusterFacts:
        """Ask for the needed facts, and return all."""
        await asyncio.gather(*(self._look_up(need) for need in needs))
        return self.facts

    async def _look_up(self, need: Need) -> None:
        """Look one thing up; a problem is logged when it begins, not every few seconds."""
        problem = None
        changes: Changes = {}
        self._asked_in[need] = self._round
        try:
            changes = {**await self._lookups[need](), "answered_s": clock.now()}
        except GenericError as err:
            problem = err.message
        if problem != self._problems.get(need):
            if problem is None:
                logger.info("Can look up the %s of this node again", need.value)
            else:
                logger.warning("Cannot look up the %s of this node: %s", need.value, problem)
        self._problems[need] = problem
        standing = next((each for each in self._problems.values() if each is not None), None)
        self.facts = replace(self.facts, problem=standing, **changes)

    async def _settings(self) -> Changes:
        self._settings_asked_s = clock.monotonic()
        switches = await self._ask(QueryType.DATA_COLLECTORS)
        serial = await self._ask(QueryType.CONFIG_QUERY, _SERIAL)
        command = await self._ask(QueryType.CONFIG_QUERY, _DIAGNOSE_COMMAND)
        return {
            "switches": cluster_facts.decode_switches(switches),
            "config_serial": serial if isinstance(serial, int) else None,
            "diagnose_command": command if isinstance(command, str) else "",
        }

    async def _instances(self) -> Changes:
        return {"instances": await self._lookup.instances()}

    async def _drbd(self) -> Changes:
        return {"drbd_owners": await self._lookup.drbd_owners()}

    async def _volumes(self) -> Changes:
        """Look up the disks of all instances of this node."""
        found = await self._lookup.instances()
        return {"instances": found, "volume_owners": await self._lookup.volume_owners(found)}

"""The LUXI methods about the cluster: what it is, its tags, its switches, its job filters.

Source: luxi.json, "methods".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ganeti.base.errors import ConfigurationError, ErrorCode, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.clients.wconfd import WConfClient
from ganeti.luxid.cluster_info import cluster_info, config_values
from ganeti.luxid.config_view import ConfigView
from ganeti.luxid.intake import Intake
from ganeti.luxid.job_filters import Rule
from ganeti.luxid.replication import Replicator
from ganeti.objects.filter_rule import FilterRule
from ganeti.protocol.wconfd import ClientId
from ganeti.store import watcher_pause
from ganeti.system import clock

T = TypeVar("T")

_TAG_TABLES: Final = {
    "node": "nodes",
    "nodegroup": "groups",
    "instance": "instances",
    "network": "networks",
}


class ClusterMethods:
    """One method per LUXI method, same arguments."""

    def __init__(
        self,
        paths: Paths,
        view: ConfigView,
        intake: Intake,
        replicator: Replicator,
        owner: ClientId,
    ) -> None:
        self._paths = paths
        self._view = view
        self._intake = intake
        self._replicator = replicator
        self._owner = owner

    async def query_cluster_info(self) -> dict[str, object]:
        """QueryClusterInfo."""
        return cluster_info(self._view)

    async def query_config_values(self, names: list[str]) -> list[object]:
        """QueryConfigValues."""
        return config_values(
            self._view,
            names,
            drained=self._intake.is_drained,
            watcher_pause=watcher_pause.read(self._paths),
        )

    async def query_tags(self, kind: str, name: str | None) -> list[str]:
        """QueryTags."""
        cluster = self._view.cluster
        if kind == "cluster":
            return list(cluster.tags)
        table = _TAG_TABLES.get(kind)
        if table is None:
            raise OpPrereqError(f"{kind!r} is not a kind of thing that has tags", ErrorCode.INVAL)
        found = self._view.require(getattr(self._view, table), kind, name or "")
        return list(found.tags)

    async def set_watcher_pause(self, until: float | None) -> float | None:
        """SetWatcherPause."""
        if until is not None and until <= clock.now():
            raise OpPrereqError("the end of the pause lies in the past", ErrorCode.INVAL)
        await asyncio.to_thread(watcher_pause.write, self._paths, until)
        await self._replicator.tell_all("set_watcher_pause", until)
        return until

    async def replace_filter(
        self,
        uuid: str | None,
        priority: int,
        predicates: Sequence[Sequence[object]],
        action: object,
        reason: Sequence[object],
    ) -> str:
        """ReplaceFilter."""
        rule = {
            "watermark": self._intake.last_id,
            "priority": priority,
            "predicates": predicates,
            "action": action,
            "reason_trail": [*reason, ["luxid", "", clock.now_ns()]],
        }
        try:
            Rule(FilterRule.from_wire({**rule, "uuid": ""}))  # refuses what cannot be tried
        except ConfigurationError as err:
            raise OpPrereqError(err.message, ErrorCode.INVAL) from err
        if uuid is not None and uuid in self._view.filters:
            await self._ask(lambda client: client.modify_filter(uuid, rule))
            return uuid
        new_uuid = uuid or clock.new_uuid()
        await self._ask(lambda client: client.create_filter({**rule, "uuid": new_uuid}))
        return new_uuid

    async def delete_filter(self, uuid: str) -> None:
        """DeleteFilter."""
        self._view.require(self._view.filters, "job filter", uuid)
        await self._ask(lambda client: client.delete_filter(uuid))

    async def _ask(self, call: Callable[[WConfClient], T]) -> T:
        """Ask WConfD, from a thread: such calls are rare."""

        def work() -> T:
            with WConfClient(self._paths, self._owner) as client:
                return call(client)

        return await asyncio.to_thread(work)

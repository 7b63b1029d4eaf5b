"""The LUXI methods about the cluster: its settings, its tags, its switches, its job filters.

Source: luxi.json, "methods".
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from ganeti.base.errors import ConfigurationError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.clients import maintd
from ganeti.clients.wconfd import WConfClient
from ganeti.config.changes import TABLE_OF
from ganeti.config.index import FILTERS, GROUPS, INSTANCES, NETWORKS, NODES
from ganeti.luxid.config_view import ConfigView
from ganeti.luxid.queue.filters import Rule
from ganeti.luxid.queue.replication import Replication
from ganeti.luxid.queue.submission import Submissions
from ganeti.objects.model import FilterRule
from ganeti.protocol.maintenance.stored import Maintenance, canceled, incident_of, switched_off
from ganeti.protocol.wconfd import ClientId, ObjectKind
from ganeti.query.cluster_values import Surroundings, cluster_info, config_values
from ganeti.query.limits import check_asked
from ganeti.store import lease
from ganeti.store.notes import watcher_pause
from ganeti.system import clock, environment

T = TypeVar("T")

_WITH_TAGS: Final = frozenset({NODES, GROUPS, INSTANCES, NETWORKS})
_PAUSE_S_MAX: Final = 36_525 * 86_400  # commands show dates, which have an end
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass(eq=False, slots=True)
class ClusterMethods:
    """Handlers of calls, declared in `ganeti.protocol.luxi`."""

    _paths: Paths
    _view: ConfigView
    _submissions: Submissions
    _replication: Replication
    _owner: ClientId

    async def query_cluster_info(self) -> dict[str, object]:
        cluster, master = self._view.cluster, self._view.master
        maintenance = self._view.tables.maintenance
        return cluster_info(cluster, master.name, environment.architecture(), maintenance)

    async def query_config_values(self, names: list[str]) -> list[object]:
        check_asked(names)
        around = Surroundings(
            master_name=self._view.master.name,
            architecture=environment.architecture(),
            is_drained=self._submissions.is_drained,
            watcher_pause=watcher_pause.read(self._paths),
        )
        values = config_values(self._view.cluster, around)
        return [values.get(name) for name in names]

    async def query_tags(self, kind: str, name: str | None) -> list[str]:
        cluster = self._view.cluster
        if kind == "cluster":
            return list(cluster.tags)
        table = TABLE_OF.get(kind, "")
        if table not in _WITH_TAGS:
            raise OpPrereqError(f"{kind!r} is not a kind of thing that has tags")
        found: Any = self._view.require(table, name or "")
        return list(found.tags)

    async def set_watcher_pause(self, until: float | None) -> float | None:
        if until is not None and until <= clock.now():
            raise OpPrereqError("the end of the pause lies in the past")
        if until is not None and until > clock.now() + _PAUSE_S_MAX:
            raise OpPrereqError("a pause of more than a hundred years is a mistake")
        await asyncio.to_thread(watcher_pause.write, self._paths, until)
        await self._replication.tell_state(self._paths.watcher_pause)
        return until

    async def replace_filter(
        self,
        uuid: str | None,
        priority: int,
        predicates: Sequence[Sequence[object]],
        action: object,
        reason: Sequence[object],
    ) -> str:
        rule = {
            "watermark": self._submissions.last_id,
            "priority": priority,
            "predicates": predicates,
            "action": action,
            "reason_trail": [*reason, ["luxid", "", clock.now_ns()]],
        }
        try:
            Rule(FilterRule.from_wire({**rule, "uuid": ""}))  # refuses wrong predicates
        except ConfigurationError as err:
            raise OpPrereqError(err.message) from err
        if uuid is not None and uuid in self._view.filters:
            await self._ask(lambda client: client.modify(ObjectKind.FILTER, uuid, rule))
            return uuid
        if uuid is not None and not _UUID.fullmatch(uuid):  # the start of one, or mistyped
            raise OpPrereqError(
                f"{uuid!r} is not the UUID of a job filter; 'gnt-filter list' shows them"
            )
        new_uuid = uuid or clock.new_uuid()
        await self._ask(lambda client: client.create(ObjectKind.FILTER, {**rule, "uuid": new_uuid}))
        return new_uuid

    async def delete_filter(self, uuid: str) -> None:
        self._view.require(FILTERS, uuid)
        await self._ask(lambda client: client.delete(ObjectKind.FILTER, uuid))

    async def query_maintenance(self) -> Maintenance | None:
        self._view.refresh()
        return self._view.tables.maintenance

    async def query_maintenance_status(self, known: int = -1) -> dict[str, Any]:
        if await self.query_maintenance() is None:
            raise switched_off()
        status = await maintd.ask_status(self._paths, self._view.master.name, known)
        return msgspec.structs.asdict(status)

    async def query_availability(self) -> dict[str, Any] | None:
        if not lease.is_on(self._paths):
            return None
        return await maintd.ask_availability(self._paths, self._view.master.name)

    async def cancel_repair(self, uuid: str) -> None:
        def cancel(client: WConfClient) -> None:
            found = incident_of(client.maintenance_incidents(), uuid)
            client.update_maintd_incident(canceled(found))

        await self._ask(cancel)

    async def remove_repair(self, uuid: str) -> None:
        await self._ask(lambda client: client.rm_maintd_incident(uuid))

    async def _ask(self, call: Callable[[WConfClient], T]) -> T:
        return await asyncio.to_thread(ask_wconfd, self._paths, self._owner, call)


def ask_wconfd(paths: Paths, owner: ClientId, call: Callable[[WConfClient], T]) -> T:
    """Ask WConfD, from a thread: such calls are rare."""
    with WConfClient(paths, owner) as client:
        return call(client)

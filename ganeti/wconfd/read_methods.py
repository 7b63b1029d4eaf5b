"""The handlers of calls that read the configuration, declared in `ganeti.protocol.wconfd`.

Readers see what is durable, all of one answer as of one instant.

Source: wconfd.json, "methods".
"""

from __future__ import annotations

import asyncio
from typing import Final

from ganeti.base.errors import ConfigVerifyError
from ganeti.config import lookup
from ganeti.config.checks import cluster_problems, problems_of
from ganeti.config.index import DISKS, FILTERS, GROUPS, INSTANCES, NETWORKS, NODES
from ganeti.config.ssconf_values import ssconf_values
from ganeti.wconfd.distribution import Distributor
from ganeti.wconfd.keeper import Keeper

_CHECKED_AT_ONCE: Final = 100  # objects, 1 to 2 ms; then others get their turn

Keys = list[str] | None


class ReadMethods:
    """Handlers of the reading methods."""

    def __init__(self, keeper: Keeper, distributor: Distributor) -> None:
        self._keeper = keeper
        self._distributor = distributor

    def echo(self, text: str) -> str:
        return text

    def read_config(self) -> object:
        return lookup.whole(self._keeper.state.pieces)

    async def verify_config(self) -> None:
        view = self._keeper.durable
        found = cluster_problems(view, view.tables)
        for number, identity in enumerate(list(view.identities())):
            found += problems_of(view, identity)
            if number % _CHECKED_AT_ONCE == 0:
                await asyncio.sleep(0)
        if found:
            raise ConfigVerifyError("Configuration is not valid", found)

    def get_serial(self) -> object:
        return [self._keeper.state.serial_no, self._keeper.state.mtime]

    def get_cluster(self) -> object:
        return lookup.get_cluster(self._keeper.durable)

    def get_nodes(self, keys: Keys) -> object:
        return lookup.get_objects(self._keeper.durable, NODES, keys)

    def get_node_groups(self, keys: Keys) -> object:
        return lookup.get_objects(self._keeper.durable, GROUPS, keys)

    def get_instances(self, keys: Keys) -> object:
        return lookup.get_objects(self._keeper.durable, INSTANCES, keys)

    def get_disks(self, keys: Keys) -> object:
        return lookup.get_objects(self._keeper.durable, DISKS, keys)

    def get_networks(self, keys: Keys) -> object:
        return lookup.get_objects(self._keeper.durable, NETWORKS, keys)

    def get_filters(self, keys: Keys) -> object:
        return lookup.get_objects(self._keeper.durable, FILTERS, keys)

    def expand_names(self, kind: str, names: list[str]) -> object:
        return lookup.expand_names(self._keeper.durable, kind, names)

    def get_instance_context(self, key: str) -> object:
        return lookup.instance_context(self._keeper.durable, key)

    def get_node_instances(self, keys: Keys) -> object:
        return lookup.node_instances(self._keeper.durable, keys)

    def get_group_members(self, keys: Keys) -> object:
        return lookup.group_members(self._keeper.durable, keys)

    def get_ssconf(self) -> object:
        return ssconf_values(self._keeper.durable)

    def snapshot(self) -> object:
        return lookup.snapshot_of(
            self._keeper.state.pieces, self._keeper.locks.content, self._keeper.reservations_content
        )

    def get_replication_status(self) -> object:
        return self._distributor.status()

    async def redistribute_config(self) -> None:
        await self._keeper.committer.settled()
        self._distributor.begin_again()

    async def flush_config(self) -> None:
        await self._keeper.committer.settled()
        await self._distributor.flush(None)

    async def flush_config_group(self, group: str) -> None:
        _, uuid = self._keeper.durable.existing(GROUPS, group)
        await self._keeper.committer.settled()
        await self._distributor.flush(uuid)

"""The handlers of calls about reservations, declared in `ganeti.protocol.wconfd`.

Source: wconfd.json, "methods".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ganeti.base.errors import OpPrereqError, ReservationError
from ganeti.config.index import DISKS, NETWORKS, NODES
from ganeti.config.reservations import Reservations
from ganeti.config.views import Base, View
from ganeti.protocol.wconfd import ClientId
from ganeti.system import clock
from ganeti.wconfd.keeper import Keeper

T = TypeVar("T")


class ReservationMethods:
    """Handlers of the reservation methods."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    @property
    def _all(self) -> Reservations:
        return self._keeper.reservations

    @property
    def _head(self) -> View:
        return self._keeper.state.head

    async def _saved(self, made: T) -> T:
        """Return the reserved values once they are in the files."""
        await self._keeper.save_reservations()
        return made

    def _network(self, key: str) -> str:
        return self._head.existing(NETWORKS, key)[1]

    async def drop_all_reservations(self, client: ClientId) -> None:
        self._all.remove_owner(client)
        await self._keeper.save_reservations()

    def compute_drbd_map(self) -> object:
        return _drbd_map(self._keeper.durable, self._all)

    async def allocate_drbd_minor(self, disk: str, nodes: list[str]) -> list[int]:
        return await self._minors(disk, nodes, None)

    async def reserve_drbd_minors(self, client: ClientId, disk: str, nodes: list[str]) -> list[int]:
        return await self._minors(disk, nodes, client)

    async def _minors(self, disk: str, nodes: list[str], owner: ClientId | None) -> list[int]:
        uuids = [self._head.existing(NODES, node)[1] for node in nodes]
        return await self._saved(self._all.allocate_minors(self._head, disk, uuids, owner))

    async def release_drbd_minors(self, disk: str) -> None:
        self._all.release_minors(disk)
        await self._keeper.save_reservations()

    async def reserve_mac(self, client: ClientId, mac: str) -> None:
        self._all.reserve_mac(self._head, client, mac)
        await self._keeper.save_reservations()

    async def generate_mac(self, client: ClientId, network: str | None) -> str:
        uuid = None if network is None else self._network(network)
        draw = clock.random_bytes
        return await self._saved(self._all.generate_mac(self._head, client, uuid, draw))

    async def generate_drbd_secret(self, client: ClientId) -> str:
        draw = clock.random_bytes
        return await self._saved(self._all.generate_secret(self._head, client, draw))

    async def generate_unique_id(self, client: ClientId) -> str:
        uuid = clock.new_uuid()  # 122 random bits: the same twice is not going to happen
        if not self._all.reserve_id(self._head, client, uuid):
            raise ReservationError(f"the random identifier {uuid} is in use")
        return await self._saved(uuid)

    async def reserve_lv(self, client: ClientId, lv: str) -> None:
        self._all.reserve_lv(self._head, client, lv)
        await self._keeper.save_reservations()

    async def reserve_ip(
        self, client: ClientId, network: str, address: str, check_external: bool
    ) -> None:
        uuid, all_ips = self._network(network), self._all
        all_ips.reserve_ip(self._head, client, uuid, address, check_external=check_external)
        await self._keeper.save_reservations()

    async def release_ip(self, client: ClientId, network: str, address: str) -> None:
        uuid = self._network(network)
        self._all.release_ip(self._head, client, uuid, address)
        await self._keeper.save_reservations()

    async def generate_ip(self, client: ClientId, network: str) -> str:
        uuid = self._network(network)
        return await self._saved(self._all.generate_ip(self._head, client, uuid))

    async def generate_ip6(self, client: ClientId, network: str) -> str:
        uuid = self._network(network)
        return await self._saved(self._all.generate_ip6(self._head, client, uuid))

    def list_reserved_ips(self, client: ClientId) -> object:
        return self._all.ip_actions(client)

    async def allocate_instance_port(self, client: ClientId) -> int:
        return await self._saved(self._all.allocate_port(self._head, client))

    async def release_instance_port(self, client: ClientId, port: int) -> None:
        self._all.release_port(client, port)
        await self._keeper.save_reservations()

    async def reserve_node_resources(
        self,
        client: ClientId,
        wanted: Sequence[tuple[str, int, int]],
        free: Sequence[tuple[str, int | None, int | None]],
    ) -> None:
        for node, _, _ in wanted:
            if self._keeper.durable.node(node) is None:
                raise OpPrereqError(f"node {node!r} not found; give its UUID", "unknown_entity")
        amounts = {node: (memory, disk) for node, memory, disk in wanted}
        limits = {node: (memory, disk) for node, memory, disk in free}
        self._all.reserve_amounts(client, amounts, limits)
        await self._keeper.save_reservations()

    async def release_node_resources(self, client: ClientId) -> None:
        self._all.reserve_amounts(client, {}, {})
        await self._keeper.save_reservations()

    def list_node_reservations(self) -> object:
        return [[client.to_wire(), *amount] for client, *amount in self._all.listed_amounts()]


def _drbd_map(view: Base, reservations: Reservations) -> list[list[object]]:
    """Return the minors in use or reserved, per node: ``[node, [[minor, disk], ...]]``."""
    used: dict[str, dict[int, str]] = {node: {} for node in view.tables[NODES]}
    for uuid in view.tables[DISKS]:
        disk = view.disk(uuid)
        assert disk is not None
        match disk.dev_type, disk.logical_id:
            case "drbd", [str(node_a), str(node_b), _, int(minor_a), int(minor_b), _]:
                used.setdefault(node_a, {})[minor_a] = uuid
                used.setdefault(node_b, {})[minor_b] = uuid
    for node, minors in reservations.minors.items():
        used.setdefault(node, {}).update(minors)
    return [
        [node, [list(item) for item in sorted(minors.items())]] for node, minors in used.items()
    ]

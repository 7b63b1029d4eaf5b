"""The handlers of calls about reservations, declared in `ganeti.protocol.wconfd`.

Source: wconfd.json, "methods".
"""

from __future__ import annotations

from collections.abc import Sequence

from ganeti.base.errors import OpPrereqError, ReservationError
from ganeti.config.index import DISKS, NETWORKS, NODES
from ganeti.config.reservations import Reservations
from ganeti.config.views import Base
from ganeti.protocol.wconfd import ClientId
from ganeti.system import clock
from ganeti.wconfd.keeper import Keeper


class ReservationMethods:
    """Handlers of the reservation methods."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def _network(self, key: str) -> str:
        return self._keeper.state.head.existing(NETWORKS, key)[1]

    async def drop_all_reservations(self, client: ClientId) -> None:
        self._keeper.reservations.remove_owner(client)
        await self._keeper.save_reservations()

    def compute_drbd_map(self) -> object:
        return _drbd_map(self._keeper.durable, self._keeper.reservations)

    async def allocate_drbd_minor(self, disk: str, nodes: list[str]) -> list[int]:
        return await self._minors(disk, nodes, None)

    async def reserve_drbd_minors(self, client: ClientId, disk: str, nodes: list[str]) -> list[int]:
        return await self._minors(disk, nodes, client)

    async def _minors(self, disk: str, nodes: list[str], owner: ClientId | None) -> list[int]:
        head = self._keeper.state.head
        uuids = [head.existing(NODES, node)[1] for node in nodes]
        found = self._keeper.reservations.allocate_minors(head, disk, uuids, owner)
        await self._keeper.save_reservations()
        return found

    async def release_drbd_minors(self, disk: str) -> None:
        self._keeper.reservations.release_minors(disk)
        await self._keeper.save_reservations()

    async def reserve_mac(self, client: ClientId, mac: str) -> None:
        self._keeper.reservations.reserve_mac(self._keeper.state.head, client, mac)
        await self._keeper.save_reservations()

    async def generate_mac(self, client: ClientId, network: str | None) -> str:
        uuid = None if network is None else self._network(network)
        mac = self._keeper.reservations.generate_mac(
            self._keeper.state.head, client, uuid, clock.random_bytes
        )
        await self._keeper.save_reservations()
        return mac

    async def generate_drbd_secret(self, client: ClientId) -> str:
        secret = self._keeper.reservations.generate_secret(
            self._keeper.state.head, client, clock.random_bytes
        )
        await self._keeper.save_reservations()
        return secret

    async def generate_unique_id(self, client: ClientId) -> str:
        uuid = clock.new_uuid()  # 122 random bits: the same twice is not going to happen
        if not self._keeper.reservations.reserve_id(self._keeper.state.head, client, uuid):
            raise ReservationError(f"the random identifier {uuid} is in use")
        await self._keeper.save_reservations()
        return uuid

    async def reserve_lv(self, client: ClientId, lv: str) -> None:
        self._keeper.reservations.reserve_lv(self._keeper.state.head, client, lv)
        await self._keeper.save_reservations()

    async def reserve_ip(
        self, client: ClientId, network: str, address: str, check_external: bool
    ) -> None:
        self._keeper.reservations.reserve_ip(
            self._keeper.state.head,
            client,
            self._network(network),
            address,
            check_external=check_external,
        )
        await self._keeper.save_reservations()

    async def release_ip(self, client: ClientId, network: str, address: str) -> None:
        self._keeper.reservations.release_ip(
            self._keeper.state.head, client, self._network(network), address
        )
        await self._keeper.save_reservations()

    async def generate_ip(self, client: ClientId, network: str) -> str:
        address = self._keeper.reservations.generate_ip(
            self._keeper.state.head, client, self._network(network)
        )
        await self._keeper.save_reservations()
        return address

    def list_reserved_ips(self, client: ClientId) -> object:
        return self._keeper.reservations.ip_actions(client)

    async def allocate_instance_port(self, client: ClientId) -> int:
        port = self._keeper.reservations.allocate_port(self._keeper.state.head, client)
        await self._keeper.save_reservations()
        return port

    async def release_instance_port(self, client: ClientId, port: int) -> None:
        self._keeper.reservations.release_port(client, port)
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
        self._keeper.reservations.reserve_amounts(
            client,
            {node: (memory, disk) for node, memory, disk in wanted},
            {node: (memory, disk) for node, memory, disk in free},
        )
        await self._keeper.save_reservations()

    async def release_node_resources(self, client: ClientId) -> None:
        self._keeper.reservations.reserve_amounts(client, {}, {})
        await self._keeper.save_reservations()

    def list_node_reservations(self) -> object:
        return [
            [client.to_wire(), node, memory, disk]
            for client, node, memory, disk in self._keeper.reservations.listed_amounts()
        ]


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

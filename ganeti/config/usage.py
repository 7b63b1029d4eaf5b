"""Keeps the pools right when instances and disks change: addresses in networks, ports.

Whatever an instance begins to use leaves the pool, whatever it stops using returns, in the same
change; nobody has to remember it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ganeti.base.errors import AddressPoolError, ConfigurationError
from ganeti.config.address_pool import AddressPool
from ganeti.config.index import CLUSTER_ID, DISKS, INSTANCES, KEYS, NETWORKS, By
from ganeti.config.reservations import IpAction
from ganeti.config.transaction import Transaction
from ganeti.objects.model import Disk, Instance

Address = tuple[str, str]  # network UUID, address


def addresses_of(instance: Instance | None) -> frozenset[Address]:
    """Return the addresses that an instance has in networks."""
    if instance is None:
        return frozenset()
    return frozenset((nic.network, nic.ip) for nic in instance.nics if nic.network and nic.ip)


def ports_of(table: str, record: Instance | Disk | None) -> frozenset[int]:
    """Return the ports that an instance or a disk uses."""
    return frozenset() if record is None else frozenset(KEYS[table][By.PORT](record))  # type: ignore[arg-type]  # ports are numbers


def follow_instance(change: Transaction, uuid: str, before: Instance | None) -> None:
    """Bring networks and ports in line with an instance that was changed, added or removed."""
    after = change.instance(uuid)
    old, new = addresses_of(before), addresses_of(after)
    apply_ip_actions(
        change,
        [
            *((IpAction.RELEASE, address, network) for network, address in sorted(old - new)),
            *((IpAction.RESERVE, address, network) for network, address in sorted(new - old)),
        ],
    )
    _follow_ports(change, INSTANCES, before, after)


def follow_disk(change: Transaction, uuid: str, before: Disk | None) -> None:
    """Bring the ports in line with a disk that was changed, added or removed."""
    _follow_ports(change, DISKS, before, change.disk(uuid))


def apply_ip_actions(change: Transaction, actions: Iterable[tuple[IpAction, str, str]]) -> None:
    """Mark addresses in the maps of their networks; (action, address, network UUID).

    What is marked already stays so: the address may have been committed before.
    """
    pools: dict[str, AddressPool] = {}
    for action, address, network_uuid in actions:
        pool = pools.get(network_uuid)
        if pool is None:
            network = change.network(network_uuid)
            if network is None:
                continue  # refused by the checks, unless the network goes as well
            try:
                pool = pools[network_uuid] = AddressPool(network)
            except AddressPoolError as err:
                raise ConfigurationError(err.message) from err
        if not pool.contains(address):
            continue  # an IPv6 address, or one outside that the administrator insists on
        if action is IpAction.RELEASE:
            if not change.find(By.IP, (network_uuid, address)):
                pool.release(address)
        elif not pool.is_reserved(address):
            pool.reserve(address)
    for network_uuid, pool in pools.items():
        network = change.network(network_uuid)
        if network is not None and network.reservations != pool.reservations:
            change.modify((NETWORKS, network_uuid), {"reservations": pool.reservations})


def _follow_ports(
    change: Transaction, table: str, before: Instance | Disk | None, after: Instance | Disk | None
) -> None:
    old, new = ports_of(table, before), ports_of(table, after)
    use_ports(change, new - old)
    free_ports(change, [port for port in old - new if not change.find(By.PORT, port)])


def use_ports(change: Transaction, ports: Iterable[int]) -> None:
    """Take ports out of the pool of free ones."""
    ports = set(ports)
    if not ports:
        return
    cluster = change.cluster
    pool = [port for port in cluster.tcpudp_port_pool if port not in ports]
    highest = max(cluster.highest_used_port, *ports)
    change.modify(CLUSTER_ID, {"tcpudp_port_pool": pool, "highest_used_port": highest})


def free_ports(change: Transaction, ports: Iterable[int]) -> None:
    """Return ports to the pool of free ones."""
    cluster = change.cluster
    pool = set(cluster.tcpudp_port_pool)
    more = {port for port in ports if port not in pool and port <= cluster.highest_used_port}
    if more:
        change.modify(CLUSTER_ID, {"tcpudp_port_pool": sorted(pool | more)})

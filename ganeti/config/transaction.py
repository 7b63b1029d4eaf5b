"""One change of the configuration: computed on its own layer, checked, then accepted or dropped.

The pools of addresses and ports follow in the same change when instances and disks change: an
address or port that an instance begins to use leaves its pool, one that it stops using returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ganeti.base.errors import AddressPoolError, ConfigurationError, ErrorCode, OpPrereqError
from ganeti.base.json import dumps
from ganeti.config.addresses.pool import AddressPool
from ganeti.config.addresses.pool6 import is_ipv6
from ganeti.config.checks import new_problems_of
from ganeti.config.index import CLUSTER_ID, FILTERS, KEYS, KINDS, NETWORKS, WHAT, By, ObjectId
from ganeti.config.overlay import Stored, split_fields
from ganeti.config.reservations import IpAction
from ganeti.config.views import Layer, View
from ganeti.objects.model import Instance
from ganeti.objects.record import Record, plain

SerialAndTime = tuple[int, float]

OWN_FIELDS: Final = frozenset({"uuid", "ctime", "mtime", "serial_no"})  # set by WConfD alone


def uuid_of_new(table: str, wire: Mapping[str, object]) -> str:
    """Return the UUID of an object to be created.

    Raises:
        OpPrereqError: it has none.
    """
    uuid = wire.get("uuid")
    if not isinstance(uuid, str) or not uuid:
        raise OpPrereqError(f"the new {WHAT[table]} has no UUID")
    return uuid


class Transaction(Layer):
    """A change in the making; `now` is the time it gets."""

    def __init__(self, below: View, now: float) -> None:
        super().__init__(below)
        self.now = now
        self._changed: set[ObjectId] = set()  # object by object, not as a part of a whole file

    def serial_of(self, identity: ObjectId) -> SerialAndTime:
        """Return serial number and modification time; zeros for objects that have neither."""
        record = self.record(identity, KINDS[identity[0]])
        return (getattr(record, "serial_no", 0), getattr(record, "mtime", 0.0))

    def create(self, identity: ObjectId, wire: Mapping[str, object]) -> SerialAndTime:
        """Add an object.

        One that is there already with the same content is left alone: the request is a repetition.

        Raises:
            OpPrereqError: the UUID is taken by something else (already_exists).
        """
        table, uuid = identity
        existing = self.stored(identity)
        if existing is not None:
            if _same_content(existing, wire):
                return self.serial_of(identity)
            raise OpPrereqError(f"{WHAT[table]} {uuid} exists already", ErrorCode.EXISTS)
        self._changed.add(identity)
        fields = {key: value for key, value in wire.items() if value is not None}
        fields["uuid"] = uuid
        if table != FILTERS:
            # Each disk that an instance begins with counts as a change, as in 3.0.
            disks = wire.get("disks")
            fields["serial_no"] = 1 + (len(disks) if isinstance(disks, list | tuple) else 0)
            fields["ctime"] = fields["mtime"] = self.now
        self.put(identity, Stored(dumps(plain(fields))))
        return self.serial_of(identity)

    def modify(self, identity: ObjectId, changes: Mapping[str, object]) -> SerialAndTime:
        """Replace fields of an object; its serial number and time rise if anything changes.

        Raises:
            OpPrereqError: no such object, or a field that only WConfD sets.
        """
        table, uuid = identity
        stored = self.stored(identity)
        if stored is None:
            raise OpPrereqError(f"{WHAT[table]} {uuid!r} not found", ErrorCode.NOENT)
        wrong = OWN_FIELDS.intersection(changes)
        if wrong:
            raise OpPrereqError(
                f"{', '.join(sorted(wrong))} of {WHAT[table]} {self.name_of(identity)} cannot be"
                " changed by a client"
            )
        changed = stored.with_changes(changes, KINDS[table])
        if changed.raw != stored.raw and split_fields(changed.raw) != split_fields(stored.raw):
            self._changed.add(identity)
            self.put(identity, self._risen(identity, changed))
        return self.serial_of(identity)

    def replace(self, identity: ObjectId, wire: Mapping[str, object]) -> SerialAndTime:
        """Make all fields of an object those of ``wire``; those left out there go."""
        left_out: dict[str, object] = dict.fromkeys(KINDS[identity[0]].LEFT_OUT)
        fields = {name: value for name, value in wire.items() if name not in OWN_FIELDS}
        return self.modify(identity, {**left_out, **fields})

    def touch(self, identity: ObjectId) -> None:
        """Raise serial number and time of an object that did not change itself."""
        stored = self.stored(identity)
        assert stored is not None
        self.put(identity, self._risen(identity, stored))

    def _risen(self, identity: ObjectId, stored: Stored) -> Stored:
        if identity[0] == FILTERS:
            return stored
        serial = self.serial_of(identity)[0] + 1
        return stored.with_changes({"serial_no": serial, "mtime": self.now})

    def delete(self, identity: ObjectId) -> SerialAndTime:
        """Remove an object; returns the serial number and time that it would have got.

        Raises:
            OpPrereqError: no such object (unknown_entity).
        """
        if self.stored(identity) is None:
            raise OpPrereqError(f"{WHAT[identity[0]]} {identity[1]!r} not found", ErrorCode.NOENT)
        serial = self.serial_of(identity)[0]
        self._changed.add(identity)
        self.put(identity, None)
        return (serial + 1, self.now)

    def check(self) -> None:
        """Bring the pools in line, and refuse the change if it brings in a new problem.

        Raises:
            ConfigurationError: names the objects and their problems.
        """
        self._follow()
        concerned = set(self.objects)
        for identity, stored in self.objects.items():
            if stored is None:
                concerned.update(self.find(By.REFERENCE, identity[1]))
        found: list[str] = []
        for identity in sorted(concerned):
            found += new_problems_of(self, self.below, identity)
        if found:
            raise ConfigurationError("; ".join(found))

    def _follow(self) -> None:
        """Bring the pools in line with the instances and disks that were changed."""
        actions: list[tuple[IpAction, str, str]] = []
        for identity in sorted(self._changed):
            table, kind = identity[0], KINDS[identity[0]]
            before, after = self.below.record(identity, kind), self.record(identity, kind)
            old, new = _addresses_of(before), _addresses_of(after)
            actions += [(IpAction.RELEASE, ip, network) for network, ip in sorted(old - new)]
            actions += [(IpAction.RESERVE, ip, network) for network, ip in sorted(new - old)]
            old_ports, new_ports = _ports_of(table, before), _ports_of(table, after)
            use_ports(self, new_ports - old_ports)
            unused = [port for port in old_ports - new_ports if not self.find(By.PORT, port)]
            free_ports(self, unused)
        apply_ip_actions(self, actions)


def _same_content(stored: Stored, wire: Mapping[str, object]) -> bool:
    """Tell whether an object without WConfD's additions is the one that a client creates."""
    given = {
        key: value for key, value in wire.items() if key not in OWN_FIELDS and value is not None
    }
    untouched = stored.with_changes(given)
    have = set(split_fields(stored.raw)) - OWN_FIELDS
    return untouched.raw == stored.with_changes({}).raw and have <= set(given)


Address = tuple[str, str]  # network UUID, address


def _addresses_of(record: Record | None) -> frozenset[Address]:
    """Return the addresses that an instance has in networks."""
    nics = record.nics if isinstance(record, Instance) else ()
    return frozenset((nic.network, nic.ip) for nic in nics if nic.network and nic.ip)


def _ports_of(table: str, record: Record | None) -> frozenset[int]:
    """Return the ports that an instance or a disk uses."""
    keys_of = KEYS[table].get(By.PORT)
    return frozenset() if record is None or keys_of is None else frozenset(keys_of(record))  # type: ignore[arg-type]  # ports are numbers


def apply_ip_actions(change: Transaction, actions: Iterable[tuple[IpAction, str, str]]) -> None:
    """Mark addresses in the maps of their networks; (action, address, network UUID).

    Addresses that are marked already stay so: they may have been committed before.
    """
    pools: dict[str, AddressPool] = {}
    for action, address, network_uuid in actions:
        if is_ipv6(address):
            continue  # the NICs themselves tell which are used
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
            continue  # the administrator insists on it
        if action is IpAction.RELEASE:
            if not change.find(By.IP, (network_uuid, address)):
                pool.release(address)
        elif not pool.is_reserved(address):
            pool.reserve(address)
    for network_uuid, pool in pools.items():
        network = change.network(network_uuid)
        if network is not None and network.reservations != pool.reservations:
            change.modify((NETWORKS, network_uuid), {"reservations": pool.reservations})


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

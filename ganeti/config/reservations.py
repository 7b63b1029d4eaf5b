"""Names and numbers that jobs hold until they stand in the configuration.

Everything is owned by a client, and freed when it is committed, dropped or its owner dies.  Only
DRBD minors taken through the old call have no owner, as in Ganeti 3.0: they are freed by disk.

A reservation looks at the configuration as the next change will find it, so that nothing is given
out twice; a client may ask again for a value that it holds already.

Source: wconfd.json, "files" and the reservation methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

from ganeti.base.errors import AddressPoolError, ErrorCode, OpPrereqError, ReservationError
from ganeti.config.addresses.pool import AddressPool
from ganeti.config.addresses.pool6 import AddressPool6, canonical, is_ipv6
from ganeti.config.checks import FIRST_DRBD_PORT, LAST_DRBD_PORT
from ganeti.config.index import DISKS, NETWORKS, NODES, By
from ganeti.config.overlay import Stored
from ganeti.config.views import View
from ganeti.objects.model import Network
from ganeti.protocol.wconfd import ClientId

SECRET_BYTES: Final = 20  # constants.json, DRBD_SECRET_LENGTH
_TRIES: Final = range(64)  # of 16 million addresses of a prefix, one in four million may be taken

Draw = Callable[[int], bytes]  # random bytes, by count
Views = tuple[View, View]  # the durable configuration, and the one that the next change will find


class Kind(StrEnum):
    """Kinds of texts that can be reserved."""

    MAC = "mac"
    SECRET = "secret"  # noqa: S105 - a word, not a secret
    LV = "lv"
    ID = "id"


_PLACES: Final = {Kind.MAC: By.MAC, Kind.SECRET: By.SECRET, Kind.LV: By.LV, Kind.ID: By.UUID}


class IpAction(StrEnum):
    """The change of an address that a client wants once it commits."""

    RESERVE = "reserve"
    RELEASE = "release"


class Reservations:
    """All temporary reservations."""

    def __init__(self) -> None:
        self.texts: dict[Kind, dict[str, ClientId]] = {kind: {} for kind in Kind}
        self.ips: dict[ClientId, dict[tuple[str, str], IpAction]] = {}  # (network, address)
        self.minors: dict[str, dict[int, str]] = {}  # node -> minor -> disk
        self.minor_owners: dict[str, ClientId] = {}  # disk -> owner
        self.ports: dict[int, ClientId] = {}
        self.dropped_ports: set[int] = set()  # to go back to the pool with the next change
        self.amounts: dict[ClientId, dict[str, tuple[int, int]]] = {}  # node -> memory, disk (MiB)
        # Networks as they were when `settle` looked at all that is reserved there.
        self._settled: dict[str, Stored] = {}

    def owners(self) -> set[ClientId]:
        """Return all clients that have reservations."""
        found = {owner for texts in self.texts.values() for owner in texts.values()}
        found.update(self.ips, self.amounts)
        found.update(self.minor_owners.values(), self.ports.values())
        return found

    # Texts: MAC addresses, DRBD secrets, logical volumes, identifiers.

    def _take(self, view: View, kind: Kind, client: ClientId, text: str) -> None:
        holder = self.texts[kind].get(text)
        if holder == client:
            return
        if holder is not None:
            raise ReservationError(f"{kind} {text!r} is reserved by {holder}")
        if view.find(_PLACES[kind], text):
            raise ReservationError(f"{kind} {text!r} is in use")
        self.texts[kind][text] = client

    def reserve_mac(self, view: View, client: ClientId, mac: str) -> None:
        """Reserve a MAC address.

        Raises:
            ReservationError: it is used or reserved.
        """
        self._take(view, Kind.MAC, client, mac.lower())

    def generate_mac(self, view: View, client: ClientId, network: str | None, draw: Draw) -> str:
        """Reserve a random MAC address with the prefix of the network, else of the cluster.

        Raises:
            ReservationError: none was found.
            OpPrereqError: no such network.
        """
        own = None if network is None else _network(view, network).mac_prefix
        prefix = own or view.cluster.mac_prefix
        macs = (":".join([prefix.lower(), *(f"{each:02x}" for each in draw(3))]) for _ in _TRIES)
        found = next((mac for mac in macs if self._reserve(view, Kind.MAC, client, mac)), None)
        if found is None:
            raise ReservationError(f"found no free MAC address with prefix {prefix}")
        return found

    def generate_secret(self, view: View, client: ClientId, draw: Draw) -> str:
        """Reserve a random DRBD secret.

        Raises:
            ReservationError: chance gave none that is free.
        """
        secrets = (draw(SECRET_BYTES).hex() for _ in _TRIES)
        found = next(
            (one for one in secrets if self._reserve(view, Kind.SECRET, client, one)), None
        )
        if found is None:
            raise ReservationError("found no DRBD secret that is not in use")
        return found

    def reserve_lv(self, view: View, client: ClientId, volume: str) -> None:
        """Reserve the name of a logical volume, "group/volume".

        Raises:
            ReservationError: it is used or reserved.
        """
        self._take(view, Kind.LV, client, volume)

    def reserve_id(self, view: View, client: ClientId, uuid: str) -> bool:
        """Reserve an identifier; False when it is taken."""
        return self._reserve(view, Kind.ID, client, uuid)

    def _reserve(self, view: View, kind: Kind, client: ClientId, text: str) -> bool:
        """Reserve a text that nobody has; False when it is taken."""
        if text in self.texts[kind] or view.find(_PLACES[kind], text):
            return False
        self.texts[kind][text] = client
        return True

    # Addresses in networks.

    def _ip_holder(self, network: str, address: str) -> ClientId | None:
        for client, actions in self.ips.items():
            if actions.get((network, address)) is IpAction.RESERVE:
                return client
        return None

    def reserve_ip(
        self, view: View, client: ClientId, network: str, address: str, *, check_external: bool
    ) -> None:
        """Reserve an address in a network.

        Raises:
            ReservationError: it is used, reserved, kept away from instances, or outside.
        """
        address = canonical(address)
        with _refusing():
            pool = _pool(view, network, of_6=is_ipv6(address))
            used, external = pool.is_reserved(address), pool.is_external(address)
        mine = self.ips.get(client, {})
        if mine.get((network, address)) is IpAction.RELEASE:
            self._drop_ip(client, network, address)
            return
        holder = self._ip_holder(network, address)
        if holder == client:
            return
        if holder is not None:
            raise ReservationError(f"address {address} is reserved by {holder}")
        if used:
            raise ReservationError(f"address {address} is already in use in network {pool.name}")
        if check_external and external:
            raise ReservationError(
                f"address {address} is externally reserved in network {pool.name}"
            )
        self._note_ip(client, network, address, IpAction.RESERVE)

    def _note_ip(self, client: ClientId, network: str, address: str, action: IpAction) -> None:
        self.ips.setdefault(client, {})[network, address] = action
        self._settled.pop(network, None)

    def _drop_ip(self, client: ClientId, network: str, address: str) -> None:
        mine = self.ips[client]
        del mine[network, address]
        if not mine:
            del self.ips[client]

    def release_ip(self, view: View, client: ClientId, network: str, address: str) -> None:
        """Release an address once the client commits; its own reservation is dropped at once.

        Raises:
            ReservationError: the address is not in the network.
        """
        address = canonical(address)
        if not is_ipv6(address):  # the IPv6 addresses of a network can be changed
            with _refusing():
                AddressPool(_network(view, network)).index_of(address)
        if self.ips.get(client, {}).get((network, address)) is IpAction.RESERVE:
            self._drop_ip(client, network, address)
        else:
            self._note_ip(client, network, address, IpAction.RELEASE)

    def generate_ip(self, view: View, client: ClientId, network: str) -> str:
        """Reserve the lowest free address of a network.

        Raises:
            ReservationError: there is none.
        """
        with _refusing():
            pool = AddressPool(_network(view, network))
            return self._give(client, network, pool)

    def generate_ip6(self, view: View, client: ClientId, network: str) -> str:
        """Reserve a free IPv6 address of a network.

        Raises:
            ReservationError: there is none.
        """
        with _refusing():
            pool = _pool6(view, _network(view, network))
            return self._give(client, network, pool)

    def _give(self, client: ClientId, network: str, pool: AddressPool | AddressPool6) -> str:
        of_6 = isinstance(pool, AddressPool6)
        taken = frozenset(
            address
            for actions in self.ips.values()
            for (net, address), action in actions.items()
            if net == network and action is IpAction.RESERVE and is_ipv6(address) is of_6
        )
        address = pool.first_free(taken)
        self._note_ip(client, network, address, IpAction.RESERVE)
        return address

    def ip_actions(self, client: ClientId) -> list[tuple[IpAction, str, str]]:
        """Return the changes that a client wants: (action, address, network)."""
        return [
            (action, address, network)
            for (network, address), action in self.ips.get(client, {}).items()
        ]

    # DRBD minors.

    def allocate_minors(
        self, view: View, disk: str, nodes: Iterable[str], owner: ClientId | None
    ) -> list[int]:
        """Reserve the lowest free minor on each node for a disk; one per node, in order.

        Raises:
            ReservationError: a node is named twice.
            OpPrereqError: no such node.
        """
        wanted = list(nodes)
        if len(set(wanted)) != len(wanted):
            raise ReservationError(f"a node is named twice for disk {disk}")
        for node in wanted:
            if view.stored((NODES, node)) is None:
                raise OpPrereqError(f"node {node!r} not found", ErrorCode.NOENT)
        found = [self._minor(view, node, disk) for node in wanted]
        for node, minor in zip(wanted, found, strict=True):
            self.minors.setdefault(node, {})[minor] = disk
        if owner is not None:
            self.minor_owners[disk] = owner
        return found

    def _minor(self, view: View, node: str, disk: str) -> int:
        reserved = self.minors.get(node, {})
        for minor, holder in reserved.items():
            if holder == disk:
                return minor
        minor = 0
        while minor in reserved or view.find(By.MINOR, (node, minor)):
            minor += 1
        return minor

    def release_minors(self, disk: str) -> None:
        """Free the minors reserved for a disk."""
        self.minor_owners.pop(disk, None)
        for node, minors in list(self.minors.items()):
            kept = {minor: holder for minor, holder in minors.items() if holder != disk}
            if kept:
                self.minors[node] = kept
            else:
                del self.minors[node]

    # Ports.

    def allocate_port(self, view: View, client: ClientId) -> int:
        """Reserve a port: a free one of the pool, else the next above the highest one used.

        Raises:
            ReservationError: all ports are taken.
        """
        cluster = view.cluster
        for port in sorted(cluster.tcpudp_port_pool):
            if port not in self.ports and not view.find(By.PORT, port):
                self.ports[port] = client
                return port
        port = max(cluster.highest_used_port + 1, FIRST_DRBD_PORT)
        while port in self.ports or view.find(By.PORT, port):
            port += 1
        if port > LAST_DRBD_PORT:
            raise ReservationError(f"the highest port used is {LAST_DRBD_PORT}, no port is free")
        self.ports[port] = client
        return port

    def release_port(self, client: ClientId, port: int) -> None:
        """Give a reserved port back."""
        if self.ports.get(port) == client:
            del self.ports[port]
            self.dropped_ports.add(port)

    # Memory and disk space of nodes.

    def reserve_amounts(
        self,
        client: ClientId,
        wanted: Mapping[str, tuple[int, int]],
        free: Mapping[str, tuple[int | None, int | None]],
    ) -> None:
        """Reserve memory and disk space (MiB) on nodes, in place of the client's earlier amounts.

        The first to ask comes first: only reservations made before the client's own count against
        it.  A client that asks for no more than it has keeps its place.

        Args:
            free: free memory and space as nodes report it, None where it does not matter; others'
                reservations are taken off it.

        Raises:
            ReservationError: a node has not enough left.
        """
        keeps_place = _covers(self.amounts.get(client, {}), wanted)
        taken = self._amounts_before(client if keeps_place else None, but=client)
        for node, amounts in wanted.items():
            limits = free.get(node, (None, None))
            others = taken.get(node, (0, 0))
            for what, amount, limit, other in zip(
                ("memory", "disk space"), amounts, limits, others, strict=True
            ):
                if limit is not None and amount + other > limit:
                    raise ReservationError(
                        f"node {node} has {limit} MiB of {what} free, of which {other} MiB are"
                        f" reserved by other jobs; {amount} MiB are needed"
                    )
        if not keeps_place or not wanted:
            self.amounts.pop(client, None)
        if wanted:
            self.amounts[client] = dict(wanted)

    def _amounts_before(
        self, place: ClientId | None, *, but: ClientId
    ) -> dict[str, tuple[int, int]]:
        """Return the amounts reserved per node by clients that come before a place, or by all."""
        total: dict[str, tuple[int, int]] = {}
        for client, nodes in self.amounts.items():
            if client == place:
                break
            if client != but:
                for node, (memory, disk) in nodes.items():
                    before = total.get(node, (0, 0))
                    total[node] = (before[0] + memory, before[1] + disk)
        return total

    def listed_amounts(self) -> list[tuple[ClientId, str, int, int]]:
        """Return (client, node, memory, disk space) in MiB of all, in their order."""
        return [
            (client, node, memory, disk)
            for client, nodes in self.amounts.items()
            for node, (memory, disk) in sorted(nodes.items())
        ]

    # Dropping.

    def drop_texts_and_ips(self, client: ClientId) -> None:
        """Drop MAC addresses, secrets, logical volumes and addresses of a client."""
        for texts in self.texts.values():
            for text in [text for text, owner in texts.items() if owner == client]:
                del texts[text]
        self.ips.pop(client, None)

    def remove_owner(self, client: ClientId) -> None:
        """Drop everything of a client."""
        self.drop_texts_and_ips(client)
        self.amounts.pop(client, None)
        for disk in [disk for disk, owner in self.minor_owners.items() if owner == client]:
            self.release_minors(disk)
        for port in [port for port, owner in self.ports.items() if owner == client]:
            self.release_port(client, port)

    def settle(self, view: View, head: View) -> bool:
        """Drop reservations whose value is in the configuration by now; True if there were any.

        Args:
            view: the durable configuration.
            head: the one that the next change will find; a value that it lacks is being given up,
                and may be reserved for the next who is to have it.
        """
        both = (view, head)
        return any([self._settle_texts(both), self._settle_ips(both), self._settle_numbers(both)])

    def _settle_texts(self, views: Views) -> bool:
        found = False
        for kind, place in _PLACES.items():
            texts = self.texts[kind]
            for text in [text for text in texts if _all_have(views, place, text)]:
                del texts[text]
                found = True
        return found

    def _settle_ips(self, views: Views) -> bool:
        look, look_ahead = _Look(views[0], self._settled), _Look(views[1], {})
        done = [
            (client, network, address)
            for client, actions in self.ips.items()
            for (network, address), action in actions.items()
            if look.is_done(network, address, action)
            and look_ahead.is_done(network, address, action)
        ]
        for each in done:
            self._drop_ip(*each)
        self._settled = look.networks
        return bool(done)

    def _settle_numbers(self, views: Views) -> bool:
        ports = [port for port in self.ports if _all_have(views, By.PORT, port)]
        for port in ports:
            del self.ports[port]
        disks = {
            disk
            for node, minors in self.minors.items()
            for minor, disk in minors.items()
            if (DISKS, disk) in views[0].find(By.MINOR, (node, minor))
        }
        for disk in disks:
            self.release_minors(disk)
        return bool(ports or disks)


def _all_have(views: Views, what: By, key: object) -> bool:
    return all(view.find(what, key) for view in views)


class _Look:
    """One look at the addresses of networks; the maps of each are read once at most.

    Attributes:
        networks: those looked at, as they are.
    """

    def __init__(self, view: View, before: Mapping[str, Stored]) -> None:
        self._view = view
        self._before = before
        self._pools: dict[tuple[str, bool], AddressPool | AddressPool6] = {}
        self.networks: dict[str, Stored] = {}

    def is_done(self, network: str, address: str, action: IpAction) -> bool:
        """Tell whether the change of an address has been made, or can never be made."""
        of_6 = is_ipv6(address)
        stored = self._view.stored((NETWORKS, network))
        if stored is not None:
            self.networks[network] = stored
            if stored is self._before.get(network) and not of_6:
                return False  # as at the look before; IPv6 addresses follow from instances
        try:
            used = self._pool(network, of_6=of_6).is_reserved(address)
        except (AddressPoolError, OpPrereqError):  # the network is gone or was changed
            return True
        return used is (action is IpAction.RESERVE)

    def _pool(self, network: str, *, of_6: bool) -> AddressPool | AddressPool6:
        found = self._pools.get((network, of_6))
        if found is None:
            found = self._pools[network, of_6] = _pool(self._view, network, of_6=of_6)
        return found


def _pool(view: View, network: str, *, of_6: bool) -> AddressPool | AddressPool6:
    """Return the addresses of a network, of one of the two kinds."""
    found = _network(view, network)
    return _pool6(view, found) if of_6 else AddressPool(found)


def _pool6(view: View, network: Network) -> AddressPool6:
    return AddressPool6(network, lambda address: view.find(By.IP, (network.uuid, address)))


def _network(view: View, uuid: str) -> Network:
    found = view.network(uuid)
    if found is None:
        raise OpPrereqError(f"network {uuid!r} not found", ErrorCode.NOENT)
    return found


def _covers(held: Mapping[str, tuple[int, int]], wanted: Mapping[str, tuple[int, int]]) -> bool:
    """Tell whether amounts held per node are at least those wanted."""
    return all(
        node in held and memory <= held[node][0] and disk <= held[node][1]
        for node, (memory, disk) in wanted.items()
    )


@contextmanager
def _refusing() -> Iterator[None]:
    """Refuse a reservation that the map of a network does not allow."""
    try:
        yield
    except AddressPoolError as err:
        raise ReservationError(err.message) from err

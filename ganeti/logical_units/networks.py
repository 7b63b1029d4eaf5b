"""Add, remove and change networks; connect them to node groups.

A network that is changed or removed is locked exclusively; an operation that puts a NIC into it
holds that lock shared, so neither sees the other half done.  A connection says how NICs of a
group's instances join the network: mode, link and VLAN.  The functions before the units are plain
decisions over plain values.

Source: opcodes.json, OP_NETWORK_*; config.json, "network_reservations".
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from msgspec.structs import replace

from ganeti.base import errors
from ganeti.base.errors import OpPrereqError, refusing, wrong_state
from ganeti.base.text import natural_sorted
from ganeti.config.address_pool import PREFIX_LENGTH_MAX, PREFIX_LENGTH_MIN, AddressPool
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.locks import LockLevel, LockNeed, all_shared, exclusive, shared, union
from ganeti.objects.fill import fill_nicparams
from ganeti.objects.model import Cluster, Instance, Network, Node, NodeGroup, network_variables
from ganeti.objects.nic import NIC, NicMode, mac_prefix_problem, parse_vlan
from ganeti.objects.tags import add_tags
from ganeti.opcodes import network as opcodes
from ganeti.protocol.wconfd import ObjectKind

NetworkOpType = TypeVar("NetworkOpType", bound=opcodes.NetworkOpCode)
ConnectOpType = TypeVar(
    "ConnectOpType", bound=opcodes.OpNetworkConnect | opcodes.OpNetworkDisconnect
)
PlanType = TypeVar("PlanType")
NicParameters = Mapping[str, object]

_NAME: Final = re.compile(r"[^\s/,]{1,255}")


def new_network(op: opcodes.OpNetworkAdd, uuid: str, own_addresses: Iterable[str]) -> Network:
    """Decide a network that is to be added.

    Args:
        own_addresses: addresses of the cluster itself; those in the network are kept away from
            instances.

    Raises:
        OpPrereqError: it cannot be; the message has the reason.
    """
    name = op.network_name
    check_name(name)
    _check_range(name, op.network)
    _check_ipv6(name, op.network6, op.gateway6)
    with refusing(errors.TagError):
        tags = add_tags([], op.tags)
    bare = Network.from_wire(
        {
            "name": name,
            "uuid": uuid,
            **{key: getattr(op, key) for key in ("network", "gateway", "network6", "gateway6")},
            "mac_prefix": None if op.mac_prefix is None else mac_prefix(name, op.mac_prefix),
            "serial_no": 1,
            "tags": tags,
        }
    )
    pool = AddressPool(bare)
    for address in edges(pool):
        pool.reserve(address, external=True)
    if op.gateway is not None:
        _keep_away(pool, op.gateway, "gateway")
    for address in op.add_reserved_ips or ():
        _keep_away(pool, address, "reserved address")
    for address in own_addresses:
        if pool.contains(address) and not pool.is_external(address):
            pool.reserve(address, external=True)
    return replace(bare, reservations=pool.reservations, ext_reservations=pool.ext_reservations)


def check_name(name: str) -> None:
    """Refuse a text that cannot be the name of a network.

    Raises:
        OpPrereqError: it is too long, or has blanks, slashes or commas.
    """
    if _NAME.fullmatch(name) is None:
        raise OpPrereqError(f"{name!r} cannot be the name of a network")


def _wrong(name: str, text: str) -> OpPrereqError:
    return OpPrereqError(f"network {name!r}: {text}")


def edges(pool: AddressPool) -> tuple[str, str]:
    """Return the addresses of the network itself and for broadcast: no instance gets them."""
    return pool.address_at(0), pool.address_at(pool.size - 1)


def _check_range(name: str, text: str) -> None:
    try:
        found = ipaddress.IPv4Network(text)
    except ValueError as err:
        raise _wrong(name, str(err)) from err
    if not PREFIX_LENGTH_MIN <= found.prefixlen <= PREFIX_LENGTH_MAX:
        raise _wrong(
            name,
            f"{text} is not supported; networks have from /{PREFIX_LENGTH_MAX} (4 addresses) to"
            f" /{PREFIX_LENGTH_MIN} (65536 addresses)",
        )


def _check_ipv6(name: str, network6: str | None, gateway6: str | None) -> None:
    try:
        found = None if network6 is None else ipaddress.IPv6Network(network6)
        gateway = None if gateway6 is None else ipaddress.IPv6Address(gateway6)
    except ValueError as err:
        raise _wrong(name, str(err)) from err
    if gateway is None:
        return
    if found is None:
        raise _wrong(name, f"the gateway {gateway6} needs an IPv6 network (--network6)")
    if gateway not in found:
        raise _wrong(name, f"the gateway {gateway6} does not lie in {network6}")


def mac_prefix(name: str, text: str) -> str:
    """Return the prefix of MAC addresses in lower case.

    Raises:
        OpPrereqError: it is not three bytes, or is for groups of cards.
    """
    problem = mac_prefix_problem(text)
    if problem:
        raise _wrong(name, problem)
    return text.lower()


def _keep_away(pool: AddressPool, address: str, what: str) -> None:
    """Mark an address as not for instances; one that is marked already stays so.

    Raises:
        OpPrereqError: outside of the network, or an instance has it.
    """
    with refusing(errors.AddressPoolError, prefix=f"network {pool.name!r}: {what}: "):
        if pool.is_reserved(address):
            raise OpPrereqError(
                f"network {pool.name!r}: {what} {address} is in use by an instance",
                errors.ErrorCode.NOTUNIQUE,
            )
        if not pool.is_external(address):
            pool.reserve(address, external=True)


def network_changes(network: Network, op: opcodes.OpNetworkSetParams) -> dict[str, object]:
    """Return the new values of the fields of a network that an opcode changes.

    Raises:
        OpPrereqError: it cannot be; the message has the reason.
    """
    name = network.name
    changes: dict[str, object] = {}
    if op.mac_prefix is not None:
        changes["mac_prefix"] = mac_prefix(name, op.mac_prefix)
    if op.network6 is not None or op.gateway6 is not None:
        network6, gateway6 = op.network6 or network.network6, op.gateway6 or network.gateway6
        _check_ipv6(name, network6, gateway6)
        changes |= {"network6": network6, "gateway6": gateway6}
    pool = AddressPool(network)
    if op.gateway is not None and op.gateway != network.gateway:
        _keep_away(pool, op.gateway, "gateway")
        if network.gateway is not None and network.gateway not in edges(pool):
            pool.release(network.gateway, external=True)
        changes["gateway"] = op.gateway
    for address in op.add_reserved_ips or ():
        _keep_away(pool, address, "reserved address")
    for address in op.remove_reserved_ips or ():
        _give_to_instances(pool, address, op.gateway or network.gateway)
    if pool.ext_reservations != (network.ext_reservations or ""):
        changes["ext_reservations"] = pool.ext_reservations
    return changes


def _give_to_instances(pool: AddressPool, address: str, gateway: str | None) -> None:
    with refusing(errors.AddressPoolError, prefix=f"network {pool.name!r}: "):
        is_reserved = pool.is_external(address)
    if not is_reserved:
        raise _wrong(pool.name, f"address {address} is not reserved")
    if address in edges(pool) or address == gateway:
        raise _wrong(
            pool.name,
            f"{address} is the address of the network, for broadcast or of the gateway; instances"
            " cannot have it",
        )
    pool.release(address, external=True)


# Connecting to groups.


def connection_params(op: opcodes.OpNetworkConnect) -> dict[str, str]:
    """Return mode, link and VLAN that NICs get which join the network in a group.

    Raises:
        OpPrereqError: they make no sense.
    """
    if op.network_mode is NicMode.POOL:
        raise OpPrereqError(
            f"network {op.network_name!r} cannot be connected in mode 'pool'; use bridged, routed"
            " or openvswitch"
        )
    with refusing(errors.ParameterError, prefix=f"network {op.network_name!r}: "):
        vlan = str(parse_vlan(op.network_vlan))
    if vlan and op.network_mode is NicMode.ROUTED:
        raise _wrong(op.network_name, "a VLAN cannot be used in mode routed")
    return {"mode": op.network_mode.value, "link": op.network_link, "vlan": vlan}


def is_conflict(cluster: Cluster, nic: NIC, network: Network, params: NicParameters) -> bool:
    """Tell whether a NIC has an address of a network on the same link without being in it."""
    if nic.ip is None or nic.network is not None or not contains(network, nic.ip):
        return False
    filled = fill_nicparams(cluster, nic)
    return (filled["mode"], filled["link"]) == (params["mode"], params["link"])


def contains(network: Network, address: str) -> bool:
    """Tell whether an address, IPv4 or IPv6, lies in a network."""
    parsed = ipaddress.ip_address(address)
    text = network.network if parsed.version == 4 else network.network6
    return text is not None and parsed in ipaddress.ip_network(text, strict=False)


def conflicts(
    cluster: Cluster, instances: Iterable[Instance], network: Network, params: NicParameters
) -> list[str]:
    """Return "instance (address)" of each NIC that a network would be in conflict with."""
    return natural_sorted(
        f"{instance.name} ({nic.ip})"
        for instance in instances
        for nic in instance.nics
        if is_conflict(cluster, nic, network, params)
    )


def users(instances: Iterable[Instance], network: Network) -> list[str]:
    """Return the names of instances with a NIC in a network."""
    return natural_sorted(
        instance.name
        for instance in instances
        if any(nic.network == network.uuid for nic in instance.nics)
    )


def groups_of(groups: Iterable[NodeGroup], network: Network) -> list[str]:
    """Return the names of the groups that a network is connected to."""
    return natural_sorted(group.name for group in groups if network.uuid in group.networks)


# Units.


def hook_values_of(network: Network) -> dict[str, str]:
    """Return the values of a network for hooks: all but its UUID."""
    found = network_variables(network)
    del found["NETWORK_UUID"]
    return found


class LUNetworkAdd(LogicalUnit[opcodes.OpNetworkAdd, None, Network]):
    """Add a network."""

    hooks = HookPoint("network-add", ObjectType.NETWORK)

    def resolve(self) -> None:
        """Nothing exists yet."""

    def locks(self, found: None) -> LockNeed:
        """Lock all nodes shared if their addresses are to be compared."""
        return all_shared(LockLevel.NODE) if self.op.conflicts_check else {}

    def plan(self, found: None) -> Network:
        """Refuse a name that is taken, and wrong settings."""
        networks = lookup.all_networks(self.config)
        lookup.check_name_free(ObjectKind.NETWORK, networks, self.op.network_name)
        own = self._own_addresses() if self.op.conflicts_check else []
        return new_network(self.op, self.context.new_uuid(), own)

    def _own_addresses(self) -> list[str]:
        """Return the addresses of the cluster and its nodes."""
        nodes = lookup.all_nodes(self.config)
        of_nodes = [address for node in nodes for address in (node.primary_ip, node.secondary_ip)]
        return [self.cluster.master_ip, *of_nodes]

    def hook_values(self, plan: Network) -> Mapping[str, object]:
        return hook_values_of(plan)

    def execute(self, plan: Network) -> None:
        self.config.create(ObjectKind.NETWORK, plan.to_wire())
        self.context.created(f"network {plan.name}", plan.uuid)


class _NetworkUnit(LogicalUnit[NetworkOpType, Network, PlanType]):
    """An operation on one existing network, which is locked exclusively."""

    def resolve(self) -> Network:
        return lookup.require_network(self.config, self.op.network_name)

    def locks(self, found: Network) -> LockNeed:
        return exclusive(LockLevel.NETWORK, [found.uuid])


class LUNetworkRemove(_NetworkUnit[opcodes.OpNetworkRemove, Network]):
    """Remove a network that is not connected to any group."""

    hooks = HookPoint("network-remove", ObjectType.NETWORK)

    def plan(self, found: Network) -> Network:
        """Refuse a network that is connected or used."""
        connected = ", ".join(groups_of(lookup.all_groups(self.config), found))
        if connected:
            raise wrong_state(
                f"network {found.name!r} is connected to node group(s) {connected}; disconnect it"
                f" first: gnt-network disconnect {found.name}"
            )
        names = ", ".join(users(lookup.all_instances(self.config), found))
        if names:
            raise wrong_state(f"network {found.name!r} is used by instance(s) {names}")
        return found

    def hook_values(self, plan: Network) -> Mapping[str, object]:
        return {"NETWORK_NAME": plan.name}

    def execute(self, plan: Network) -> None:
        self.config.delete(ObjectKind.NETWORK, plan.uuid)


@dataclass(frozen=True, slots=True)
class NetworkChange:
    """New values of some fields of a network."""

    network: Network
    changes: Mapping[str, object]


class LUNetworkSetParams(_NetworkUnit[opcodes.OpNetworkSetParams, NetworkChange]):
    """Change settings of a network."""

    hooks = HookPoint("network-modify", ObjectType.NETWORK)

    def plan(self, found: Network) -> NetworkChange:
        """Refuse wrong settings, and an opcode without any."""
        op = self.op
        given = (op.gateway, op.network6, op.gateway6, op.mac_prefix)
        if all(value is None for value in given) and not (
            op.add_reserved_ips or op.remove_reserved_ips
        ):
            raise OpPrereqError("please give at least one change")
        return NetworkChange(found, network_changes(found, op))

    def hook_values(self, plan: NetworkChange) -> Mapping[str, object]:
        return hook_values_of(plan.network)

    def hook_values_after(self, plan: NetworkChange) -> Mapping[str, object]:
        return hook_values_of(lookup.require_network(self.config, plan.network.uuid))

    def execute(self, plan: NetworkChange) -> None:
        if plan.changes:
            self.config.modify(ObjectKind.NETWORK, plan.network.uuid, plan.changes)


@dataclass(frozen=True, slots=True)
class NetworkInGroup:
    """A network, a node group, and the instances of the group."""

    network: Network
    group: NodeGroup
    instances: Sequence[Instance]


@dataclass(frozen=True, slots=True)
class Connection:
    """The networks of a group as they are to be; ``params`` are those of this network.

    ``networks`` is None if nothing has to be changed.
    """

    network: Network
    group: NodeGroup
    params: Mapping[str, object]
    networks: Mapping[str, Mapping[str, object]] | None


class _ConnectionUnit(LogicalUnit[ConnectOpType, NetworkInGroup, Connection]):
    """An operation on one network and one group, both locked exclusively."""

    def resolve(self) -> NetworkInGroup:
        network = lookup.require_network(self.config, self.op.network_name)
        group = lookup.require_group(self.config, self.op.group_name)
        _nodes, instances = lookup.group_members(self.config, group)
        return NetworkInGroup(network, group, instances)

    def locks(self, found: NetworkInGroup) -> LockNeed:
        return union(
            exclusive(LockLevel.NODEGROUP, [found.group.uuid]),
            exclusive(LockLevel.NETWORK, [found.network.uuid]),
        )

    def hook_nodes(self, plan: Connection) -> Sequence[Node]:
        """Run hooks on the members of the group."""
        return lookup.group_nodes(self.config, plan.group.uuid)

    def hook_values(self, plan: Connection) -> Mapping[str, object]:
        return {
            "GROUP_NAME": plan.group.name,
            **{f"GROUP_NETWORK_{name.upper()}": value for name, value in plan.params.items()},
        }

    def execute(self, plan: Connection) -> None:
        if plan.networks is not None:
            changes = {"networks": plan.networks}
            self.config.modify(ObjectKind.NODEGROUP, plan.group.uuid, changes)


class LUNetworkConnect(_ConnectionUnit[opcodes.OpNetworkConnect]):
    """Connect a network to a node group."""

    hooks = HookPoint("network-connect", ObjectType.NETWORK)

    def locks(self, found: NetworkInGroup) -> LockNeed:
        """Lock the group's instances shared as well if their addresses are to be compared."""
        names = [each.name for each in found.instances] if self.op.conflicts_check else []
        return union(super().locks(found), shared(LockLevel.INSTANCE, names))

    def plan(self, found: NetworkInGroup) -> Connection:
        """Refuse a connection in conflict with addresses of instances."""
        network, group = found.network, found.group
        params = connection_params(self.op)
        before = group.networks.get(network.uuid)
        if before is not None:
            said = ",".join(f"{key}={value}" for key, value in before.items())
            self.context.warn(
                f"network {network.name!r} is already connected to node group {group.name!r}"
                f" ({said}); nothing is changed"
            )
            return Connection(network, group, params, None)
        instances = found.instances if self.op.conflicts_check else []
        clashes = conflicts(self.cluster, instances, network, params)
        if clashes:
            raise wrong_state(
                f"network {network.name!r} is in conflict with addresses of instances in node group"
                f" {group.name!r}: {', '.join(clashes)}; put their NICs into the network later and"
                " use --no-conflicts-check now"
            )
        return Connection(network, group, params, {**group.networks, network.uuid: params})


class LUNetworkDisconnect(_ConnectionUnit[opcodes.OpNetworkDisconnect]):
    """Disconnect a network from a node group."""

    hooks = HookPoint("network-disconnect", ObjectType.NETWORK)

    def plan(self, found: NetworkInGroup) -> Connection:
        """Refuse a network that instances of the group use."""
        network, group = found.network, found.group
        before = group.networks.get(network.uuid)
        if before is None:
            self.context.warn(
                f"network {network.name!r} is not connected to node group {group.name!r}"
            )
            return Connection(network, group, {"mode": "", "link": "", "vlan": ""}, None)
        names = ", ".join(users(found.instances, network))
        if names:
            raise wrong_state(
                f"network {network.name!r} is used by instance(s) {names} of node group"
                f" {group.name!r}; take their NICs out of it first"
            )
        rest = {key: value for key, value in group.networks.items() if key != network.uuid}
        return Connection(network, group, before, rest)

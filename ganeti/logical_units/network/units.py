"""Add, remove and change networks; connect them to node groups.

A network that is changed or removed is locked exclusively; an operation that puts a NIC into it
holds that lock shared, so neither sees the other half done.  A connection says how NICs of a
group's instances join the network: mode, link and VLAN.  The functions before the units are plain
decisions over plain values.

Source: opcodes.json, OP_NETWORK_*; config.json, "network_reservations".
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from ganeti.base import errors
from ganeti.base.errors import OpPrereqError, refusing, wrong_state
from ganeti.base.text import natural_sorted, shown
from ganeti.config.addresses.pool6 import is_ipv6
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.locks import LockLevel, LockNeed, all_shared, exclusive, shared, union
from ganeti.logical_units.network.settings import network_changes, new_network
from ganeti.objects.fill import fill_nicparams
from ganeti.objects.model import Cluster, Instance, Network, Node, NodeGroup, network_variables
from ganeti.objects.nic import NIC, NicMode, parse_vlan
from ganeti.objects.parameters import NICPARAMS
from ganeti.opcodes import network as opcodes
from ganeti.protocol.wconfd import ObjectKind

NetworkOpType = TypeVar("NetworkOpType", bound=opcodes.NetworkOpCode)
ConnectOpType = TypeVar(
    "ConnectOpType", bound=opcodes.OpNetworkConnect | opcodes.OpNetworkDisconnect
)
PlanType = TypeVar("PlanType")
NicParameters = Mapping[str, object]


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
    if (problem := NICPARAMS["link"].problem(op.network_link)) is not None:
        raise OpPrereqError(f"network {op.network_name!r}: link: {problem}")
    with refusing(errors.ParameterError, prefix=f"network {op.network_name!r}: "):
        vlan = str(parse_vlan(op.network_vlan))
    if vlan and op.network_mode is NicMode.ROUTED:
        raise OpPrereqError(f"network {op.network_name!r}: a VLAN cannot be used in mode routed")
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
    text = network.ipv4 if parsed.version == 4 else network.network6
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


def addresses6(instances: Iterable[Instance], network: Network) -> list[str]:
    """Return the IPv6 addresses that instances have in a network."""
    nics = (nic for instance in instances for nic in instance.nics)
    return [nic.ip for nic in nics if nic.network == network.uuid and nic.ip and is_ipv6(nic.ip)]


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
        has6 = op.network6 or op.gateway6 or any(map(is_ipv6, op.add_reserved_ips or ()))
        used6 = addresses6(lookup.all_instances(self.config), found) if has6 else []
        changes = network_changes(found, op, used6)
        after = replace(found, network6=op.network6 or found.network6)
        outside = [address for address in used6 if not contains(after, address)]
        if op.network6 and outside:
            self.context.warn(
                f"addresses of instances do not lie in network {found.name!r} any more:"
                f" {shown(outside)}; give these interfaces others"
            )
        return NetworkChange(found, changes)

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

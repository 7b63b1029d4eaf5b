"""Add, remove and change networks; connect them to node groups.

A network that is changed or removed is locked exclusively; an operation that puts a NIC into it
holds that lock shared, so neither sees the other half done.  A connection says how NICs of a
group's instances join the network: mode, link and VLAN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.locks import LockLevel, LockNeed, all_shared, exclusive, shared, union
from ganeti.logical_units.network import planning
from ganeti.objects.model import Instance, Network, Node, NodeGroup, network_variables
from ganeti.opcodes.network import (
    OpNetworkAdd,
    OpNetworkConnect,
    OpNetworkDisconnect,
    OpNetworkRemove,
    OpNetworkSetParams,
)
from ganeti.protocol.wconfd import ObjectKind

NetworkOpType = TypeVar("NetworkOpType", bound=OpNetworkRemove | OpNetworkSetParams)
PlanType = TypeVar("PlanType")
ConnectOpType = TypeVar("ConnectOpType", bound=OpNetworkConnect | OpNetworkDisconnect)


def hook_values_of(network: Network) -> dict[str, str]:
    """Return the values of a network for hooks: all but its UUID."""
    found = network_variables(network)
    del found["NETWORK_UUID"]
    return found


class LUNetworkAdd(LogicalUnit[OpNetworkAdd, None, Network]):
    """Add a network."""

    hooks = HookPoint("network-add", ObjectType.NETWORK)

    def resolve(self) -> None:
        """Nothing exists yet."""

    def locks(self, found: None) -> LockNeed:
        """Lock all nodes shared if their addresses are to be compared."""
        return all_shared(LockLevel.NODE) if self.op.conflicts_check else {}

    def plan(self, found: None) -> Network:
        """Refuse a name that is taken, and wrong settings."""
        name = self.op.network_name
        for other in lookup.present(self.config.get_networks(None)):
            if name in (other.name, other.uuid):
                raise OpPrereqError(
                    f"the name {name!r} is already used by network {other.name!r}"
                    f" (UUID {other.uuid})",
                    ErrorCode.EXISTS,
                )
        own = self._own_addresses() if self.op.conflicts_check else []
        return planning.new_network(self.op, self.context.new_uuid(), own)

    def _own_addresses(self) -> list[str]:
        """Return the addresses of the cluster and its nodes."""
        nodes = lookup.all_nodes(self.config)
        of_nodes = [address for node in nodes for address in (node.primary_ip, node.secondary_ip)]
        return [self.cluster.master_ip, *of_nodes]

    def hook_values(self, plan: Network) -> Mapping[str, object]:
        return hook_values_of(plan)

    def execute(self, plan: Network) -> None:
        self.config.create(ObjectKind.NETWORK, plan.to_wire())


class _NetworkUnit(LogicalUnit[NetworkOpType, Network, PlanType]):
    """An operation on one existing network, which is locked exclusively."""

    def resolve(self) -> Network:
        return lookup.require_network(self.config, self.op.network_name)

    def locks(self, found: Network) -> LockNeed:
        return exclusive(LockLevel.NETWORK, [found.uuid])


class LUNetworkRemove(_NetworkUnit[OpNetworkRemove, Network]):
    """Remove a network that is not connected to any group."""

    hooks = HookPoint("network-remove", ObjectType.NETWORK)

    def plan(self, found: Network) -> Network:
        """Refuse a network that is connected or used."""
        name = found.name
        groups = lookup.present(self.config.get_node_groups(None))
        connected = planning.groups_of(groups, found)
        if connected:
            raise OpPrereqError(
                f"network {name!r} is connected to node group(s) {', '.join(connected)};"
                f" disconnect it first: gnt-network disconnect {name}",
                ErrorCode.STATE,
            )
        instances = lookup.present(self.config.get_instances(None))
        users = planning.users(instances, found)
        if users:
            raise OpPrereqError(
                f"network {name!r} is used by instance(s) {', '.join(users)}", ErrorCode.STATE
            )
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


class LUNetworkSetParams(_NetworkUnit[OpNetworkSetParams, NetworkChange]):
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
        return NetworkChange(found, planning.network_changes(found, op))

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
        (members,) = self.config.get_group_members([group.uuid])
        keys = members[1] if members is not None else []
        instances = lookup.present(self.config.get_instances(keys)) if keys else []
        return NetworkInGroup(network, group, instances)

    def locks(self, found: NetworkInGroup) -> LockNeed:
        return union(
            exclusive(LockLevel.NODEGROUP, [found.group.uuid]),
            exclusive(LockLevel.NETWORK, [found.network.uuid]),
        )

    def hook_nodes(self, plan: Connection) -> Sequence[Node]:
        """Run hooks on the members of the group."""
        return [node for node in lookup.all_nodes(self.config) if node.group == plan.group.uuid]

    def hook_values(self, plan: Connection) -> Mapping[str, object]:
        return {
            "GROUP_NAME": plan.group.name,
            **{f"GROUP_NETWORK_{name.upper()}": value for name, value in plan.params.items()},
        }

    def execute(self, plan: Connection) -> None:
        if plan.networks is not None:
            changes = {"networks": plan.networks}
            self.config.modify(ObjectKind.NODEGROUP, plan.group.uuid, changes)


class LUNetworkConnect(_ConnectionUnit[OpNetworkConnect]):
    """Connect a network to a node group."""

    hooks = HookPoint("network-connect", ObjectType.NETWORK)

    def locks(self, found: NetworkInGroup) -> LockNeed:
        """Lock the group's instances shared as well if their addresses are to be compared."""
        names = [each.name for each in found.instances] if self.op.conflicts_check else []
        return union(super().locks(found), shared(LockLevel.INSTANCE, names))

    def plan(self, found: NetworkInGroup) -> Connection:
        """Refuse a connection in conflict with addresses of instances."""
        network, group = found.network, found.group
        params = planning.connection_params(self.op)
        before = group.networks.get(network.uuid)
        if before is not None:
            said = ",".join(f"{key}={value}" for key, value in before.items())
            self.context.warn(
                f"network {network.name!r} is already connected to node group {group.name!r}"
                f" ({said}); nothing is changed"
            )
            return Connection(network, group, params, None)
        if self.op.conflicts_check:
            self._check_conflicts(found, params)
        return Connection(network, group, params, {**group.networks, network.uuid: params})

    def _check_conflicts(self, found: NetworkInGroup, params: Mapping[str, object]) -> None:
        name = found.network.name
        conflicts = planning.conflicts(self.cluster, found.instances, found.network, params)
        if conflicts:
            raise OpPrereqError(
                f"network {name!r} is in conflict with addresses of instances in node group"
                f" {found.group.name!r}: {', '.join(conflicts)}; put their NICs into the network"
                " later and use --no-conflicts-check now",
                ErrorCode.STATE,
            )


class LUNetworkDisconnect(_ConnectionUnit[OpNetworkDisconnect]):
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
        users = planning.users(found.instances, network)
        if users:
            raise OpPrereqError(
                f"network {network.name!r} is used by instance(s) {', '.join(users)} of node group"
                f" {group.name!r}; take their NICs out of it first",
                ErrorCode.STATE,
            )
        rest = {key: value for key, value in group.networks.items() if key != network.uuid}
        return Connection(network, group, before, rest)

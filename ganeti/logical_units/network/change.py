"""Add, remove and change networks.

A network that is changed or removed is locked exclusively; whoever puts a NIC into it holds that
lock shared, so neither sees the other half done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, all_shared, exclusive
from ganeti.logical_units.network import planning
from ganeti.objects.network import Network, network_variables
from ganeti.opcodes.network import (
    OpNetworkAdd,
    OpNetworkConnect,
    OpNetworkDisconnect,
    OpNetworkRemove,
    OpNetworkSetParams,
)

NetworkOpType = TypeVar(
    "NetworkOpType",
    bound=OpNetworkRemove | OpNetworkSetParams | OpNetworkConnect | OpNetworkDisconnect,
)


def hooks_values(network: Network) -> dict[str, str]:
    """Return what hooks are told of a network: everything but its UUID."""
    found = network_variables(network)
    del found["NETWORK_UUID"]
    return found


class LUNetworkAdd(LogicalUnit[OpNetworkAdd]):
    """Add a network."""

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock all nodes shared when their addresses are to be looked at."""
        if level is LockLevel.NODE and self.op.conflicts_check:
            return all_shared(level)
        return {}

    def check_prereq(self) -> None:
        """Refuse a name that is taken, and what cannot be a network."""
        name = self.op.network_name
        for other in lookup.present(self.config.get_networks(None)):
            if name in (other.name, other.uuid):
                raise OpPrereqError(
                    f"the name {name!r} is already used by network {other.name!r}"
                    f" (UUID {other.uuid})",
                    ErrorCode.EXISTS,
                )
        own = self._own_addresses() if self.op.conflicts_check else []
        self.network = planning.new_network(self.op, self.context.new_uuid(), own)

    def _own_addresses(self) -> list[str]:
        """Return the addresses of the cluster and its nodes."""
        nodes = lookup.all_nodes(self.config)
        of_nodes = [address for node in nodes for address in (node.primary_ip, node.secondary_ip)]
        return [self.cluster.master_ip, *of_nodes]

    def hooks_env(self) -> Mapping[str, object]:
        """Tell about the network to be."""
        return hooks_values(self.network)

    def exec(self) -> None:
        """Add it."""
        self.config.create_network(self.network.to_wire())


class NetworkUnit(LogicalUnit[NetworkOpType]):
    """An operation on one existing network, which is locked exclusively."""

    def expand_names(self) -> None:
        """Look the network up."""
        self.network = lookup.require_network(self.config, self.op.network_name)

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock it."""
        return exclusive(level, [self.network.uuid]) if level is LockLevel.NETWORK else {}


class LUNetworkRemove(NetworkUnit[OpNetworkRemove]):
    """Remove a network that is not connected to any group."""

    def check_prereq(self) -> None:
        """Refuse a network that is connected or used."""
        name = self.network.name
        groups = lookup.present(self.config.get_node_groups(None))
        connected = planning.groups_of(groups, self.network)
        if connected:
            raise OpPrereqError(
                f"network {name!r} is connected to node group(s) {', '.join(connected)};"
                f" disconnect it first: gnt-network disconnect {name}",
                ErrorCode.STATE,
            )
        instances = lookup.present(self.config.get_instances(None))
        users = planning.users(instances, self.network)
        if users:
            raise OpPrereqError(
                f"network {name!r} is used by instance(s) {', '.join(users)}", ErrorCode.STATE
            )

    def hooks_env(self) -> Mapping[str, object]:
        """Name the network."""
        return {"NETWORK_NAME": self.network.name}

    def exec(self) -> None:
        """Remove it."""
        self.config.delete_network(self.network.uuid)


class LUNetworkSetParams(NetworkUnit[OpNetworkSetParams]):
    """Change settings of a network."""

    def check_prereq(self) -> None:
        """Refuse wrong settings, and an opcode that asks for nothing."""
        op = self.op
        given = (op.gateway, op.network6, op.gateway6, op.mac_prefix)
        if all(value is None for value in given) and not (
            op.add_reserved_ips or op.remove_reserved_ips
        ):
            raise OpPrereqError("please give at least one change", ErrorCode.INVAL)
        self.changes = planning.network_changes(self.network, op)

    def hooks_env(self) -> Mapping[str, object]:
        """Tell about the network as it was."""
        return hooks_values(self.network)

    def hooks_env_after(self) -> Mapping[str, object]:
        """Tell about the network as it is now."""
        return hooks_values(lookup.require_network(self.config, self.network.uuid))

    def exec(self) -> None:
        """Change it."""
        if self.changes:
            self.config.modify_network(self.network.uuid, self.changes)

"""Connect networks to node groups, and disconnect them.

A connection says how NICs of a group's instances join the network: mode, link and VLAN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, exclusive, shared, union
from ganeti.logical_units.network import planning
from ganeti.logical_units.network.change import NetworkUnit
from ganeti.opcodes.network import OpNetworkConnect, OpNetworkDisconnect

if TYPE_CHECKING:
    from ganeti.objects.instance import Instance
    from ganeti.objects.node import Node

ConnectOpType = TypeVar("ConnectOpType", bound=OpNetworkConnect | OpNetworkDisconnect)


class _ConnectionUnit(NetworkUnit[ConnectOpType]):
    """An operation on one network and one group, both locked exclusively."""

    params: Mapping[str, object]
    is_done = False

    def expand_names(self) -> None:
        """Look network and group up."""
        super().expand_names()
        self.group = lookup.require_group(self.config, self.op.group_name)

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock network and group."""
        if level is LockLevel.NODEGROUP:
            return exclusive(level, [self.group.uuid])
        return union(super().declare_locks(level))

    def instances(self) -> list[Instance]:
        """Return the instances of the group."""
        (members,) = self.config.get_group_members([self.group.uuid])
        keys = members[1] if members is not None else []
        return lookup.present(self.config.get_instances(keys)) if keys else []

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Run hooks on the members of the group."""
        nodes = [node for node in lookup.all_nodes(self.config) if node.group == self.group.uuid]
        return nodes, nodes

    def hooks_env(self) -> Mapping[str, object]:
        """Tell about the connection."""
        return {
            "GROUP_NAME": self.group.name,
            **{f"GROUP_NETWORK_{name.upper()}": value for name, value in self.params.items()},
        }


class LUNetworkConnect(_ConnectionUnit[OpNetworkConnect]):
    """Connect a network to a node group."""

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the group's instances shared as well when their addresses are to be looked at."""
        if level is LockLevel.INSTANCE and self.op.conflicts_check:
            return shared(level, [instance.name for instance in self.instances()])
        return super().declare_locks(level)

    def check_prereq(self) -> None:
        """Refuse a connection in conflict with addresses that instances have."""
        self.params = planning.connection_params(self.op)
        name = self.network.name
        before = self.group.networks.get(self.network.uuid)
        if before is not None:
            self.is_done = True
            said = ",".join(f"{key}={value}" for key, value in before.items())
            self.context.warn(
                f"network {name!r} is already connected to node group {self.group.name!r}"
                f" ({said}); nothing is changed"
            )
            return
        if not self.op.conflicts_check:
            return
        found = planning.conflicts(self.cluster, self.instances(), self.network, self.params)
        if found:
            raise OpPrereqError(
                f"network {name!r} is in conflict with addresses of instances in node group"
                f" {self.group.name!r}: {', '.join(found)}; put their NICs into the network later"
                " and use --no-conflicts-check now",
                ErrorCode.STATE,
            )

    def exec(self) -> None:
        """Connect it."""
        if not self.is_done:
            networks = {**self.group.networks, self.network.uuid: self.params}
            self.config.modify_node_group(self.group.uuid, {"networks": networks})


class LUNetworkDisconnect(_ConnectionUnit[OpNetworkDisconnect]):
    """Disconnect a network from a node group."""

    def check_prereq(self) -> None:
        """Refuse a network that instances of the group use."""
        name = self.network.name
        found = self.group.networks.get(self.network.uuid)
        self.params = found or {"mode": "", "link": "", "vlan": ""}
        if found is None:
            self.is_done = True
            self.context.warn(
                f"network {name!r} is not connected to node group {self.group.name!r}"
            )
            return
        users = planning.users(self.instances(), self.network)
        if users:
            raise OpPrereqError(
                f"network {name!r} is used by instance(s) {', '.join(users)} of node group"
                f" {self.group.name!r}; take their NICs out of it first",
                ErrorCode.STATE,
            )

    def exec(self) -> None:
        """Disconnect it."""
        if not self.is_done:
            uuid = self.network.uuid
            networks = {key: value for key, value in self.group.networks.items() if key != uuid}
            self.config.modify_node_group(self.group.uuid, {"networks": networks})

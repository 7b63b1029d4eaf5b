"""The first and the last operation of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.text import natural_sorted
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.node.switches import make_switch, switch_of
from ganeti.logical_units.node_calls import call_node, order
from ganeti.objects.cluster import master_network_parameters
from ganeti.opcodes.cluster import (
    OpClusterActivateMasterIp,
    OpClusterDeactivateMasterIp,
    OpClusterDestroy,
    OpClusterPostInit,
)

if TYPE_CHECKING:
    from ganeti.objects.node import Node


class LUClusterPostInit(LogicalUnit[OpClusterPostInit]):
    """Finish a cluster that was just made, and run the hooks for it."""

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Run hooks on the master, once everything is there."""
        return [], [self.master]

    def hooks_env(self) -> Mapping[str, object]:
        """Name the cluster."""
        return {"OP_TARGET": self.cluster.cluster_name}

    def exec(self) -> bool:
        """Give the master its Open vSwitch, if it is to have one; the cluster is there."""
        group = lookup.require_group(self.config, self.master.group)
        make_switch(self.context, self.master, switch_of(self.cluster, group, self.master))
        return True


class LUClusterDestroy(LogicalUnit[OpClusterDestroy]):
    """Give the cluster up: afterwards WConfD keeps the cluster lock and nothing runs any more."""

    exclusive_bgl = True

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Run none through nodes: their daemons are about to go."""
        return [], []

    def hooks_env(self) -> Mapping[str, object]:
        """Name the cluster."""
        return {"OP_TARGET": self.cluster.cluster_name}

    def check_prereq(self) -> None:
        """Refuse while there is anything besides the master node."""
        others = natural_sorted(
            node.name
            for node in lookup.all_nodes(self.config)
            if node.uuid != self.cluster.master_node
        )
        if others:
            raise OpPrereqError(
                f"there are still {len(others)} other node(s) in this cluster:"
                f" {', '.join(others)}; remove them with 'gnt-node remove'",
                ErrorCode.INVAL,
            )
        instances = natural_sorted(
            instance.name for instance in lookup.present(self.config.get_instances(None))
        )
        if instances:
            raise OpPrereqError(
                f"there are still {len(instances)} instance(s) in this cluster:"
                f" {', '.join(instances[:10])}; remove them with 'gnt-instance remove'",
                ErrorCode.INVAL,
            )

    def exec(self) -> str:
        """Give up the cluster's address and tell WConfD; returns the master's UUID."""
        master = self.master
        result = call_node(
            self.context,
            master,
            "node_deactivate_master_ip",
            master_network_parameters(self.cluster).to_wire(),
            self.cluster.use_external_mip_script,
        )
        if result.error is not None:
            self.context.warn(
                f"cannot take the cluster address {self.cluster.master_ip} from node"
                f" {master.name}: {result.error}; ignoring"
            )
        self.config.prepare_cluster_destruction()
        return master.uuid


class LUClusterActivateMasterIp(LogicalUnit[OpClusterActivateMasterIp]):
    """Bring up the cluster's address on the master node."""

    def exec(self) -> None:
        """Let the master node take it."""
        order(
            self.context,
            self.master,
            f"bring up the cluster address {self.cluster.master_ip}",
            "node_activate_master_ip",
            master_network_parameters(self.cluster).to_wire(),
            self.cluster.use_external_mip_script,
        )


class LUClusterDeactivateMasterIp(LogicalUnit[OpClusterDeactivateMasterIp]):
    """Take down the cluster's address on the master node."""

    def exec(self) -> None:
        """Let the master node give it up."""
        order(
            self.context,
            self.master,
            f"take down the cluster address {self.cluster.master_ip}",
            "node_deactivate_master_ip",
            master_network_parameters(self.cluster).to_wire(),
            self.cluster.use_external_mip_script,
        )

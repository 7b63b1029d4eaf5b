"""Finish a new cluster, send its files again, destroy it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.base.text import natural_sorted
from ganeti.logical_units import ancillary, lookup
from ganeti.logical_units.base import NamelessUnit
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.locks import LockLevel, LockNeed, all_shared
from ganeti.logical_units.node.switches import make_switch, switch_of
from ganeti.objects.model import Node, master_network_parameters
from ganeti.opcodes.cluster import OpClusterDestroy, OpClusterPostInit, OpClusterRedistConf
from ganeti.protocol.node_calls import NodeCalls


class LUClusterPostInit(NamelessUnit[OpClusterPostInit]):
    """Finish a cluster that was just made, and run the hooks for it."""

    hooks = HookPoint("cluster-init", ObjectType.CLUSTER)

    def hook_nodes(self, plan: None) -> Sequence[Node]:
        return []

    def hook_nodes_after(self, plan: None) -> Sequence[Node]:
        return [self.master]

    def hook_values(self, plan: None) -> Mapping[str, object]:
        return {"OP_TARGET": self.cluster.cluster_name}

    def execute(self, plan: None) -> bool:
        """Give the master its Open vSwitch, if it is to have one."""
        group = lookup.require_group(self.config, self.master.group)
        make_switch(self.context, self.master, switch_of(self.cluster, group, self.master))
        return True


class LUClusterDestroy(NamelessUnit[OpClusterDestroy]):
    """Give the cluster up: afterwards WConfD keeps the cluster lock, and no job runs any more."""

    hooks = HookPoint("cluster-destroy", ObjectType.CLUSTER)
    exclusive_bgl = True

    def hook_nodes(self, plan: None) -> Sequence[Node]:
        """Run none: the daemons of the nodes are about to end."""
        return []

    def hook_values(self, plan: None) -> Mapping[str, object]:
        return {"OP_TARGET": self.cluster.cluster_name}

    def plan(self, found: None) -> None:
        """Refuse while there is anything besides the master node."""
        others = natural_sorted(
            node.name
            for node in lookup.all_nodes(self.config)
            if node.uuid != self.cluster.master_node
        )
        if others:
            raise OpPrereqError(
                f"there are still {len(others)} other node(s) in this cluster:"
                f" {', '.join(others)}; remove them with 'gnt-node remove'"
            )
        instances = natural_sorted(
            instance.name for instance in lookup.present(self.config.get_instances(None))
        )
        if instances:
            raise OpPrereqError(
                f"there are still {len(instances)} instance(s) in this cluster:"
                f" {', '.join(instances[:10])}; remove them with 'gnt-instance remove'"
            )

    def execute(self, plan: None) -> str:
        """Give up the cluster's address and tell WConfD; returns the master's UUID."""
        master = self.master
        result = self.context.nodes.call_one(
            NodeCalls.node_deactivate_master_ip,
            master,
            master_network_parameters(self.cluster),
            use_external_mip_script=self.cluster.use_external_mip_script,
        )
        if result.error is not None:
            self.context.warn(
                f"cannot take the cluster address {self.cluster.master_ip} from node"
                f" {master.name}: {result.error}; ignoring"
            )
        self.config.prepare_cluster_destruction()
        return master.uuid


class LUClusterRedistConf(NamelessUnit[OpClusterRedistConf]):
    """Send the configuration and the other files of the cluster to the nodes again."""

    def locks(self, found: None) -> LockNeed:
        return all_shared(LockLevel.NODE)

    def execute(self, plan: None) -> None:
        """Let WConfD send the configuration again, and send the other files.

        A failure of one node is told and does not keep files from the others.

        Raises:
            OpExecError: the configuration is not on enough master candidates.
        """
        self.config.redistribute_config()
        nodes = lookup.all_nodes(self.config)
        files = ancillary.distribute(
            self.context, self.cluster, nodes, master_name=self.master.name
        )
        too_few: GenericError | None = None
        try:
            self.config.flush_config()
        except GenericError as err:
            too_few = err
        for text in failures(self.config.get_replication_status()):
            self.context.warn(text)
        if too_few is not None:
            raise too_few
        online = sum(not node.offline for node in nodes) - 1
        self.context.info(f"sent the configuration and {files} other file(s) to {online} node(s)")


def failures(status: Iterable[Mapping[str, object]]) -> list[str]:
    """Return a text for each online node without the newest configuration, with the reason.

    Args:
        status: the answer to "getReplicationStatus".
    """
    found = []
    for row in status:
        lacks_config = row["candidate"] and row["serial_no"] != row["wanted_serial_no"]
        if row["offline"] or not (lacks_config or not row["ssconf_is_current"]):
            continue
        part = "the configuration" if lacks_config else "the simple configuration"
        reason = row["error"] or "no answer yet; it will be tried again"
        found.append(f"cannot send {part} to node {row['node']}: {reason}")
    return found

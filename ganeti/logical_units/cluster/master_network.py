"""The cluster's own address: bring it up, take it down, change it.

A change moves it to another device, or gives it another netmask or address.  The address is moved
on the master node first and written down afterwards; all steps are undone when a later one fails,
so the address never differs from the configuration.
"""

from __future__ import annotations

from collections.abc import Callable

from ganeti.logical_units.base import NamelessUnit
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.undo import Undo
from ganeti.objects.model import Cluster, Node, master_network_parameters
from ganeti.opcodes.cluster import OpClusterActivateMasterIp, OpClusterDeactivateMasterIp


def move_address(
    context: JobContext, master: Node, before: Cluster, after: Cluster, undo: Undo
) -> None:
    """Bring the master node from one cluster's settings to another's.

    Raises:
        OpExecError: a step failed; those before it are on the undo stack.
    """
    moves = (before.master_netdev, before.master_ip) != (after.master_netdev, after.master_ip)
    changes_mask = before.master_netmask != after.master_netmask
    if moves or (changes_mask and before.use_external_mip_script):
        _step(
            undo,
            _switch(context, master, before, on=False),
            _switch(context, master, before, on=True),
        )
        _step(
            undo,
            _switch(context, master, after, on=True),
            _switch(context, master, after, on=False),
        )
    elif changes_mask:
        _step(
            undo,
            _netmask(context, master, before, before.master_netmask, after.master_netmask),
            _netmask(context, master, before, after.master_netmask, before.master_netmask),
        )


Step = tuple[str, Callable[[], object]]


def _step(undo: Undo, forward: Step, back: Step) -> None:
    forward[1]()
    undo.push(*back)


def _switch(context: JobContext, master: Node, cluster: Cluster, *, on: bool) -> Step:
    doing = "bring up" if on else "take down"
    doing += f" the cluster address {cluster.master_ip} on device {cluster.master_netdev}"
    calls = context.nodes.on(master, doing)
    call = calls.node_activate_master_ip if on else calls.node_deactivate_master_ip
    params = master_network_parameters(cluster)
    script = cluster.use_external_mip_script
    return doing, lambda: call(params, use_external_mip_script=script)


def _netmask(context: JobContext, master: Node, cluster: Cluster, old: int, new: int) -> Step:
    doing = f"change the netmask of the cluster address {cluster.master_ip} from {old} to {new}"
    call = context.nodes.on(master, doing).node_change_master_netmask
    return doing, lambda: call(old, new, cluster.master_ip, cluster.master_netdev)


class LUClusterActivateMasterIp(NamelessUnit[OpClusterActivateMasterIp]):
    """Bring up the cluster's address on the master node."""

    def execute(self, plan: None) -> None:
        self.context.nodes.on(
            self.master, f"bring up the cluster address {self.cluster.master_ip}"
        ).node_activate_master_ip(
            master_network_parameters(self.cluster),
            use_external_mip_script=self.cluster.use_external_mip_script,
        )


class LUClusterDeactivateMasterIp(NamelessUnit[OpClusterDeactivateMasterIp]):
    """Take down the cluster's address on the master node."""

    def execute(self, plan: None) -> None:
        self.context.nodes.on(
            self.master, f"take down the cluster address {self.cluster.master_ip}"
        ).node_deactivate_master_ip(
            master_network_parameters(self.cluster),
            use_external_mip_script=self.cluster.use_external_mip_script,
        )

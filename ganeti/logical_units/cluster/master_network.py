"""Move the cluster's own address to another device, or give it another netmask or address.

The address is moved on the master node first and written down afterwards; whatever was done is
undone when a later step fails, so the address never is elsewhere than the configuration says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ganeti.logical_units.node_calls import order
from ganeti.objects.cluster import master_network_parameters

if TYPE_CHECKING:
    from ganeti.logical_units.context import JobContext
    from ganeti.logical_units.undo import Undo
    from ganeti.objects.cluster import Cluster
    from ganeti.objects.node import Node


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
    call = "node_activate_master_ip" if on else "node_deactivate_master_ip"
    params = master_network_parameters(cluster).to_wire()
    script = cluster.use_external_mip_script
    return doing, lambda: order(context, master, doing, call, params, script)


def _netmask(context: JobContext, master: Node, cluster: Cluster, old: int, new: int) -> Step:
    doing = f"change the netmask of the cluster address {cluster.master_ip} from {old} to {new}"
    call = "node_change_master_netmask"
    address = (cluster.master_ip, cluster.master_netdev)
    return doing, lambda: order(context, master, doing, call, old, new, *address)

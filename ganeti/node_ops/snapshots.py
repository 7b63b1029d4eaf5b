"""Snapshots of a running instance's disks, for whoever copies them while the guest goes on.

What the guest overwrites meanwhile is kept on the file system of the node's exports.
"""

from ganeti.node_ops import drivers
from ganeti.node_ops.context import NodeContext
from ganeti.objects.rpc_instance import RpcInstance


def instance_snapshot_supported(context: NodeContext, instance: RpcInstance) -> None:
    """Check that snapshots can be made.

    Raises:
        HypervisorError: says why not.
    """
    drivers.hypervisor(context, instance.hypervisor).snapshot_supported(instance)


def instance_snapshot(context: NodeContext, instance: RpcInstance) -> None:
    """Keep what all disks hold at one instant, instead of what an earlier job kept.

    Raises:
        HypervisorError: it cannot be done; nothing is left of it, and the guest goes on.
    """
    driver = drivers.hypervisor(context, instance.hypervisor)
    driver.snapshot_disks(instance, context.paths.export_dir)


def instance_snapshot_drop(context: NodeContext, instance: RpcInstance) -> None:
    """Remove the snapshots; none, or no running instance, is no error."""
    drivers.hypervisor(context, instance.hypervisor).drop_snapshots(instance.name)

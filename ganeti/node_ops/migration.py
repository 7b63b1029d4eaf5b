"""Moving a running instance to another node, each side's part.

``hypervisor.interface`` says in which order these calls come and what holds at every cut.

Source: node_rpc.json, calls accept_instance, instance_migrate, ...
"""

from ganeti.base.errors import GenericError, HypervisorError
from ganeti.node_ops import drivers
from ganeti.node_ops.context import NodeContext
from ganeti.objects.rpc_instance import RpcInstance


def instance_migratable(context: NodeContext, instance: RpcInstance) -> None:
    """Check that an instance runs here and can be moved away.

    Raises:
        HypervisorError: it does not, or cannot.
    """
    driver = drivers.hypervisor(context, instance.hypervisor)
    if driver.instance_info(instance.name) is None:
        raise HypervisorError(f"instance {instance.name!r} does not run on {context.hostname}")
    driver.migratable(instance)


def migration_info(context: NodeContext, instance: RpcInstance) -> str:
    """Describe a running instance for the node that will accept it."""
    return drivers.hypervisor(context, instance.hypervisor).migration_info(instance)


def accept_instance(context: NodeContext, instance: RpcInstance, info: str, target: str) -> str:
    """Make ready to receive an instance; returns what instance_migrate needs as its target.

    Raises:
        HypervisorError, BlockDeviceError: nothing of it is left here.
    """
    driver = drivers.hypervisor(context, instance.hypervisor)
    try:
        disks = drivers.assemble_disks(context, instance)
        drivers.open_disks(context, instance, exclusive=False)  # the source has them open as well
        linked = drivers.with_links(context, instance.name, disks)
        return driver.accept_instance(instance, info, target, linked)
    except GenericError:
        if driver.instance_info(instance.name) is None:
            drivers.unlink_disks(context.paths, instance.name)
        raise


def instance_migrate(
    context: NodeContext, _cluster_name: str, instance: RpcInstance, target: str, live: bool
) -> None:
    """Begin to move an instance; returns once the transfer runs."""
    driver = drivers.hypervisor(context, instance.hypervisor)
    driver.migrate(instance, target, live=live)


def instance_get_migration_status(context: NodeContext, instance: RpcInstance) -> dict[str, object]:
    """Return how far a migration is, seen from its source; waits a moment for its end."""
    driver = drivers.hypervisor(context, instance.hypervisor)
    return driver.migration_status(instance).to_wire()


def instance_finalize_migration_src(
    context: NodeContext, instance: RpcInstance, success: bool, live: bool
) -> None:
    """End a migration on its source."""
    driver = drivers.hypervisor(context, instance.hypervisor)
    driver.finalize_migration_src(instance, success=success, live=live)
    if success:
        drivers.unlink_disks(context.paths, instance.name)


def instance_finalize_migration_dst(
    context: NodeContext, instance: RpcInstance, info: str, success: bool
) -> None:
    """End a migration on its target."""
    driver = drivers.hypervisor(context, instance.hypervisor)
    driver.finalize_migration_dst(instance, info, success=success)
    if driver.instance_info(instance.name) is None:
        drivers.unlink_disks(context.paths, instance.name)

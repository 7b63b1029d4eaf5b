"""Make the disks of an instance ready on its node, or close them, without touching the instance."""

from __future__ import annotations

from ganeti.base.errors import OpExecError, wrong_state
from ganeti.logical_units.instance.base import InstanceUnit, OnInstance, check_node_online
from ganeti.logical_units.instance.life.power import is_running, running_info
from ganeti.logical_units.instance.storage import disks
from ganeti.opcodes.instance import OpInstanceActivateDisks, OpInstanceDeactivateDisks
from ganeti.protocol.wconfd import ObjectKind


class LUInstanceActivateDisks(InstanceUnit[OpInstanceActivateDisks, OnInstance]):
    """Make the disks ready; the result is [node, name in the instance, device] of each."""

    def plan(self, found: OnInstance) -> OnInstance:
        """Refuse when the node is offline."""
        view = found.view
        check_node_online(view.primary, f"primary node of instance {view.instance.name!r}:")
        return found

    def execute(self, plan: OnInstance) -> list[disks.Ready]:
        """Make them ready, and record that they are."""
        view = plan.view
        if not view.instance.disks_active:
            self.config.modify(ObjectKind.INSTANCE, view.instance.uuid, {"disks_active": True})
        return disks.activate(self.context, view, view.primary)


class LUInstanceDeactivateDisks(InstanceUnit[OpInstanceDeactivateDisks, OnInstance]):
    """Close the disks of an instance that does not run."""

    def plan(self, found: OnInstance) -> OnInstance:
        """Refuse while the instance runs, unless forced."""
        primary, name = found.view.primary, found.view.instance.name
        if self.op.force:
            return found
        check_node_online(primary, f"primary node of instance {name!r}:")
        if is_running(running_info(self.context, found.view, primary)):
            raise wrong_state(
                f"instance {name!r} is running on node {primary.name!r}; shut it down first, or use"
                " --force"
            )
        return found

    def execute(self, plan: OnInstance) -> None:
        """Close them, and record that they are."""
        view, instance = plan.view, plan.view.instance
        if not disks.deactivate(self.context, view, view.primary):
            raise OpExecError(
                f"not all disks of instance {instance.name!r} could be deactivated on node"
                f" {view.primary.name!r}"
            )
        if instance.disks_active:
            self.config.modify(ObjectKind.INSTANCE, instance.uuid, {"disks_active": False})

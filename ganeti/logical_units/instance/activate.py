"""Make the disks of an instance ready on its node, or close them, without touching the instance."""

from __future__ import annotations

from ganeti.base.errors import ErrorCode, OpExecError, OpPrereqError
from ganeti.logical_units.instance import disks
from ganeti.logical_units.instance.power import is_running, running_info
from ganeti.logical_units.instance.subject import InstanceUnit, check_node_online
from ganeti.opcodes.instance import OpInstanceActivateDisks, OpInstanceDeactivateDisks


class LUInstanceActivateDisks(InstanceUnit[OpInstanceActivateDisks]):
    """Make the disks ready; the result is [node, name in the instance, device] of each."""

    def check_prereq(self) -> None:
        """Refuse when the node is offline."""
        check_node_online(self.subject.primary, f"primary node of instance {self.instance.name!r}:")

    def exec(self) -> list[disks.Ready]:
        """Make them ready, and remember that they are."""
        if not self.instance.disks_active:
            self.config.modify_instance(self.instance.uuid, {"disks_active": True})
        return disks.activate(self.context, self.subject, self.subject.primary)


class LUInstanceDeactivateDisks(InstanceUnit[OpInstanceDeactivateDisks]):
    """Close the disks of an instance that does not run."""

    def check_prereq(self) -> None:
        """Refuse while the instance runs, unless that is to be ignored."""
        primary, name = self.subject.primary, self.instance.name
        if self.op.force:
            return
        check_node_online(primary, f"primary node of instance {name!r}:")
        if is_running(running_info(self.context, self.subject, primary)):
            raise OpPrereqError(
                f"instance {name!r} is running on node {primary.name!r}; shut it down first, or use"
                " --force",
                ErrorCode.STATE,
            )

    def exec(self) -> None:
        """Close them, and remember that they are."""
        if not disks.deactivate(self.context, self.subject, self.subject.primary):
            raise OpExecError(
                f"not all disks of instance {self.instance.name!r} could be deactivated on node"
                f" {self.subject.primary.name!r}"
            )
        if self.instance.disks_active:
            self.config.modify_instance(self.instance.uuid, {"disks_active": False})

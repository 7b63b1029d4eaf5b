"""Remove an instance and its disks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ganeti.base.errors import OpExecError, wrong_state
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.base import InstanceUnit, OnInstance
from ganeti.logical_units.instance.guest import why_not_stopped
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.model import Node
from ganeti.opcodes.instance import OpInstanceRemove
from ganeti.protocol.wconfd import ObjectKind

_HINT = "use --ignore-failures to remove the instance from the configuration all the same"


class LUInstanceRemove(InstanceUnit[OpInstanceRemove, OnInstance]):
    """Stop the instance, remove its disks, remove it from the configuration."""

    hooks = HookPoint("instance-remove", ObjectType.INSTANCE)
    takes_incomplete = True
    told = ("shutdown_timeout",)

    def hook_nodes(self, plan: OnInstance) -> Sequence[Node]:
        return [self.master]

    def hook_nodes_after(self, plan: OnInstance) -> Sequence[Node]:
        return [self.master, *plan.view.nodes]

    def hook_values_after(self, plan: OnInstance) -> Mapping[str, object]:
        return self.hook_values(plan)  # the instance is gone now

    def plan(self, found: OnInstance) -> OnInstance:
        """Refuse an instance whose node is offline, unless failures are to be ignored."""
        view, primary = found.view, found.view.primary
        if primary.offline and not self.op.ignore_failures and not view.is_planned:
            raise wrong_state(
                f"primary node {primary.name!r} of instance {view.instance.name!r} is offline, its"
                f" disks cannot be removed; {_HINT}"
            )
        return found

    def execute(self, plan: OnInstance) -> None:
        """Stop and remove it; a failure ends it unless failures are to be ignored."""
        op, reason = self.op, self.op.reason or []
        remove_instance(self.context, plan.view, op.shutdown_timeout, op.ignore_failures, reason)


def remove_instance(
    context: JobContext,
    view: InstanceView,
    shutdown_timeout_s: int,
    ignore_failures: bool,
    reason: Sequence[object],
) -> None:
    """Stop an instance, remove its disks, remove it from the configuration.

    Raises:
        OpExecError: a step failed, and failures are not to be ignored.
    """

    def judge(failure: str | None) -> None:
        if failure and not ignore_failures:
            raise OpExecError(f"{failure}; {_HINT}")
        if failure:
            context.warn(f"{failure}; ignoring")

    if not view.is_planned:
        judge(why_not_stopped(context, view, shutdown_timeout_s, reason))
        if view.disks:
            context.info(f"removing block devices for instance {view.instance.name}")
        judge(next(iter(disks.remove(context, view)), None))
    context.config.delete(ObjectKind.INSTANCE, view.instance.uuid)

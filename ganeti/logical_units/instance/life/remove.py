"""Remove an instance and its disks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ganeti.base.errors import OpExecError, wrong_state
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.base import InstanceUnit, OnInstance
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.model import Node
from ganeti.opcodes.instance import OpInstanceRemove
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.wconfd import ObjectKind

_HINT = "use --ignore-failures to remove the instance from the configuration all the same"


class LUInstanceRemove(InstanceUnit[OpInstanceRemove, OnInstance]):
    """Stop the instance, remove its disks, remove it from the configuration."""

    hooks = HookPoint("instance-remove", ObjectType.INSTANCE)
    takes_incomplete = True

    def own_values(self, plan: OnInstance) -> Mapping[str, object]:
        return {"SHUTDOWN_TIMEOUT": self.op.shutdown_timeout}

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
        remove_instance(
            self.context,
            plan.view,
            shutdown_timeout_s=self.op.shutdown_timeout,
            ignore_failures=self.op.ignore_failures,
            reason=self.op.reason or [],
        )


def remove_instance(
    context: JobContext,
    view: InstanceView,
    *,
    shutdown_timeout_s: int,
    ignore_failures: bool,
    reason: Sequence[object],
) -> None:
    """Stop an instance, remove its disks, remove it from the configuration.

    Raises:
        OpExecError: a step failed, and failures are not to be ignored.
    """

    def failed(text: str) -> None:
        if not ignore_failures:
            raise OpExecError(f"{text}; {_HINT}")
        context.warn(f"{text}; ignoring")

    primary, instance = view.primary, view.instance
    if view.is_planned:
        context.config.delete(ObjectKind.INSTANCE, instance.uuid)
        return
    result = context.nodes.call_one(
        NodeCalls.instance_shutdown, primary, view.wire(), shutdown_timeout_s, reason
    )
    if result.error is not None:
        doing = f"shut down instance {instance.name!r}"
        failed(result.explain(doing))
    if view.disks:
        context.info(f"removing block devices for instance {instance.name}")
    left = disks.remove(context, view)
    if left:
        failed(left[0])
    context.config.delete(ObjectKind.INSTANCE, instance.uuid)

"""Stop an instance on one node and start it on another that reaches its disks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ganeti.base.errors import GenericError, OpExecError, wrong_state
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.life.power import check_not_offline, own_hvparams
from ganeti.logical_units.instance.memory import reserve_memory
from ganeti.logical_units.instance.moving.cleanup import clean_up
from ganeti.logical_units.instance.moving.target import (
    Move,
    MoveUnit,
    check_movable,
    check_other_node,
    check_target,
    nodes_of_move,
    record_move,
)
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.fill import fill_beparams
from ganeti.objects.model import AdminState, Node
from ganeti.opcodes.instance import OpInstanceFailover
from ganeti.protocol.node_calls import NodeCalls


def check_failover(
    context: JobContext, view: InstanceView, target: Node, *, ignore_ipolicy: bool
) -> None:
    """Refuse a failover that cannot work; reserves memory if the instance is meant to run."""
    check_not_offline(view)
    check_target(context, view, target, ignore_ipolicy=ignore_ipolicy)
    if view.instance.admin_state is AdminState.UP:
        reserve_memory(
            context,
            target,
            f"instance {view.instance.name!r}",
            fill_beparams(view.cluster, view.instance)["minmem"],
            view.instance.hypervisor,
            own_hvparams(view),
        )


def fail_over(
    context: JobContext,
    view: InstanceView,
    target: Node,
    *,
    shutdown_timeout_s: int,
    ignore_consistency: bool,
    reason: Sequence[object],
) -> None:
    """Stop the instance where it is, make the target its primary node, start it there.

    Raises:
        OpExecError: says on which node the instance is now, and whether it runs.
    """
    _stop_at_source(context, view, shutdown_timeout_s, ignore_consistency, reason)
    record_move(context, view, target)
    name = view.instance.name
    if view.instance.admin_state is not AdminState.UP:
        context.feedback(f"* instance {name} is meant to be down, not starting it")
        return
    context.feedback(f"* starting the instance on the target node {target.name}")
    wire = view.wire(primary_node=target.uuid)
    try:
        context.nodes.on(target, f"start instance {name!r}").instance_start(
            wire, startup_paused=False, reason=reason
        )
    except GenericError as err:
        disks.deactivate(context, view, target)
        raise OpExecError(
            f"{err}; the instance is down, its primary node is {target.name} now: start it there"
            f" with 'gnt-instance startup {name}' once that is mended, or fail it back with"
            f" 'gnt-instance failover -n {view.primary.name} {name}'"
        ) from err


def _stop_at_source(
    context: JobContext,
    view: InstanceView,
    timeout_s: int,
    ignore_consistency: bool,
    reason: Sequence[object],
) -> None:
    source, name = view.primary, view.instance.name
    if source.offline:
        context.warn(
            f"primary node {source.name} is marked offline: nobody can stop {name} there; make sure"
            " that it is switched off"
        )
        return
    context.feedback(f"* shutting down instance on source node {source.name}")
    result = context.nodes.call_one(
        NodeCalls.instance_shutdown, source, view.wire(), timeout_s, reason
    )
    if result.error is not None:
        text = result.explain(f"shut down instance {name!r}")
        if not ignore_consistency:
            raise OpExecError(
                f"{text}; nothing was changed: mark the node offline if it is dead, or use"
                " --ignore-consistency if the instance certainly does not run there"
            )
        context.warn(f"{text}; ignoring, make sure that node {source.name} is dead")
        return
    disks.deactivate(context, view, source)


class LUInstanceFailover(MoveUnit[OpInstanceFailover, Move]):
    """Fail an instance over to another node, or clean up after an interrupted failover."""

    hooks = HookPoint("instance-failover", ObjectType.INSTANCE)
    doing = "fail over"

    def plan(self, found: Move) -> Move:
        """Refuse an instance that cannot be failed over, or not there."""
        view, source = found.view, found.view.primary
        check_movable(view, self.doing)
        if self.op.cleanup:
            return found
        check_other_node(view, found.goal)
        if view.instance.admin_state is AdminState.OFFLINE:
            raise wrong_state(
                f"instance {view.instance.name!r} is marked offline and cannot be failed over"
            )
        if source.drained:
            self.context.info(f"source node {source.name} is drained")
        check_failover(self.context, view, found.goal, ignore_ipolicy=self.op.ignore_ipolicy)
        return found

    def hook_nodes(self, plan: Move) -> Sequence[Node]:
        return [self.master, *([plan.target] if plan.target else [])]

    def hook_nodes_after(self, plan: Move) -> Sequence[Node]:
        return [*self.hook_nodes(plan), plan.view.primary]

    def own_values(self, plan: Move) -> Mapping[str, object]:
        return {
            "FAILOVER_CLEANUP": self.op.cleanup,
            "IGNORE_CONSISTENCY": self.op.ignore_consistency,
            "SHUTDOWN_TIMEOUT": self.op.shutdown_timeout,
            **nodes_of_move(plan),
        }

    def execute(self, plan: Move) -> None:
        if self.op.cleanup:
            clean_up(self.context, plan)
        else:
            fail_over(
                self.context,
                plan.view,
                plan.goal,
                shutdown_timeout_s=self.op.shutdown_timeout,
                ignore_consistency=self.op.ignore_consistency,
                reason=self.op.reason or [],
            )

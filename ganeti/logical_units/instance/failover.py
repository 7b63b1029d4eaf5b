"""Stop an instance on one node and start it on another that reaches its disks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from ganeti.base.errors import ErrorCode, GenericError, OpExecError, OpPrereqError
from ganeti.logical_units.instance import disks
from ganeti.logical_units.instance.cleanup import clean_up
from ganeti.logical_units.instance.memory import reserve_memory
from ganeti.logical_units.instance.power import check_not_offline, own_hvparams
from ganeti.logical_units.instance.subject import InstanceUnit, Subject
from ganeti.logical_units.instance.target import (
    check_movable,
    check_target,
    find_target,
    locks_for_move,
    locks_for_search,
    nodes_to_search,
    record_move,
    require_target,
)
from ganeti.logical_units.lock_plan import LockLevel, LockNeed
from ganeti.logical_units.node_calls import call_node, failure_text, order
from ganeti.objects.admin_state import AdminState
from ganeti.objects.fill import fill_beparams
from ganeti.opcodes.instance import OpInstanceFailover

if TYPE_CHECKING:
    from ganeti.base.ids import NodeUuid
    from ganeti.logical_units.context import JobContext
    from ganeti.objects.node import Node


def check_failover(
    context: JobContext, subject: Subject, target: Node, *, ignore_ipolicy: bool
) -> None:
    """Refuse a failover that cannot work; reserves memory if the instance is meant to run."""
    check_not_offline(subject)
    check_target(context, subject, target, ignore_ipolicy=ignore_ipolicy)
    if subject.instance.admin_state is AdminState.UP:
        reserve_memory(
            context,
            target,
            f"instance {subject.instance.name!r}",
            fill_beparams(subject.cluster, subject.instance)["minmem"],
            subject.instance.hypervisor,
            own_hvparams(subject),
        )


def fail_over(
    context: JobContext,
    subject: Subject,
    target: Node,
    *,
    shutdown_timeout_s: int,
    ignore_consistency: bool,
    reason: object,
) -> None:
    """Stop the instance where it is, make the target its primary node, start it there.

    Raises:
        OpExecError: says on which node the instance is now, and whether it runs.
    """
    _stop_at_source(context, subject, shutdown_timeout_s, ignore_consistency, reason)
    record_move(context, subject, target)
    name = subject.instance.name
    if subject.instance.admin_state is not AdminState.UP:
        context.feedback(f"* instance {name} is meant to be down, not starting it")
        return
    context.feedback(f"* starting the instance on the target node {target.name}")
    wire = subject.wire(primary_node=target.uuid)
    try:
        order(context, target, f"start instance {name!r}", "instance_start", wire, False, reason)
    except GenericError as err:
        disks.deactivate(context, subject, target)
        raise OpExecError(
            f"{err}; the instance is down, its primary node is {target.name} now: start it there"
            f" with 'gnt-instance startup {name}' once that is mended, or fail it back with"
            f" 'gnt-instance failover -n {subject.primary.name} {name}'"
        ) from err


def _stop_at_source(
    context: JobContext,
    subject: Subject,
    timeout_s: int,
    ignore_consistency: bool,
    reason: object,
) -> None:
    source, name = subject.primary, subject.instance.name
    if source.offline:
        context.warn(
            f"primary node {source.name} is marked offline: nobody can stop {name} there; make sure"
            " that it is switched off"
        )
        return
    context.feedback(f"* shutting down instance on source node {source.name}")
    result = call_node(context, source, "instance_shutdown", subject.wire(), timeout_s, reason)
    if result.error is not None:
        text = failure_text(f"shut down instance {name!r}", source, "instance_shutdown", result)
        if not ignore_consistency:
            raise OpExecError(
                f"{text}; nothing was changed: mark the node offline if it is dead, or use"
                " --ignore-consistency if the instance certainly does not run there"
            )
        context.warn(f"{text}; ignoring, make sure that node {source.name} is dead")
        return
    disks.deactivate(context, subject, source)


class LUInstanceFailover(InstanceUnit[OpInstanceFailover]):
    """Fail an instance over to another node, or put right what an interrupted one has left."""

    chosen: NodeUuid | None = None  # by an allocator

    def take_over(self, earlier: Self) -> None:
        """Stay with the node that the allocator chose; memory on it is reserved."""
        self.chosen = earlier.target.uuid if earlier.target else None

    def expand_names(self) -> None:
        """Read the instance, and look the target up, or have one chosen."""
        super().expand_names()
        self.target = find_target(
            self.context, self.subject, self.op, self.chosen, doing="fail over"
        )

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the instance, and the nodes that it is or may be on."""
        locks = locks_for_search if self.op.cleanup else locks_for_move
        return locks(level, self.subject, self.target)

    def check_prereq(self) -> None:
        """Refuse what cannot be failed over, or not there."""
        check_movable(self.subject, "fail over")
        if self.op.cleanup:
            return
        self.target = require_target(self.subject, self.target)
        source = self.subject.primary
        if self.instance.admin_state is AdminState.OFFLINE:
            raise OpPrereqError(
                f"instance {self.instance.name!r} is marked offline and cannot be failed over",
                ErrorCode.STATE,
            )
        if source.drained:
            self.context.info(f"source node {source.name} is drained")
        check_failover(
            self.context, self.subject, self.target, ignore_ipolicy=self.op.ignore_ipolicy
        )

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Run hooks on master and target, and afterwards on the old primary node as well."""
        nodes = [self.master, *([self.target] if self.target else [])]
        return nodes, [*nodes, self.subject.primary]

    def own_env(self) -> Mapping[str, object]:
        """Tell from where to where it goes."""
        return {
            "FAILOVER_CLEANUP": self.op.cleanup,
            "IGNORE_CONSISTENCY": self.op.ignore_consistency,
            "SHUTDOWN_TIMEOUT": self.op.shutdown_timeout,
            "OLD_PRIMARY": self.subject.primary.name,
            "NEW_PRIMARY": self.target.name if self.target else "",
            "OLD_SECONDARY": "",
            "NEW_SECONDARY": "",
        }

    def exec(self) -> None:
        """Do it."""
        if self.op.cleanup:
            clean_up(
                self.context, self.subject, nodes_to_search(self.config, self.subject, self.target)
            )
            return
        assert self.target is not None
        fail_over(
            self.context,
            self.subject,
            self.target,
            shutdown_timeout_s=self.op.shutdown_timeout,
            ignore_consistency=self.op.ignore_consistency,
            reason=self.op.reason,
        )

"""Stop an instance on one node and start it on another that reaches its disks.

Also the clean-up after an interrupted migration or failover, which makes the configuration name the
node where the instance runs.  Its decision is a plain function over the answers of the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final

from ganeti.base.errors import GenericError, OpExecError, wrong_state
from ganeti.base.text import natural_sorted
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance import guest
from ganeti.logical_units.instance.base import WithTarget
from ganeti.logical_units.instance.moving.anywhere import (
    fail_over_anywhere,
    find_keeper,
    leading_back,
)
from ganeti.logical_units.instance.moving.mirrors import BothWrite, accept_outdated, check_copies
from ganeti.logical_units.instance.moving.target import (
    MoveUnit,
    check_finds_disks,
    check_movable,
    check_other_node,
    check_target,
    record_move,
    where_it_may_be,
)
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.storage.disks import mirrored
from ganeti.logical_units.instance.storage.lvm_disks import check_room
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.fill import fill_beparams
from ganeti.objects.model import AdminState, LiveState, Node
from ganeti.opcodes.instance import OpInstanceFailover
from ganeti.protocol.node_calls import NodeCalls


def check_failover(
    context: JobContext, view: InstanceView, target: Node, *, ignore_ipolicy: bool
) -> None:
    """Refuse a failover that cannot work; reserves memory if the instance is meant to run."""
    guest.check_not_offline(view)
    check_target(context, view, target, ignore_ipolicy=ignore_ipolicy)
    check_finds_disks(context, view, target)
    if view.instance.admin_state is AdminState.UP:
        needed_mib = fill_beparams(view.cluster, view.instance)["minmem"]
        guest.reserve_for(context, view, target, needed_mib)


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
    goes_anywhere = view.needs_own_nodes and target.uuid not in [node.uuid for node in view.nodes]
    look: Callable[[], Node | None] = partial(find_keeper, context, view)
    if not goes_anywhere:
        look = partial(check_copies, context, view, target, ignore_consistency=ignore_consistency)
        if mirrored(view):
            context.feedback("* checking disk consistency between source and target")
    keeper = look()
    if _stop_at_source(context, view, target, shutdown_timeout_s, ignore_consistency, reason):
        wrote = view.instance.admin_state is AdminState.UP
        if wrote and (goes_anywhere or not ignore_consistency):
            # It wrote until it was down, and the copies may have lost each other meanwhile.
            with leading_back(context, view, reason):
                keeper = look()
        disks.deactivate(context, view, view.primary)
    if keeper is not None:
        fail_over_anywhere(context, view, target, keeper, reason)
        return
    if ignore_consistency:
        accept_outdated(context, view, target)
    name = view.name
    try:
        record_move(context, view, target)
    except GenericError as err:
        raise OpExecError(
            f"the new primary node of instance {name!r}, which is down now, could not be recorded:"
            f" {err}; see its primary node with 'gnt-instance info {name}', and start it with"
            f" 'gnt-instance startup {name}' once that is mended"
        ) from err
    if view.instance.admin_state is not AdminState.UP:
        context.feedback(f"* instance {name} is meant to be down, not starting it")
        if mirrored(view) and not view.instance.disks_active:
            disks.deactivate(context, view, target)
        return
    context.feedback(f"* starting the instance on the target node {target.name}")
    try:
        ignore = ignore_consistency
        guest.start_on(context, view, target, reason, ignore_secondaries=ignore)
    except GenericError as err:
        raise OpExecError(
            f"{err}; the instance is down, its primary node is {target.name} now: start it there"
            f" with 'gnt-instance startup {name}' once that is mended, or fail it back with"
            f" 'gnt-instance failover -n {view.primary.name} {name}'"
        ) from err


def _stop_at_source(
    context: JobContext,
    view: InstanceView,
    target: Node,
    timeout_s: int,
    ignore_consistency: bool,
    reason: Sequence[object],
) -> bool:
    """Stop the guest; returns whether that was done, by a node that still has the disks open.

    A node that cannot be asked does not tell either that the guest has left it.

    Raises:
        OpExecError: it may run on, there or on a third node; nothing was changed.
    """
    source, name = view.primary, view.name
    if source.offline:
        context.warn(
            f"primary node {source.name} is marked offline: nobody can stop {name} there; make sure"
            " that it is switched off"
        )
        _check_third_nodes(context, view, target, ignore_silent=ignore_consistency)
        return False
    context.feedback(f"* shutting down instance on source node {source.name}")
    failure = guest.why_not_stopped(context, view, timeout_s, reason)
    if failure is not None:
        if not ignore_consistency:
            raise OpExecError(
                f"{failure}; nothing was changed: mark the node offline if it is dead, or use"
                " --ignore-consistency if the instance certainly does not run there"
            )
        context.warn(f"{failure}; ignoring, make sure that node {source.name} is dead")
        _check_third_nodes(context, view, target, ignore_silent=ignore_consistency)
        return False
    return True


def _check_third_nodes(
    context: JobContext, view: InstanceView, target: Node, *, ignore_silent: bool
) -> None:
    """Refuse an instance that runs on neither of both nodes, after a broken-off migration.

    Raises:
        OpExecError: it runs there, or may; names the node and the next command.
    """
    name, known = view.name, (view.primary.uuid, target.uuid)
    third = [node for node in where_it_may_be(context, view) if node.uuid not in known]
    seen = look(context, view, third)
    running, silent = _with(seen, Seen.RUNNING), _with(seen, Seen.UNKNOWN)
    if running:
        raise OpExecError(
            f"instance {name!r} runs on {', '.join(running)}, where a migration that was broken"
            f" off has left it; nothing was changed: 'gnt-instance migrate --cleanup {name}'"
            " records where it runs"
        )
    if silent and not ignore_silent:
        raise OpExecError(
            f"{_nobody_knows(silent)}, or use --ignore-consistency if it certainly does not;"
            " nothing was changed"
        )
    if silent:
        context.warn(f"{_nobody_knows(silent)}; ignoring")


class Seen(Enum):
    """The state of an instance, as one node reports it."""

    RUNNING = "runs"
    STOPPED = "is there but stands still"
    ABSENT = "is not there"
    UNKNOWN = "no answer"


class Step(Enum):
    """One step of a clean-up, on one node."""

    CLEAR = "remove a guest that waits for its memory"
    LET_RUN = "end a guest's arrival"
    FORGET = "remove a guest whose memory has left"
    RESUME = "end a guest's departure and let it go on"
    SETTLE = "find out whether a guest that stands still has run elsewhere since"


@dataclass(frozen=True, slots=True)
class CleanupPlan:
    """The node that is to be the primary one, and the steps by node, in order."""

    primary: str
    steps: tuple[tuple[str, Step], ...]
    finding: str


def plan_cleanup(primary: str, seen: Mapping[str, Seen]) -> CleanupPlan:
    """Decide on the steps; nodes go by their names.

    Raises:
        OpExecError: it is not certain that only one copy would run.
    """
    silent = _with(seen, Seen.UNKNOWN)
    if silent:
        raise OpExecError(_nobody_knows(silent))
    running = _with(seen, Seen.RUNNING)
    if len(running) > 1:
        raise OpExecError(
            f"the instance runs on more than one node: {', '.join(running)}; stop it by hand on all"
            " but one, then try again"
        )
    owner = running[0] if running else primary
    rest = [name for name in natural_sorted(seen) if name != owner]
    # A guest that stands still elsewhere has given its memory away: it must never go on there.
    steps = [(name, Step.FORGET if seen[name] is Seen.STOPPED else Step.CLEAR) for name in rest]
    if owner != primary:
        steps.append((owner, Step.LET_RUN))
    if owner == primary and primary in seen:
        steps.append((primary, _AT_PRIMARY[seen[primary]]))
    return CleanupPlan(owner, tuple(steps), _finding(primary, owner, seen))


# Where nothing is, only the note of a departure may be cleared.  One that "runs" may have been
# stopped to be moved, or be sending its memory still.
_AT_PRIMARY: Final[Mapping[Seen, Step]] = {
    Seen.RUNNING: Step.RESUME,
    Seen.STOPPED: Step.SETTLE,
    Seen.ABSENT: Step.CLEAR,
}


def _nobody_knows(silent: Sequence[str]) -> str:
    return (
        f"node(s) {', '.join(silent)} do not answer, so nobody knows whether the instance runs"
        " there; make them answer, or switch them off and mark them offline with"
        f" 'gnt-node modify --offline yes {silent[0]}'"
    )


def _finding(primary: str, owner: str, seen: Mapping[str, Seen]) -> str:
    if owner != primary:
        return f"instance runs on {owner}, not on {primary}: it has moved"
    match seen.get(primary):
        case Seen.RUNNING:
            return f"instance runs on its primary node {primary}"
        case Seen.STOPPED:
            return f"instance stands still on its primary node {primary}"
        case _:
            return "instance runs nowhere"


def _with(seen: Mapping[str, Seen], what: Seen) -> list[str]:
    return natural_sorted(name for name, state in seen.items() if state is what)


def look(context: JobContext, view: InstanceView, nodes: Sequence[Node]) -> dict[str, Seen]:
    """Ask nodes about an instance; nodes marked offline are believed to run nothing."""
    asked, instance = [node for node in nodes if not node.offline], view.instance
    results = context.nodes.call_all(
        NodeCalls.instance_info, asked, instance.name, instance.hypervisor, view.own_hvparams
    )
    return {
        name: _judge(result.payload) if result.error is None else Seen.UNKNOWN
        for name, result in results.items()
    }


def _judge(answer: object) -> Seen:
    if not isinstance(answer, Mapping) or not answer:
        return Seen.ABSENT
    return Seen.RUNNING if answer.get("state") == LiveState.RUNNING else Seen.STOPPED


def clean_up(context: JobContext, view: InstanceView) -> None:
    """Find out where the instance runs, and make configuration and nodes agree.

    A target that is named changes nothing: all nodes that may have the instance are asked.

    Raises:
        OpExecError: nothing was done, because it is not certain where the instance runs; or a step
            failed.
    """
    nodes = where_it_may_be(context, view)
    context.feedback("* checking where the instance actually runs")
    plan = plan_cleanup(view.primary.name, look(context, view, nodes))
    context.feedback(f"* {plan.finding}")
    by_name = {node.name: node for node in nodes}
    if plan.primary != view.primary.name:
        record_move(context, view, by_name[plan.primary])
    never_ran: list[Node] = []
    for name, planned in plan.steps:
        node = by_name[name]
        step = _settle(context, view, never_ran) if planned is Step.SETTLE else planned
        if step is not None and _do(context, view, node, step):
            never_ran.append(node)
    if view.instance.disks_active:
        BothWrite(context, view).forbid(by_name[plan.primary])
    context.feedback("* done")


def _settle(context: JobContext, view: InstanceView, never_ran: Sequence[Node]) -> Step | None:
    """Decide on a guest that stands still on its primary node; None to leave it.

    It may have run since on the node that it left for, and have ended there, together with that
    node perhaps.  Then its memory here is older than its disks.

    Args:
        never_ran: the nodes from which a guest was removed that had never been told to run.
    """
    name, node = view.name, view.primary
    address = guest.departure(context, view).check(f"cannot clean up instance {name}")
    if not address:
        context.info(f"instance {name} has not left node {node.name}: it is stopped there")
        return None
    if any(leads_to(address, each) for each in never_ran):
        context.info(f"instance {name} has not run elsewhere since, letting it go on")
        return Step.RESUME
    context.warn(
        f"instance {name} has left node {node.name} for the address {address} and may have run"
        " there since: its memory may be older than its disks, so what is left of it is removed;"
        f" 'gnt-instance startup {name}' boots it"
    )
    return Step.FORGET


def leads_to(address: str, node: Node) -> bool:
    """Tell whether an address that a node has accepted a guest at, perhaps with a port, is its."""
    own = node.secondary_ip
    return address == own or address.rpartition(":")[0] in (own, f"[{own}]")


def _do(context: JobContext, view: InstanceView, node: Node, step: Step) -> bool:
    """Carry out a step; returns whether a guest was removed that had never been told to run."""
    nodes = context.nodes.on(node, f"{step.value} (instance {view.name!r})")
    if step is Step.CLEAR:
        answer = nodes.instance_finalize_migration_dst(view.wire(node), "", success=False)
        return answer is True
    if step is Step.LET_RUN:
        wire = view.wire(node, primary_node=node.uuid)
        nodes.instance_finalize_migration_dst(wire, "", success=True)
    else:
        success = step is Step.FORGET
        nodes.instance_finalize_migration_src(view.wire(node), success=success, live=True)
    return False


class LUInstanceFailover(MoveUnit[OpInstanceFailover, WithTarget]):
    """Fail an instance over to another node, or clean up after an interrupted failover."""

    hooks = HookPoint("instance-failover", ObjectType.INSTANCE)
    doing = "fail over"
    goes_anywhere = True
    told = ("ignore_consistency", "shutdown_timeout")

    def plan(self, found: WithTarget) -> WithTarget:
        """Refuse an instance that cannot be failed over, or not there."""
        view, source = found.view, found.view.primary
        check_movable(view, self.doing)
        if self.op.cleanup:
            return found
        check_other_node(view, found.goal)
        if view.instance.admin_state is AdminState.OFFLINE:
            raise wrong_state(f"instance {view.name!r} is marked offline and cannot be failed over")
        if source.drained:
            self.context.info(f"source node {source.name} is drained")
        check_failover(self.context, view, found.goal, ignore_ipolicy=self.op.ignore_ipolicy)
        if view.needs_own_nodes and found.goal.uuid not in [node.uuid for node in view.nodes]:
            parts = [c for disk in view.disks if disk.traits.mirrored for c in disk.children]
            check_room(self.context, found.goal, parts)
        return found

    def hook_nodes(self, plan: WithTarget) -> Sequence[Node]:
        return [self.master, *([plan.target] if plan.target else [])]

    def hook_nodes_after(self, plan: WithTarget) -> Sequence[Node]:
        return [*self.hook_nodes(plan), plan.view.primary]

    def own_values(self, plan: WithTarget) -> Mapping[str, object]:
        return {**super().own_values(plan), "FAILOVER_CLEANUP": self.op.cleanup}

    def execute(self, plan: WithTarget) -> None:
        if self.op.cleanup:
            clean_up(self.context, plan.view)
        else:
            fail_over(
                self.context,
                plan.view,
                plan.goal,
                shutdown_timeout_s=self.op.shutdown_timeout,
                ignore_consistency=self.op.ignore_consistency,
                reason=self.op.reason or [],
            )

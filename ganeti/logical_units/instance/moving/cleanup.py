"""Clean up after an interrupted migration or failover: the instance is where it runs.

The decision is a plain function over what the nodes say; only then something is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from ganeti.base.errors import OpExecError
from ganeti.base.text import natural_sorted
from ganeti.logical_units import lookup
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.life.power import own_hvparams
from ganeti.logical_units.instance.moving.target import Move, record_move
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.model import LiveState, Node
from ganeti.protocol.node_calls import NodeCalls


class Seen(Enum):
    """The state of an instance, as one node reports it."""

    RUNNING = "runs"
    STOPPED = "is there but stands still"
    ABSENT = "is not there"
    UNKNOWN = "no answer"


class Step(Enum):
    """One step of a clean-up, on one node."""

    CLEAR = "remove a guest that waits for its memory"
    FORGET = "remove a guest whose memory has left"
    RESUME = "let a guest that stands still go on"


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
        raise OpExecError(
            f"node(s) {', '.join(silent)} do not answer, so nobody knows whether the instance runs"
            " there; make them answer, or switch them off and mark them offline with"
            f" 'gnt-node modify --offline yes {silent[0]}'"
        )
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
    if not running and seen.get(primary) is Seen.STOPPED:
        steps.append((primary, Step.RESUME))
    return CleanupPlan(owner, tuple(steps), _finding(primary, owner, seen))


def _finding(primary: str, owner: str, seen: Mapping[str, Seen]) -> str:
    if owner != primary:
        return f"instance runs on {owner}, not on {primary}: it has moved"
    match seen.get(primary):
        case Seen.RUNNING:
            return f"instance runs on its primary node {primary}"
        case Seen.STOPPED:
            return f"instance stands still on its primary node {primary}, letting it go on"
        case _:
            return "instance runs nowhere"


def _with(seen: Mapping[str, Seen], what: Seen) -> list[str]:
    return natural_sorted(name for name, state in seen.items() if state is what)


def look(context: JobContext, view: InstanceView, nodes: Sequence[Node]) -> dict[str, Seen]:
    """Ask nodes about an instance; nodes marked offline are believed to run nothing."""
    results = context.nodes.call_all(
        NodeCalls.instance_info,
        [node for node in nodes if not node.offline],
        view.instance.name,
        view.instance.hypervisor,
        own_hvparams(view),
    )
    return {
        name: _judge(result.payload) if result.error is None else Seen.UNKNOWN
        for name, result in results.items()
    }


def _judge(answer: object) -> Seen:
    if not isinstance(answer, Mapping) or not answer:
        return Seen.ABSENT
    return Seen.RUNNING if answer.get("state") == LiveState.RUNNING else Seen.STOPPED


def clean_up(context: JobContext, found: Move) -> None:
    """Find out where the instance runs, and make configuration and nodes agree.

    Raises:
        OpExecError: nothing was done, because it is not certain what is right; or a step failed.
    """
    view = found.view
    if found.where_it_may_be is None:
        nodes = [node for node in lookup.all_nodes(context.config) if node.vm_capable]
    else:
        nodes = [view.primary, found.goal]
    context.feedback("* checking where the instance actually runs")
    plan = plan_cleanup(view.primary.name, look(context, view, nodes))
    context.feedback(f"* {plan.finding}")
    by_name = {node.name: node for node in nodes}
    if plan.primary != view.primary.name:
        record_move(context, view, by_name[plan.primary])
    for name, step in plan.steps:
        _do(context, view, by_name[name], step)
    context.feedback("* done")


def _do(context: JobContext, view: InstanceView, node: Node, step: Step) -> None:
    wire = view.wire()
    what = f"{step.value} (instance {view.instance.name!r})"
    if step is Step.CLEAR:
        context.nodes.on(node, what).instance_finalize_migration_dst(wire, "", success=False)
    else:
        success = step is Step.FORGET
        context.nodes.on(node, what).instance_finalize_migration_src(
            wire, success=success, live=True
        )

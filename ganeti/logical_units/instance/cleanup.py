"""Put right what an interrupted migration or failover has left: find the instance, and believe it.

The decision is a plain function over what the nodes say; only then something is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ganeti.base.errors import OpExecError
from ganeti.base.text import natural_sorted
from ganeti.logical_units.instance.power import own_hvparams
from ganeti.logical_units.instance.target import record_move
from ganeti.logical_units.node_calls import call_nodes, order
from ganeti.objects.instance_status import LiveState

if TYPE_CHECKING:
    from ganeti.logical_units.context import JobContext
    from ganeti.logical_units.instance.subject import Subject
    from ganeti.objects.node import Node


class Seen(Enum):
    """What one node says about an instance."""

    RUNNING = "runs"
    STOPPED = "is there but stands still"
    ABSENT = "is not there"
    UNKNOWN = "no answer"


class Step(Enum):
    """What to do on one node."""

    CLEAR = "remove a guest that waits for its memory"
    FORGET = "remove a guest whose memory has left"
    RESUME = "let a guest that stands still go on"


@dataclass(frozen=True, slots=True)
class CleanupPlan:
    """Which node is to be the primary one, and what to do on which node, in order."""

    primary: str
    steps: tuple[tuple[str, Step], ...]
    finding: str


def plan_cleanup(primary: str, seen: Mapping[str, Seen]) -> CleanupPlan:
    """Decide what to do, by node names.

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
    # What stands still elsewhere has given its memory away: it must never go on there.
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


def look(context: JobContext, subject: Subject, nodes: Sequence[Node]) -> dict[str, Seen]:
    """Ask nodes about an instance; nodes marked offline are believed to run nothing."""
    results = call_nodes(
        context,
        [node for node in nodes if not node.offline],
        "instance_info",
        subject.instance.name,
        subject.instance.hypervisor,
        own_hvparams(subject),
    )
    return {
        name: _judge(result.payload) if result.error is None else Seen.UNKNOWN
        for name, result in results.items()
    }


def _judge(answer: object) -> Seen:
    if not isinstance(answer, Mapping) or not answer:
        return Seen.ABSENT
    return Seen.RUNNING if answer.get("state") == LiveState.RUNNING else Seen.STOPPED


def clean_up(context: JobContext, subject: Subject, nodes: Sequence[Node]) -> None:
    """Find out where the instance runs, and make configuration and nodes agree.

    Raises:
        OpExecError: nothing was done, because it is not certain what is right; or a step failed.
    """
    context.feedback("* checking where the instance actually runs")
    plan = plan_cleanup(subject.primary.name, look(context, subject, nodes))
    context.feedback(f"* {plan.finding}")
    by_name = {node.name: node for node in nodes}
    if plan.primary != subject.primary.name:
        record_move(context, subject, by_name[plan.primary])
    for name, step in plan.steps:
        _do(context, subject, by_name[name], step)
    context.feedback("* done")


def _do(context: JobContext, subject: Subject, node: Node, step: Step) -> None:
    wire = subject.wire()
    what = f"{step.value} (instance {subject.instance.name!r})"
    if step is Step.CLEAR:
        order(context, node, what, "instance_finalize_migration_dst", wire, "", False)
    else:
        success = step is Step.FORGET
        order(context, node, what, "instance_finalize_migration_src", wire, success, True)

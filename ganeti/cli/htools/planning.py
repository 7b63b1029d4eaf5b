"""``hbal --plan``: a whole plan first, what it comes to, and how far it is from the bound.

It is loaded only with that option.  Source: doc/balancing.md, "A whole plan".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from ganeti.allocation.balancing.search import Ends
from ganeti.allocation.balancing.steps import Limits
from ganeti.allocation.planning.bound import Bound, is_available
from ganeti.allocation.planning.plan import Figures, Plan, Task, applied, bound_of, make_plan, why
from ganeti.allocation.planning.search import Budget
from ganeti.base.errors import GenericError
from ganeti.cli.command import Options
from ganeti.cli.htools.frame import Run
from ganeti.cli.htools.printing import GIB, Column, table
from ganeti.system import clock

_BOUND_SHARE: Final = 0.25  # of the time
_PROGRESS_INTERVAL_S: Final = 0.5
_COLUMNS: Final = (Column(""), Column("step by step", True), Column("plan", True))


class Outcome(Struct, frozen=True):
    """A plan, its bound if that can be computed, and the reasons of its steps."""

    plan: Plan
    bound: Bound | None
    reasons: tuple[str, ...]


class _Watch:
    """Tells when the time is over, and until then how far the work is, on a screen."""

    def __init__(self, run: Run, seconds: float) -> None:
        self._run = run
        self._started = self._shown = clock.monotonic()
        self._seconds = seconds

    def __call__(self, phase: str, part: float) -> bool:
        now = clock.monotonic()
        terminal = self._run.context.terminal
        if phase and terminal.is_screen and now - self._shown > _PROGRESS_INTERVAL_S:
            self._shown = now
            spent = now - self._started
            left = max(0.0, self._seconds - spent)
            if part > 0:
                left = min(left, spent * (1 - part) / part)
            text = f"{phase}: {part:.0%}" if part else phase
            terminal.progress(f"{text}, ETA {left:.0f}s at most")
        return now - self._started > self._seconds


def planned(run: Run, group: str, limits: Limits, ends: Ends) -> Outcome:
    """Find a plan for a group (UUID), and its bound.

    Raises:
        GenericError: an option makes no sense.
    """
    options = run.options
    task = Task(run.state, group, limits, ends, _budget(options), options.migration_downtime)
    seconds = options.plan_time
    if seconds <= 0:
        raise GenericError(f"--plan-time: {seconds:g} is no time to find a plan in")
    watch = _Watch(run, seconds * (1 - _BOUND_SHARE) if is_available() else seconds)
    plan = make_plan(task, watch)
    bound = None
    if is_available():
        bound_watch = _Watch(run, seconds * _BOUND_SHARE)
        bound = bound_of(task, plan, lambda part: bound_watch("bound", part))
    if run.context.terminal.is_screen:
        run.context.terminal.progress("")
    return Outcome(plan, bound, tuple(_reasons(task, plan)))


def _budget(options: Options) -> Budget:
    limits = {
        "moves": options.max_length,
        "data": options.max_data,
        "downtime": options.max_downtime,
    }
    given = {name: float(value) for name, value in limits.items() if value is not None}
    for name, value in given.items():
        if value < 0:
            raise GenericError(f"the most {name} of a plan cannot be {value:g}")
    return Budget(**given)


def _reasons(task: Task, plan: Plan) -> list[str]:
    reasons, cluster = [], task.cluster
    for done in plan.steps:
        after = applied(cluster, done.step)
        reasons.append(why(cluster.groups[task.group], after.groups[task.group]))
        cluster = after
    return reasons


def tell_plan(run: Run, outcome: Outcome) -> None:
    """Print what the plan comes to, beside hbal's own steps, and the bound."""
    plan, bound = outcome.plan, outcome.bound
    rows = [(title, shown(plan.greedy), shown(plan.figures)) for title, shown in _ROWS.items()]
    run.say("")
    run.context.terminal.write_lines([line.rstrip() for line in table(_COLUMNS, rows, "")])
    if plan.downtimes:
        name, seconds = max(plan.downtimes.items(), key=lambda each: each[1])
        run.say(f"Longest downtime of one instance: {seconds:.2f}s, {name}", 1)
    if not plan.reaches_target:
        run.say(f"Without limits hbal's own steps reach the score {plan.target:.8f}.")
    if plan.is_cut:
        run.say("The time was over before all was tried; --plan-time gives more.")
    if bound is None:
        run.say("To tell how good the plan can be at all, install highspy.")
        return
    run.context.terminal.write_lines(_bound_lines(plan, bound))


def _bound_lines(plan: Plan, bound: Bound) -> list[str]:
    if plan.reaches_target:
        data = plan.figures.data
        least = min(bound.data, data)
        text = (
            f"No plan for the score {plan.target:.8f} copies less than {_size(least)};"
            f" this one copies {_size(data)}{_above(data, least)}."
        )
    else:
        score, least = plan.figures.score, min(bound.score, plan.figures.score)
        text = (
            f"No plan within the limits has a score below {least:.8f};"
            f" this one has {score:.8f}{_above(score, least)}."
        )
    lines = [text]
    if bound.holders:
        lines.append(f"Held there by: {', '.join(bound.holders)}")
    if bound.is_cut:
        lines.append("The time was over before the bound was as high as it can be.")
    return lines


def _above(value: float, least: float) -> str:
    if value <= least * (1 + 1e-6):
        return ", which is the least"
    return f", {value / least - 1:.0%} more" if least > 0 else ""


def _size(mib: float) -> str:
    return f"{mib / GIB:.1f} GiB"


_ROWS: Final[dict[str, Callable[[Figures], str]]] = {
    "Score": lambda figures: f"{figures.score:.8f}",
    "Moves": lambda figures: str(figures.moves),
    "Data copied": lambda figures: _size(figures.data),
    "Downtime": lambda figures: f"{figures.downtime:.2f}s",
}

"""``hbal``: balances a node group by moves of its instances.

Source: cli.json, "htools"; manual page hbal(1).  The forms of the output are those of 3.0.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from shlex import quote
from typing import Final

from msgspec.structs import replace

from ganeti.allocation.answers import opcode
from ganeti.allocation.balancing.search import Done, Ends, Search
from ganeti.allocation.balancing.steps import FAILOVER, Limits, Step
from ganeti.allocation.load import NodeLoad
from ganeti.allocation.model import Group, InstanceStatus, Rules
from ganeti.allocation.score import least_reserve
from ganeti.allocation.sources.text_data import to_text
from ganeti.allocation.state import ClusterState, GroupState, snapshot_after
from ganeti.base.errors import GenericError
from ganeti.base.json import dumps
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options
from ganeti.cli.declaration.program import single_program
from ganeti.cli.htools.executing import Job, carry_out
from ganeti.cli.htools.frame import Run, group_of, start
from ganeti.cli.htools.options import MOND, SOURCES, shared
from ganeti.cli.htools.printing import component_table, count_hit
from ganeti.cli.htools.sources import write_file

_TOLD_IN_FULL: Final = 3  # the verbosity from which on components are printed
# Loaded with --plan only: it brings a solver.
_PLANNING: Final = "ganeti.cli.htools.planning"
_FOR_PLANS: Final = ("max_data", "max_downtime")
_STOP_FILE: Final = "/tmp/stop-htools"  # noqa: S108 - the name that operators know
SCRIPT: Final = f"""#!/bin/sh

# Auto-generated script for executing cluster rebalancing

# To stop, touch the file {_STOP_FILE}

set -e

check() {{
  if [ -f {_STOP_FILE} ]; then
    echo 'Stop requested, exiting'
    exit 0
  fi
}}

"""


def balance(context: Context, options: Options, _args: list[str]) -> int:
    """Find moves, tell about them, and carry them out with ``--exec``.

    Returns:
        The exit status.

    Raises:
        GenericError: there is no source of data, it cannot be read, or an option is wrong.
    """
    if options.exec and options.luxi is None:
        raise GenericError(
            "--exec: jobs can only be submitted through the master daemon; use --luxi"
        )
    for name in _FOR_PLANS:
        if options.get(name) is not None and not options.plan:
            raise GenericError(f"--{name.replace('_', '-')} limits a plan; use it with --plan")
    ends = ends_of(options)
    run = start(context, options)
    nodes, instances = run.snapshot.nodes, run.snapshot.instances
    run.say(f"Loaded cluster tags: {','.join(run.snapshot.tags)}", 2)
    run.say(f"Loaded cluster ipolicy: {dumps(run.snapshot.ipolicy).decode()}", 3)
    if not instances:
        run.say("Cluster is empty, exiting.")
        return EXIT_SUCCESS
    run.say(f"Loaded {len(nodes)} nodes, {len(instances)} instances")  # of one too, as with 3.0
    group = group_of(run, options.group)
    _tell_group(run, group)
    if options.save is not None:
        _save(run, run.state, "before", "original")
    run.print_instances("Initial instance map:", only=group.uuid)
    run.print_nodes("Initial cluster status:", only=[group.uuid])
    first = run.state.groups[group.uuid]
    score = first.exact_score
    _tell_score(run, first, "Initial coefficients: overall", "Initial score:")
    least = least_reserve(first.loads.values())
    ends = replace(ends, score_min=least + options.min_score)
    if score <= ends.score_min:
        run.say(f"Cluster is already well balanced (initial score {_short(score)},")
        run.say(f"optimum score due to N+1 reservations {_short(least)},")
        run.say(f"minimum score {_short(options.min_score)}).\nNothing to do, exiting")
        return EXIT_SUCCESS
    run.say("Trying to minimize the CV...")
    done, last = _found(run, group, ends)
    _tell_result(run, group, last, score, len(done))
    if options.print_commands is not None:
        _print_commands(run, [each.step for each in done], options.print_commands)
    if options.save is not None:
        _save(run, last, "after", "balanced")
    run.print_instances("Final instance map:", last, only=group.uuid)
    run.print_nodes("Final cluster status:", last, only=[group.uuid])
    if not options.exec:
        return EXIT_SUCCESS
    sets = job_sets([each.step for each in done])
    return carry_out(context, options, [[job_of(step) for step in jobs] for jobs in sets])


def _found(run: Run, group: Group, ends: Ends) -> tuple[list[Done], ClusterState]:
    """Find steps and print them; return them, and the cluster after them."""
    limits = limits_of(run.options)
    if not run.options.plan:
        search = Search(run.state, group.uuid, limits, ends)
        return list(_told(run, group, search.steps())), search.cluster()
    planning = import_module(_PLANNING)
    outcome = planning.planned(run, group.uuid, limits, ends)
    done: list[Done] = []
    for each, reason in zip(_told(run, group, outcome.plan.steps), outcome.reasons, strict=True):
        run.say(f"       because of {reason}", 2)
        done.append(each)
    planning.tell_plan(run, outcome)
    return done, outcome.plan.cluster


def ends_of(options: Options) -> Ends:
    """Return when to end a search, as the options say.

    Raises:
        GenericError: a number of moves cannot be.
    """
    count = options.max_length
    if count is not None and count < 0:
        raise GenericError(f"--max-length: {count} is no number of moves")
    return Ends(options.min_score, options.min_gain, options.min_gain_limit, count)


_FIXED: Final = (0.1, 1e7)  # smaller and larger numbers are told with an exponent


def _short(value: float) -> str:
    if not value or _FIXED[0] <= value < _FIXED[1]:
        return f"{value:.6f}"
    mantissa, _, exponent = f"{value:.6e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def limits_of(options: Options) -> Limits:
    """Return the moves that the options allow."""
    return Limits(
        Rules(ignores_soft=bool(options.ignore_soft_errors), checks_capacity=False),
        moves_disks=not options.no_disk_moves,
        moves_instances=not options.no_instance_moves,
        only_evacuates=bool(options.evac_mode),
        restricts_migration=bool(options.get("restricted_migration")),
    )


def _tell_group(run: Run, group: Group) -> None:
    loads = run.state.groups[group.uuid].loads
    instances = run.snapshot.instances.values()
    count = sum(each.primary in loads for each in instances)
    run.say(f"Group size {len(loads)} nodes, {count} instances")
    run.say(f"Selected node group: {group.name}")
    bad = {name for name, load in loads.items() if load.fails_n1}
    hit = count_hit(instances, bad)
    run.say(f"Initial check done: {len(bad)} bad nodes, {hit} bad instances.", 1)
    if bad:
        run.say(
            "Cluster is not N+1 happy, continuing but no guarantee"
            " that the cluster will end N+1 happy."
        )
    strained = sum(_is_strained(load) for load in loads.values())
    if strained and not run.options.ignore_soft_errors:
        run.say(f"The cluster contains {strained} policy-violating nodes.")
        run.say(
            "Continuing, but the set of moves might be too restricted;"
            " consider using the --ignore-soft-errors option."
        )


def _is_strained(load: NodeLoad) -> bool:
    """Tell whether a node has more virtual CPUs or spindle use than its policy allows."""
    node = load.node
    over = not node.exclusive_storage and load.spindle_use > node.spindles_max
    return over or load.vcpus > node.vcpus_max


def _tell_score(run: Run, state: GroupState, full: str, short: str = "") -> None:
    """Print the score of the group, in full if so much is wanted."""
    if run.verbosity >= _TOLD_IN_FULL:
        run.say(f"{full} {state.exact_score:.8f}")
        run.context.terminal.write_lines(component_table(state.components))
    elif short:
        run.say(f"{short} {state.exact_score:.8f}")


def _told(run: Run, group: Group, steps: Iterable[Done]) -> Iterable[Done]:
    """Print each step as soon as it is found."""
    state = run.state.groups[group.uuid]
    instances = run.snapshot.instances.values()
    longest = max((len(each.name) for each in instances if each.primary in state.loads), default=0)
    width = 2 * max((len(name) for name in state.loads), default=0) + 1
    for number, done in enumerate(steps, 1):
        step = done.step
        old, new = (":".join(each.nodes).ljust(width) for each in (step.before, step.after))
        name = step.before.name.ljust(longest)
        run.say(f"{number:5}. {name} {old} => {new} {done.score:12.8f} a={' '.join(step.actions)}")
        yield done


def _tell_result(run: Run, group: Group, last: ClusterState, score: float, count: int) -> None:
    state = last.groups[group.uuid]
    if run.verbosity >= _TOLD_IN_FULL and count:
        _tell_score(run, state, "Final coefficients:   overall")
    elif count:
        run.say(f"Cluster score improved from {score:.8f} to {state.exact_score:.8f}")
    else:
        run.say("No solution found")
    run.say(f"Solution length={count}", 1)
    if run.verbosity > _TOLD_IN_FULL:
        for when, cluster in (("Original:", run.state), ("Final:", last)):
            loads = cluster.groups[group.uuid].loads.values()
            memory = sum(load.present_free_memory for load in loads)
            disk = sum(load.free_disk + load.promised.disk for load in loads)
            run.say(f"{when:9} mem={memory} disk={disk}")


def _save(run: Run, state: ClusterState, when: str, suffix: str) -> None:
    path = f"{run.options.save}.{suffix}"
    write_file(path, to_text(snapshot_after(run.snapshot, state)))
    run.warn([f"The cluster state {when} balancing has been written to file '{path}'"])


def job_sets(steps: Sequence[Step]) -> list[list[Step]]:
    """Return the steps in sets of those that follow each other and share no node."""
    sets: list[list[Step]] = []
    used: frozenset[str] = frozenset()
    for step in steps:
        if not sets or not used.isdisjoint(step.nodes):
            sets.append([])
            used = frozenset()
        sets[-1].append(step)
        used |= step.nodes
    return sets


def job_of(step: Step) -> Job:
    """Return the job of a step; an instance that does not run is failed over by it."""
    name = step.before.name
    return Job(name, [opcode(name, part) for part in step.parts])


def command_lines(steps: Sequence[Step], check: Sequence[str] = ()) -> list[str]:
    """Return the commands that carry steps out, each after the lines ``check``."""
    lines = []
    for number, jobs in enumerate(job_sets(steps), 1):
        lines += ["", f"echo jobset {number}, {len(jobs)} jobs"]
        for place, step in enumerate(jobs, 1):
            lines += [f"  echo job {number}/{place}", *check]
            lines += [f"  gnt-instance {command}" for command in _commands(step)]
    return lines


def _commands(step: Step) -> list[str]:
    name = quote(step.before.name)
    runs = step.before.status in (InstanceStatus.RUNNING, InstanceStatus.ERROR_UP)
    switch = "migrate -f" if runs else "failover -f"
    commands = []
    for action in step.actions:
        _, _, node = action.partition(":")
        if action == FAILOVER:
            commands.append(f"{switch} {name}")
        elif action.startswith("fa:"):
            commands.append(f"{switch} -n {quote(node)} {name}")
        else:
            commands.append(f"replace-disks -n {quote(node)} {name}")
    return commands


def _print_commands(run: Run, steps: Sequence[Step], path: str) -> None:
    if path:
        lines = command_lines(steps, check=["  check"])
        write_file(path, SCRIPT + "".join(f"{line}\n" for line in lines))
        run.say(f"The commands have been written to file '{path}'")
        return
    run.say("\nCommands to run to reach the above solution:")
    run.context.terminal.write_lines([f"  {line}" for line in command_lines(steps)])


PROGRAM: Final = single_program(
    "hbal",
    "balance a node group by moves of its instances",
    """Reads a cluster from the master daemon, the remote API or a file, and finds moves of
instances within a node group that make its score better, each time the best of all.  It prints
them, with -C the commands for them too, and with -X it carries them out by jobs.""",
    balance,
    options=shared(
        SOURCES,
        "simulate print-nodes print-instances verbose quiet offline static-kvm-node-memory",
        "dynu-file ignore-dynu mond-xen exit-on-missing-mond-data exclusion-tags",
        "max-cpu min-disk group max-length min-score min-gain min-gain-limit evac-mode",
        "restricted-migration no-disk-moves no-instance-moves select-instances exclude-instances",
        "plan max-data max-downtime migration-downtime plan-time",
        "ignore-soft-errors exec first-job-group reason priority print-commands save",
        MOND,
    ),
    value_status=EXIT_FAILURE,
    manual_section=1,
)

"""``hinfo``: tells about a cluster as the tools for placement see it.

Source: cli.json, "htools"; manual page hinfo(1).
"""

from __future__ import annotations

from typing import Final

from ganeti.allocation.score import score_of
from ganeti.base.json import dumps
from ganeti.cli.command import EXIT_FAILURE, Context, Options
from ganeti.cli.declaration.program import single_program
from ganeti.cli.htools.frame import Run, counted, start
from ganeti.cli.htools.options import MOND, SOURCES, shared
from ganeti.cli.htools.printing import Column, component_table, count_hit, table


def tell(context: Context, options: Options, _args: list[str]) -> None:
    """Tell about the cluster.

    Raises:
        GenericError: there is no source of data, or it cannot be read.
    """
    run = start(context, options)
    snapshot, state = run.snapshot, run.state
    run.say(f"Loaded cluster tags: {','.join(snapshot.tags)}")
    run.say(f"Loaded cluster ipolicy: {dumps(snapshot.ipolicy).decode()}", 3)
    numbers = (
        counted(len(snapshot.nodes), "node"),
        counted(len(snapshot.instances), "instance"),
        counted(len(snapshot.groups), "node group"),
    )
    run.say(f"Loaded {', '.join(numbers)}")
    _tell_groups(run)
    is_happy = not any(load.fails_n1 for load in state.loads)
    run.say(f"Cluster is N+1 {'happy' if is_happy else 'unhappy'}")
    run.say("Cluster coefficients:")
    components = state.components
    context.terminal.write_lines(component_table(components))
    run.say(f"Cluster score: {score_of(components):.8f}")
    run.print_instances("Instances instance map:")
    run.print_nodes("Cluster status:")


def _tell_groups(run: Run) -> None:
    nodes = run.snapshot.nodes
    split: list[str] = []
    members = dict.fromkeys(run.snapshot.groups, 0)  # by primary node
    for each in run.snapshot.instances.values():
        members[nodes[each.primary].group] += 1
        if len({nodes[name].group for name in each.nodes}) > 1:
            split.append(each.name)
    if split:
        run.say("Found instances belonging to multiple node groups:")
        run.warn(f"  {name}" for name in split)
    else:
        run.say("No split instances found", 2)
    if run.verbosity < 2:
        return
    rows = []
    for uuid, state in run.state.groups.items():
        bad = {name for name, load in state.loads.items() if load.fails_n1}
        hit = count_hit(run.snapshot.instances.values(), bad)
        counts = len(state.loads), members[uuid], len(bad), hit
        row = [state.group.name, *map(str, counts), str(not bad), f"{state.exact_score:.8f}"]
        rows.append(row)
    run.say("Node group information:")
    run.context.terminal.write_lines(table(_GROUP_COLUMNS, rows, "   "))


_GROUP_COLUMNS: Final = (
    Column("Group"),
    *(Column(title, True) for title in ("Nodes", "Instances", "Bad_Nodes", "Bad_Instances")),
    *(Column("N+1"), Column("Score", True)),
)

PROGRAM: Final = single_program(
    "hinfo",
    "tell about a cluster as the tools for placement see it",
    """Reads a cluster from the master daemon, the remote API or a file, and prints its score with
all components, whether its nodes could take over for each other, and on demand its nodes and
instances.  It changes nothing.""",
    tell,
    options=shared(
        SOURCES,
        "print-nodes print-instances verbose quiet offline ignore-dynu static-kvm-node-memory",
        MOND,
    ),
    value_status=EXIT_FAILURE,
    manual_section=1,
)

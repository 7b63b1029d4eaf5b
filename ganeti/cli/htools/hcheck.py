"""``hcheck``: tells how healthy a cluster is, and whether balancing it would help.

Source: cli.json, "htools"; manual page hcheck(1).  The forms of the output are those of 3.0.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ganeti.allocation.balancing.search import Search
from ganeti.allocation.limits import Redundancy
from ganeti.allocation.state import ClusterState, GroupState
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options
from ganeti.cli.declaration.program import single_program
from ganeti.cli.htools.frame import Run, start
from ganeti.cli.htools.hbal import ends_of, limits_of
from ganeti.cli.htools.options import SOURCES, shared
from ganeti.cli.htools.printing import shell_value

_CAPACITY: Final = "GN1_FAIL"
_TITLES: Final = {
    "N1_FAIL": "Nodes not N+1 happy",
    "CONFLICT_TAGS": "Nodes with conflicting instances",
    "OFFLINE_PRI": "Instances having the primary node offline",
    "OFFLINE_SEC": "Instances having a secondary node offline",
    _CAPACITY: "Nodes not directly evacuateable",
}
_Counts = Mapping[str, int]


def check(context: Context, options: Options, _args: list[str]) -> int:
    """Tell what is wrong, and what would be after balancing.

    Raises:
        GenericError: there is no source of data, it cannot be read, or an option is wrong.
    """
    ends, limits = ends_of(options), limits_of(options)
    run = start(context, options)
    before = run.state
    is_ill = any(_sum(_by_group(run, before)).values())
    is_simulated = not options.no_simulation
    after = before
    if is_ill and is_simulated:
        for uuid in before.groups:
            search = Search(after, uuid, limits, ends)
            for _ in search.steps():
                pass
            after = search.cluster()
    if options.machine_readable == "yes":
        lines = _keys(run, after)
    else:
        lines = _text(run, after, is_ill=is_ill, is_simulated=is_simulated)
    context.terminal.write_lines(list(lines))
    return EXIT_FAILURE if is_ill and is_simulated else EXIT_SUCCESS


def _by_group(run: Run, state: ClusterState) -> dict[str, _Counts]:
    """Return how much is wrong in each group that has nodes, by its UUID."""
    return {
        uuid: _counts(state, group, has_capacity=not run.options.no_capacity_checks)
        for uuid, group in state.groups.items()
        if group.loads
    }


def _counts(cluster: ClusterState, group: GroupState, *, has_capacity: bool) -> _Counts:
    loads = group.loads.values()
    closed = {load.node.name for load in loads if not load.node.is_usable}
    here = [
        each
        for each in cluster.instances.values()
        if each.primary in group.loads and not each.is_forthcoming
    ]
    usable = [load for load in loads if load.node.is_usable]
    counts = {
        "N1_FAIL": sum(load.fails_n1 for load in loads),
        "CONFLICT_TAGS": sum(load.conflicts > 0 for load in usable),
        "OFFLINE_PRI": sum(each.primary in closed for each in here),
        "OFFLINE_SEC": sum(each.secondary in closed for each in here),
    }
    if has_capacity:
        counts[_CAPACITY] = len(Redundancy(group.loads).stuck())
    return counts


def _score(group: GroupState) -> float:
    """Return the score of a group; one without usable nodes has none."""
    return group.exact_score if group.tally.size else 0.0


def _sum(groups: Mapping[str, _Counts]) -> _Counts:
    return {
        name: sum(counts.get(name, 0) for counts in groups.values())
        for name in next(iter(groups.values()), {})
    }


def _keys(run: Run, after: ClusterState) -> Iterator[str]:
    names = [uuid for uuid, group in run.state.groups.items() if group.loads]
    yield from (f"HCHECK_GROUP_UUID_{n}={shell_value(uuid)}" for n, uuid in enumerate(names))
    for phase, state in (("INIT", run.state), ("FINAL", after)):
        groups = _by_group(run, state)
        for place, (uuid, counts) in enumerate(groups.items()):
            prefix = f"HCHECK_{phase}_GROUP_{place}"
            yield from (f"{prefix}_{name}={count}" for name, count in counts.items())
            yield f"{prefix}_SCORE={_score(state.groups[uuid]):.8f}"
        total = _sum(groups)
        yield from (f"HCHECK_{phase}_CLUSTER_{name}={count}" for name, count in total.items())
        yield f"HCHECK_{phase}_CLUSTER_NEED_REBALANCE={int(any(total.values()))}"
    yield "HCHECK_OK=1"


def _text(run: Run, after: ClusterState, *, is_ill: bool, is_simulated: bool) -> Iterator[str]:
    if run.verbosity < 1:
        return
    if not is_simulated:
        yield "Running in no-simulation mode."
    elif is_ill:
        yield "Cluster needs rebalancing."
    else:
        yield "No need to rebalance cluster, no problems found."
    phases = [("initially", run.state)] + [("after rebalancing", after)] * (is_ill and is_simulated)
    for phase, state in phases:
        groups = _by_group(run, state)
        for uuid, counts in groups.items():
            group = state.groups[uuid]
            yield from ("", f"Statistics for group {group.group.name} {phase}")
            yield from _lines(counts)
            yield f"    Group score: {_score(group):.8f}"
        total = _sum(groups)
        yield from ("", f"Cluster statistics {phase}")
        yield from _lines(total)
        yield f"    Cluster is not healthy: {any(total.values())}"


def _lines(counts: _Counts) -> Iterator[str]:
    return (f"    {_TITLES[name]}: {count}" for name, count in counts.items())


PROGRAM: Final = single_program(
    "hcheck",
    "tell how healthy a cluster is, and whether balancing would help",
    """Reads a cluster from the master daemon, the remote API or a file, and counts for each node
group what is wrong in it.  If anything is, it balances the cluster as hbal would and counts again;
it changes nothing.""",
    check,
    options=shared(
        SOURCES,
        "offline max-cpu min-disk dynu-file ignore-dynu exclusion-tags no-simulation",
        "max-length min-score min-gain min-gain-limit evac-mode no-disk-moves no-instance-moves",
        "select-instances exclude-instances ignore-soft-errors no-capacity-checks",
        "machine-readable verbose quiet",
    ),
    value_status=EXIT_FAILURE,
    manual_section=1,
)

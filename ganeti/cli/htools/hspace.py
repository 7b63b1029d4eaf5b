"""``hspace``: tells how many more instances fit in a cluster.

Source: cli.json, "htools"; manual page hspace(1).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Final

from ganeti.allocation.capacity.filling import fill
from ganeti.allocation.capacity.forecast import Forecast, forecast
from ganeti.allocation.capacity.search import Filled, Search, new_names
from ganeti.allocation.capacity.tiers import (
    Range,
    Size,
    fill_tiered,
    has_exclusive_storage,
    size_of,
)
from ganeti.allocation.limits import Obstacle
from ganeti.allocation.model import Rules
from ganeti.allocation.score import score_of
from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.sources.text_data import to_text
from ganeti.allocation.state import ClusterState, snapshot_after
from ganeti.base.errors import GenericError
from ganeti.base.units import parse_unit
from ganeti.cli.command import EXIT_FAILURE, Context, Options
from ganeti.cli.declaration.program import single_program
from ganeti.cli.htools.frame import Run, counted, start
from ganeti.cli.htools.options import SOURCES, shared
from ganeti.cli.htools.printing import Column, component_table, shell_value, table
from ganeti.cli.htools.sources import write_file
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.instance_policy import TEMPLATES
from ganeti.objects.model import AllocPolicy

_REASONS: Final = {
    "Mem": Obstacle.MEMORY,
    "Disk": Obstacle.DISK,
    "CPU": Obstacle.CPUS,
    "N1": Obstacle.REDUNDANCY,
    "Tags": Obstacle.TAGS,
    "Mig": Obstacle.MIGRATION,
    "DiskCount": None,
    "Spindles": Obstacle.SPINDLES,
    "Internal": None,
}
# The same for what a policy forbids, by its key.
_FORBIDDEN: Final = {
    TEMPLATES: "Disk",
    "memory-size": "Mem",
    "cpu-count": "CPU",
    "spindle-use": "Spindles",
    "disk-count": "DiskCount",
    "disk-size": "Disk",
}


def _pair(key: str, value: object) -> str:
    """Return a line with a key and its value, as a shell reads it."""
    text = f"{value:.8f}" if isinstance(value, float) else str(value)
    return f"HTS_{key}={shell_value(text)}"


_Stats = Mapping[str, int | float]


def _stats(before: Snapshot, state: ClusterState) -> _Stats:
    """Return sums over the nodes of a cluster; memory and disk in MiB.

    Args:
        before: the cluster as it was loaded: what is overhead then remains so.
    """
    running = sum(each.running_memory for each in before.instances.values())
    loads = state.loads
    nodes = [load.node for load in loads]
    memory, disk = sum(n.total_memory for n in nodes), sum(n.total_disk for n in nodes)
    vcpus_max, spindles = sum(int(n.vcpus_max) for n in nodes), sum(n.spindle_count for n in nodes)
    free = [load.present_free_memory for load in loads]
    usable = [max(0, load.present_free_memory - load.reserved) for load in loads]
    disks = [load.free_disk - load.node.disk_min for load in loads]
    free_disk = sum(load.free_disk for load in loads)
    taken = sum(each.running_memory for each in state.instances.values())
    vcpus, free_spindles = sum(load.vcpus for load in loads), sum(x.free_spindles for x in loads)
    return {
        "SCORE": score_of(state.components),
        "INST_CNT": len(state.instances),
        "MEM_FREE": sum(free),
        "MEM_AVAIL": sum(usable),
        "MEM_RESVD": sum(free) - sum(usable),
        "MEM_INST": taken,
        "MEM_OVERHEAD": memory - sum(told.memory for told in before.free.values()) - running,
        "MEM_EFF": _part(taken, memory),
        "DSK_FREE": free_disk,
        "DSK_AVAIL": sum(disks),
        "DSK_RESVD": free_disk - sum(disks),
        "DSK_INST": disk - free_disk,
        "DSK_EFF": _part(disk - free_disk, disk),
        "SPN_FREE": free_spindles,
        "SPN_INST": spindles - free_spindles,
        "SPN_EFF": _part(spindles - free_spindles, spindles),
        "CPU_INST": vcpus,
        "CPU_EFF": _part(vcpus, vcpus_max),
        "MNODE_MEM_AVAIL": max(usable, default=0),
        "MNODE_DSK_AVAIL": max(disks, default=0),
    }


def _normalised(state: ClusterState) -> float:
    """Return the virtual CPUs in use, each divided by the ratio that its node allows."""
    groups = state.groups.values()
    return sum(
        load.vcpus * _part(load.node.cpus, load.node.vcpus_max)
        for group in groups
        for load in group.loads.values()
    )


def _part(amount: float, of: float) -> float:
    return amount / of if of else 0.0


def measure(context: Context, options: Options, _args: list[str]) -> None:
    """Tell how many instances fit.

    Raises:
        GenericError: there is no source of data, it cannot be read, or a size makes no sense.
    """
    run = start(context, options)
    policy = run.snapshot.ipolicy
    template = options.disk_template or next(iter(policy[TEMPLATES]), None)
    if template is None:
        raise GenericError("the policy of the cluster has no disk template; use --disk-template")
    if template not in tuple(DiskTemplate):
        raise GenericError(
            f"there is no disk template {template!r}, which the policy of the cluster has first;"
            " use --disk-template"
        )
    own = has_exclusive_storage(run.snapshot)
    use = policy["std"]["spindle-use"] if options.spindle_use is None else int(options.spindle_use)
    if use < 0:
        raise GenericError("--spindle-use: a load on spindles cannot be negative")
    limits = [
        Range(*(size_of(each[name], spindle_use=use, is_exclusive=own) for name in ("max", "min")))
        for each in policy["minmax"]
    ]
    usual = size_of(policy["std"], spindle_use=use, is_exclusive=own)
    standard = _size(options, "standard_alloc", usual)
    ranges = [Range(_size(options, "tiered_alloc", each.largest), each.least) for each in limits]
    if options.tiered_alloc is not None:
        ranges = ranges[:1]
    count_max = sys.maxsize if options.max_length is None else int(options.max_length)
    if count_max < 0:
        raise GenericError("--max-length: a number of instances cannot be negative")
    run.print_nodes("Initial cluster status:")
    if run.verbosity > _MAPS_FROM:
        components = run.state.components
        title = f"Initial coefficients: overall {score_of(components):.8f}"
        run.warn([title, *component_table(components)])
    is_machine = options.machine_readable == "yes"
    for line in _initial_keys(run) if is_machine else _initial_text(run):
        run.say(line)
    search, state = _search(run), run.state
    _check_nodes(run, search, template)
    instance = standard.instance(template)
    results = (
        ("tiered", fill_tiered(search, state, ranges, template, new_names(), count_max)),
        ("standard", fill(state, search, instance, new_names(), count_max)),
    )
    for name, filled in results:
        title = name.capitalize()
        if run.verbosity >= _MAPS_FROM:
            run.warn([f"{title} allocation map", *_map(filled)])
        run.print_nodes(f"{title} allocation status:", filled.after)
        if options.save is not None:
            text = to_text(snapshot_after(run.snapshot, filled.after))
            write_file(f"{options.save}.{name}", text)
            path = f"{options.save}.{name}"
            run.warn(
                [f"The cluster state after {name} allocation has been written to file '{path}'"]
            )
    future = _forecast(run, search, standard, template)
    told = _keys if is_machine else _text
    tiers = ranges[0].largest, results[0][1]
    for line in told(run, template, tiers, (standard, results[1][1]), future):
        run.say(line)


def _forecast(run: Run, search: Search, usual: Size, template: str) -> Forecast | None:
    """Return for how long there is room, if that was asked."""
    weeks = run.options.forecast
    if weeks is None:
        return None
    if run.options.luxi is None:
        raise GenericError("--forecast: only the master daemon knows the growth; use --luxi")
    if weeks < 1:
        raise GenericError("--forecast: at least one week is needed")
    grown = run.context.client.query_growth(int(weeks))
    return forecast(run.state, search, grown, usual, template)


def _size(options: Options, option: str, usual: Size) -> Size:
    words = options.get(option)
    if words is None:
        return usual
    try:
        amounts = _amounts(words)
    except (ValueError, GenericError) as err:
        flag = f"--{option.replace('_', '-')}"
        raise GenericError(
            f"{flag}: {words!r} is not disk,memory,cpus[,spindles] like 100g,4g,2"
        ) from err
    return Size(*amounts, usual.spindle_use, usual.is_exclusive)


def _amounts(words: str) -> tuple[int, int, int, int]:
    """Read a size: memory, disk, virtual CPUs and spindles.

    Raises:
        ValueError, GenericError: it is not understood, or something is less than nothing.
    """
    disk, memory, vcpus, *more = words.split(",")
    (spindles,) = map(int, more) if more else (1,)
    amounts = parse_unit(memory), parse_unit(disk), int(vcpus), spindles
    if min(amounts) < 0:
        raise ValueError(words)
    return amounts


def _search(run: Run) -> Search:
    """Return the search in the groups and on the nodes that the options leave."""
    options, groups = run.options, run.state.groups
    rules = Rules(checks_capacity=not options.no_capacity_checks)
    bad = _bad_nodes(run)
    if options.accept_existing_errors:
        only = frozenset(run.snapshot.nodes) - bad
        return Search(Rules(checks_capacity=rules.checks_capacity, only=only), list(groups))
    if bad and not options.independent_groups:
        return Search(rules, [])
    return Search(rules, [uuid for uuid, group in groups.items() if bad.isdisjoint(group.loads)])


def _bad_nodes(run: Run) -> set[str]:
    return {load.node.name for load in run.state.loads if load.fails_n1}


def _check_nodes(run: Run, search: Search, template: str) -> None:
    """Refuse a search where no group has the nodes that one instance needs.

    Raises:
        GenericError: there are too few nodes.
    """
    if not search.groups and _bad_nodes(run):
        return  # what is missing is told as N+1
    needed = DiskTemplate(template).traits.node_count
    for state in (run.state.groups[uuid] for uuid in search.groups):
        is_open = state.group.alloc_policy is not AllocPolicy.UNALLOCABLE
        if is_open and sum(load.node.is_usable for load in state.loads.values()) >= needed:
            return
    raise GenericError(
        f"failure during allocation: no node group that is open has the {counted(needed, 'node')}"
        " online that an instance needs"
    )


_MAPS_FROM: Final = 2  # the verbosity
_MAP_COLUMNS: Final = (
    *(Column("", is_number) for is_number in (False, False, False, True, True, True)),
    Column(""),
)


def _map(filled: Filled) -> list[str]:
    rows = [
        (
            *(each.name, each.primary, each.secondary or "", str(each.memory)),
            *(str(each.spec.disk_sizes_mib[0]), str(each.vcpus), ""),
        )
        for each in filled.placed
    ]
    return table(_MAP_COLUMNS, rows, " ")[1:]


def _reasons(run: Run, filled: Filled) -> list[tuple[str, int]]:
    """Return how often each reason was met, the commonest first."""
    refused = filled.refused
    if not refused and not filled.forbidden and _bad_nodes(run):
        return [("N1", 1)]
    counts = {name: refused.get(why, 0) if why else 0 for name, why in _REASONS.items()}
    if not has_exclusive_storage(run.snapshot):
        counts["Disk"] += counts["Spindles"]  # 3.0 takes their use for a lack of disk
        counts["Spindles"] = 0
    for key, number in filled.forbidden.items():
        counts[_FORBIDDEN[key]] += number
    return sorted(counts.items(), key=lambda row: -row[1])


_Result = tuple[Size, Filled]


def _totals(run: Run) -> Mapping[str, int]:
    """Return sums over the nodes of the cluster; memory and disk in MiB."""
    nodes = list(run.snapshot.nodes.values())
    return {
        "MEM": sum(node.total_memory for node in nodes),
        "DSK": sum(node.total_disk for node in nodes),
        "CPU": sum(node.cpus for node in nodes),
        "VCPU": sum(int(node.vcpus_max) for node in nodes),
        "SPN": sum(node.spindle_count for node in nodes),
        "NODES": len(nodes),
    }


def _initial_keys(run: Run) -> Iterator[str]:
    yield from (_pair(f"CLUSTER_{key}", value) for key, value in _totals(run).items())
    before = _stats(run.snapshot, run.state)
    yield from (_pair(f"INI_{key}", value) for key, value in before.items())


def _keys(
    run: Run, template: str, tiered: _Result, standard: _Result, future: Forecast | None
) -> Iterator[str]:
    totals = _totals(run)
    states = run.state, tiered[1].after, standard[1].after
    before, middle, after = (_stats(run.snapshot, state) for state in states)
    yield from _spec_keys("TSPEC_INI", tiered[0], template)
    yield from (_pair(f"TRL_{key}", value) for key, value in middle.items())
    tiers = tiered[1].tiers.items()
    yield _pair("TSPEC", " ".join(f"{m},{d},{c},{s}={n}" for (m, d, c, s), n in tiers))
    used: dict[str, tuple[float, float, float]] = {
        key: (before[f"{key}_INST"], middle[f"{key}_INST"], totals[key])
        for key in ("CPU", "MEM", "DSK", "SPN")
    }
    used["CPU"] = (*used["CPU"][:2], totals["VCPU"])
    normalised = _normalised(run.state), _normalised(tiered[1].after)
    used["NPU"] = (*normalised, float(totals["CPU"]))
    for place, kind in enumerate(("USED", "POOL", "UNAV")):
        for key in ("CPU", "NPU", "MEM", "DSK", "SPN"):
            first, last, total = used[key]
            yield _pair(f"KM_{kind}_{key}", str((first, last - first, total - last)[place]))
    yield from _spec_keys("SPEC", standard[0], template)
    yield from (_pair(f"FIN_{key}", value) for key, value in after.items())
    count = len(standard[1].after.instances)
    yield _pair("ALLOC_USAGE", float(_part(len(run.state.instances), count)))
    yield _pair("ALLOC_INSTANCES", len(standard[1].placed))
    reasons = _reasons(run, standard[1])
    yield _pair("ALLOC_FAIL_REASON", f"FAIL{reasons[0][0].upper()}")
    yield from (_pair(f"ALLOC_FAIL{name.upper()}_CNT", number) for name, number in reasons)
    if future is not None:
        yield from _forecast_keys(future)
    yield _pair("OK", 1)


def _forecast_keys(future: Forecast) -> Iterator[str]:
    yield _pair("FORECAST_PER_WEEK", future.pace.per_week if future.pace else 0.0)
    if future.pace is not None and future.weeks is not None:
        yield _pair("FORECAST_MEM", future.pace.size.memory)
        yield _pair("FORECAST_DSK", future.pace.size.disk)
        yield _pair("FORECAST_INSTANCES", future.count)
        yield _pair("FORECAST_WEEKS", future.weeks)
        yield _pair("FORECAST_LACKING", future.lacking or "nothing")


def _forecast_text(future: Forecast, weeks: int) -> Iterator[str]:
    yield f"Growth in the last {counted(weeks, 'week')}:"
    if future.pace is None or future.weeks is None:
        yield "  - no more instances than before"
        return
    size = future.pace.size
    each = f"MEM {size.memory}, DSK {size.disk}, CPU {size.vcpus}"
    yield f"  - {future.pace.per_week:.1f} instances a week more, of {each} each"
    yield f"  - {future.count} more of these fit: that is enough for {future.weeks:.1f} weeks"
    yield f"  - what is lacking first: {future.lacking or 'nothing'}"


def _spec_keys(prefix: str, size: Size, template: str) -> Iterator[str]:
    rows = {
        "MEM": size.memory,
        "DSK": size.disk,
        "CPU": size.vcpus,
        "SPN": size.spindles,
        "RQN": DiskTemplate(template).traits.node_count,
        "DISK_TEMPLATE": template,
    }
    return (_pair(f"{prefix}_{key}", value) for key, value in rows.items())


def _initial_text(run: Run) -> Iterator[str]:
    totals = _totals(run)
    yield f"The cluster has {totals['NODES']} nodes and the following resources:"
    yield (
        f"  MEM {totals['MEM']}, DSK {totals['DSK']}, CPU {totals['CPU']}, VCPU {totals['VCPU']}"
        f"{_spindles(has_exclusive_storage(run.snapshot), totals['SPN'])}."
    )
    count = len(run.state.instances)
    yield f"There are {count or 'no'} initial instances on the cluster."


def _text(
    run: Run, template: str, tiered: _Result, standard: _Result, future: Forecast | None
) -> Iterator[str]:
    own = has_exclusive_storage(run.snapshot)
    tiers = [
        f"{number:3} instances of spec MEM {memory}, DSK {disk}, CPU {vcpus}"
        f"{_spindles(own, spindles)}"
        for (memory, disk, vcpus, spindles), number in tiered[1].tiers.items()
    ]
    tiers = tiers or ["no instances allocated"]
    titles = "Tiered (initial size)", "Tiered allocation results:"
    yield from _result_text(run, template, tiered, titles, tiers)
    counts = [f"{len(standard[1].placed):3} instances allocated"]
    titles = "Standard (fixed-size)", "Normal (fixed-size) allocation results:"
    yield from _result_text(run, template, standard, titles, counts)
    if future is not None:
        yield from _forecast_text(future, int(run.options.forecast))


def _result_text(
    run: Run, template: str, result: _Result, titles: tuple[str, str], counts: list[str]
) -> Iterator[str]:
    size, filled = result
    stats = _stats(run.snapshot, filled.after)
    yield f"{titles[0]} instance spec is:"
    own = _spindles(size.is_exclusive, size.spindles)
    what = f"MEM {size.memory}, DSK {size.disk}, CPU {size.vcpus}{own}"
    yield f"  {what}, using disk template '{template}'."
    yield titles[1]
    yield from (f"  - {line}" for line in counts)
    yield f"  - most likely failure reason: Fail{_reasons(run, filled)[0][0]}"
    yield f"  - initial cluster score: {score_of(run.state.components):.8f}"
    yield f"  -   final cluster score: {stats['SCORE']:.8f}"
    rows = {"memory": "MEM", "disk": "DSK", "vcpu": "CPU"}
    rows |= {"spindles": "SPN"} if size.is_exclusive else {}
    width = max(map(len, rows))
    for title, key in rows.items():
        yield f"  - {title:>{width}} usage efficiency: {stats[f'{key}_EFF'] * 100:5.2f}%"


def _spindles(is_exclusive: bool, count: int) -> str:
    """Return the words about spindles, which 3.0 prints only where somebody has some alone."""
    return f", SPN {count}" if is_exclusive else ""


PROGRAM: Final = single_program(
    "hspace",
    "tell how many more instances fit in a cluster",
    """Reads a cluster from the master daemon, the remote API or a file, and places new instances in
it, one after the other, until no more fit: once all of one size, once ever smaller ones.  It
changes nothing.""",
    measure,
    options=shared(
        SOURCES,
        "simulate offline max-cpu min-disk static-kvm-node-memory standard-alloc tiered-alloc",
        "disk-template spindle-use max-length independent-groups accept-existing-errors",
        "no-capacity-checks machine-readable print-nodes save verbose quiet forecast",
    ),
    value_status=EXIT_FAILURE,
    manual_section=1,
)

"""``hspace``: tells how many more instances fit in a cluster.

Source: cli.json, "htools"; manual page hspace(1).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from ganeti.allocation.capacity import Filled, Search, Size, fill_tiered, new_names
from ganeti.allocation.limits import Obstacle
from ganeti.allocation.model import Rules
from ganeti.allocation.score import score_of
from ganeti.allocation.sources.text_data import to_text
from ganeti.allocation.state import ClusterState, snapshot_after
from ganeti.base.errors import GenericError
from ganeti.base.units import parse_unit
from ganeti.cli.command import EXIT_FAILURE, Context, Options
from ganeti.cli.declaration.program import single_program
from ganeti.cli.htools.frame import Run, start
from ganeti.cli.htools.options import SOURCES, shared
from ganeti.cli.htools.sources import write_file
from ganeti.objects.disk_templates import DiskTemplate

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


class _Stats(Struct, frozen=True):
    """Sums over the nodes of a cluster; memory and disk in MiB."""

    keys: Mapping[str, Any]

    def lines(self, prefix: str) -> Iterator[str]:
        return (f"HTS_{prefix}_{key}={_shown(value)}" for key, value in self.keys.items())


def _shown(value: object) -> str:
    return f"{value:.8f}" if isinstance(value, float) else str(value)


def _stats(state: ClusterState) -> _Stats:
    loads = [load for load in state.loads if not load.node.is_offline]
    nodes = [load.node for load in loads]
    memory, disk = sum(n.total_memory for n in nodes), sum(n.total_disk for n in nodes)
    vcpus_max, spindles = sum(int(n.vcpus_max) for n in nodes), sum(n.spindle_count for n in nodes)
    free = sum(load.free_memory for load in loads)
    usable = [load.free_memory - load.reserved for load in loads]
    disks = [load.free_disk - load.node.disk_min for load in loads]
    free_disk = sum(load.free_disk for load in loads)
    names = {node.name for node in nodes}
    taken = sum(each.memory for each in state.instances.values() if each.primary in names)
    vcpus, free_spindles = sum(load.vcpus for load in loads), sum(x.free_spindles for x in loads)
    return _Stats(
        {
            "SCORE": score_of(state.components),
            "INST_CNT": len(state.instances),
            "MEM_FREE": free,
            "MEM_AVAIL": sum(usable),
            "MEM_RESVD": free - sum(usable),
            "MEM_INST": taken,
            "MEM_OVERHEAD": memory - free - taken,
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
    )


def _part(amount: int, of: int) -> float:
    return amount / of if of else 0.0


def measure(context: Context, options: Options, _args: list[str]) -> None:
    """Tell how many instances fit.

    Raises:
        GenericError: there is no source of data, it cannot be read, or a size makes no sense.
    """
    run = start(context, options)
    policy = run.snapshot.ipolicy
    template = options.disk_template or policy["disk-templates"][0]
    limits = policy["minmax"][0]
    least = _size_in(limits["min"])
    standard = _size(options, "standard_alloc", policy["std"])
    tiered = _size(options, "tiered_alloc", limits["max"])
    count_max = sys.maxsize if options.max_length is None else int(options.max_length)
    if count_max < 0:
        raise GenericError("--max-length: a number of instances cannot be negative")
    run.print_nodes("Initial cluster status:")
    search = _search(run)
    results = (
        ("tiered", fill_tiered(search, run.state, tiered, least, template, count_max)),
        ("standard", search.fill(run.state, standard.instance(template), new_names(), count_max)),
    )
    for name, filled in results:
        title = name.capitalize()
        if run.verbosity > 1:
            run.warn([f"{title} allocation map", *_map(filled)])
        run.print_nodes(f"{title} allocation status:", filled.after)
        if options.save is not None:
            text = to_text(snapshot_after(run.snapshot, filled.after))
            write_file(f"{options.save}.{name}", text)
            path = f"{options.save}.{name}"
            run.warn(
                [f"The cluster state after {name} allocation has been written to file '{path}'"]
            )
    is_machine = options.machine_readable == "yes"
    told = _keys if is_machine else _text
    for line in told(run, template, (tiered, results[0][1]), (standard, results[1][1])):
        run.say(line)


def _size_in(spec: Mapping[str, int]) -> Size:
    names = "memory-size", "disk-size", "cpu-count", "spindle-use"
    return Size(*(spec[name] for name in names))


def _size(options: Options, option: str, spec: Mapping[str, int]) -> Size:
    words, usual = options.get(option), _size_in(spec)
    use = None if options.spindle_use is None else int(options.spindle_use)
    if words is None:
        use = usual.spindle_use if use is None else use
        return Size(usual.memory, usual.disk, usual.vcpus, use)
    try:
        disk, memory, vcpus = words.split(",")
        return Size(parse_unit(memory), parse_unit(disk), int(vcpus), 1 if use is None else use)
    except (ValueError, GenericError) as err:
        flag = f"--{option.replace('_', '-')}"
        raise GenericError(f"{flag}: {words!r} is not disk,memory,cpus like 100g,4g,2") from err


def _search(run: Run) -> Search:
    """Return the search in the groups and on the nodes that the options leave."""
    options, groups = run.options, run.state.groups
    rules = Rules(checks_capacity=not options.no_capacity_checks)
    bad = {load.node.name for load in run.state.loads if load.fails_n1}
    if options.accept_existing_errors:
        only = frozenset(run.snapshot.nodes) - bad
        return Search(Rules(checks_capacity=rules.checks_capacity, only=only), list(groups))
    if bad and not options.independent_groups:
        return Search(rules, [])
    return Search(rules, [uuid for uuid, group in groups.items() if bad.isdisjoint(group.loads)])


def _map(filled: Filled) -> list[str]:
    return [
        f" {each.name} {' '.join(each.nodes)} {each.memory} {each.spec.disk_sizes_mib[0]}"
        f" {each.vcpus}"
        for each in filled.placed
    ]


def _reasons(run: Run, filled: Filled) -> list[tuple[str, int]]:
    """Return how often each reason was met, the commonest first."""
    refused = filled.refused
    counts = {name: refused[why] if why else 0 for name, why in _REASONS.items()}
    if not refused and any(load.fails_n1 for load in run.state.loads):
        counts["N1"] = 1
    return sorted(counts.items(), key=lambda row: -row[1])


_Result = tuple[Size, Filled]


def _tiers(filled: Filled) -> Counter[tuple[int, int, int, int]]:
    return Counter(
        (each.memory, each.spec.disk_sizes_mib[0], each.vcpus, each.spec.spindles)
        for each in filled.placed
    )


def _keys(run: Run, template: str, tiered: _Result, standard: _Result) -> Iterator[str]:
    nodes = [load.node for load in run.state.loads if not load.node.is_offline]
    vcpus_max = sum(int(node.vcpus_max) for node in nodes)
    cpus = sum(node.cpus for node in nodes)
    totals = {
        "MEM": sum(node.total_memory for node in nodes),
        "DSK": sum(node.total_disk for node in nodes),
        "CPU": cpus,
        "VCPU": vcpus_max,
        "SPN": sum(node.spindle_count for node in nodes),
        "NODES": len(nodes),
    }
    yield from (f"HTS_CLUSTER_{key}={value}" for key, value in totals.items())
    before, middle, after = map(_stats, (run.state, tiered[1].after, standard[1].after))
    yield from before.lines("INI")
    yield from _spec_keys("TSPEC_INI", tiered[0], template)
    yield from middle.lines("TRL")
    tiers = _tiers(tiered[1]).items()
    yield f"HTS_TSPEC='{' '.join(f'{m},{d},{c},{s}={n}' for (m, d, c, s), n in tiers)}'"
    ratio = vcpus_max / cpus if cpus else 1.0
    total = {**totals, "CPU": vcpus_max}
    for kind in ("USED", "POOL", "UNAV"):
        for key in ("CPU", "NPU", "MEM", "DSK", "SPN"):
            name = "CPU" if key == "NPU" else key
            first, last = before.keys[f"{name}_INST"], middle.keys[f"{name}_INST"]
            value = {"USED": first, "POOL": last - first, "UNAV": total[name] - last}[kind]
            yield f"HTS_KM_{kind}_{key}={value / ratio if key == 'NPU' else value}"
    yield from _spec_keys("SPEC", standard[0], template)
    yield from after.lines("FIN")
    count = len(standard[1].after.instances)
    yield f"HTS_ALLOC_USAGE={_part(len(run.state.instances), count):.8f}"
    yield f"HTS_ALLOC_INSTANCES={len(standard[1].placed)}"
    reasons = _reasons(run, standard[1])
    yield f"HTS_ALLOC_FAIL_REASON=FAIL{reasons[0][0].upper()}"
    yield from (f"HTS_ALLOC_FAIL{name.upper()}_CNT={number}" for name, number in reasons)
    yield "HTS_OK=1"


def _spec_keys(prefix: str, size: Size, template: str) -> Iterator[str]:
    rows = {
        "MEM": size.memory,
        "DSK": size.disk,
        "CPU": size.vcpus,
        "SPN": size.spindle_use,
        "RQN": DiskTemplate(template).traits.node_count,
        "DISK_TEMPLATE": template,
    }
    return (f"HTS_{prefix}_{key}={value}" for key, value in rows.items())


def _text(run: Run, template: str, tiered: _Result, standard: _Result) -> Iterator[str]:
    nodes = [load.node for load in run.state.loads if not load.node.is_offline]
    yield f"The cluster has {len(nodes)} nodes and the following resources:"
    yield (
        f"  MEM {sum(n.total_memory for n in nodes)}, DSK {sum(n.total_disk for n in nodes)},"
        f" CPU {sum(n.cpus for n in nodes)}, VCPU {sum(int(n.vcpus_max) for n in nodes)}."
    )
    count = len(run.state.instances)
    yield f"There are {count or 'no'} initial instances on the cluster."
    tiers = [
        f"{number:3} instances of spec MEM {memory}, DSK {disk}, CPU {vcpus}"
        for (memory, disk, vcpus, _), number in _tiers(tiered[1]).items()
    ]
    titles = "Tiered (initial size)", "Tiered allocation results:"
    yield from _result_text(run, template, tiered, titles, tiers)
    counts = [f"{len(standard[1].placed):3} instances allocated"]
    titles = "Standard (fixed-size)", "Normal (fixed-size) allocation results:"
    yield from _result_text(run, template, standard, titles, counts)


def _result_text(
    run: Run, template: str, result: _Result, titles: tuple[str, str], counts: list[str]
) -> Iterator[str]:
    size, filled = result
    stats = _stats(filled.after).keys
    yield f"{titles[0]} instance spec is:"
    yield (
        f"  MEM {size.memory}, DSK {size.disk}, CPU {size.vcpus}, using disk template '{template}'."
    )
    yield titles[1]
    yield from (f"  - {line}" for line in counts)
    yield f"  - most likely failure reason: Fail{_reasons(run, filled)[0][0]}"
    yield f"  - initial cluster score: {score_of(run.state.components):.8f}"
    yield f"  -   final cluster score: {stats['SCORE']:.8f}"
    for title, key in (("memory", "MEM"), ("  disk", "DSK"), ("  vcpu", "CPU")):
        yield f"  - {title} usage efficiency: {stats[f'{key}_EFF'] * 100:.2f}%"


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
        "no-capacity-checks machine-readable print-nodes save verbose quiet",
    ),
    usage_status=EXIT_FAILURE,
    manual_section=1,
)

"""``hscan``: writes clusters to files that the other tools for placement read.

Source: cli.json, "htools"; manual page hscan(1).
"""

from __future__ import annotations

from typing import Final

from ganeti.allocation.score import score_of
from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.sources.text_data import to_text
from ganeti.allocation.state import ClusterState, make_state
from ganeti.base.errors import GenericError
from ganeti.cli.command import EXIT_FAILURE, ArgKind, Context, Options, opt
from ganeti.cli.declaration.program import single_program
from ganeti.cli.htools.options import shared
from ganeti.cli.htools.printing import GIB, count_hit, node_table, shown_nodes
from ganeti.cli.htools.sources import write_file
from ganeti.clients.snapshots import from_luxi, from_rapi

EXIT_UNREADABLE: Final = 2
_OWN: Final = "LOCAL"
_WIDTHS: Final = dict.fromkeys(("Nodes", "Inst", "BNode", "BInst"), 5) | dict.fromkeys(
    ("t_mem", "f_mem", "t_disk", "f_disk"), 6
)


def scan(context: Context, options: Options, clusters: list[str]) -> int | None:
    """Write the file of each cluster, and a line about it.

    Raises:
        GenericError: a file cannot be written.
    """
    names = list(clusters)
    if options.luxi is not None or not clusters:
        names.append(_OWN)
    width = max(4, *map(len, names))
    if not options.no_headers:
        titles = " ".join(title.rjust(size) for title, size in _WIDTHS.items())
        context.write(f"{'Name':{width}} {titles} {'Score':>10}")
    has_failed = False
    for place, name in enumerate(names):
        try:
            snapshot = _load(context, options, None if place == len(clusters) else name)
            state = make_state(snapshot)
        except GenericError as err:
            context.write(f"\nError for {name}: failed to load data. Details:\n{err.message}")
            has_failed = True
            continue
        try:
            text = to_text(snapshot)
        except GenericError as err:
            context.write(f"\nError for {name}: {err.message}")
            has_failed = True
            continue
        context.write(f"{name:{width}} {_totals(snapshot, state)}")
        if options.print_nodes is not None:
            nodes = shown_nodes(snapshot, state)
            context.terminal.write_lines(node_table(nodes, options.print_nodes))
        path = f"{options.output_dir}/{name.replace('/', '_')}.data"
        write_file(path, text)
    return EXIT_UNREADABLE if has_failed else None


def _load(context: Context, options: Options, address: str | None) -> Snapshot:
    memory = options.static_kvm_node_memory
    if address is None:
        return from_luxi(context.client, kvm_node_memory=memory)
    return from_rapi(address, kvm_node_memory=memory)


def _totals(snapshot: Snapshot, state: ClusterState) -> str:
    bad = {load.node.name for load in state.loads if load.fails_n1}
    hit = count_hit(snapshot.instances.values(), bad)
    nodes, free = snapshot.nodes.values(), snapshot.free.values()
    counts = len(nodes), len(snapshot.instances), len(bad), hit
    memory = sum(node.total_memory for node in nodes), sum(each.memory for each in free)
    disk = round(sum(node.total_disk for node in nodes) / GIB), sum(f.disk for f in free) // GIB
    sizes = (*counts, *memory, *disk)
    numbers = [f"{n:{size}}" for n, size in zip(sizes, _WIDTHS.values(), strict=True)]
    return f"{' '.join(numbers)} {score_of(state.components):10.8f}"


PROGRAM: Final = single_program(
    "hscan",
    "write clusters to files for the tools for placement",
    """Asks the remote APIs of clusters, or the master daemon, for nodes and instances, and writes
them to one file for each cluster, NAME.data, which the other tools read with -t.  It prints one
line about each cluster.  It changes nothing.""",
    scan,
    options=(
        opt.option(
            "-d --output-dir=PATH",
            "the directory of the files",
            default=".",
            completes=ArgKind.FILE,
        ),
        *shared("print-nodes luxi verbose no-headers static-kvm-node-memory"),
    ),
    args=(opt.Argument(ArgKind.TEXT, 0, None, metavar="CLUSTER"),),
    value_status=EXIT_FAILURE,
    manual_section=1,
)

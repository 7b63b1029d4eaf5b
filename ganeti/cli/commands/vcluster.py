"""The commands of ``vcluster``."""

from __future__ import annotations

import os

from ganeti.base.errors import OpPrereqError
from ganeti.bootstrap.virtual import lifecycle
from ganeti.bootstrap.virtual.layout import VirtualCluster
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_FAILURE, EXIT_SUCCESS
from ganeti.cli.run.table import Column, TableStyle, format_table


def create(context: Context, options: Options, args: list[str]) -> int:
    """Make a cluster and start it."""
    [base] = args
    if options.hypervisor == "kvm" and lifecycle.find_qemu() is None:
        raise OpPrereqError("no QEMU is installed; use --hypervisor=fake")
    absolute = lifecycle.absolute_base(base)
    cluster = lifecycle.plan(absolute, options.nodes, options.hypervisor, without=options.without)
    lifecycle.create(cluster, extra_init=options.init_options, feedback=context.write)
    context.write(f"The cluster in {cluster.base} runs ({cluster.hypervisor} hypervisor).")
    context.write(how_to_enter(base, cluster))
    return EXIT_SUCCESS


def how_to_enter(base: str, cluster: VirtualCluster) -> str:
    """Return the lines that say how to enter and how to stop a cluster."""
    return (
        f"Enter it:  tools/vcluster run {base} {cluster.first_node} -- gnt-node list\n"
        f"Remove it: tools/vcluster destroy {base}"
    )


def start(context: Context, _options: Options, args: list[str]) -> int:
    """Start the daemons of all nodes."""
    [base] = args
    lifecycle.start(_load(base), context.write)
    return EXIT_SUCCESS


def stop(context: Context, options: Options, args: list[str]) -> int:
    """Stop every process of the cluster."""
    [base] = args
    lifecycle.stop(_load(base), context.write, keep_guests=options.keep_guests)
    return EXIT_SUCCESS


def status(context: Context, _options: Options, args: list[str]) -> int:
    """Show the daemons of all nodes; the exit status tells whether all run."""
    [base] = args
    cluster = _load(base)
    columns = [
        Column("Node"),
        Column("Address"),
        Column("Role"),
        Column("Daemon"),
        Column("State"),
        Column("Pid", "number"),
    ]
    found = lifecycle.status(cluster)
    rows = [
        [
            (0, each.node_name),
            (0, each.address),
            (0, each.role),
            (0, each.daemon),
            (0, "stopped" if each.pid is None else "running"),
            (0, each.pid),
        ]
        for each in found
    ]
    context.terminal.write_lines(format_table(columns, rows, TableStyle()))
    return EXIT_SUCCESS if all(each.pid is not None for each in found) else EXIT_FAILURE


def run(_context: Context, _options: Options, args: list[str]) -> int:
    """Become a command that runs on a node."""
    base, node, *command = args
    cluster = _load(base)
    if command[0] == "--":
        command = command[1:]
    if not command:
        raise OpPrereqError("give a command to run")
    lifecycle.exec_on_node(cluster, cluster.find_node(node), command)
    return EXIT_FAILURE


def destroy(context: Context, _options: Options, args: list[str]) -> int:
    """Stop every process of the cluster and remove its directory."""
    [base] = args
    absolute = lifecycle.absolute_base(base)
    if not os.path.exists(absolute):
        context.write(f"There is nothing in {base}.")
        return EXIT_SUCCESS
    lifecycle.destroy(_load(base), context.write)
    context.write(f"Removed {base}.")
    return EXIT_SUCCESS


def _load(base: str) -> VirtualCluster:
    return lifecycle.load(lifecycle.absolute_base(base))

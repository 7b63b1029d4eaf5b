"""``tools/vcluster``: several nodes on one machine."""

from __future__ import annotations

import os

from ganeti.base.errors import OpPrereqError
from ganeti.bootstrap.virtual import lifecycle
from ganeti.bootstrap.virtual.layout import VirtualCluster
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, ArgKind, Context, Options, command, opt
from ganeti.cli.declaration.program import DEBUG, Program
from ganeti.cli.run.listing import print_plain
from ganeti.cli.run.table import Column

_BASE = opt.Argument(ArgKind.FILE, metavar="BASE")


def create(context: Context, options: Options, args: list[str]) -> None:
    """Make a cluster and start it."""
    [base] = args
    if options.hypervisor == "kvm" and lifecycle.find_qemu() is None:
        raise OpPrereqError("no QEMU is installed; use --hypervisor=fake")
    absolute = lifecycle.absolute_base(base)
    cluster = lifecycle.plan(absolute, options.nodes, options.hypervisor, without=options.without)
    lifecycle.create(cluster, extra_init=options.init_options, feedback=context.write)
    context.write(f"The cluster in {cluster.base} runs ({cluster.hypervisor} hypervisor).")
    context.write(how_to_enter(base))


def how_to_enter(base: str) -> str:
    """Return the lines that say how to enter and how to stop a cluster."""
    return f"Enter it:  tools/vcluster shell {base}\nRemove it: tools/vcluster destroy {base}"


def start(context: Context, _options: Options, args: list[str]) -> None:
    """Start the daemons of all nodes; returns when they answer."""
    [base] = args
    lifecycle.start(_load(base), context.write)


def stop(context: Context, options: Options, args: list[str]) -> None:
    """Stop every process of the cluster, guests included."""
    [base] = args
    lifecycle.stop(_load(base), context.write, keep_guests=options.keep_guests)


def status(context: Context, options: Options, args: list[str]) -> int:
    """Show the daemons of all nodes."""
    [base] = args
    cluster = _load(base)
    found = lifecycle.status(cluster)
    rows = []
    for each in found:
        state = "stopped" if each.pid is None else "running"
        rows.append([each.node_name, each.address, each.role, each.daemon, state, each.pid])
    titles = ("Node", "Address", "Role", "Daemon", "State")
    print_plain(context, options, [*titles, Column("Pid", "number")], rows)
    return EXIT_SUCCESS if all(each.pid is not None for each in found) else EXIT_FAILURE


def run(_context: Context, _options: Options, args: list[str]) -> int:
    """Run a command on a node."""
    base, node, *command = args
    cluster = _load(base)
    if command[0] == "--":
        command = command[1:]
    if not command:
        raise OpPrereqError("give a command to run")
    lifecycle.exec_on_node(cluster, cluster.find_node(node), command)
    return EXIT_FAILURE


def shell(_context: Context, _options: Options, args: list[str]) -> int:
    """Open a shell on a node, with manual pages and completion."""
    base, *names = args
    cluster = _load(base)
    node = cluster.find_node(names[0]) if names else lifecycle.entrance_of(cluster)
    lifecycle.exec_shell(cluster, node)
    return EXIT_FAILURE


def destroy(context: Context, _options: Options, args: list[str]) -> None:
    """Stop every process of the cluster and remove BASE."""
    [base] = args
    absolute = lifecycle.absolute_base(base)
    if not os.path.exists(absolute):
        context.write(f"There is nothing in {base}.")
        return
    lifecycle.destroy(_load(base), context.write)
    context.write(f"Removed {base}.")


def _load(base: str) -> VirtualCluster:
    return lifecycle.load(lifecycle.absolute_base(base))


PROGRAM = Program(
    "vcluster",
    "make virtual clusters: several nodes on one machine",
    """Makes, starts, stops and removes clusters whose nodes all live on this machine: each node has
a root directory below BASE and a loopback address of its own.  No root is needed, nothing outside
BASE is changed, and several clusters can run side by side.""",
    (
        command(
            create,
            _BASE,
            opt.number("-n --nodes", "how many nodes", default=3),
            opt.option(
                "--hypervisor",
                "kvm runs real guests by QEMU, fake only files; by default kvm where QEMU is",
                choices=("kvm", "fake"),
            ),
            opt.commas(
                "--without",
                "daemons that the cluster is not to run, of those that face the outside",
                default=[],
            ),
            opt.several(
                "--init-option=OPTION -> init_options", "one more option for 'gnt-cluster init'"
            ),
            examples="""
tools/vcluster create /tmp/vc  # three nodes
tools/vcluster create /tmp/vc --nodes 5 --hypervisor fake  # five, no guests
tools/vcluster create /tmp/vc --without ganeti-mond,ganeti-rapi  # a lighter one
tools/vcluster create /tmp/vc --init-option=--candidate-pool-size=2\
  # with an option of 'gnt-cluster init'""",
        ),
        command(start, _BASE),
        command(stop, _BASE, opt.flag("--keep-guests", "let guests run on")),
        command(status, _BASE),
        command(
            run,
            _BASE,
            opt.Argument(ArgKind.NODE, metavar="NODE"),
            opt.Argument(ArgKind.COMMAND, 1, None, metavar="COMMAND"),
            examples="""
tools/vcluster run /tmp/vc node1 -- gnt-instance list  # on the first node
tools/vcluster run /tmp/vc node2 -- bash  # a shell on the second""",
        ),
        command(
            shell,
            _BASE,
            opt.Argument(ArgKind.NODE, 0, metavar="NODE"),
            description="""Without NODE it is one on the master.  The prompt names the node; `man
gnt-instance` shows our page, and the tabulator key completes.  Leave it with exit.""",
            examples="""
tools/vcluster shell /tmp/vc  # on the master
tools/vcluster shell /tmp/vc node2  # on the second node""",
        ),
        command(destroy, _BASE),
    ),
    is_interspersed=True,
    common_options=(DEBUG,),
)

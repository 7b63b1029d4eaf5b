"""``tools/vcluster``: several nodes on one machine."""

from __future__ import annotations

from ganeti.cli.declaration.program import (
    Action,
    ArgKind,
    Argument,
    Command,
    Option,
    Program,
    flag,
)
from ganeti.cli.declaration.values import ValueType

_BASE = Argument(ArgKind.FILE, metavar="BASE")

PROGRAM = Program(
    "vcluster",
    "make virtual clusters: several nodes on one machine",
    """Makes, starts, stops and removes clusters whose nodes all live on this machine: each node has
a root directory below BASE and a loopback address of its own.  No root is needed, nothing outside
BASE is changed, and several clusters can run side by side.""",
    (
        Command(
            "create",
            "make a cluster and start it",
            "vcluster:create",
            (_BASE,),
            (
                Option(
                    ("-n", "--nodes"),
                    "how many nodes",
                    type=ValueType.INT,
                    metavar="N",
                    default=3,
                ),
                Option(
                    ("--hypervisor",),
                    "kvm runs real guests by QEMU, fake only files; by default kvm where QEMU is",
                    type=ValueType.CHOICE,
                    choices=("kvm", "fake"),
                ),
                Option(
                    ("--without",),
                    "daemons that the cluster is not to run, of those that face the outside",
                    type=ValueType.LIST,
                    metavar="DAEMON[,DAEMON...]",
                    default=[],
                ),
                Option(
                    ("--init-option",),
                    "one more option for 'gnt-cluster init'",
                    action=Action.APPEND,
                    metavar="OPTION",
                    dest="init_options",
                ),
            ),
            examples=(
                ("tools/vcluster create /tmp/vc", "three nodes"),
                ("tools/vcluster create /tmp/vc --nodes 5 --hypervisor fake", "five, no guests"),
                (
                    "tools/vcluster create /tmp/vc --without ganeti-mond,ganeti-rapi",
                    "a lighter one",
                ),
                (
                    "tools/vcluster create /tmp/vc --init-option=--candidate-pool-size=2",
                    "with an option of 'gnt-cluster init'",
                ),
            ),
        ),
        Command(
            "start",
            "start the daemons of all nodes; returns when they answer",
            "vcluster:start",
            (_BASE,),
        ),
        Command(
            "stop",
            "stop every process of the cluster, guests included",
            "vcluster:stop",
            (_BASE,),
            (flag("--keep-guests", help="let guests run on"),),
        ),
        Command("status", "show the daemons of all nodes", "vcluster:status", (_BASE,)),
        Command(
            "run",
            "run a command on a node",
            "vcluster:run",
            (
                _BASE,
                Argument(ArgKind.NODE, metavar="NODE"),
                Argument(ArgKind.COMMAND, 1, None, metavar="COMMAND"),
            ),
            examples=(
                ("tools/vcluster run /tmp/vc node1 -- gnt-instance list", "on the first node"),
                ("tools/vcluster run /tmp/vc node2 -- bash", "a shell on the second"),
            ),
        ),
        Command(
            "destroy",
            "stop every process of the cluster and remove BASE",
            "vcluster:destroy",
            (_BASE,),
        ),
    ),
    is_interspersed=True,
    common_options=(Option(("-d", "--debug"), "show tracebacks of failures", action=Action.COUNT),),
)


def main() -> int:
    """Run ``vcluster`` with the words of the command line."""
    from ganeti.cli.run.main import run

    return run(PROGRAM)

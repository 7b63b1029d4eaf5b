"""``gnt-storage``: external storage providers."""

from __future__ import annotations

from ganeti.cli.declaration import common as opt
from ganeti.cli.declaration.program import ArgKind, Argument, Command, Program

PROGRAM = Program(
    "gnt-storage",
    "look at external storage providers",
    "Shows the external storage providers of the nodes.  Runs on the master node.",
    (
        Command(
            "diagnose",
            "show which providers are usable on which node, and why not",
            "storage:diagnose",
            (),
            (opt.PRIORITY,),
        ),
        Command(
            "info",
            "show the parameters of providers, and which groups can use them",
            "storage:info",
            (Argument(ArgKind.OS, 0, None, metavar="<provider>"),),
            (opt.PRIORITY,),
        ),
    ),
)


def main() -> int:
    """Run ``gnt-storage`` with the words of the command line."""
    from ganeti.cli.run.main import run

    return run(PROGRAM)

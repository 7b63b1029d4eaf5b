"""``gnt-os``: operating system definitions."""

from __future__ import annotations

from ganeti.cli.declaration import common as opt
from ganeti.cli.declaration.program import ArgKind, Argument, Command, Option, Program
from ganeti.cli.declaration.values import ValueType


def _yes_no(flag: str, help: str) -> Option:
    return Option((flag,), help, type=ValueType.BOOL, metavar="yes|no")


PROGRAM = Program(
    "gnt-os",
    "look at operating system definitions",
    """An operating system definition is a directory with scripts that install, export and rename
an instance's system.  It must be the same on all nodes.  Runs on the master node.""",
    (
        Command(
            "diagnose",
            "show which definitions are usable on which node, and why not",
            "os:diagnose",
            (),
            (opt.PRIORITY,),
        ),
        Command(
            "info",
            "show parameters and variants of definitions",
            "os:info",
            (Argument(ArgKind.OS, 0, None),),
            (opt.PRIORITY,),
            aliases=("show",),
        ),
        Command(
            "list",
            "list the definitions that are usable on all nodes",
            "os:list_os",
            (),
            (opt.NO_HEADERS, opt.PRIORITY),
        ),
        Command(
            "modify",
            "change how a definition is used",
            "os:modify",
            (Argument(ArgKind.OS),),
            (
                _yes_no("--blacklisted", "whether new instances may not use it"),
                _yes_no("--hidden", "whether lists leave it out"),
                opt.HYPERVISORS_PARAMETERS,
                opt.OS_PARAMETERS,
                opt.OS_PARAMETERS_PRIVATE,
                *opt.CHANGE,
            ),
            description="""These are settings of the cluster: parameters for all instances with
this definition, which an instance's own ones override.""",
            examples=(("gnt-os modify --hidden=yes old-image", "leave it out of lists"),),
        ),
    ),
)


def main() -> int:
    """Run ``gnt-os`` with the words of the command line."""
    from ganeti.cli.run.main import run

    return run(PROGRAM)

"""``tools/query-config``: look into a configuration file without any daemon."""

from __future__ import annotations

from ganeti.cli.declaration.program import Action, ArgKind, Argument, Command, Option, Program, flag

KINDS = ("nodes", "nodegroups", "instances", "networks", "disks", "filters")
CLUSTER = "cluster"

_PATH = Option(
    ("--path",),
    "configuration file to read, - for the standard input",
    metavar="FILE",
    completes=ArgKind.FILE,
)
_SECRETS = flag("--with-secrets", help="print secrets too, for no other eyes than yours")

PROGRAM = Program(
    "query-config",
    "look into a configuration file without any daemon",
    """Lists and shows what config.data holds, checks it, and prints all of it with the secrets
blanked, so that it can be sent to others.  Works on the file alone, whether daemons run or not, and
on files of older versions too; it never changes anything.""",
    (
        Command(
            "list",
            "list the objects of a kind",
            "query_config:list_objects",
            (Argument(ArgKind.CHOICE, choices=KINDS),),
            (
                flag("--no-headers", help="leave the line with the titles out"),
                Option(("--separator",), "text between columns, which are not aligned then"),
            ),
            examples=(
                ("query-config list instances", "all instances"),
                ("query-config list --separator=, --no-headers nodes", "for a script"),
            ),
        ),
        Command(
            "show",
            "show one object as JSON",
            "query_config:show",
            (
                Argument(ArgKind.CHOICE, choices=(CLUSTER, *KINDS)),
                Argument(ArgKind.TEXT, 0, metavar="NAME"),
            ),
            (_SECRETS,),
            description="""The object is given by its name, a short name, or its UUID.  Secrets are
            blanked as in an export.""",
            examples=(
                ("query-config show cluster", "the cluster's settings"),
                ("query-config show instances web", "one instance by a short name"),
            ),
        ),
        Command("count", "count the objects of each kind", "query_config:count"),
        Command(
            "check",
            "say what is wrong with the configuration",
            "query_config:check",
            description="""Looks for what 'gnt-cluster verify-config' looks for.  The exit status is
            0 if nothing is wrong, 1 if something is, 2 if the file cannot be used at all.""",
        ),
        Command(
            "export",
            "print the whole configuration as JSON",
            "query_config:export",
            (),
            (_SECRETS,),
            description="""Unless --with-secrets is given, <redacted> stands in the place of secrets
            of DRBD disks, private parameters of operating systems, host keys, files that hold
            passwords or keys, passwords in addresses and command lines, and whatever has the name
            of a secret.""",
            examples=(("query-config export > config.txt", "to send it to somebody"),),
        ),
    ),
    is_interspersed=True,
    common_options=(
        _PATH,
        Option(("-d", "--debug"), "show tracebacks of failures", action=Action.COUNT),
    ),
)


def main() -> int:
    """Run ``query-config`` with the words of the command line."""
    from ganeti.cli.run.main import run

    return run(PROGRAM)

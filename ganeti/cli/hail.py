"""``hail``: the allocator that comes with the cluster manager.

It is started by the node daemon of the master with the path of a question, and prints the answer.
Only what it needs is imported: a job waits for it.

Source: iallocator.json, "calling"; cli.json, "htools"; manual page hail(1).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.cli.declaration.parser import HelpWanted, Options, UsageError, parse
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

NAME: Final = "hail"
SUMMARY: Final = "choose nodes for instances, as an allocator"
PROSE: Final = """Reads a question of the allocator interface from FILE (- for the standard input)
and prints the answer as JSON: where a new instance goes, or how instances leave a node or a group.
The program is called by the jobs that were told to use the allocator hail (-I hail, or the
cluster's default allocator); called by hand it only shows what it would say, and changes
nothing."""

OPTIONS: Final = (
    flag(
        "--ignore-soft-errors",
        help="leave out what may be exceeded in need: ratios of virtual CPUs and spindles,"
        " exclusion tags, N+1 of mirrored instances",
    ),
    flag(
        "--no-capacity-checks",
        help="do not ask that all instances of a node can be restarted when it fails; the"
        " secondary nodes of mirrored instances are still checked",
    ),
    Option(
        ("--restrict-allocation-to",),
        "place instances on these nodes only, whatever the question says",
        ValueType.LIST,
        metavar="NODE,...",
    ),
    flag("--ignore-dynu", help="leave the number of instances out of the score"),
    Option(
        ("--static-kvm-node-memory",),
        "memory in MiB that a KVM node needs for itself, instead of what it reports; 0 is what it"
        " reports",
        ValueType.INT,
        metavar="N",
        default=0,
    ),
    Option(
        ("-t", "--text-data"),
        "read the cluster from this file, not from the question",
        metavar="FILE",
        completes=ArgKind.FILE,
    ),
    Option(
        ("--simulate",),
        "make an empty group up: policy,nodes,disk,memory,cpus,spindles",
        action=Action.APPEND,
        metavar="SPEC",
    ),
    Option(
        ("-S", "--save"),
        "write the cluster to FILE.pre-ialloc, and as it will be to FILE.post-ialloc",
        metavar="FILE",
        completes=ArgKind.FILE,
    ),
    Option(
        ("-p", "--print-nodes"),
        "print the nodes before and afterwards (not supported yet)",
        metavar="FIELDS",
    ),
    Option(
        ("--mond",),
        "whether to ask the monitoring daemons for the load of the nodes; only 'no' is supported",
        ValueType.CHOICE,
        choices=("yes", "no"),
    ),
    flag("--mond-xen", help="ask for the load of Xen too; not supported"),
    Option(("-v", "--verbose"), "say more on the standard error", action=Action.COUNT),
    flag("-V", "--version", help="print the version"),
    Option(("-d", "--debug"), "show tracebacks of failures", action=Action.COUNT),
)
# Options that may stand without their value, and what that means.
_VALUES_LEFT_OUT: Final = {
    "-p": "--print-nodes=",
    "--print-nodes": "--print-nodes=",
    "--mond": "--mond=yes",
}
COMMAND: Final = Command(
    NAME,
    SUMMARY,
    "hail:answer_file",
    args=(Argument(ArgKind.FILE, metavar="FILE"),),
    options=OPTIONS,
    description=PROSE,
)
PROGRAM: Final = Program(NAME, SUMMARY, PROSE, (COMMAND,), is_interspersed=True, common_options=())

EXIT_SUCCESS: Final = 0
EXIT_FAILURE: Final = 1


def main() -> int:
    """Run ``hail`` with the words of the command line."""
    words = sys.argv[1:]
    try:
        if "-V" in words or "--version" in words:
            return _print_version()
        if "--help-completion" in words:
            return _print_completion()
        line = parse(PROGRAM, [NAME, *_with_values(words)], {})
        return _run(line.options, line.args[0])
    except HelpWanted:
        return _print_help()
    except UsageError as err:
        return _fail(err.message.replace(f"{NAME} {NAME}", NAME))
    except GenericError as err:
        if "-d" in words or "--debug" in words:
            raise
        return _fail(err.message)


def _fail(text: str) -> int:
    sys.stderr.write(f"{NAME}: {text}\n")
    return EXIT_FAILURE


def _with_values(words: Sequence[str]) -> list[str]:
    """Give options their values where they stand without."""
    found = []
    for word in words:
        if word.startswith("-p") and len(word) > 2:
            word = f"--print-nodes={word[2:]}"
        found.append(_VALUES_LEFT_OUT.get(word, word))
    return found


def _run(options: Options, path: str) -> int:
    from ganeti.cli.commands.hail import answer_file

    sys.stdout.write(answer_file(options, path) + "\n")
    return EXIT_SUCCESS


def _print_version() -> int:
    from ganeti.cli.declaration.help import version_text

    sys.stdout.write(version_text(PROGRAM) + "\n")
    return EXIT_SUCCESS


def _print_completion() -> int:
    from ganeti.cli.declaration.completion_words import completion_lines

    sys.stdout.write("".join([*completion_lines(OPTIONS), "file 1 1\n"]))
    return EXIT_SUCCESS


def _print_help() -> int:
    import shutil

    from ganeti.cli.declaration.help import command_help

    width = shutil.get_terminal_size((80, 24)).columns
    sys.stdout.write(
        command_help(PROGRAM, COMMAND, width).replace(f"{NAME} {NAME}", NAME, 1) + "\n"
    )
    return EXIT_SUCCESS

"""``tools/mon-collector``: print what one data collector of the monitoring daemon says.

Source: cli.json, "mon_collector"; mond.json, "command_line".
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from ganeti.cli.declaration.completion_words import completion_lines
from ganeti.cli.declaration.program import (
    Action,
    ArgKind,
    Command,
    Option,
    Program,
    flag,
)
from ganeti.cli.declaration.values import ValueType

_FILE: Final = ArgKind.FILE
_ADDRESS: Final = Option(("-a", "--address"), "address of the RConfD to ask", metavar="IP_ADDR")
_PORT: Final = Option(("-p", "--port"), "its port", ValueType.INT, metavar="PORT")


def _file(*flags: str, help: str) -> Option:
    return Option(flags, help, metavar="FILE", completes=_FILE)


PROGRAM: Final = Program(
    "mon-collector",
    "print what one data collector says",
    """Runs one of the data collectors of ganeti-mond and prints its report, which has the form that
the daemon serves.  The daemon need not run.  What a collector must know of the cluster is asked of
RConfD, or read from a file that holds the same as JSON.  A collector that cannot do its work says
so in its report, on the standard error, and by exit status 1.""",
    (
        Command(
            "diskstats",
            "what the kernel counted of each block device",
            "mon_collector:diskstats",
            options=(_file("-f", "--file", help="read this instead of /proc/diskstats"),),
        ),
        Command(
            "drbd",
            "how the DRBD devices are",
            "mon_collector:drbd",
            options=(
                _file("-s", "--drbd-status", help="read this instead of /proc/drbd"),
                _file(
                    "-p",
                    "--drbd-pairing",
                    help="read from here which instance has which device, as RConfD answers it",
                ),
            ),
        ),
        Command(
            "inst-status-xen",
            "what the Xen instances do and are meant to do",
            "mon_collector:inst_status_xen",
            options=(_ADDRESS, _PORT),
        ),
        Command(
            "inst-status-kvm",
            "what the KVM instances do and are meant to do",
            "mon_collector:inst_status_kvm",
            options=(_ADDRESS, _PORT),
        ),
        Command(
            "lv",
            "the logical volumes and whose they are",
            "mon_collector:lv",
            options=(
                _file("-f", "--file", help="read this instead of what lvs prints"),
                _ADDRESS,
                _PORT,
                _file(
                    "-i",
                    "--instances",
                    help="read the instances from here, as RConfD answers them, with their disks"
                    " instead of the UUIDs of these",
                ),
            ),
        ),
        Command(
            "diagnose",
            "what the node's diagnose command says, signed",
            "mon_collector:diagnose",
            options=(_ADDRESS, _PORT),
        ),
    ),
    is_interspersed=True,
    common_options=(
        Option(("-d", "--debug"), "show tracebacks of failures", action=Action.COUNT),
        flag("-V", "--version", help="print the version"),
    ),
)


def main() -> int:
    """Run ``mon-collector`` with the words of the command line."""
    words = sys.argv[1:]
    if "--help-completion" in words:
        sys.stdout.write(completion(words))
        return 0
    from ganeti.cli.run.main import run

    if any(word in ("-V", "--version") for word in words):
        words = ["--version"]
    return run(PROGRAM, words)


def completion(words: Sequence[str]) -> str:
    """Return the options of the command among the words, or the commands, for the shell."""
    command = next((found for word in words if (found := PROGRAM.find(word))), None)
    if command is None:
        return "choices=" + ",".join(each.name for each in PROGRAM.commands) + " 1 1\n"
    return "".join(completion_lines((*command.options, *PROGRAM.common_options)))

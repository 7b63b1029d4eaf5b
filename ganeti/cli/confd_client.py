"""``tools/confd-client``: ask RConfD by hand.

One command for each row of the table of queries, and one that tries them all.

Source: cli.json, "confd-client"; confd.json.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from ganeti.cli.declaration.program import Action, ArgKind, Argument, Command, Option, Program, flag
from ganeti.cli.declaration.values import ValueType
from ganeti.protocol.confd import DEFAULT_PORT
from ganeti.protocol.confd_exchange import EXPIRE_S
from ganeti.protocol.confd_queries import QUERIES, MasterField, Query, Takes

FIELDS: Final[Mapping[str, MasterField]] = {
    "name": MasterField.NAME,
    "ip": MasterField.IP,
    "node-ip": MasterField.MNODE_PIP,
}
TEST: Final = "test"

_ARGUMENTS: Final[Mapping[Takes, tuple[Argument, ...]]] = {
    Takes.NOTHING: (),
    Takes.NODE: (Argument(ArgKind.NODE),),
    Takes.NODE_OR_UUID: (Argument(ArgKind.NODE),),
    Takes.INSTANCE: (Argument(ArgKind.INSTANCE),),
    Takes.ADDRESSES: (Argument(ArgKind.TEXT, 1, None, metavar="ADDRESS"),),
    Takes.LINK: (Argument(ArgKind.TEXT, 0, metavar="LINK"),),
    Takes.FIELDS: (Argument(ArgKind.CHOICE, 0, None, choices=tuple(FIELDS)),),
    Takes.PATH: (Argument(ArgKind.TEXT, metavar="PATH"),),
}
_LINK: Final = Option(
    ("--link",), "link that the addresses are on; by default the cluster's", metavar="LINK"
)
_SHOWN: Final = (
    flag("--all", help="show what each candidate answered, not only the newest answer"),
    flag("--json", help="print JSON: the answer, its serial number and who gave it"),
    flag("--no-headers", help="leave the line with the titles out"),
    Option(("--separator",), "text between columns, which are not aligned then"),
)
_COMMON: Final = (
    Option(("--hmac",), "key to sign with; by default that of this node", metavar="KEY"),
    Option(
        ("-a", "--address"),
        "candidate to ask, by address or name, may be given several times; by default those of this"
        " node's cluster",
        action=Action.APPEND,
        metavar="ADDRESS",
    ),
    Option(
        ("-p", "--port"),
        f"port to ask at; by default {DEFAULT_PORT}",
        type=ValueType.INT,
        metavar="PORT",
        default=DEFAULT_PORT,
    ),
    Option(
        ("--timeout",),
        f"seconds to wait for an answer; by default {EXPIRE_S:g}",
        type=ValueType.FLOAT,
        metavar="SECONDS",
        default=EXPIRE_S,
    ),
    Option(("-d", "--debug"), "show tracebacks of failures", action=Action.COUNT),
)


def _command(query: Query) -> Command:
    own = (_LINK,) if query.takes is Takes.ADDRESSES else ()
    return Command(
        query.name,
        query.summary,
        "confd_client:ask",
        _ARGUMENTS[query.takes],
        own + _SHOWN,
        description=f"Asks {query.constant}.  Answers {query.answer}.",
        examples=_EXAMPLES.get(query.name, ()),
    )


_EXAMPLES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "ping": (("confd-client ping --all", "who answers"),),
    "master": (("confd-client master name ip node-ip", "all that there is to know"),),
    "config": (
        ("confd-client config /cluster/cluster_name", "the name of the cluster"),
        ("confd-client config /cluster/enabled_hypervisors/0", "one item of a list"),
    ),
    "instance-node": (("confd-client instance-node 192.0.2.7 --json", "for a script"),),
}

PROGRAM: Final = Program(
    "confd-client",
    "ask the configuration query daemons of a cluster",
    """Asks up to six master candidates at once and shows the newest answer, the one with the
highest serial number.  Works on every node, also while the master is away, and on any machine that
is given the key and an address.  Without a command it does the same as with 'test'.""",
    (
        *map(_command, QUERIES.values()),
        Command(
            TEST,
            "try every question, and measure how fast answers come",
            "confd_client:try_all",
            (),
            (
                Option(
                    ("-r", "--requests"),
                    "how many requests to measure with, one after the other",
                    type=ValueType.INT,
                    metavar="REQUESTS",
                    default=100,
                ),
            ),
            description="""Looks up what it asks about in earlier answers.  The exit status is 0 if
            every question was answered.""",
            examples=(("confd-client -a 192.0.2.1 -r 1000", "as of Ganeti 3.0"),),
        ),
    ),
    is_interspersed=True,
    common_options=_COMMON,
)


def main() -> int:
    """Run ``confd-client`` with the words of the command line."""
    from ganeti.cli.run.main import run

    return run(PROGRAM, with_command(sys.argv[1:]))


def with_command(words: list[str]) -> list[str]:
    """Return the words with a command in front: that of 3.0 has options only."""
    asks_help = words[:1] in (["--help"], ["-h"], ["--version"])
    if (not words or words[0].startswith("-")) and not asks_help:
        return [TEST, *words]
    return words

"""The command line options of the daemons, as tables.

Source: cli.json, "daemons".
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from ganeti.base.versions import RELEASE_VERSION


@dataclass(frozen=True, slots=True)
class Option:
    """One option; ``kind`` is "flag", "text" or "integer"."""

    flags: tuple[str, ...]
    help: str
    kind: str = "flag"
    metavar: str | None = None
    choices: tuple[str, ...] | None = None
    default: str | int | None = None


COMMON: Final = (
    Option(("-f", "--foreground"), "stay in the foreground, log to standard error as well"),
    Option(("-d", "--debug"), "log more"),
    Option(
        ("--syslog",),
        "log to syslog as well (yes), not (no), or instead of the file (only)",
        "text",
        "SYSLOG",
        ("yes", "no", "only"),
        "no",
    ),
    Option(("--no-user-checks",), "run whoever the user is"),
)

TLS: Final = (
    Option(("-i", "--interface"), "take the address of this interface", "text", "INTERFACE"),
    Option(("--no-ssl",), "serve without TLS"),
    Option(("-K", "--ssl-key"), "file of the TLS key", "text", "SSL_KEY_PATH"),
    Option(("-C", "--ssl-cert"), "file of the TLS certificate", "text", "SSL_CERT_PATH"),
    Option(("--max-clients",), "how many requests to serve at once", "integer", "MAX_CLIENTS"),
)

VOTING: Final = (
    Option(("--no-voting",), "do not ask the other nodes whether this one is the master"),
    Option(("--yes-do-it",), "confirm --no-voting"),
)


def network(port: int) -> tuple[Option, ...]:
    """Return the options of a daemon that listens on the network, by default on this port."""
    return (
        Option(
            ("-p", "--port"), f"port to listen on (default {port})", "integer", "PORT", None, port
        ),
        Option(("-b", "--bind"), "address to listen on", "text", "ADDRESS"),
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Report a usage error the way our other programs do."""
        self.exit(2, f"{self.prog}: {message}; try --help\n")


def parse(
    name: str, description: str, options: Sequence[Option], argv: Sequence[str]
) -> argparse.Namespace:
    """Parse the command line of a daemon; ends the process for --help, --version and mistakes."""
    parser = _Parser(prog=name, description=description, allow_abbrev=False)
    parser.add_argument(
        "-V", "--version", action="version", version=f"{name} (ganeti) {RELEASE_VERSION}"
    )
    parser.add_argument(
        "--help-completion", action="store_true", help="list the options for shell completion"
    )
    for option in options:
        _add(parser, option)
    found = parser.parse_args(argv)
    if found.help_completion:
        sys.stdout.write(_completion(options))
        parser.exit(0)
    return found


def _add(parser: argparse.ArgumentParser, option: Option) -> None:
    if option.kind == "flag":
        parser.add_argument(*option.flags, action="store_true", help=option.help)
        return
    parser.add_argument(
        *option.flags,
        type=int if option.kind == "integer" else str,
        metavar=option.metavar,
        choices=option.choices,
        default=option.default,
        help=option.help,
    )


def _completion(options: Sequence[Option]) -> str:
    always = (Option(("-h", "--help"), ""), Option(("-V", "--version"), ""))
    kinds = {"flag": "none", "text": "string", "integer": "integer"}
    return "".join(
        f"{','.join(option.flags)} "
        + ("choices=" + ",".join(option.choices) if option.choices else kinds[option.kind])
        + "\n"
        for option in (*options, *always)
    )

"""The command line options of the daemons: each daemon's are one record, each option a typed field.

    class Options(MasterOptions):
        force_node: Annotated[bool, option("run even if this node is not the master")] = False

Source: cli.json, "daemons".
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal, NoReturn, TypeVar, get_args, get_type_hints

import msgspec

from ganeti.base.errors import ProtocolError
from ganeti.base.versions import RELEASE_VERSION
from ganeti.protocol.service import Argument

OptionsT = TypeVar("OptionsT", bound=msgspec.Struct)

_WORDS: Final = {bool: "none", str: "string", int: "integer", float: "float"}


def option(help_text: str, short: str = "", metavar: str = "") -> msgspec.Meta:
    """Describe the option of a field; its long flag is the field's name."""
    return msgspec.Meta(
        description=help_text, extra_json_schema={"short": short, "metavar": metavar}
    )


def argument(help_text: str) -> msgspec.Meta:
    """Describe the field of a word that stands without a flag."""
    return msgspec.Meta(description=help_text, extra_json_schema={"short": None, "metavar": ""})


Port = Annotated[int, option("port to listen on", "-p")]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options that every daemon has."""

    foreground: Annotated[
        bool, option("stay in the foreground, log to standard error as well", "-f")
    ] = False
    debug: Annotated[bool, option("log more", "-d")] = False
    syslog: Annotated[
        Literal["yes", "no", "only"],
        option("log to syslog as well (yes), not (no), or instead of the file (only)"),
    ] = "no"
    no_user_checks: Annotated[bool, option("run whoever the user is")] = False


class NetworkOptions(Options, frozen=True, kw_only=True):
    """The options of a daemon that listens on the network."""

    port: Port
    bind: Annotated[str | None, option("address to listen on", "-b", "ADDRESS")] = None


class TlsOptions(NetworkOptions, frozen=True, kw_only=True):
    """The options of a daemon that serves many clients by TLS."""

    interface: Annotated[str | None, option("take the address of this interface", "-i")] = None
    no_ssl: Annotated[bool, option("serve without TLS")] = False
    ssl_key: Annotated[str | None, option("file of the TLS key", "-K", "SSL_KEY_PATH")] = None
    ssl_cert: Annotated[
        str | None, option("file of the TLS certificate", "-C", "SSL_CERT_PATH")
    ] = None
    max_clients: Annotated[int | None, option("how many requests to serve at once")] = None


class MasterOptions(Options, frozen=True, kw_only=True):
    """The options of a daemon that runs on the master node alone."""

    no_voting: Annotated[
        bool, option("do not ask the other nodes whether this one is the master")
    ] = False
    yes_do_it: Annotated[bool, option("confirm --no-voting")] = False


class Option:
    """One option, as its field declares it."""

    def __init__(self, argument: Argument) -> None:
        kind, meta = get_args(argument.type)
        members = [each for each in get_args(kind) or (kind,) if each is not type(None)]
        self.argument = argument
        self.choices = tuple(members) if isinstance(members[0], str) else ()
        self.kind: type = str if self.choices else members[0]
        long = "--" + argument.name.replace("_", "-")
        extra = meta.extra_json_schema
        self.is_argument = extra["short"] is None
        self.flags = (extra["short"], long) if extra["short"] else (long,)
        self.metavar = "" if self.kind is bool else extra["metavar"] or argument.name.upper()
        is_shown = self.kind is int and argument.default is not None
        self.help = meta.description + (f" (default {argument.default})" if is_shown else "")

    def completion(self) -> str:
        """Return the line for shell completion."""
        values = f"choices={','.join(self.choices)}" if self.choices else _WORDS[self.kind]
        return f"{','.join(self.flags)} {values}\n"


def options_of(kind: type[msgspec.Struct]) -> Iterator[Option]:
    """Yield the options of a daemon, those of all daemons first."""
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        yield Option(Argument(field.name, hints[field.name], field.default))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Report a usage error the way our other programs do."""
        self.exit(2, f"{self.prog}: {message}; try --help\n")


def parse(name: str, description: str, kind: type[OptionsT], argv: Sequence[str]) -> OptionsT:
    """Parse the command line of a daemon; ends the process for --help, --version and mistakes."""
    parser = _Parser(prog=name, description=description, allow_abbrev=False)
    parser.add_argument(
        "-V", "--version", action="version", version=f"{name} (ganeti) {RELEASE_VERSION}"
    )
    parser.add_argument(
        "--help-completion", action="store_true", help="list the options for shell completion"
    )
    options = list(options_of(kind))
    for each in options:
        _add(parser, each)
    given = vars(parser.parse_args(argv))
    if given.pop("help_completion"):
        sys.stdout.write("".join(each.completion() for each in options))
        sys.stdout.write("-h,--help none\n-V,--version none\n")
        parser.exit(0)
    try:
        return kind(**{each.argument.name: _read(each, given) for each in options})
    except ProtocolError as err:
        parser.error(err.message)


def _add(parser: argparse.ArgumentParser, each: Option) -> None:
    if each.is_argument:
        parser.add_argument(each.argument.name, choices=each.choices or None, help=each.help)
    elif each.kind is bool:
        parser.add_argument(*each.flags, action="store_true", help=each.help)
    else:
        parser.add_argument(
            *each.flags, metavar=each.metavar, choices=each.choices or None, help=each.help
        )


def _read(each: Option, given: dict[str, Any]) -> Any:
    """Return the value of an option, its default if it was not given."""
    value = given[each.argument.name]
    return each.argument.default if value is None else each.argument.read(value, is_text=True)

"""The shape of a command line: programs, subcommands, arguments and options as data.

Everything else is derived from these records: the parser, ``--help``, shell completion and the
manual pages.

Source: cli.json.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from ganeti.cli.declaration.values import ValueType


class Action(StrEnum):
    """What an option does when it is met."""

    STORE = "store"
    APPEND = "append"
    TRUE = "set true"
    FALSE = "set false"
    CONST = "set constant"
    COUNT = "count"


class ArgKind(StrEnum):
    """What an argument names; decides how it is completed in the shell."""

    TEXT = "unknown"
    HOST = "host"
    NODE = "node"
    INSTANCE = "instance"
    GROUP = "group"
    NETWORK = "network"
    JOB_ID = "jobid"
    FILE = "file"
    COMMAND = "command"
    OS = "os"
    FILTER = "filter"
    CHOICE = "choice"
    SUGGEST = "suggest"
    # only as option values
    OS_NAME = "one_os"
    IALLOCATOR = "one_iallocator"
    NODE_PAIR = "inst_add_nodes"


@dataclass(frozen=True, slots=True)
class Argument:
    """One positional argument, or several of a kind."""

    kind: ArgKind
    min: int = 1
    max: int | None = 1
    choices: tuple[str, ...] = ()
    metavar: str = ""

    @property
    def label(self) -> str:
        """How the argument is written in a usage line."""
        if self.metavar:
            return self.metavar
        if self.kind is ArgKind.CHOICE:
            return "{" + "|".join(self.choices) + "}"
        return "<" + _LABELS.get(self.kind, str(self.kind)) + ">"

    @property
    def usage(self) -> str:
        """The argument with brackets and dots for how often it may stand."""
        label = self.label
        if self.max is None:
            label += "..."
        elif self.max > 1:
            label = " ".join([label] * self.max)
        return f"[{label}]" if self.min == 0 else label


_LABELS: Final = {
    ArgKind.TEXT: "text",
    ArgKind.JOB_ID: "job-id",
    ArgKind.OS: "os",
    ArgKind.SUGGEST: "text",
    ArgKind.HOST: "name",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its flags, what it takes and what it means."""

    flags: tuple[str, ...]
    help: str
    type: ValueType = ValueType.TEXT
    action: Action = Action.STORE
    metavar: str = ""
    dest: str = ""
    choices: tuple[str, ...] = ()
    default: object = None
    const: object = None
    completes: ArgKind | None = None

    @property
    def takes_value(self) -> bool:
        """Whether a value follows the flag."""
        return self.action in (Action.STORE, Action.APPEND)

    @property
    def long(self) -> str:
        """The long flag, or the only one."""
        return next((flag for flag in self.flags if flag.startswith("--")), self.flags[0])

    @property
    def destination(self) -> str:
        """Name of the attribute that holds the value."""
        return self.dest or self.long.lstrip("-").replace("-", "_")

    @property
    def initial(self) -> object:
        """Value while the option has not been given."""
        if self.default is not None:
            return self.default
        return _INITIAL.get(self.action)


_INITIAL: Final[dict[Action, object]] = {
    Action.APPEND: (),
    Action.TRUE: False,
    Action.FALSE: True,
    Action.COUNT: 0,
}


def flag(*flags: str, help: str, dest: str = "") -> Option:
    """Declare an option without a value that is false until given."""
    return Option(flags, help, action=Action.TRUE, dest=dest)


def unflag(*flags: str, help: str, dest: str) -> Option:
    """Declare an option without a value that is true until given."""
    return Option(flags, help, action=Action.FALSE, dest=dest)


def constant(*flags: str, help: str, dest: str, const: object) -> Option:
    """Declare an option without a value that stores a constant."""
    return Option(flags, help, action=Action.CONST, dest=dest, const=const)


def with_help(option: Option, help: str) -> Option:
    """Return the option with a help text that fits one command."""
    return replace(option, help=help)


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand.

    ``handler`` is ``module:function``, imported when the command runs; empty while the command is
    not built.  ``examples`` are pairs of a command line and what it does.
    """

    name: str
    summary: str
    handler: str = ""
    args: tuple[Argument, ...] = ()
    options: tuple[Option, ...] = ()
    aliases: tuple[str, ...] = ()
    description: str = ""
    examples: tuple[tuple[str, str], ...] = ()


COMMON_OPTIONS: Final = (
    Option(("-d", "--debug"), "show tracebacks; twice: log what is sent", action=Action.COUNT),
    Option(
        ("--reason",),
        "why this is done; kept in the job's reason trail",
        metavar="REASON",
    ),
)


@dataclass(frozen=True, slots=True)
class Program:
    """One ``gnt-*`` program.

    ``is_interspersed``: options may also stand after arguments, up to a command to run.
    """

    name: str
    summary: str
    description: str
    commands: tuple[Command, ...]
    environment_defaults: dict[str, str] = field(default_factory=dict)
    is_interspersed: bool = False
    common_options: tuple[Option, ...] = COMMON_OPTIONS

    def find(self, name: str) -> Command | None:
        """Return the subcommand of that name or alias."""
        for command in self.commands:
            if name == command.name or name in command.aliases:
                return command
        return None

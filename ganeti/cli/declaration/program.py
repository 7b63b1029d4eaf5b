"""The shape of a command line: programs, commands, arguments and options as data.

Everything else is derived from these records: the parser, ``--help``, shell completion, the manual
pages, and for a command with an opcode its work.

Source: cli.json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ganeti.base.errors import GenericError
from ganeti.cli.run.failures import explain, told_by

if TYPE_CHECKING:
    from ganeti.opcodes.opcode import OpCode  # costs a list of instances 8 ms


class Action(StrEnum):
    """The effect of an option."""

    STORE = "store"
    APPEND = "append"
    TRUE = "set true"
    FALSE = "set false"
    CONST = "set constant"
    COUNT = "count"
    VERSION = "print the version"


class ArgKind(StrEnum):
    """The kind of an argument's value; decides how it is completed in the shell."""

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


class Argument(msgspec.Struct, frozen=True):
    """One positional argument, or several of a kind.

    Attributes:
        completes: the shell's proposals, where the kind does not say it.
    """

    kind: ArgKind
    min: int = 1
    max: int | None = 1
    choices: tuple[str, ...] = ()
    metavar: str = ""
    dest: str = ""
    completes: str = ""

    @property
    def destination(self) -> str:
        """The parameter of the command's opcode that it sets, or as many as there are words."""
        if self.dest or self.max is None:
            return self.dest or f"{self.kind}s"
        return _PARAMETERS.get(self.kind, "")

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


_PARAMETERS: Final = {
    ArgKind.INSTANCE: "instance_name",
    ArgKind.NODE: "node_name",
    ArgKind.GROUP: "group_name",
    ArgKind.NETWORK: "network_name",
}


class Option(msgspec.Struct, frozen=True):
    """One option: its flags, its value and its meaning.

    Attributes:
        type: an annotation; by default that of the field of the command's opcode, otherwise text.
        dest: name of the value, if not that of the long flag; an option whose value has the name
            of a field of the command's opcode sets that field.
        default: by default that of the field, where it is a number or a text.
        gather: makes one value of those of an option that may stand several times.
        alone: the value when it stands without one; None where it needs one.
    """

    flags: tuple[str, ...]
    help: str
    type: Any = None
    action: Action = Action.STORE
    metavar: str = ""
    dest: str = ""
    choices: tuple[str, ...] = ()
    default: object = None
    const: object = None
    completes: ArgKind | None = None
    gather: Callable[[Sequence[Any]], object] | None = None
    alone: str | None = None

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


def sort_key(option: Option) -> str:
    """Order options by their long flag."""
    return option.long.lstrip("-")


_INITIAL: Final[dict[Action, object]] = {
    Action.APPEND: (),
    Action.TRUE: False,
    Action.FALSE: True,
    Action.COUNT: 0,
}


Handler = Callable[..., int | None]
"""Gets the context, the options and the arguments; returns the exit status, None for success."""
Each = Callable[..., Iterable[tuple[str, Mapping[str, object]]]]
"""Gets the same; yields the names of objects, each with the fields of the opcode that it sets."""


class Command(msgspec.Struct, frozen=True):
    """One command.

    Attributes:
        does: a function that carries it out; or the opcode that it submits, whose fields are set by
            the arguments and options that have their names; None while it is not supported.
        opcode: that of a command whose function makes it by `bound`.
        each: names the objects of a command that submits a job for each of them; gets context,
            options and arguments, and yields the name and the parameter that it sets of the opcode.
        fixed: fields of the opcode that the command sets itself.
        makes: fields of the opcode that are made of several options.
        confirm: asked before, unless an option says not to; fields of the opcode in braces.
            Or a function that makes it of the options.
        result: shows the result of the opcode; gets context, opcode and result, and returns the
            exit status, None for success.
        exclusive: pairs of options that contradict each other.
        changes: whether at least one option with a value must be given.
        examples: pairs of a command line and its purpose.
    """

    name: str
    summary: str
    does: Handler | type[OpCode] | None = None
    args: tuple[Argument, ...] = ()
    options: tuple[Option, ...] = ()
    aliases: tuple[str, ...] = ()
    description: str = ""
    examples: tuple[tuple[str, str], ...] = ()
    opcode: type[OpCode] | None = None
    fixed: Mapping[str, object] = {}
    makes: Callable[[Any], Mapping[str, object]] | None = None
    each: Each | None = None
    confirm: str | Callable[[Any], str] = ""
    result: Callable[..., int | None] | None = None
    exclusive: tuple[tuple[str, str], ...] = ()
    changes: bool = False

    @property
    def submits(self) -> type[OpCode] | None:
        """The opcode that its options set fields of."""
        return self.does if isinstance(self.does, type) else self.opcode


DEBUG: Final = Option(("-d", "--debug"), "show tracebacks of failures", action=Action.COUNT)
VERSION: Final = Option(("-V", "--version"), "print the version", action=Action.VERSION)
COMMON_OPTIONS: Final = (
    Option(("-d", "--debug"), "show tracebacks; twice: log messages sent", action=Action.COUNT),
    Option(
        ("--reason",),
        "kept in the job's reason trail; of jobs with rate-limit:N:LABEL, N run at once",
    ),
)


class Program(msgspec.Struct, frozen=True):
    """A program: its commands, or the modules below ``ganeti.cli`` that declare them.

    Attributes:
        modules: the names of the commands that each module declares in ``COMMANDS``, so that only
            that of the command to be run is loaded.
        is_single: whether it has only one command, which is not named on the command line.
        is_interspersed: whether options may also stand after arguments, up to a command to run.
        explain: text and exit status of an error, where they are not the usual ones.
        expected_errors: the ones that are explained; others are mistakes of the program.
        value_status: the exit status for a wrong value of an option, where it is always the same.
    """

    name: str
    summary: str
    description: str
    own: tuple[Command, ...] = ()
    modules: Mapping[str, str] = {}
    environment_defaults: Mapping[str, str] = {}
    is_interspersed: bool = False
    common_options: tuple[Option, ...] = COMMON_OPTIONS
    is_single: bool = False
    explain: Callable[[Any], tuple[str, int]] = explain
    expected_errors: tuple[type[Exception], ...] = (GenericError, OSError)
    value_status: int | None = None
    manual_section: int = 8

    @property
    def commands(self) -> tuple[Command, ...]:
        """All commands; those of modules by name."""
        found = [command for module in self.modules for command in self._commands_in(module)]
        return (*self.own, *sorted(found, key=lambda command: command.name))

    def find(self, name: str) -> Command | None:
        """Return the command of that name or alias."""
        fitting = [module for module, names in self.modules.items() if name in names.split()]
        commands = [*self.own, *(each for module in fitting for each in self._commands_in(module))]
        for command in commands:
            if name == command.name or name in command.aliases:
                return command
        return None

    def _commands_in(self, module: str) -> tuple[Command, ...]:
        declared = import_module(f"ganeti.cli.{module}").COMMANDS
        found: tuple[Command, ...] = declared[self.name] if isinstance(declared, dict) else declared
        return found


def single_program(
    name: str, summary: str, description: str, handler: Handler, **more: Any
) -> Program:
    """Return a program without commands; further arguments are those of both records."""
    of_program = {key: more.pop(key) for key in [*more] if key in _OF_PROGRAM}
    command = Command(name, summary, handler, description=description, **more)
    of_program = {"common_options": (), "explain": told_by(name), **of_program}
    return Program(name, summary, description, (command,), is_single=True, **of_program)


_OF_PROGRAM: Final = frozenset(Program.__struct_fields__) - {*Command.__struct_fields__, "own"}

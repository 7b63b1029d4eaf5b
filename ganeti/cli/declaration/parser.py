"""Command lines: from words to a command, its options and its arguments.

Options come before arguments, as in 3.0: the first word that is not an option ends them, so that
``gnt-cluster command ls -l`` needs no quoting.  A long option may be shortened while it stays the
only one that fits.  Pure: printing and leaving is the business of `ganeti.cli.run`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec
from msgspec.structs import replace

from ganeti.base.errors import GenericError, ParameterError
from ganeti.cli.declaration.program import Action, ArgKind, Argument, Command, Option, Program
from ganeti.cli.declaration.values import Float, Int, Priority, Size, YesNo, parse_choice
from ganeti.protocol.service import read_as

USAGE_EXIT = 1
OPTION_EXIT = 2  # the exit status of 3.0's option parser
_PLAIN_TYPES = (Int, Float, Size, Priority)  # read by 3.0's option parser itself
HELP_FLAGS = ("-h", "--help")
COMPLETION_FLAG = "--help-completion"


class UsageError(GenericError):
    """The command line is wrong; ``exit_code`` is the exit status of the program."""

    def __init__(self, message: str, exit_code: int = USAGE_EXIT) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class WrongValue(UsageError):
    """The value of an option cannot be."""


class _Wanted(Exception):
    def __init__(self, command: Command | None = None) -> None:
        super().__init__()
        self.command = command


class HelpWanted(_Wanted):
    """The user asked for help: on the program, or on one command."""


class CompletionWanted(_Wanted):
    """The shell asked for the options: of the program, or of one command."""


class VersionWanted(Exception):
    """The user asked for the version."""


class Options:
    """The values of a command's options, as attributes."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = dict(values)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(f"this command has no option {name!r}") from None

    def get(self, name: str, default: object = None) -> Any:
        """Return an option that not every command has."""
        return self._values.get(name, default)

    def __repr__(self) -> str:
        return f"Options({self._values!r})"


class CommandLine(msgspec.Struct, frozen=True):
    """A command line that makes sense."""

    program: Program
    command: Command
    options: Options
    args: list[str]


def parse(program: Program, words: Sequence[str], environment: Mapping[str, str]) -> CommandLine:
    """Understand the words after the program's name.

    Raises:
        HelpWanted, VersionWanted: these were asked for.
        UsageError: the words make no sense.
        OpPrereqError: a value makes none.
    """
    if program.is_single:
        if COMPLETION_FLAG in words:
            raise CompletionWanted(program.own[0])
        return _parse_command(program, program.own[0], list(words))
    if COMPLETION_FLAG in words:
        raise CompletionWanted(next(filter(None, map(program.find, words)), None))
    if not words:
        raise UsageError(f"give a command; '{program.name} --help' lists them")
    first, rest = words[0], list(words[1:])
    if first in HELP_FLAGS or first == "help":
        raise HelpWanted(_find(program, rest[0]) if rest else None)
    if first == "--version":
        raise VersionWanted
    command = _find(program, first)
    rest = _environment_words(program, command, environment) + rest
    return _parse_command(program, command, rest)


def _parse_command(program: Program, command: Command, rest: list[str]) -> CommandLine:
    values, args = _parse_options(program, command, [*rest])
    try:
        _check_arguments(program, command, args)
    except UsageError as err:
        hint = _hint_at_blank(options_of(program, command), rest, args)
        raise UsageError(f"{err.message}{hint}", err.exit_code) if hint else err from None
    return CommandLine(program, command, Options(values), args)


def _find(program: Program, name: str) -> Command:
    command = program.find(name)
    if command is not None:
        return command
    hint = _hint_at(name, [candidate.name for candidate in program.commands])
    raise UsageError(f"unknown command {name!r}{hint}\n'{program.name} --help' lists the commands")


def _hint_at(word: str, candidates: Sequence[str]) -> str:
    """Return a hint at the candidates that are like a word."""
    from difflib import get_close_matches

    close = get_close_matches(word, candidates, n=3)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _hint_at_blank(options: Sequence[Option], words: Sequence[str], args: Sequence[str]) -> str:
    """Return a hint at an argument that was perhaps to be the value of the option before it."""
    flags = {flag for each in options if each.alone is not None for flag in each.flags}
    for flag, word in pairwise(words):
        if flag in flags and word in args:
            whole = f"{flag}={word}" if flag.startswith("--") else f"{flag}{word}"
            return f"\nthe value of {flag} is written without a blank: {whole}"
    return ""


def _environment_words(
    program: Program, command: Command, environment: Mapping[str, str]
) -> list[str]:
    variable = program.environment_defaults.get(command.name)
    if not variable or not environment.get(variable):
        return []
    try:
        return shlex.split(environment[variable])
    except ValueError as err:
        raise UsageError(f"the environment variable {variable} is not well quoted: {err}") from err


def options_of(program: Program, command: Command) -> tuple[Option, ...]:
    """Return the command's own options and those of every command, all with their types."""
    opcode = command.submits
    if opcode is None:
        return command.options + program.common_options
    fields = {each.name: each for each in msgspec.structs.fields(opcode)}
    own = tuple(_of_field(each, fields.get(each.destination)) for each in command.options)
    return own + program.common_options


def _of_field(option: Option, field: msgspec.structs.FieldInfo | None) -> Option:
    """Return an option with type, choices and default of the field that it sets."""
    if field is None or not option.takes_value:
        return option
    kind = next((each for each in _members(field.type) if each is not NoneType), str)
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if option.type is None and not option.choices:
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            option = replace(option, choices=tuple(str(each) for each in kind))
        elif kind in _BY_FIELD:
            option = replace(option, type=_BY_FIELD[kind])
    is_plain = isinstance(field.default, int | float | str) and not isinstance(field.default, bool)
    if option.default is None and is_plain and option.action is Action.STORE and field.default:
        option = replace(option, default=field.default)
    return option


_BY_FIELD: Final[Mapping[Any, Any]] = {bool: YesNo, int: Int, float: Float}


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _parse_options(
    program: Program, command: Command, words: list[str]
) -> tuple[dict[str, object], list[str]]:
    options = options_of(program, command)
    values: dict[str, object] = {}
    for option in options:
        values.setdefault(option.destination, option.initial)
    lists: dict[str, list[object]] = {}
    args: list[str] = []
    while words:
        word = words[0]
        if word == "--":
            words = words[1:]
            break
        if word.startswith("-") and word != "-":
            option, text, words = _next_option(command, options, words)
            _store(option, text, values, lists)
        elif _goes_on(program, command, len(args)):
            args.append(words.pop(0))
        else:
            break
    for option in options:
        found = lists.get(option.destination)
        if found is not None:
            values[option.destination] = found if option.gather is None else option.gather(found)
    return values, args + words


def _goes_on(program: Program, command: Command, position: int) -> bool:
    """Tell whether options may follow the argument at that position."""
    if not program.is_interspersed:
        return False
    kinds = [argument.kind for argument in command.args]
    return ArgKind.COMMAND not in kinds or position < kinds.index(ArgKind.COMMAND)


def _next_option(
    command: Command, options: Sequence[Option], words: list[str]
) -> tuple[Option, str | None, list[str]]:
    word, rest = words[0], words[1:]
    if word in HELP_FLAGS:
        raise HelpWanted(command)
    for option in options:
        if option.alone is not None and word in option.flags:
            return option, option.alone, rest
    if word.startswith("--"):
        flag, equals, attached = word.partition("=")
        option = _find_long(options, flag)
        text: str | None = attached if equals else None
        if text is not None and not option.takes_value:
            raise UsageError(f"option {option.long} takes no value", OPTION_EXIT)
    else:
        flag, attached = word[:2], word[2:]
        option = _find_short(options, flag)
        if not option.takes_value:
            return option, None, ["-" + attached, *rest] if attached else rest
        text = attached or None
    if not option.takes_value or text is not None:
        return option, text, rest
    if not rest:
        raise UsageError(f"option {flag} needs a value", OPTION_EXIT)
    return option, rest[0], rest[1:]


def _find_short(options: Sequence[Option], flag: str) -> Option:
    found = next((option for option in options if flag in option.flags), None)
    if found is None:
        raise UsageError(f"no such option: {flag}", OPTION_EXIT)
    return found


def _find_long(options: Sequence[Option], flag: str) -> Option:
    fitting = [each for each in options if any(long.startswith(flag) for long in each.flags)]
    exact = [option for option in fitting if flag in option.flags]
    if exact:
        return exact[0]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(option.long for option in fitting)
        raise UsageError(f"option {flag} could be any of {names}", OPTION_EXIT)
    flags = [candidate for option in options for candidate in option.flags if len(candidate) > 2]
    hint = _hint_at(flag, flags)
    raise UsageError(f"no such option: {flag}{hint}", OPTION_EXIT)


def _store(
    option: Option, text: str | None, values: dict[str, object], lists: dict[str, list[object]]
) -> None:
    name = option.destination
    match option.action:
        case Action.STORE:
            values[name] = _value(option, text or "")
        case Action.APPEND:
            lists.setdefault(name, []).append(_value(option, text or ""))
        case Action.TRUE:
            values[name] = True
        case Action.FALSE:
            values[name] = False
        case Action.CONST:
            values[name] = option.const
        case Action.VERSION:
            raise VersionWanted
        case Action.COUNT:
            count = values[name]
            values[name] = (count if isinstance(count, int) else 0) + 1


def _value(option: Option, text: str) -> object:
    try:
        if option.choices and option.type is None:
            return parse_choice(text, option.choices)
        return read_as(option.type or str, text, is_text=True)
    except ParameterError as err:
        is_plain = bool(option.choices) or option.type in _PLAIN_TYPES
        status = OPTION_EXIT if is_plain else USAGE_EXIT
        raise WrongValue(f"option {option.long}: {err.message}", status) from err


def _check_arguments(program: Program, command: Command, args: list[str]) -> None:
    least = sum(argument.min for argument in command.args)
    bounds = [argument.max for argument in command.args]
    most = None if None in bounds else sum(bound or 0 for bound in bounds)
    usage = f"usage: {usage_line(program, command)}"
    if len(args) < least:
        raise UsageError(f"{_first_missing(command, len(args)).label} is missing\n{usage}")
    if most is not None and len(args) > most:
        extra = args[most:]
        is_late = any(word.startswith("-") for word in extra)
        hint = "; options come before the arguments" if is_late else ""
        what = "takes no arguments" if most == 0 else "takes fewer arguments"
        raise UsageError(f"{command.name} {what}, found {' '.join(extra)!r}{hint}\n{usage}")
    _check_choices(command, args)
    _check_no_option_is_late(program, command, args)


def _check_no_option_is_late(program: Program, command: Command, args: list[str]) -> None:
    """Refuse an option that stands behind an argument, where it would be taken for a name."""
    if any(argument.kind is ArgKind.COMMAND for argument in command.args):
        return
    flags = {flag for option in options_of(program, command) for flag in option.flags}
    for word in args:
        if word.partition("=")[0] in flags:
            raise UsageError(
                f"option {word} stands after {args[0]!r}; options come before the arguments"
            )


def _first_missing(command: Command, given: int) -> Argument:
    for argument in command.args:
        if given < argument.min:
            return argument
        given -= argument.min
    return command.args[-1]


def _check_choices(command: Command, args: list[str]) -> None:
    position = 0
    for argument in command.args:
        count = argument.max if argument.max is not None else len(args) - position
        for word in args[position : position + count]:
            if argument.kind is ArgKind.CHOICE and word not in argument.choices:
                raise UsageError(f"{word!r} is not one of {', '.join(argument.choices)}")
        position += count


def usage_line(program: Program, command: Command) -> str:
    """Return how the command is called, in one line."""
    words = [program.name, *([] if program.is_single else [command.name])]
    if command.options:
        words.append("[options]")
    words.extend(argument.usage for argument in command.args)
    return " ".join(words)

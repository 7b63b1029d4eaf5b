"""Help texts, derived from the tables."""

from __future__ import annotations

import textwrap

from ganeti.base.versions import RELEASE_VERSION
from ganeti.cli.declaration.parser import options_of, usage_line
from ganeti.cli.declaration.program import Action, Command, Option, Program
from ganeti.cli.declaration.values import PRIORITIES, ValueType

WIDTH_MIN = 40
WIDTH_MAX = 100
_COLUMN = 28

VALUE_HELP = {
    ValueType.KEYVAL: "key=value[,key=value...]",
    ValueType.KEYVAL_PRIVATE: "key=value[,key=value...]",
    ValueType.IDENT_KEYVAL: "ident:key=value[,...]",
    ValueType.MULTI_LIST_IDENT_KEYVAL: "ident:key=value/ident:...[//...]",
    ValueType.BOOL: "yes|no",
    ValueType.UNIT: "size",
    ValueType.INT: "n",
    ValueType.FLOAT: "number",
    ValueType.MAYBE_FLOAT: "number|none",
    ValueType.JSON: "json",
    ValueType.LIST: "a,b,...",
    ValueType.PRIORITY: "|".join(PRIORITIES),
}


def value_label(option: Option) -> str:
    """Return what stands for the option's value in help texts, "" without a value."""
    if not option.takes_value:
        return ""
    if option.type is ValueType.CHOICE and len(option.choices) <= 9:
        return "|".join(option.choices)
    if option.type in VALUE_HELP and not option.metavar.startswith("<"):
        return VALUE_HELP[option.type]
    return option.metavar or option.destination.upper()


def flags_label(option: Option) -> str:
    """Return the option's flags with its value, as in ``-n, --node=<node>``."""
    label = value_label(option)
    parts = []
    for flag in option.flags:
        if not label:
            parts.append(flag)
        elif flag.startswith("--"):
            parts.append(f"{flag}={label}")
        elif len(option.flags) == 1:
            parts.append(f"{flag} {label}")
        else:
            parts.append(flag)
    return ", ".join(parts)


def option_text(option: Option) -> str:
    """Return the option's help with its default and whether it may be repeated."""
    notes = []
    if option.action is Action.APPEND:
        notes.append("may be given several times")
    if option.default not in (None, {}, (), [], "", False):
        notes.append(f"default {option.default}")
    return option.help + (f" ({'; '.join(notes)})" if notes else "")


def program_help(program: Program, width: int) -> str:
    """Return the help on a whole program."""
    width = max(WIDTH_MIN, min(width, WIDTH_MAX))
    lines = [f"usage: {program.name} COMMAND [options] [arguments]", ""]
    lines += [*textwrap.wrap(program.description, width), "", "Commands:"]
    column = max(len(command.name) for command in program.commands) + 4
    for command in program.commands:
        text = command.summary if command.handler else f"{command.summary} (not supported yet)"
        lines += _entry(command.name, text, column, width)
    lines += ["", f"'{program.name} COMMAND --help' explains one command."]
    return "\n".join(lines)


def command_help(program: Program, command: Command, width: int) -> str:
    """Return the help on one command."""
    width = max(WIDTH_MIN, min(width, WIDTH_MAX))
    lines = [f"usage: {usage_line(program, command)}", ""]
    lines += textwrap.wrap(_sentence(command.summary), width)
    if not command.handler:
        lines += ["", "This command is not supported yet."]
    if command.aliases:
        lines += ["", f"Also called: {', '.join(command.aliases)}"]
    if command.description:
        for paragraph in command.description.split("\n\n"):
            lines += ["", *textwrap.wrap(" ".join(paragraph.split()), width)]
    lines += ["", "Options:"]
    for option in (*sorted(options_of(program, command), key=sort_key),):
        lines += _entry(flags_label(option), option_text(option), _COLUMN, width)
    lines += _entry("-h, --help", "show this help", _COLUMN, width)
    if command.examples:
        lines += ["", "Examples:"]
        for line, what in command.examples:
            lines += [f"  {line}", f"      {what}"]
    return "\n".join(lines)


def sort_key(option: Option) -> str:
    """Order options by their long flag."""
    return option.long.lstrip("-")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _entry(label: str, text: str, column: int, width: int) -> list[str]:
    indent = " " * (column + 2)
    wrapped = textwrap.wrap(text, max(20, width - column - 2)) or [""]
    if len(label) + 2 > column:
        return [f"  {label}", *(indent + line for line in wrapped)]
    return [f"  {label:<{column}}{wrapped[0]}", *(indent + line for line in wrapped[1:])]


def version_text(program: Program) -> str:
    """Return what ``--version`` prints."""
    return f"{program.name} (ganeti) {RELEASE_VERSION}"

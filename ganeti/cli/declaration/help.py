"""Help texts, derived from the tables."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from ganeti.base.versions import RELEASE_VERSION
from ganeti.cli.declaration.parameters import tables_of, takes_names
from ganeti.cli.declaration.parser import options_of, usage_line
from ganeti.cli.declaration.program import Action, ArgKind, Command, Option, Program, sort_key
from ganeti.cli.declaration.values import Int
from ganeti.objects.parameters import ParamTable
from ganeti.protocol.service import text_form_of

WIDTH_MIN = 40
WIDTH_MAX = 100
_COLUMN = 28


def value_label(option: Option) -> str:
    """Return the placeholder of the option's value in help texts, "" without a value."""
    if not option.takes_value:
        return ""
    form = text_form_of(option.type)
    if option.choices and option.type is None and len(option.choices) <= 9:
        return "|".join(option.choices)
    if form is not None and form.words and not option.metavar.startswith("<"):
        return form.words
    return option.metavar or option.destination.upper()


def flags_label(option: Option) -> str:
    """Return the option's flags with its value, as in ``-n, --node=<node>``.

    Dots behind the value mean that the option may be given several times.  A value in brackets may
    be left out, and stands at the flag.
    """
    label = value_label(option) + "..." * (option.action is Action.APPEND)
    if option.alone is not None:
        return ", ".join(
            f"{flag}[={label}]" if flag.startswith("--") else f"{flag}[{label}]"
            for flag in option.flags
        )
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
    """Return the option's help with its default."""
    has_default = option.default not in (None, {}, (), [], "", False)
    is_said = f"{option.default}" in option.help or option.action is Action.APPEND
    return (
        f"{option.help} (default {option.default})" if has_default and not is_said else option.help
    )


def program_help(program: Program, width: int) -> str:
    """Return the help on a whole program."""
    width = max(WIDTH_MIN, min(width, WIDTH_MAX))
    lines = [f"usage: {program.name} COMMAND [options] [arguments]", ""]
    lines += [*textwrap.wrap(program.description, width), "", "Commands:"]
    column = max(len(command.name) for command in program.commands) + 4
    for command in program.commands:
        text = command.summary if command.does else f"{command.summary} (not supported yet)"
        lines += _entry(command.name, text, column, width)
    lines += ["", f"'{program.name} COMMAND --help' explains one command."]
    return "\n".join(lines)


def command_help(program: Program, command: Command, width: int) -> str:
    """Return the help on one command."""
    width = max(WIDTH_MIN, min(width, WIDTH_MAX))
    lines = [f"usage: {usage_line(program, command)}", ""]
    lines += textwrap.wrap(_sentence(command.summary), width)
    if not command.does:
        lines += ["", "This command is not supported yet."]
    if command.aliases:
        lines += ["", f"Also called: {', '.join(command.aliases)}"]
    if command.description:
        for paragraph in command.description.split("\n\n"):
            lines += ["", *textwrap.wrap(" ".join(paragraph.split()), width)]
    may_repeat = any(each.action is Action.APPEND for each in options_of(program, command))
    note = " (... after a value: may be given several times)" if may_repeat else ""
    lines += ["", f"Options{note}:"]
    for option in (*sorted(options_of(program, command), key=sort_key),):
        lines += _entry(flags_label(option), option_text(option), _COLUMN, width)
    lines += _entry("-h, --help", "show this help", _COLUMN, width)
    if command.examples:
        lines += ["", "Examples:"]
        for line, what in command.examples:
            lines += [f"  {line}", f"      {what}"]
    for title, table in _parameters(options_of(program, command)):
        lines += ["", f"{title}:"]
        for name, spec in sorted(table.items()):
            lines += _entry(name, spec.described, _COLUMN, width)
    return "\n".join(lines)


def _parameters(options: Iterable[Option]) -> Iterator[tuple[str, ParamTable]]:
    """Yield the tables of the parameters that options set, each with its title."""
    for option in options:
        flag = option.flags[0]
        for name, table in tables_of(option).items():
            if takes_names(option):
                yield f"Parameters of {flag} {name}:...", table
            else:
                yield f"Parameters of {flag}" + (f" with hypervisor {name}" if name else ""), table


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _entry(label: str, text: str, column: int, width: int) -> list[str]:
    indent = " " * (column + 2)
    wrapped = textwrap.wrap(text, max(20, width - column - 2)) or [""]
    if len(label) + 2 > column:
        return [f"  {label}", *(indent + line for line in wrapped)]
    return [f"  {label:<{column}}{wrapped[0]}", *(indent + line for line in wrapped[1:])]


def version_text(program: Program) -> str:
    """Return the output of ``--version``."""
    return f"{program.name} (ganeti) {RELEASE_VERSION}"


def completion_lines(program: Program, command: Command | None) -> list[str]:
    """Return the output of ``--help-completion``: options, then arguments.

    Source: cli.json, "help_completion".
    """
    if command is None:
        return [f"choices={','.join(each.name for each in program.commands)} 1 1"]
    lines = [f"{','.join(each.flags)} {_kind(each)}" for each in options_of(program, command)]
    files = [f"file {each.min} {each.max}" for each in command.args if each.kind is ArgKind.FILE]
    return [*lines, "-h,--help none", *files]


def _kind(option: Option) -> str:
    if not option.takes_value:
        return "none"
    if option.completes is ArgKind.FILE:
        return "file"
    return "integer" if option.type == Int else "string"

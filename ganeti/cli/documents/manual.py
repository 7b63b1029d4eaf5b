"""Manual pages, generated from the tables and a few sentences of prose.  Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from ganeti.base.versions import RELEASE_VERSION
from ganeti.cli.declaration.help import flags_label, option_text
from ganeti.cli.declaration.parser import usage_line
from ganeti.cli.declaration.program import Command, Option, Program, sort_key

SECTION: Final = 8
_LONG_WORD: Final = re.compile(r"\S{30,}")  # too long for a line together with others
_BREAKABLE: Final = re.compile(r"(?<=[,/=|\]])(?=[^\s,./=|\]])")

_EXIT_STATUS: Final = (
    ("0", "Fine."),
    ("1", "Failure, or a wrong command line."),
    ("2", "The configuration cannot be read, or an option is wrong."),
    ("5", "This machine is not part of a cluster."),
    ("11", "This node is not the master; the message names the master."),
    ("12", "A node could not be set up."),
    ("13", "The operation was not confirmed."),
    ("14", "A field was asked for that nobody knows."),
)
_JOBS: Final = """Changes are jobs: they are checked, put into a queue, and the command follows
them until they have ended, printing their messages.  With \\fB--submit\\fR it prints only the
number of the job; \\fBgnt-job watch\\fR follows it later.  """
_COMMON: Final = """Options come before arguments; one with
dots behind its value may be given several times.  \\fBganeti\\fR(7) explains concepts, kinds of
values, and the parameters of instances, disks, networks and nodes."""


Entry = tuple[str, str]  # a term and its meaning


class Section(NamedTuple):
    """A section of a manual page: paragraphs, then terms with their meanings."""

    title: str
    paragraphs: Sequence[str]
    entries: Sequence[Entry]


def manual_page(program: Program, see_also: Sequence[str], sections: Sequence[Section] = ()) -> str:
    """Return the manual page of a program with commands in troff."""
    lines = [
        *_title(program.name),
        ".SH NAME",
        f"{escape(program.name)} \\- {escape(program.summary)}",
        ".SH SYNOPSIS",
        f".B {escape(program.name)}",
        "\\fIcommand\\fR [\\fIoptions\\fR] [\\fIarguments\\fR]",
        ".SH DESCRIPTION",
        escape(_one_line(program.description)),
    ]
    if program.name.startswith("gnt-"):
        common = (_JOBS if _makes_jobs(program) else "") + _COMMON
        lines += [".PP", *common.splitlines()]
    lines.append(".SH COMMANDS")
    for command in program.commands:
        lines += _command(program, command)
    lines.append(".SH OPTIONS OF EVERY COMMAND")
    for option in program.common_options:
        lines += _option(option)
    if program.name.startswith("gnt-"):
        lines += _exit_status()
    for section in sections:
        lines += _section(section)
    lines += _see_also([name for name in see_also if name != program.name])
    return "\n".join(lines) + "\n"


def _makes_jobs(program: Program) -> bool:
    return any(opt.long == "--submit" for each in program.commands for opt in each.options)


def _command(program: Program, command: Command) -> list[str]:
    usage = usage_line(program, command).removeprefix(program.name + " ")
    lines = [f".SS {escape(usage)}", escape(_sentence(command.summary))]
    if not command.does:
        lines.append("Not supported yet.")
    if command.aliases:
        lines.append(f"Also called {escape(', '.join(command.aliases))}.")
    if command.description:
        lines += [".PP", escape(_one_line(command.description))]
    for option in sorted(command.options, key=sort_key):
        lines += _option(option)
    if command.examples:
        lines += [".PP", "Examples:"]
        for line, what in command.examples:
            lines += [".TP", f"\\fB{escape(line)}\\fR", escape(_sentence(what))]
    return lines


def _option(option: Option) -> list[str]:
    return [".TP", f"\\fB{escape(flags_label(option))}\\fR", escape(_sentence(option_text(option)))]


def _exit_status() -> list[str]:
    lines = [".SH EXIT STATUS"]
    for status, text in _EXIT_STATUS:
        lines += [".TP", f"\\fB{status}\\fR", text]
    return lines


def escape(text: str) -> str:
    """Protect words that troff would take for a request, and mark where long words may break."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = _LONG_WORD.sub(lambda word: _BREAKABLE.sub(r"\\:", word.group()), text)
    return "\\&" + text if text.startswith((".", "'")) else text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def tool_page(program: Program, sections: Sequence[Section], see_also: Sequence[str]) -> str:
    """Return the manual page of a program without commands."""
    [command] = program.own
    options = [(flags_label(each), option_text(each)) for each in command.options]
    return daemon_page(
        program.name,
        program.summary,
        program.description,
        options,
        sections,
        see_also,
        usage=" ".join(argument.usage for argument in command.args),
        manual_section=program.manual_section,
    )


def daemon_page(
    name: str,
    summary: str,
    prose: str,
    options: Sequence[tuple[str, str]],
    sections: Sequence[Section] = (),
    see_also: Sequence[str] = (),
    *,
    usage: str = "",
    manual_section: int = SECTION,
    is_program: bool = True,
) -> str:
    """Return the manual page of a daemon, or of a program without commands.

    Args:
        usage: the arguments, as they stand behind the options.
        manual_section: which part of the manual it belongs to.
        is_program: whether it can be called; otherwise there is no synopsis.
    """
    lines = [
        *_title(name, manual_section),
        ".SH NAME",
        f"{escape(name)} \\- {escape(_phrase(summary))}",
        *([".SH SYNOPSIS", f".B {escape(name)}"] if is_program else []),
        *(["[\\fIoptions\\fR]"] if options else []),
        *([f"\\fI{escape(usage)}\\fR"] if usage else []),
        ".SH DESCRIPTION",
        escape(_one_line(prose)),
    ]
    if options:
        lines.append(".SH OPTIONS")
    for flags, text in options:
        lines += [".TP", f"\\fB{escape(flags)}\\fR", escape(_sentence(text))]
    for section in sections:
        lines += _section(section)
    pages = _see_also(see_also, with_concepts=is_program)
    return "\n".join([*lines, *pages]) + "\n"


def _title(name: str, section: int = SECTION) -> list[str]:
    """Begin a page; long words make justified lines ugly, and hyphens in names mislead."""
    return [f'.TH {name} {section} "" "Ganeti {RELEASE_VERSION}" "Ganeti"', ".nh", ".ad l"]


def _section(section: Section) -> list[str]:
    lines = [f".SH {section.title}"]
    for number, paragraph in enumerate(section.paragraphs):
        lines += [".PP"] * bool(number) + [escape(_one_line(paragraph))]
    for term, text in section.entries:
        lines += [".TP", f"\\fB{escape(term)}\\fR", escape(_sentence(_one_line(text)))]
    return lines


def _see_also(names: Sequence[str], *, with_concepts: bool = True) -> list[str]:
    if not names:
        return []
    pages = [f"\\fB{escape(name)}\\fR({SECTION})" for name in names]
    return [".SH SEE ALSO", ", ".join([*(["\\fBganeti\\fR(7)"] if with_concepts else []), *pages])]


def _phrase(summary: str) -> str:
    """Return a sentence as the subject of a page: no capital, no full stop."""
    return summary[:1].lower() + summary[1:].rstrip(".")

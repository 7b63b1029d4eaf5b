"""Running one command: from the words on the command line to the exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from ganeti.base.errors import TransportError
from ganeti.cli.declaration.parser import (
    CommandLine,
    CompletionWanted,
    HelpWanted,
    UsageError,
    VersionWanted,
    WrongValue,
    parse,
)
from ganeti.cli.declaration.program import Command, Program
from ganeti.cli.run.context import CannotWrite, Context, Terminal
from ganeti.cli.run.failures import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_SUCCESS, JobSubmitted


def run(program: Program, words: Sequence[str] | None = None) -> int:
    """Run a program with these words, those of the command line if none are given."""
    terminal = Terminal.of_process()
    try:
        return _run(program, sys.argv[1:] if words is None else list(words), terminal)
    except BrokenPipeError:
        _give_up_output()  # the reader has left, and has all that it wanted
    except CannotWrite as err:
        _give_up_output()
        with suppress(CannotWrite, BrokenPipeError):
            terminal.error(f"{program.name}: cannot write the output: {err}")
    return EXIT_FAILURE


def _give_up_output() -> None:
    """Point the standard output elsewhere, so that the interpreter's last flush succeeds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(program: Program, words: Sequence[str], terminal: Terminal) -> int:
    debug: object = False
    try:
        _check_text(words)
        line = parse(program, words, os.environ)
        debug = line.options.get("debug")
        return _run_command(line, terminal)
    except (HelpWanted, VersionWanted, CompletionWanted) as wanted:
        terminal.write_lines(_help_lines(program, wanted, terminal.width))
        return EXIT_SUCCESS
    except JobSubmitted as submitted:
        terminal.error(f"JobID: {submitted.job_id}")
        return EXIT_SUCCESS
    except UsageError as err:
        terminal.error(f"{program.name}: {err.message}")
        if isinstance(err, WrongValue) and program.value_status is not None:
            return program.value_status
        return err.exit_code
    except BrokenPipeError:
        raise  # nothing is wrong, and there is nobody to be told
    except program.expected_errors as err:
        if debug:
            import traceback  # 2 ms, for failures only

            terminal.error(traceback.format_exc())
        text, status = program.explain(err)
        terminal.error(text)
        return status


def _help_lines(
    program: Program, wanted: HelpWanted | VersionWanted | CompletionWanted, width: int
) -> list[str]:
    """Return the lines about a program that were asked for in place of a command."""
    from ganeti.cli.declaration import help

    match wanted:
        case CompletionWanted():
            return help.completion_lines(program, wanted.command)
        case HelpWanted(command=Command() as command):
            return [help.command_help(program, command, width)]
        case HelpWanted():
            return [help.program_help(program, width)]
        case _:
            return [help.version_text(program)]


def _check_text(words: Sequence[str]) -> None:
    """Refuse words that are no text: none of our peers could read them.

    Raises:
        UsageError: naming the word.
    """
    for word in words:
        if any("\udc80" <= letter <= "\udcff" for letter in word):  # as the system stands for bytes
            raise UsageError(f"argument {os.fsencode(word)!r} is not valid UTF-8")


def _run_command(line: CommandLine, terminal: Terminal) -> int:
    program, command = line.program, line.command
    if command.does is None:
        terminal.error(f"{program.name} {command.name} is not supported yet")
        return EXIT_FAILURE
    context = Context(program.name, command, line.options, terminal)
    try:
        with context:
            return carry_out(context, line)
    except KeyboardInterrupt:
        terminal.error(context.interruption_text())
        return EXIT_INTERRUPTED
    except (TransportError, CannotWrite):
        if rest := context.text_of_rest():
            terminal.error(rest.capitalize())
        raise


def carry_out(context: Context, line: CommandLine) -> int:
    """Run the handler of a command, or submit its opcode; returns the exit status."""
    command, does = line.command, line.command.does
    if command.submits is not None:
        from ganeti.cli.run.binding import check_options, run_opcode  # with all about jobs

        check_options(command, line.options)
        if isinstance(does, type):
            return run_opcode(context, command, line.options, line.args)
    assert does is not None
    assert not isinstance(does, type)
    return does(context, line.options, line.args) or EXIT_SUCCESS

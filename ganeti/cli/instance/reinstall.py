"""``gnt-instance reinstall``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.cli.command import Context, Options, command, confirm, opt
from ganeti.cli.instance.life import select_instances
from ganeti.cli.os import usable_names
from ganeti.cli.run.binding import bound
from ganeti.cli.run.context import Terminal
from ganeti.cli.run.failures import NotConfirmed
from ganeti.cli.run.jobs import JobGroup
from ganeti.opcodes.instance import OpInstanceReinstall


def reinstall(context: Context, options: Options, args: list[str]) -> int:
    """Install the operating system of instances again."""
    os_type = _select_os(context, options) if options.select_os else options.os_type
    names = select_instances(context, options, args, "reinstall, which destroys their data,")
    # Who was asked about several, or did not want to be, is not asked twice.
    is_settled = options.force_multiple or context.terminal.is_interactive
    if not options.force and not (len(names) > 1 and is_settled):
        confirm(context, f"This destroys the data of {', '.join(names)}.  Go on?")
    jobs = JobGroup(context, options)
    for name in names:
        jobs.add(name, bound(context.command, options, [], instance_name=name, os_type=os_type))
    return jobs.run()


def _select_os(context: Context, options: Options) -> str:
    """Let the user choose among the operating systems that all nodes have.

    Raises:
        OpPrereqError: nobody is there to choose, or there is nothing to choose from.
        NotConfirmed: the user wants none of them.
    """
    if options.os_type:
        raise OpPrereqError("--select-os and -o exclude each other")
    if not context.terminal.is_interactive:
        raise OpPrereqError(
            "--select-os needs a terminal to ask on; name the operating system with -o"
            " (gnt-os list shows them)"
        )
    names = usable_names(context, options)
    if not names:
        raise OpPrereqError("no operating system is usable on all nodes; see gnt-os diagnose")
    context.write("Available operating systems:")
    context.terminal.write_lines([f"{number:3}: {name}" for number, name in enumerate(names)])
    return choose(context.terminal, names)


def choose(terminal: Terminal, names: Sequence[str]) -> str:
    """Ask for the number of one of the names, until it is one.

    Raises:
        NotConfirmed: the answer is ``x``, or there is none.
    """
    while True:
        answer = terminal.ask("Enter the number of the operating system (x to leave): ")
        if answer.lower() in ("", "x"):
            raise NotConfirmed("No operating system was chosen, nothing was done.")
        if answer.isascii() and answer.isdigit() and int(answer) < len(names):
            return names[int(answer)]
        terminal.error(f"{answer!r} is not a number from 0 to {len(names) - 1}")


COMMANDS: Final = (
    command(
        reinstall,
        "[<instance>...] --force --force-variant --os-parameters --os-parameters-private",
        "--os-parameters-secret --os-type CHANGE SELECTION",
        opt.flag("--select-os", "choose the operating system from a list"),
        opcode=OpInstanceReinstall,
    ),
)

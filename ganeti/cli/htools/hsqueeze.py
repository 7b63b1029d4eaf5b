"""``hsqueeze``: tells which nodes can be switched off, or have to be switched on again.

Source: cli.json, "htools"; manual page hsqueeze(1).  The forms of the output are those of 3.0.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Final

from ganeti.allocation.capacity.squeezing import STANDBY, Room, Squeezed, squeeze
from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.sources.text_data import to_text
from ganeti.allocation.state import snapshot_after
from ganeti.base.errors import GenericError
from ganeti.cli.command import EXIT_FAILURE, EXIT_SUCCESS, Context, Options
from ganeti.cli.declaration.program import single_program
from ganeti.cli.htools.executing import Job, carry_out
from ganeti.cli.htools.frame import Run, start
from ganeti.cli.htools.hbal import SCRIPT, command_lines, job_of, job_sets
from ganeti.cli.htools.options import shared
from ganeti.cli.htools.sources import write_file
from ganeti.objects.tags import TagKind
from ganeti.opcodes.node import OobCommand, OpNodeSetParams, OpOobCommand
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.registry import encode_opcode
from ganeti.opcodes.tags import OpTagsSet

_TAG: Final = f"{STANDBY}auto"


def advise(context: Context, options: Options, _args: list[str]) -> int:
    """Find the nodes and tell about them.

    Raises:
        GenericError: there is no source of data, it cannot be read, or an option is wrong.
    """
    if options.exec and options.luxi is None:
        raise GenericError(
            "--exec: jobs can only be submitted through the master daemon; use --luxi"
        )
    least, target = options.minimal_resources, options.target_resources
    if least < 0 or target < 0:
        raise GenericError("--minimal-resources and --target-resources: a factor is negative")
    if target < least:  # or what is switched off would be switched on at once
        target = least
    run = start(context, options)
    if options.save is not None:
        _save(run, "before", f"{options.save}.original", run.snapshot)
    found = squeeze(run.snapshot, Room(least, target))
    run.say(f"Offline candidates: {','.join(found.may_leave)}", 2)
    run.say(f"Online candidates: {','.join(found.may_come)}", 2)
    if not options.no_headers:
        run.say(_title(found))
    context.terminal.write_lines([*found.leave, *found.come])
    if found.is_short:
        run.say("Onlining all nodes will not yield enough capacity", 2)
    if options.print_commands is not None:
        _print_commands(run, found, options.print_commands)
    if options.save is not None:
        after = snapshot_after(found.snapshot, found.after)
        _save(run, "after", f"{options.save}.squeezed", after)
    return _execute(run, found) if options.exec else EXIT_SUCCESS


def _save(run: Run, when: str, path: str, snapshot: Snapshot) -> None:
    write_file(path, to_text(snapshot))
    run.warn([f"The cluster state {when} hsqueeze run has been written to file '{path}'"])


def _title(found: Squeezed) -> str:
    if found.leave:
        return "'Nodes to offline'"
    return "'Nodes to online'" if found.lacks_room else "'No action'"


def _print_commands(run: Run, found: Squeezed, path: str) -> None:
    if path:
        lines = _commands(found, check=["  check"])
        write_file(path, SCRIPT + "".join(f"{line}\n" for line in lines))
        run.say(f"The commands have been written to file '{path}'")
        return
    run.say("\nCommands to run:")
    run.context.terminal.write_lines([f"  {line}" for line in _commands(found)])


def _commands(found: Squeezed, check: Sequence[str] = ()) -> list[str]:
    """Return the commands: instances move only between nodes that have power."""
    moves = command_lines(found.steps, check)
    if found.leave:
        names = [quote(name) for name in found.leave]
        return [
            *moves,
            *("", "echo Tagging Commands"),
            *(f"  gnt-node add-tags {name} {_TAG}" for name in names),
            *("", "echo Power Commands"),
            *(
                line
                for name in names
                for line in (f"  gnt-node modify -O yes {name}", f"  gnt-node power -f off {name}")
            ),
        ]
    if found.lacks_room:
        names = [quote(name) for name in found.come]
        power = (
            line
            for name in names
            for line in (f"  gnt-node power -f on {name}", f"  gnt-node modify -O no {name}")
        )
        return ["echo Power Commands", *power, *moves]
    return ["echo Nothing to do"]


def _execute(run: Run, found: Squeezed) -> int:
    """Carry out moves and changes of power, each set of jobs after the one before it."""
    moves = [[job_of(step) for step in steps] for steps in job_sets(found.steps)]
    off = [_node_job(name, _switched_off(name)) for name in found.leave]
    on = [_node_job(name, _switched_on(name)) for name in found.come]
    sets = [jobs for jobs in (on, *moves, off) if jobs]
    return carry_out(run.context, run.options, sets)


def _node_job(name: str, opcodes: Sequence[OpCode]) -> Job:
    return Job(name, [encode_opcode(each) for each in opcodes])


def _switched_off(name: str) -> Sequence[OpCode]:
    return (
        OpTagsSet(kind=TagKind.NODE, name=name, tags=[_TAG]),
        OpNodeSetParams(node_name=name, offline=True),
        OpOobCommand(node_names=[name], command=OobCommand.POWER_OFF),
    )


def _switched_on(name: str) -> Sequence[OpCode]:
    return (
        OpOobCommand(node_names=[name], command=OobCommand.POWER_ON),
        OpNodeSetParams(node_name=name, offline=False),
    )


PROGRAM: Final = single_program(
    "hsqueeze",
    "tell which nodes can be switched off, or have to be switched on",
    """Reads a cluster from the master daemon or a file.  If all nodes have room, it looks for nodes
whose instances can go to the others, so that they can be switched off; if one has too little,
for nodes on standby (tag htools:standby:...) to be switched on.  It prints them, with -C commands
too; with -X it carries that out.""",
    advise,
    options=shared(
        "luxi text-data static-kvm-node-memory minimal-resources target-resources",
        "exec reason print-commands save no-headers verbose",
    ),
    value_status=EXIT_FAILURE,
    manual_section=1,
)

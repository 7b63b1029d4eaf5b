"""``gnt-node`` health, power, powercycle, restricted-command and repair-command."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import GenericError, OpPrereqError, wrong_state
from ganeti.base.text import shown
from ganeti.cli.command import (
    EXIT_FAILURE,
    EXIT_SUCCESS,
    Context,
    Options,
    command,
    confirm,
    job,
    opt,
)
from ganeti.cli.lists import as_list
from ganeti.cli.run.binding import bound, submit
from ganeti.cli.run.jobs import execute, make_opcode
from ganeti.cli.run.listing import no_nodes, rows_of_chosen, rows_of_nodes, style_of
from ganeti.cli.run.table import Cell, Column, format_table
from ganeti.opcodes.node import (
    OpNodePowercycle,
    OpNodeSetParams,
    OpOobCommand,
    OpRepairCommand,
    OpRestrictedCommand,
)
from ganeti.opcodes.opcode import OpCode

_NORMAL: Final = 0


def show_answer(context: Context, _opcode: OpCode, said: object) -> None:
    """Print the answer of the node."""
    if said:
        context.write(str(said))


def power(context: Context, options: Options, args: list[str]) -> int:
    """Switch nodes on and off by the out-of-band helper.

    Nodes to be switched off are marked offline first, unless ``--ignore-status`` is given.

    Raises:
        OpPrereqError: no nodes are named, or one that would be marked has no helper.
        OpPrereqError, OpExecError, ...: the error that the job ended with.
    """
    command, *names = args
    if command != "status" and not names:
        raise OpPrereqError(f"name the nodes to {_WORDS[command]}")
    if command in ("cycle", "off") and not options.force:
        confirm(context, f"This is to {_WORDS[command]} {', '.join(names)}.  Go on?")
    opcode = bound(context.command, options, [], node_names=names, command=f"power-{command}")
    if command == "off" and not options.ignore_status:
        result = _mark_and_switch_off(context, options, names, opcode)
    else:
        [result] = execute(context, options, opcode)
    return _show(context, result, _power_words)


def _mark_and_switch_off(
    context: Context, options: Options, names: Sequence[str], switch_off: OpCode
) -> object:
    """Mark nodes offline and switch them off; returns the result of the latter.

    A node that was marked and not switched off is named, with the command that takes the mark away.

    Raises:
        OpPrereqError: one of the nodes is the master, or has no helper; none was marked.
        OpPrereqError, OpExecError, ...: the error that the job ended with.
    """
    before = rows_of_nodes(context, names, ["name", "offline", "ndparams", "master"])
    if masters := [name for name, _, _, is_master in before if is_master]:
        raise OpPrereqError(
            f"node {masters[0]} is the master node, which is not switched off from here, so nothing"
            " was marked offline or switched off; fail the master role over first"
        )
    if bare := [str(name) for name, _, params, _ in before if not _has_helper(params)]:
        raise wrong_state(
            f"no out-of-band helper is set for {shown(bare)}, so nothing was marked offline or"
            " switched off; set the node parameter oob_program"
        )
    online = [str(name) for name, is_offline, _, _ in before if not is_offline]
    mark = partial(make_opcode, OpNodeSetParams, offline=True, auto_promote=options.auto_promote)
    marks = [mark(node_name=name) for name in dict.fromkeys(names)]
    try:
        *_, result = execute(context, options, *marks, switch_off)
    except GenericError:
        _tell_marked(context, online)
        raise
    failed = [name for name, status, _ in _answers(result) if status != _NORMAL]
    _tell_marked(context, [name for name in online if name in failed])
    return result


def _has_helper(ndparams: object) -> bool:
    return isinstance(ndparams, Mapping) and bool(ndparams.get("oob_program"))


def _tell_marked(context: Context, names: Sequence[str]) -> None:
    """Name those of the nodes that are marked offline now."""
    rows = context.client.query_nodes(list(names), ["name", "offline"]) if names else []
    for name, is_offline in rows:
        if is_offline:
            context.terminal.error(
                f"Node {name} was marked offline: 'gnt-node modify --offline=no {name}' takes that"
                " back"
            )


def health(context: Context, options: Options, args: list[str]) -> int:
    """Ask the out-of-band helper for the health of nodes."""
    return _show(context, submit(context, options, args), _health_words)


_WORDS: Final = {"cycle": "power cycle", "off": "power off", "on": "power on"}


def _power_words(value: object) -> list[str]:
    match value:
        case {"powered": bool(powered)}:
            return ["powered" if powered else "unpowered"]
        case _:
            return ["done"]


def _health_words(value: object) -> list[str]:
    """Return a word for each item of a machine."""
    return [f"{item}={status}" for item, status in map(as_list, as_list(value))]


def _answers(result: object) -> Iterator[tuple[str, int, object]]:
    """Yield name, status and value of each node."""
    for (_, name), (status, value) in result if isinstance(result, list) else ():
        yield name, status, value


def _show(context: Context, result: object, words_of: Callable[[object], list[str]]) -> int:
    """Print the result of each node; the exit status tells whether there was one of all."""
    rows: list[list[Cell]] = []
    failed = False
    for name, status, value in _answers(result):
        failed = failed or status != _NORMAL
        words: Sequence[object] = words_of(value) if status == _NORMAL else [None]
        rows += [[(_NORMAL, name), (status, word)] for word in words]
    style = replace(style_of(context, context.options), verbose=True)
    context.terminal.write_lines(format_table([Column("Node"), Column("Status")], rows, style))
    return EXIT_FAILURE if failed else EXIT_SUCCESS


def restricted_command(context: Context, options: Options, args: list[str]) -> int:
    """Run a command that nodes allow."""
    command, *names = args
    nodes = _chosen_nodes(context, names, options.node_group)
    result = submit(context, options, [command], nodes=nodes)
    failures = 0
    for name, answer in zip(nodes, result if isinstance(result, list) else [], strict=False):
        good, text = answer
        if not good:
            failures += 1
            context.terminal.error(str(text))
            continue
        prefix = f"{name}: " if options.show_machine_names or len(nodes) > 1 else ""
        for line in str(text).splitlines():
            context.write(f"{prefix}{line}")
    return EXIT_FAILURE if failures else EXIT_SUCCESS


def _chosen_nodes(context: Context, names: Sequence[str], group: str | None) -> list[str]:
    """Return the nodes named, or all of a group or of the cluster that are not offline."""
    rows = rows_of_chosen(context, names, group)
    chosen = [str(name) for name, offline, _ in rows if names or not offline]
    if not chosen:
        raise no_nodes(group)
    return chosen


COMMANDS: Final = (
    command(
        health,
        "[<node>...]=node_names --no-headers --oob-timeout --priority --separator",
        opcode=OpOobCommand,
        fixed={"command": "health"},
    ),
    command(
        power,
        "{cycle|off|on|status} [<node>...] --auto-promote --force --no-headers --oob-timeout",
        "--power-delay --separator SUBMISSION",
        opt.flag("--ignore-status", "switch even a node that is not offline"),
        opcode=OpOobCommand,
        description="""Nodes to be switched off are marked offline first, unless --ignore-status is
given.  If one of them is the master or has no out-of-band helper, nothing is done.""",
        examples="""
gnt-node power -f off node3  # by its out-of-band helper""",
    ),
    job(
        "powercycle: restart a node's machine at once",
        OpNodePowercycle,
        "<node> --force CHANGE",
        opt.flag("--yes -> confirm", "do not ask"),
        confirm="This restarts the machine of node {node_name} without stopping anything on it."
        "  Go on?",
        result=show_answer,
        examples="""
gnt-node powercycle -f node3  # restart the machine by its hypervisor""",
    ),
    command(
        restricted_command,
        "<command>:unknown=command [<node>...] --node-group --show-machine-names SUBMISSION",
        opt.flag("--sync -> use_locking", "run while nothing else changes the nodes"),
        opcode=OpRestrictedCommand,
    ),
    job(
        "repair-command: run a command for repairs that a node allows",
        OpRepairCommand,
        "<command>:unknown=command <node> SUBMISSION",
        opt.option("--input", "text that the command reads, such as the report of a diagnosis"),
        description="""The command is a file in /etc/ganeti/node-repair-commands of the node.  File
and directory belong to root, and nobody else can write to them.  It gets no arguments and an empty
environment; one runs at a time on a node, and a refusal takes ten seconds.""",
        result=show_answer,
        examples="""
gnt-node repair-command --input '{"status": "live-repair"}' fix-raid node3  # by hand""",
    ),
)

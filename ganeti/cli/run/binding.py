"""Commands that submit an opcode: from options and arguments to its fields, and to its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.cli.command import EXIT_SUCCESS, ArgKind, Command, Context, Options, confirm, opt
from ganeti.cli.run.jobs import JobGroup, execute, make_opcode
from ganeti.opcodes.opcode import COMMON_PARAMS, OpCode

_SETTLED_BY = ("confirm", "force", "yes_do_it")  # options that answer the question beforehand


_OF_JOBS = ("depend", "priority")
NOTHING_TO_CHANGE = "nothing to change; give at least one option"


def bound(command: Command, options: Options, args: Sequence[str], /, **more: object) -> OpCode:
    """Return the opcode of a command, its fields set by options and arguments of their names.

    Args:
        more: fields that the caller sets instead.

    Raises:
        OpPrereqError: a value is wrong; the text names the field.
    """
    assert command.submits is not None
    fields = {each.name: each for each in msgspec.structs.fields(command.submits)}
    params = dict(command.fixed)
    rest = list(args)
    for argument in command.args:
        found: dict[str, object] = {argument.destination: rest}
        if argument.max is not None:
            words, rest = rest[: argument.max], rest[argument.max :]
            found = dict(zip(argument.destination.split(), words, strict=False))
        params |= {name: value for name, value in found.items() if name in fields}
    for option in command.options:
        name = option.destination
        value = options.get(name)
        if name not in fields or name in COMMON_PARAMS or value is None:
            continue
        is_left_out = value == option.initial and (value is False or value in ((), [], {}))
        if not is_left_out or (value is False and fields[name].default is not None):
            params[name] = value
    made = {} if command.makes is None else command.makes(options)
    return make_opcode(command.submits, **{**params, **made, **more})


def check_options(command: Command, options: Options) -> None:
    """Refuse options that contradict each other, or that leave nothing to do.

    Raises:
        OpPrereqError: names the options.
    """
    by_flag = {flag: each for each in command.options for flag in each.flags}
    for pair in command.exclusive:
        given = [each for each in map(by_flag.__getitem__, pair) if is_given(each, options)]
        if len(given) > 1:
            raise OpPrereqError(f"give either {given[0].long} or {given[1].long}, not both")
    if command.changes and not has_changes(command, options):
        raise OpPrereqError(NOTHING_TO_CHANGE)


def has_changes(command: Command, options: Options) -> bool:
    """Tell whether an option with a value is given, other than those of jobs."""
    return any(
        is_given(each, options)
        for each in command.options
        if each.takes_value and each.destination not in _OF_JOBS
    )


def is_given(option: opt.Option, options: Options) -> bool:
    """Tell whether an option has another value than without being given."""
    return options.get(option.destination) not in (option.initial, None)


def ask(
    context: Context, command: Command, options: Options, args: Sequence[str], question: str
) -> None:
    """Ask a question, unless an option of the command has answered it.

    Raises:
        NotConfirmed: the user does not say yes.
        OpPrereqError: the object in question, which the first argument names, does not exist.
    """
    settling = [
        each for name in _SETTLED_BY for each in command.options if each.destination == name
    ]
    if not any(options.get(each.destination) for each in settling):
        if args:
            require(context, command.args[0].kind, args[:1])
        confirm(context, question, option=settling[0].long if settling else "--force")


def require(context: Context, kind: ArgKind, names: Sequence[str]) -> None:
    """Refuse a name that nothing of a kind has, before anything is asked.

    Raises:
        OpPrereqError: names it (unknown_entity).
    """
    if kind not in _HAVE_NAMES:
        return
    query = getattr(context.client, f"query_{kind}s")
    for name in names:
        if not query([name], ["name"]):
            what = "node group" if kind is ArgKind.GROUP else kind
            raise OpPrereqError(
                f"{what} {name!r} is not known; see 'gnt-{kind} list'", ErrorCode.NOENT
            )


_HAVE_NAMES: Final = (ArgKind.INSTANCE, ArgKind.NODE, ArgKind.GROUP, ArgKind.NETWORK)


def run_opcode(context: Context, command: Command, options: Options, args: Sequence[str]) -> int:
    """Carry out a command that only submits its opcode; returns the exit status."""
    if command.each is not None:
        jobs = JobGroup(context, options)
        for name, params in command.each(context, options, args):
            jobs.add(name, bound(command, options, args, **params))
        return jobs.run()
    opcode = bound(command, options, args)
    question = command.confirm if isinstance(command.confirm, str) else command.confirm(options)
    if question:
        values = {name: getattr(opcode, name) for name in opcode.__struct_fields__}
        ask(context, command, options, args, question.format(**values))
    [result] = execute(context, options, opcode)
    status = None if command.result is None else command.result(context, opcode, result)
    return EXIT_SUCCESS if status is None else status


def submit(context: Context, options: Options, args: Sequence[str], /, **more: object) -> object:
    """Run a job of the opcode that `bound` makes, and return its result."""
    [result] = execute(context, options, bound(context.command, options, args, **more))
    return result


def show_changes(context: Context, opcode: OpCode, result: object) -> None:
    """Print the changes that an operation reports of parameters."""
    changed = result if isinstance(result, list) else []
    if not changed:
        return
    field = opcode.SUMMARY_FIELD or ""
    context.write(f"Modified {field.removesuffix('_name')} {getattr(opcode, field)}")
    for parameter, value in changed:
        context.write(f" - {parameter:<24} -> {value}")

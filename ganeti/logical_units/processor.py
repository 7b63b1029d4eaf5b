"""Carries out one opcode: names, locks, checks, hooks, work, and everything given back.

Every unit declares its opcode itself; its class is named like the opcode, with LU in front, and is
found in any module of this package.

Theory of operation.  A unit tells which locks it needs after reading the configuration without any
(optimistic strategy); the locks are taken in their one order, all or none.  A second, fresh unit
then reads again: if it needs no more than is held, it does the work; if the configuration has
changed meanwhile, everything is given back and it starts over.  At the end, however it ends, locks
and reservations go back; if WConfD does not answer at once, the next opcode begins with that, or
the death of the job process frees them.

Source: daemons-2.12, "Optimistic strategy"; design-2.0, "Granular locking" and "Hooks".
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, Final

import msgspec

from ganeti import logical_units
from ganeti.base import errors
from ganeti.locking.names import BGL
from ganeti.logical_units import hooks
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.locks import LockNeed, covers, take_locks, union
from ganeti.objects.model import Cluster, Instance, Network, Node, NodeGroup
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.registry import op_id_of
from ganeti.opcodes.values import Version
from ganeti.protocol.wconfd import Effect, LockMode, WConfCalls

logger = logging.getLogger(__name__)

Unit = LogicalUnit[Any, Any, Any]
# The scripts of an operation and its values before the work; None if it has no scripts.
_Before = tuple[hooks.HookRun, Mapping[str, object]] | None

RESTARTS_MAX: Final = 20  # each means that others changed the very objects in between
DRY_RUN_TEXT: Final = "dry-run mode requested, not actually executing the operation"


def load_units() -> Iterator[str]:
    """Import all modules of this package, one after the other; yields the name of each."""
    for module in walk_packages(logical_units.__path__, f"{logical_units.__name__}."):
        import_module(module.name)
        yield module.name


@cache
def all_units() -> Mapping[tuple[str, str], type[Unit]]:
    """Return every logical unit by the name of its opcode and the mode that it is for."""
    return {
        (op_id_of(unit.opcode), unit.mode): unit
        for module in load_units()
        for name, unit in vars(sys.modules[module]).items()
        if name.startswith("LU") and unit.__module__ == module
    }


def unit_for(op: OpCode) -> type[Unit]:
    """Return the class that carries out an opcode, perhaps a special one for its ``mode``.

    Raises:
        NotSupportedError: none does; the text names the opcode.
    """
    op_id, mode = op_id_of(type(op)), str(getattr(op, "mode", ""))
    units = all_units()
    unit = units.get((op_id, mode)) or units.get((op_id, ""))
    if unit is None:
        raise errors.NotSupportedError(f"opcode {op_id} is not supported by this version")
    return unit


def execute_opcode(context: JobContext, op: OpCode) -> object:
    """Carry out one opcode and return its result as a JSON value.

    Raises:
        OpPrereqError: refused; nothing was changed.
        OpExecError: the work began and failed; the message tells the state that was left.
        JobCanceled: the job was canceled while it waited.
    """
    unit_class = unit_for(op)
    _give_back(context, context.config)  # what the last opcode could not, as WConfD was away
    try:
        unit, found = lock_unit(context, unit_class, op)
        context.on_locks_held()
        return _carry_out(context, unit, found)
    finally:
        _give_back_at_once(context)


@contextmanager
def holding(context: JobContext, need: LockNeed) -> Iterator[None]:
    """Hold some locks, of a unit that carries out other opcodes and has none of its own meanwhile.

    Raises:
        JobCanceled: the job was canceled while it waited.
    """
    _give_back(context, context.config)
    try:
        take_locks(context, union({BGL: LockMode.SHARED}, need))
        yield
    finally:
        _give_back_at_once(context)


def lock_unit(context: JobContext, unit_class: type[Unit], op: OpCode) -> tuple[Unit, Any]:
    """Return a unit, and the objects that it found under all the locks that it needs.

    Raises:
        OpPrereqError: its objects kept changing (temp_insufficient_resources).
    """
    for _ in range(RESTARTS_MAX):
        first = unit_class(context, op)
        found = first.place(first.resolve(), None)
        need = needed_locks(first, found)
        take_locks(context, need)
        if set(need) == {BGL}:
            return first, found
        unit = unit_class(context, op)
        again = unit.place(unit.resolve(), found)
        if covers(need, needed_locks(unit, again)):
            return unit, again
        context.config.free_locks()
    raise errors.OpPrereqError(
        "the objects that this operation needs kept changing while it waited for their locks;"
        " try again",
        errors.ErrorCode.TEMP_NORES,
    )


def needed_locks(unit: Unit, found: object) -> LockNeed:
    """Return the locks that a unit needs; the cluster lock is among them always."""
    if unit.exclusive_bgl or _is_expected_of_cluster(unit):
        return {BGL: LockMode.EXCLUSIVE}
    return union({BGL: LockMode.SHARED}, unit.locks(found))


def _is_expected_of_cluster(unit: Unit) -> bool:
    """Tell whether the opcode waits for a version of the cluster, which has no lock of its own."""
    text = unit.op.expected_version
    return text is not None and Version.from_text(text).uuid == unit.cluster.uuid


def check_version(config: WConfCalls, text: str) -> None:
    """Refuse the work if an object is not at this version any more; its lock is held.

    Raises:
        OpPrereqError: it was changed or removed (wrong_state); names it.
    """
    wanted = Version.from_text(text)
    found: Cluster | Instance | Node | NodeGroup | Network | None = config.get_cluster()
    get_each = (config.get_instances, config.get_nodes, config.get_node_groups, config.get_networks)
    if found is None or found.uuid != wanted.uuid:
        found = next((each for get in get_each for each in get([wanted.uuid]) if each), None)
    if found is None:
        raise errors.OpPrereqError(
            f"the object with the UUID {wanted.uuid} does not exist any more",
            errors.ErrorCode.STATE,
        )
    if found.serial_no != wanted.serial_no:
        name = found.cluster_name if isinstance(found, Cluster) else found.name
        raise errors.OpPrereqError(
            f"{name!r} was changed meanwhile: its serial number is {found.serial_no}, not"
            f" {wanted.serial_no}; look at it again",
            errors.ErrorCode.STATE,
        )


def _carry_out(context: JobContext, unit: Unit, found: object) -> object:
    if unit.op.expected_version is not None:
        check_version(context.config, unit.op.expected_version)
    unit.check_state(found)
    plan = unit.plan(found)
    before = _run_hooks_before(context, unit, plan)
    context.check_canceled()
    if unit.op.dry_run:
        context.info(DRY_RUN_TEXT)
        return unit.rehearsal(plan)
    result = _run_hooks_after(context, unit, plan, before, unit.execute(plan))
    result = checked_result(unit.op, result)
    if Effect.CONFIG in context.recorder.effects:
        _tell_config_update(context, unit)
    return result


def checked_result(op: OpCode, result: object) -> object:
    """Return a result as plain JSON values.

    Raises:
        OpResultError: it is of another type than the opcode declares (our own mistake; the work is
            done).
    """
    plain = msgspec.to_builtins(result)
    try:
        msgspec.convert(plain, type(op).RESULT)
    except msgspec.ValidationError as err:
        op_id = op_id_of(type(op))
        raise errors.OpResultError(f"the result of {op_id} is not of its type: {err}") from err
    return plain


def _run_hooks_before(context: JobContext, unit: Unit, plan: object) -> _Before:
    """Run the pre hooks, if there are any; a failure refuses the operation."""
    if unit.hooks is None:
        return None
    run, values = _hook_run(unit, unit.hooks), unit.hook_values(plan)
    env = hooks.build_environment(run, hooks.Phase.PRE, values)
    hooks.run_hooks(context, run, hooks.Phase.PRE, unit.hook_nodes(plan), env)
    return run, values


def _run_hooks_after(
    context: JobContext, unit: Unit, plan: object, before: _Before, result: object
) -> object:
    """Run the post hooks; a failure now is only told.  Returns the final result."""
    if before is None:
        return result
    run, values = before
    try:
        nodes, values_after = unit.hook_nodes_after(plan), unit.hook_values_after(plan)
        env = hooks.build_environment(run, hooks.Phase.POST, values, values_after)
        answers = hooks.run_hooks(context, run, hooks.Phase.POST, nodes, env)
        return unit.judge_hooks(answers, result)
    except errors.GenericError as err:
        context.warn(f"cannot run the post hooks: {err}; ignoring")
        return result


def _hook_run(unit: Unit, point: hooks.HookPoint) -> hooks.HookRun:
    op_id = op_id_of(type(unit.op))
    return hooks.HookRun(op_id, point, unit.cluster.cluster_name, unit.master.name)


def _tell_config_update(context: JobContext, unit: Unit) -> None:
    """Run the hooks that are run after every change of the configuration."""
    point = hooks.CONFIG_UPDATE
    if not hooks.has_local_hooks(context.paths.hooks_dir, point.path, hooks.Phase.POST):
        return
    try:
        run = _hook_run(unit, point)
        env = hooks.build_environment(run, hooks.Phase.POST, {}, {})
        hooks.run_hooks(context, run, hooks.Phase.POST, [unit.master], env)
    except errors.GenericError as err:
        context.warn(f"cannot run the {point.path} hooks: {err}; ignoring")


def _give_back_at_once(context: JobContext) -> None:
    """Give back reservations and locks, unless WConfD is away: the job's end does not wait for it.

    The next opcode does, and the death of this process frees everything as well.
    """
    try:
        _give_back(context, context.at_once or context.config)
    except errors.GenericError as err:
        logger.warning("cannot give back locks of job %s: %s; ignoring", context.job_id, err)


def _give_back(context: JobContext, config: WConfCalls) -> None:
    effects = context.recorder.effects
    if Effect.RESERVE in effects:
        config.drop_all_reservations()
    if Effect.LOCKS in effects:
        config.free_locks()
    effects.clear()

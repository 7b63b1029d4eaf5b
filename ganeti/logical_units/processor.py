"""Carries out one opcode: names, locks, checks, hooks, work, and everything given back.

Theory of operation.  A unit says which locks it needs after reading the configuration without any
(optimistic strategy); the locks are taken in their one order, all or none.  A second, fresh unit
then reads again: if what it needs is held, it does the work; if the world has changed meanwhile,
everything is given back and it starts over.  At the end, however it ends, locks and reservations
go back; if WConfD cannot be asked to take them, the death of the job process frees them.

Source: daemons-2.12, "Optimistic strategy"; design-2.0, "Granular locking" and "Hooks".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ganeti.base.errors import ErrorCode, GenericError, OpPrereqError, OpResultError
from ganeti.locking.names import BGL
from ganeti.logical_units import hooks
from ganeti.logical_units.lock_plan import LockLevel, covers, union
from ganeti.logical_units.locks import take_locks
from ganeti.logical_units.registry import logical_unit_class
from ganeti.opcodes.registry import op_id_of
from ganeti.protocol.wconfd import Effect, LockMode

if TYPE_CHECKING:
    from ganeti.logical_units.base import LogicalUnit
    from ganeti.logical_units.context import JobContext
    from ganeti.logical_units.lock_plan import LockNeed
    from ganeti.opcodes.opcode import OpCode

logger = logging.getLogger(__name__)

RESTARTS_MAX: Final = 20  # each means that others changed the very objects in between
DRY_RUN_TEXT: Final = "dry-run mode requested, not actually executing the operation"


def execute_opcode(context: JobContext, op: OpCode) -> object:
    """Carry out one opcode and return its result as a JSON value.

    Raises:
        OpPrereqError: refused; nothing was changed.
        OpExecError: the work began and failed; the message says what state was left.
        JobCanceled: the job was canceled while it waited.
    """
    op_id = op_id_of(type(op))
    unit_class = logical_unit_class(op_id, str(getattr(op, "mode", "")))
    context.recorder.effects.clear()
    try:
        unit = lock_unit(context, unit_class, op)
        context.on_locks_held()
        return _carry_out(context, op_id, unit)
    finally:
        _give_back(context)


def lock_unit(
    context: JobContext, unit_class: type[LogicalUnit[Any]], op: OpCode
) -> LogicalUnit[Any]:
    """Return a unit that has read the configuration under all the locks that it needs.

    Raises:
        OpPrereqError: its objects kept changing (temp_insufficient_resources).
    """
    for _ in range(RESTARTS_MAX):
        planner = unit_class(context, op)
        need = needed_locks(planner)
        take_locks(context, need)
        if set(need) == {BGL}:
            return planner
        unit = unit_class(context, op)
        unit.take_over(planner)
        if covers(need, needed_locks(unit)):
            return unit
        context.config.free_locks()
    raise OpPrereqError(
        "the objects that this operation needs kept changing while it waited for their locks;"
        " try again",
        ErrorCode.TEMP_NORES,
    )


def needed_locks(unit: LogicalUnit[Any]) -> LockNeed:
    """Ask a unit which locks it needs now; the cluster lock is among them always."""
    unit.expand_names()
    if unit.exclusive_bgl:
        return {BGL: LockMode.EXCLUSIVE}
    return union({BGL: LockMode.SHARED}, *(unit.declare_locks(level) for level in LockLevel))


def _carry_out(context: JobContext, op_id: str, unit: LogicalUnit[Any]) -> object:
    unit.check_fitness()
    unit.check_prereq()
    session = _HookSession(context, op_id, unit) if op_id in hooks.HOOK_POINTS else None
    if session:
        session.before()
    context.check_canceled()
    if unit.op.dry_run:
        context.info(DRY_RUN_TEXT)
        return None
    result = unit.exec()
    if session:
        result = session.after(result)
    result = checked_result(op_id, unit.op, result)
    if Effect.CONFIG in context.recorder.effects:
        _tell_config_update(context, op_id, unit)
    return result


def checked_result(op_id: str, op: OpCode, result: object) -> object:
    """Return a result as plain JSON values.

    Raises:
        OpResultError: it is not what the opcode declares (our own mistake; the work is done).
    """
    plain = msgspec.to_builtins(result)
    try:
        msgspec.convert(plain, type(op).RESULT)
    except msgspec.ValidationError as err:
        raise OpResultError(f"the result of {op_id} is not of its type: {err}") from err
    return plain


class _HookSession:
    """The hooks of one opcode, before and after."""

    def __init__(self, context: JobContext, op_id: str, unit: LogicalUnit[Any]) -> None:
        self._context = context
        self._unit = unit
        self._run = hooks.HookRun(
            op_id, hooks.HOOK_POINTS[op_id], unit.cluster.cluster_name, unit.master.name
        )
        self._env_before: Mapping[str, object] = unit.hooks_env()

    def before(self) -> None:
        """Run the pre hooks; a failure refuses the operation."""
        nodes, _ = self._unit.hooks_nodes()
        env = hooks.build_environment(self._run, hooks.Phase.PRE, self._env_before)
        hooks.run_hooks(self._context, self._run, hooks.Phase.PRE, nodes, env)

    def after(self, result: object) -> object:
        """Run the post hooks; what goes wrong now is only told.  Returns the final result."""
        try:
            _, nodes = self._unit.hooks_nodes()
            env = hooks.build_environment(
                self._run, hooks.Phase.POST, self._env_before, self._unit.hooks_env_after()
            )
            answers = hooks.run_hooks(self._context, self._run, hooks.Phase.POST, nodes, env)
            return self._unit.hooks_done(answers, result)
        except GenericError as err:
            self._context.warn(f"cannot run the post hooks: {err}; ignoring")
            return result


def _tell_config_update(context: JobContext, op_id: str, unit: LogicalUnit[Any]) -> None:
    """Run the hooks that want to know of every change of the configuration."""
    point = hooks.CONFIG_UPDATE
    if not hooks.has_local_hooks(context.paths.hooks_dir, point.path, hooks.Phase.POST):
        return
    try:
        run = hooks.HookRun(op_id, point, unit.cluster.cluster_name, unit.master.name)
        env = hooks.build_environment(run, hooks.Phase.POST, {}, {})
        hooks.run_hooks(context, run, hooks.Phase.POST, [unit.master], env)
    except GenericError as err:
        context.warn(f"cannot run the {point.path} hooks: {err}; ignoring")


def _give_back(context: JobContext) -> None:
    """Give back reservations and locks; the death of this process would free them as well."""
    effects = context.recorder.effects
    try:
        if Effect.RESERVE in effects:
            context.config.drop_all_reservations()
        if Effect.LOCKS in effects:
            context.config.free_locks()
    except GenericError as err:
        logger.warning("cannot give back locks of job %s: %s; ignoring", context.job_id, err)

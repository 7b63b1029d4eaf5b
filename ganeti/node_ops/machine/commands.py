"""Programs of the administrator that the master has run here by name.

Allocators, restricted commands and those for repairs, helpers for power (OOB), and the hooks of
one phase.

Source: iallocator.json, "calling"; hooks_os_ext.json, "restricted_commands", "oob_helper" and
"hooks"; maintd.json, "paths".
"""

import os
import re
import tempfile
from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.json import loads
from ganeti.node_ops import scripts
from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.protocol.node_rpc_values import HookResult
from ganeti.system import clock, process, programs
from ganeti.system.filelock import FileLock
from ganeti.system.process import CommandResult, describe_end

PHASES: Final = frozenset({"pre", "post"})
OOB_COMMANDS: Final = frozenset({"health", "power-cycle", "power-off", "power-on", "power-status"})
_OOB_WITH_ANSWER: Final = frozenset({"health", "power-status"})
_RESTRICTED_LOCK_TIMEOUT_S: Final = 30.0
REFUSAL_DELAY_S: Final = 10.0  # as in 3.0
_OPTION_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]*")


class Commands(NodeHandler):
    """Programs of the administrator."""

    def iallocator_runner(
        self, name: str, idata: str, default_iallocator_params: Mapping[str, object] | None
    ) -> str:
        program = scripts.find_executable(
            name, programs.allocator_directories(self.paths), "iallocator"
        )
        options = _allocator_options(default_iallocator_params or {})
        prefix, directory = "iallocator-request-", self.paths.run_dir
        with tempfile.NamedTemporaryFile(prefix=prefix, dir=directory) as request:
            request.write(idata.encode())
            request.flush()
            argv = [program, request.name, *options]
            result = process.run(argv, timeout_s=self.node.script_timeout_s()).check()
        return result.stdout.decode("utf-8", "replace")

    def restricted_command(self, cmd: str) -> str:
        directory, lock = self.paths.restricted_commands_dir, self.paths.restricted_commands_lock
        return self._run_allowed(directory, lock, cmd, "restricted command", None)

    def repair_command(self, cmd: str, inp: str | None) -> str:
        directory, lock = self.paths.repair_commands_dir, self.paths.repair_commands_lock
        return self._run_allowed(directory, lock, cmd, "repair command", inp)

    def _run_allowed(
        self, directory: str, lock_path: str, name: str, what: str, given: str | None
    ) -> str:
        """Run a command that the administrator of this node allows, one at a time.

        A refusal takes a while, so that nobody finds out by trying what there is.
        """
        lock = FileLock(lock_path)
        lock.acquire(timeout_s=_RESTRICTED_LOCK_TIMEOUT_S)
        with lock:
            try:
                path = programs.find_allowed(directory, name, what)
            except GenericError:
                clock.pause(REFUSAL_DELAY_S)
                raise
            stdin, limit_s = None if given is None else given.encode(), self.node.script_timeout_s()
            result = process.run([path], timeout_s=limit_s, env={}, cwd="/", stdin=stdin)
        return result.check().output

    def run_oob(self, oob_program: str, command: str, remote_node: str, timeout: float) -> object:
        if command not in OOB_COMMANDS:
            raise GenericError(f"unknown out-of-band command {command!r}")
        program = self.paths.localize(oob_program)
        if not programs.is_runnable(program):
            raise GenericError(f"out-of-band program {oob_program!r} is not an executable file")
        limit_s = min(timeout, self.node.script_timeout_s())
        result = process.run([program, command, remote_node], timeout_s=limit_s).check()
        if command not in _OOB_WITH_ANSWER:
            return None
        try:
            return loads(result.stdout)
        except ProtocolError as err:
            raise GenericError(f"{oob_program} {command}: answer is {err.message}") from err

    def hooks_runner(
        self, hpath: str, phase: str, env: Mapping[str, str]
    ) -> list[tuple[str, int, str]]:
        if phase not in PHASES:
            raise GenericError(f"unknown hooks phase {phase!r}")
        path = _hooks_directory(self.node, hpath, phase)
        results = scripts.run_parts(path, env=env, timeout_s=self.node.script_timeout_s())
        directory = os.path.basename(path)
        return [(f"{directory}/{name}", *_outcome(result)) for name, result in results]


def _allocator_options(params: Mapping[str, object]) -> list[str]:
    """Return parameters as command line options; one without a value is an option by itself.

    Raises:
        GenericError: a name that would be something else than one long option.
    """
    for name in params:
        if _OPTION_NAME.fullmatch(name) is None:
            raise GenericError(f"iallocator parameter {name!r} is not a valid name")
    return [f"--{name}" if value is None else f"--{name}={value}" for name, value in params.items()]


def is_nothing_to_run(
    context: NodeContext, hpath: str, phase: str, _env: Mapping[str, str]
) -> bool:
    """Tell whether there is no script for a hook path and phase on this node."""
    return phase in PHASES and scripts.is_without_parts(_hooks_directory(context, hpath, phase))


def _hooks_directory(context: NodeContext, hpath: str, phase: str) -> str:
    programs.check_plugin_name(hpath, "hooks path")
    return os.path.join(context.paths.hooks_dir, f"{hpath}-{phase}.d")


def _outcome(result: CommandResult | None) -> tuple[int, str]:
    """Return the code and the output of one script."""
    if result is None:
        return HookResult.SKIP, ""
    output = result.output.strip()
    if result.status == 0 and not result.timed_out:
        return HookResult.SUCCESS, output
    return HookResult.FAIL, output or describe_end(result)

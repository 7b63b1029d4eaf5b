"""Commands that the master has run here by name: allocators, restricted commands, OOB helpers.

Source: iallocator.json, "calling"; hooks_os_ext.json, "restricted_commands" and "oob_helper".
"""

import re
import tempfile
from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.json import loads
from ganeti.node_ops import scripts
from ganeti.node_ops.context import NodeHandler
from ganeti.system import process, programs
from ganeti.system.filelock import FileLock

OOB_COMMANDS: Final = frozenset({"health", "power-cycle", "power-off", "power-on", "power-status"})
_OOB_WITH_ANSWER: Final = frozenset({"health", "power-status"})
_RESTRICTED_LOCK_TIMEOUT_S: Final = 30.0
_OPTION_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]*")


class Commands(NodeHandler):
    """Programs of the administrator."""

    def iallocator_runner(
        self, name: str, idata: str, default_iallocator_params: Mapping[str, object] | None
    ) -> str:
        program = scripts.find_executable(name, self.paths.iallocator_search_path, "iallocator")
        options = _allocator_options(default_iallocator_params or {})
        with tempfile.NamedTemporaryFile(
            prefix="iallocator-request-", dir=self.paths.run_dir
        ) as request:
            request.write(idata.encode())
            request.flush()
            argv = [program, request.name, *options]
            result = process.run(argv, timeout_s=self.context.script_timeout_s()).check()
        return result.stdout.decode("utf-8", "replace")

    def restricted_command(self, cmd: str) -> str:
        path = programs.find_allowed(self.paths.restricted_commands_dir, cmd, "restricted command")
        lock = FileLock(self.paths.restricted_commands_lock)
        lock.acquire(timeout_s=_RESTRICTED_LOCK_TIMEOUT_S)
        with lock:
            result = process.run([path], timeout_s=self.context.script_timeout_s(), env={}, cwd="/")
        return result.check().output

    def run_oob(self, oob_program: str, command: str, remote_node: str, timeout: float) -> object:
        if command not in OOB_COMMANDS:
            raise GenericError(f"unknown out-of-band command {command!r}")
        program = self.paths.localize(oob_program)
        if not programs.is_runnable(program):
            raise GenericError(f"out-of-band program {oob_program!r} is not an executable file")
        limit_s = min(timeout, self.context.script_timeout_s())
        result = process.run([program, command, remote_node], timeout_s=limit_s).check()
        if command not in _OOB_WITH_ANSWER:
            return None
        try:
            return loads(result.stdout)
        except ProtocolError as err:
            raise GenericError(f"{oob_program} {command}: answer is {err.message}") from err


def _allocator_options(params: Mapping[str, object]) -> list[str]:
    """Return parameters as command line options; one without a value is an option by itself.

    Raises:
        GenericError: a name that would be something else than one long option.
    """
    for name in params:
        if _OPTION_NAME.fullmatch(name) is None:
            raise GenericError(f"iallocator parameter {name!r} is not a valid name")
    return [f"--{name}" if value is None else f"--{name}={value}" for name, value in params.items()]

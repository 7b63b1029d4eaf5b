"""Commands that the master has run here by name: allocators, restricted commands, OOB helpers.

Source: iallocator.json, "calling"; hooks_os_ext.json, "restricted_commands" and "oob_helper".
"""

import re
import tempfile
from typing import Final

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.json import loads
from ganeti.node_ops import scripts
from ganeti.node_ops.context import NodeContext
from ganeti.system import process, programs
from ganeti.system.filelock import FileLock

OOB_COMMANDS: Final = frozenset({"health", "power-cycle", "power-off", "power-on", "power-status"})
_OOB_WITH_ANSWER: Final = frozenset({"health", "power-status"})
_RESTRICTED_LOCK_TIMEOUT_S: Final = 30.0
_OPTION_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]*")


def iallocator_runner(
    context: NodeContext, name: str, idata: str, default_iallocator_params: dict[str, object] | None
) -> str:
    """Run an allocator on a request and return what it prints.

    It gets a file that only this node's user can read, and this user's environment; it is killed
    with all that it started when it takes too long or prints too much.

    Raises:
        GenericError: no such program, or a parameter that cannot be an option.
        CommandError: it failed; exit status and the end of its output are in the text.
    """
    program = scripts.find_executable(name, context.paths.iallocator_search_path, "iallocator")
    options = _allocator_options(default_iallocator_params or {})
    with tempfile.NamedTemporaryFile(
        prefix="iallocator-request-", dir=context.paths.run_dir
    ) as request:
        request.write(idata.encode())
        request.flush()
        argv = [program, request.name, *options]
        result = process.run(argv, timeout_s=context.script_timeout_s()).check()
    return result.stdout.decode("utf-8", "replace")


def restricted_command(context: NodeContext, cmd: str) -> str:
    """Run one of the commands that this node's administrator has put up for it.

    Raises:
        GenericError: no such command, or it could have been put there by somebody else.
        CommandError: it failed; its output is in the text.
    """
    path = programs.find_allowed(context.paths.restricted_commands_dir, cmd, "restricted command")
    lock = FileLock(context.paths.restricted_commands_lock)
    lock.acquire(timeout_s=_RESTRICTED_LOCK_TIMEOUT_S)
    with lock:
        result = process.run([path], timeout_s=context.script_timeout_s(), env={}, cwd="/")
    return result.check().output


def run_oob(
    context: NodeContext, oob_program: str, command: str, remote_node: str, timeout: float
) -> object:
    """Have an out-of-band helper do something to another node; returns its JSON answer, if any.

    Raises:
        GenericError: unknown command, no such helper, or an answer that is not understood.
        CommandError: it failed; its output is in the text.
    """
    if command not in OOB_COMMANDS:
        raise GenericError(f"unknown out-of-band command {command!r}")
    program = context.paths.localize(oob_program)
    if not programs.is_runnable(program):
        raise GenericError(f"out-of-band program {oob_program!r} is not an executable file")
    limit_s = min(timeout, context.script_timeout_s())
    result = process.run([program, command, remote_node], timeout_s=limit_s).check()
    if command not in _OOB_WITH_ANSWER:
        return None
    try:
        return loads(result.stdout)
    except ProtocolError as err:
        raise GenericError(f"{oob_program} {command}: answer is {err.message}") from err


def _allocator_options(params: dict[str, object]) -> list[str]:
    """Return parameters as command line options; one without a value is an option by itself.

    Raises:
        GenericError: a name that would be something else than one long option.
    """
    for name in params:
        if _OPTION_NAME.fullmatch(name) is None:
            raise GenericError(f"iallocator parameter {name!r} is not a valid name")
    return [f"--{name}" if value is None else f"--{name}={value}" for name, value in params.items()]

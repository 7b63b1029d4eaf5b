"""From the body of a request to the body of its answer: the same in the daemon and in a child.

Every failure becomes ``[false, text]``: errors of our tree and of the operating system with
their own words, everything else as an internal error whose traceback stands in the log.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from ganeti.base.errors import GenericError, NotSupportedError
from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.node_ops.disks.block_devices import BlockDevices
from ganeti.node_ops.disks.exports import Exports
from ganeti.node_ops.disks.mirrors import Mirrors
from ganeti.node_ops.disks.storage import Storage
from ganeti.node_ops.disks.volumes import Volumes
from ganeti.node_ops.instances.communication import Communication
from ganeti.node_ops.instances.life import Instances
from ganeti.node_ops.instances.os_definitions import OsDefinitions
from ganeti.node_ops.instances.os_scripts import InstanceOs
from ganeti.node_ops.instances.running import RunningInstances
from ganeti.node_ops.machine.availability import Availability
from ganeti.node_ops.machine.commands import Commands, is_nothing_to_run
from ganeti.node_ops.machine.files import Files
from ganeti.node_ops.machine.job_queue import JobQueue
from ganeti.node_ops.machine.keys import Keys
from ganeti.node_ops.machine.master import Master
from ganeti.node_ops.machine.node import Node
from ganeti.node_ops.transfers.calls import Transfers
from ganeti.node_ops.verify.calls import Verify
from ganeti.objects.disk_templates import traits_of
from ganeti.objects.rpc_instance import RpcDisk, RpcInstance
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import NodeCall, decode_arguments, encode_failure, encode_result
from ganeti.protocol.service import Argument, handlers_of, read_as
from ganeti.system import clock

logger = logging.getLogger(__name__)

_SHOWN_CHARACTERS_MAX = 100

_HANDLERS: Final[tuple[type[NodeHandler], ...]] = (
    *(JobQueue, Files, Master, Node, Keys, Availability, Commands, Verify),
    *(OsDefinitions, InstanceOs, Communication, Instances, RunningInstances),
    *(BlockDevices, Mirrors, Volumes, Storage, Exports, Transfers),
)
_SERVED: Final[Mapping[str, type[NodeHandler]]] = {
    name: handler for handler in _HANDLERS for name in handlers_of(NodeCalls, handler, leading=1)
}
# Calls for a child that often have nothing to do: a function that tells so.
_NOTHING_TO_DO: Final[Mapping[str, Callable[..., bool]]] = {"hooks_runner": is_nothing_to_run}


def is_served(name: str) -> bool:
    """Tell whether this node daemon serves a call."""
    return name in _SERVED


def answer(context: NodeContext, call: NodeCall, body: bytes) -> bytes:
    """Serve one call and return the body of the answer; never raises an Exception."""
    args: Sequence[object] = ()
    started_s = clock.monotonic()
    try:
        handler = _handler_of(call)(context)
        args = decode_arguments(call, body)
        payload = call.apply(getattr(handler, call.method), call.read(args))
        result = encode_result(call.write_result(payload))
    except GenericError as err:
        return _failed(context, call, args, err.message)
    except OSError as err:
        return _failed(context, call, args, _os_error_text(err))
    except Exception as err:  # a mistake of ours must be answered too, not kill the server
        logger.exception("%s failed in an unforeseen way", call.name)
        return _failed(context, call, args, f"internal error: {type(err).__name__}: {err}")
    if call.rules.changes:
        # Copies of job files come by the dozen for each job.
        level = logging.DEBUG if call.name.startswith("jobqueue_") else logging.INFO
        if logger.isEnabledFor(level):
            took_s, peer = clock.monotonic() - started_s, context.peer or "this node"
            logger.log(level, "%s for %s: done in %.2f s", describe(call, args), peer, took_s)
    return result


def _handler_of(call: NodeCall) -> type[NodeHandler]:
    """Return the class that serves a call; raises NotSupportedError."""
    if call.name not in _SERVED:
        raise NotSupportedError(f"not supported yet: {call.name}")
    return _SERVED[call.name]


def may_have_nothing_to_do(call: NodeCall) -> bool:
    """Tell whether `answer_if_nothing_to_do` is worth a try."""
    return call.name in _NOTHING_TO_DO


def answer_if_nothing_to_do(context: NodeContext, call: NodeCall, body: bytes) -> bytes | None:
    """Serve a call that turns out to have nothing to do; None when it needs a child."""
    is_nothing_to_do = _NOTHING_TO_DO[call.name]
    try:
        if not is_nothing_to_do(context, *call.read(decode_arguments(call, body))):
            return None
    except (GenericError, OSError):
        return None  # the child will complain
    return answer(context, call, body)


def warm_up(call: NodeCall) -> None:
    """Build the readers of the arguments of a call, which is costly the first time."""
    for argument in call.arguments:
        with contextlib.suppress(GenericError, msgspec.ValidationError, TypeError):
            read_as(argument.type, {})


def describe(call: NodeCall, args: Sequence[object]) -> str:
    """Return a call with those of its arguments that are short and fit for a log."""
    shown = (_show(argument, value) for argument, value in zip(call.arguments, args, strict=False))
    return f"{call.name}({', '.join(text for text in shown if text)})"


def _show(argument: Argument, value: object) -> str:
    """Return one argument for the log, "" when it is long or may hold a secret."""
    if argument.type is RpcInstance and isinstance(value, dict):
        return str(value.get("name", "?"))
    if argument.type is RpcDisk and isinstance(value, dict):
        return f"{value.get('iv_name') or value.get('uuid')} {_place(value)}"
    if argument.name == "reason" and isinstance(value, list):
        return "reason " + "; ".join(_reason_text(entry) for entry in value)
    is_short = isinstance(value, str) and len(value) <= _SHOWN_CHARACTERS_MAX
    if is_short or value is None or isinstance(value, bool | int | float):
        return f"{argument.name}={value}"
    return ""


def _place(disk: Mapping[str, object]) -> str:
    """Return the logical id of a disk without its secret."""
    parts, found = traits_of(str(disk.get("dev_type"))).logical_id, disk.get("logical_id")
    if "secret" in parts and isinstance(found, list):
        return f"{found[: list(parts).index('secret')]}"
    return f"{found}"


def _reason_text(entry: object) -> str:
    """Return one step of a reason trail as text."""
    match entry:
        case [source, reason, *_]:
            return f"{source} {reason}".strip()
        case _:
            return "?"


def _failed(context: NodeContext, call: NodeCall, args: Sequence[object], text: str) -> bytes:
    """Log a failure and encode it."""
    logger.warning("%s for %s failed: %s", describe(call, args), context.peer or "this node", text)
    return encode_failure(text)


def _os_error_text(err: OSError) -> str:
    """Return the words of the operating system, with the file that they are about."""
    reason = err.strerror or str(err) or type(err).__name__
    return f"{err.filename}: {reason}" if err.filename else reason

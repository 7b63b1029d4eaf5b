"""Small reads and flags of a node: version, master name, addresses, watcher pause."""

import os
import threading

from ganeti.base.errors import GenericError
from ganeti.base.versions import PROTOCOL_VERSION
from ganeti.node_ops.context import NodeContext
from ganeti.store import watcher_pause
from ganeti.system import environment, files

_FLAG_BYTES_MAX = 4096


def version(_context: NodeContext) -> int:
    """Return the protocol version that this node speaks."""
    return PROTOCOL_VERSION


def master_node_name(context: NodeContext) -> str:
    """Return the name of the master node as this node knows it.

    Raises:
        GenericError: this node is in no cluster.
    """
    data = files.read_bytes_or_none(context.paths.ssconf_file("master_node"), _FLAG_BYTES_MAX)
    if data is None:
        raise GenericError(f"node {context.hostname} does not know a master node")
    return data.decode().strip()


def node_has_ip_address(_context: NodeContext, address: str) -> bool:
    """Tell whether an address is one of this node's."""
    return environment.is_own_address(address)


def get_file_info(context: NodeContext, file_path: str) -> list[object]:
    """Return [true, {size}] of a file, or [false, {}] when it is not there."""
    try:
        size_bytes = os.stat(context.paths.localize(file_path)).st_size
    except (FileNotFoundError, NotADirectoryError):
        return [False, {}]
    return [True, {"size": size_bytes}]


def get_watcher_pause(context: NodeContext) -> float | None:
    """Return until when the watcher pauses (seconds since the epoch), or None.

    A pause that is over is forgotten.
    """
    until = watcher_pause.read(context.paths)
    if until is None:
        watcher_pause.write(context.paths, None)
    return until


def set_watcher_pause(context: NodeContext, until: float | None) -> None:
    """Pause the watcher until a time (seconds since the epoch); None ends the pause."""
    watcher_pause.write(context.paths, until)


def test_delay(context: NodeContext, duration: float) -> None:
    """Wait so many seconds: a call that takes time, for tests.

    Raises:
        GenericError: the duration is negative.
    """
    if duration < 0:
        raise GenericError(f"{context.call}: duration {duration} is negative")
    threading.Event().wait(duration)

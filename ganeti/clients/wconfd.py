"""Talks to WConfD, the keeper of configuration and locks, from plain synchronous code.

`WConfStub` has one method per row of the protocol table; `WConfClient` adds the connection: it
waits while WConfD is being restarted and repeats what was not answered.  That is safe because all
that a request takes is owned by the client it names: asked twice, it is granted once.  Only whoever
already knows that a call was not carried out may repeat one that is not marked as repeatable.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from ganeti.base.errors import ErrorCode, OpPrereqError, TransportError
from ganeti.base.paths import Paths
from ganeti.clients.wconfd_stub import WConfStub
from ganeti.clients.wconfd_values import decode_result, encode_argument
from ganeti.protocol.wconfd import WCONFD_METHODS, ClientId, Method, ObjectKind
from ganeti.system import clock
from ganeti.transport.unix_client import ConnectionLostError, NobodyListensError, UnixClient

if TYPE_CHECKING:
    from ganeti.objects.disk import Disk
    from ganeti.objects.instance import Instance
    from ganeti.objects.network import Network
    from ganeti.objects.node import Node
    from ganeti.objects.nodegroup import NodeGroup

T = TypeVar("T")

ANSWER_TIMEOUT_S: Final = 60.0  # wconfd.json, "recv_send_timeout_seconds"
FLUSH_TIMEOUT_S: Final = 900.0  # the node daemon's limit for writing a file
RESTART_TIMEOUT_S: Final = 30.0  # how long a restart of WConfD may take before we give up
_RETRY_DELAYS_S: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)

_LONG_METHODS: Final = {"flushConfig": FLUSH_TIMEOUT_S, "flushConfigGroup": FLUSH_TIMEOUT_S}
_DELETIONS: Final = frozenset(
    {"deleteNode", "deleteNodeGroup", "deleteInstance", "deleteNetwork", "deleteFilter"}
)


class WConfClient(WConfStub):
    """One connection to WConfD, opened when first used and again when it broke.

    Args:
        owner: who owns the locks and reservations taken through this client.
        sleep: waits between attempts to connect; a job passes one that can be canceled.
        restart_timeout_s: how long to wait for a WConfD that does not answer its socket.
    """

    def __init__(
        self,
        paths: Paths,
        owner: ClientId,
        *,
        sleep: Callable[[float], None] = clock.pause,
        restart_timeout_s: float = RESTART_TIMEOUT_S,
    ) -> None:
        self.owner = owner
        self._connection = UnixClient(paths.wconfd_socket, timeout_s=ANSWER_TIMEOUT_S)
        self._sleep = sleep
        self._restart_timeout_s = restart_timeout_s

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    # One object, or an error that names what was asked for.

    def get_node(self, key: str) -> Node:
        """Return the node of that name or UUID.

        Raises:
            OpPrereqError: there is none (unknown_entity).
        """
        return _found(self.get_nodes([key]), "node", key)

    def get_node_group(self, key: str) -> NodeGroup:
        """Return the node group of that name or UUID, or raise OpPrereqError."""
        return _found(self.get_node_groups([key]), "node group", key)

    def get_instance(self, key: str) -> Instance:
        """Return the instance of that name or UUID, or raise OpPrereqError."""
        return _found(self.get_instances([key]), "instance", key)

    def get_disk(self, key: str) -> Disk:
        """Return the disk of that name or UUID, or raise OpPrereqError."""
        return _found(self.get_disks([key]), "disk", key)

    def get_network(self, key: str) -> Network:
        """Return the network of that name or UUID, or raise OpPrereqError."""
        return _found(self.get_networks([key]), "network", key)

    def expand_name(self, kind: ObjectKind, name: str) -> tuple[str, str]:
        """Return (UUID, full name) of the object meant by a full or short name or a UUID.

        Raises:
            OpPrereqError: there is none (unknown_entity), or several (wrong_input).
        """
        return _found(self.expand_names(kind, [name]), str(kind), name)

    def _invoke(self, method: str, args: Sequence[object]) -> Any:
        request = _Request(WCONFD_METHODS[method], args)
        deadline = clock.monotonic() + self._restart_timeout_s
        for delay_s in _retry_delays():
            try:
                result = self._connection.call(
                    method, request.wire_args(), timeout_s=request.answer_timeout_s()
                )
            except NobodyListensError as err:
                if clock.monotonic() >= deadline:
                    raise TransportError(f"{err.message}; is ganeti-wconfd running here?") from err
            except ConnectionLostError:
                if not request.may_repeat or clock.monotonic() >= deadline:
                    raise
                request.was_repeated = True
            except OpPrereqError as err:
                if not request.was_done_before(err):
                    raise
                return self.get_serial()
            else:
                return decode_result(request.row.result, result)
            self._sleep(delay_s)
        raise AssertionError("the delays never end")


class _Request:
    """One call and what is left of its time, over several attempts."""

    def __init__(self, row: Method, args: Sequence[object]) -> None:
        self.row = row
        self.was_repeated = False
        self.may_repeat = row.repeatable or row.name in _DELETIONS
        self._args = [encode_argument(arg) for arg in args]
        self._wait_index: int | None = None
        self._deadline = 0.0
        for index, argument in enumerate(row.args):
            if argument.name == "timeout_s":
                wait_s = args[index]
                assert isinstance(wait_s, int | float)
                self._wait_index = index
                self._deadline = clock.monotonic() + wait_s

    def _wait_s(self) -> float:
        return max(0.0, self._deadline - clock.monotonic())

    def wire_args(self) -> list[object]:
        """Return the arguments, with the time to wait that is left."""
        if self._wait_index is not None:
            self._args[self._wait_index] = self._wait_s()
        return self._args

    def answer_timeout_s(self) -> float:
        """Return how long the answer may take."""
        return self._wait_s() + _LONG_METHODS.get(self.row.name, ANSWER_TIMEOUT_S)

    def was_done_before(self, error: OpPrereqError) -> bool:
        """Tell whether a repeated deletion fails only because the first one was carried out."""
        gone = error.ecode == ErrorCode.NOENT
        return self.was_repeated and gone and self.row.name in _DELETIONS


def _retry_delays() -> Iterator[float]:
    return itertools.chain(_RETRY_DELAYS_S, itertools.repeat(_RETRY_DELAYS_S[-1]))


def _found(values: Sequence[T | None], what: str, key: str) -> T:
    (value,) = values
    if value is None:
        raise OpPrereqError(f"{what} {key!r} not found", ErrorCode.NOENT)
    return value

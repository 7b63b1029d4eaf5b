"""Talks to WConfD, the keeper of configuration and locks, from plain synchronous code.

It waits while WConfD is being restarted and repeats a call that was not answered, as the rules of
the call allow (`Repeat`).  That is safe because everything that a request takes is owned by the
client that it names: asked twice, it is granted once.  On a node that follows another master by now
it does not wait.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Self

from msgspec import Raw

from ganeti.base.errors import (
    ErrorCode,
    GenericError,
    NotMasterError,
    OpPrereqError,
    TransportError,
)
from ganeti.base.paths import Paths
from ganeti.objects.record import plain
from ganeti.protocol.service import Call
from ganeti.protocol.wconfd import ANSWER_TIMEOUT_S, ClientId, Repeat, Rules, WConfCalls
from ganeti.store import ssconf
from ganeti.system import clock, environment
from ganeti.transport.unix_client import ConnectionLostError, NobodyListensError, UnixClient

RESTART_TIMEOUT_S: Final = 30.0  # how long a restart of WConfD may take before we give up
_RETRY_DELAYS_S: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


def connection_to(paths: Paths) -> UnixClient:
    """Return a connection to WConfD, which is not open yet."""
    return UnixClient(paths.wconfd_socket, timeout_s=ANSWER_TIMEOUT_S)


class WConfClient(WConfCalls):
    """One connection to WConfD, opened when first used and again when it broke.

    Args:
        owner: the owner of the locks and reservations taken through this client.
        sleep: waits between attempts to connect; a job passes one that can be canceled.
        restart_timeout_s: how long to wait for a WConfD that does not answer its socket.
        answer_s_max: how long to wait for any answer.
        connection: one that is open already (`connection_to`).
    """

    def __init__(
        self,
        paths: Paths,
        owner: ClientId,
        *,
        sleep: Callable[[float], None] = clock.pause,
        restart_timeout_s: float = RESTART_TIMEOUT_S,
        answer_s_max: float = math.inf,
        connection: UnixClient | None = None,
    ) -> None:
        self.owner = owner
        self._paths = paths
        self._connection = connection or connection_to(paths)
        self._sleep = sleep
        self._restart_timeout_s = restart_timeout_s
        self._answer_s_max = answer_s_max

    def hurried(self, answer_s_max: float) -> WConfClient:
        """Return a client on the same connection that gives up when there is no answer at once."""
        return WConfClient(
            self._paths,
            self.owner,
            sleep=self._sleep,
            restart_timeout_s=0.0,
            answer_s_max=answer_s_max,
            connection=self._connection,
        )

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def invoke(self, call: Call[Rules], args: list[Any]) -> Any:
        """Make a call, again if it was not answered and may be repeated.

        Raises:
            NotMasterError: no answer, and this node follows another master.
            TransportError: no answer, and none can be expected.
            GenericError: the error that WConfD answered.
        """
        request = _Request(call, args, self.owner)
        deadline = clock.monotonic() + self._restart_timeout_s
        for delay_s in _retry_delays():
            try:
                answer = self._connection.call_as(
                    Raw, call.name, request.wire_args(), timeout_s=self._answer_s(request)
                )
            except NobodyListensError as err:
                self._check_master(err)
                if clock.monotonic() >= deadline:
                    raise TransportError(f"{err.message}; is ganeti-wconfd running here?") from err
            except ConnectionLostError:
                if call.rules.repeat is Repeat.NEVER or clock.monotonic() >= deadline:
                    raise
                request.was_repeated = True
            except OpPrereqError as err:
                if not request.was_done_before(err):
                    raise
                return self.get_serial()
            else:
                return call.decode_answer(answer)
            self._sleep(delay_s)
        raise AssertionError("the delays never end")

    def _check_master(self, error: NobodyListensError) -> None:
        """Refuse to wait for a WConfD that ended because another node is master."""
        try:
            master = ssconf.master_node(self._paths)
        except GenericError:
            return
        if master not in ("", environment.own_hostname()):
            raise NotMasterError(f"{error.message}; this node follows {master}") from error

    def _answer_s(self, request: _Request) -> float:
        return min(self._answer_s_max, request.answer_timeout_s())


class _Request:
    """One call and its remaining time, over several attempts."""

    def __init__(self, call: Call[Rules], args: Sequence[Any], owner: ClientId) -> None:
        self.was_repeated = False
        self._rules = call.rules
        self._args = [plain(arg) for arg in args]
        self._deadline = clock.monotonic() + args[-1] if call.rules.waits else 0.0
        if call.rules.owner is not None:
            self._args.insert(call.rules.owner, owner)

    def _wait_s(self) -> float:
        return max(0.0, self._deadline - clock.monotonic())

    def wire_args(self) -> list[object]:
        """Return the arguments, with the time to wait that is left."""
        if self._rules.waits:
            self._args[-1] = self._wait_s()
        return self._args

    def answer_timeout_s(self) -> float:
        """Return how long the answer may take."""
        return self._wait_s() + self._rules.answer_s

    def was_done_before(self, error: OpPrereqError) -> bool:
        """Tell whether a repeated deletion fails only because the first one was carried out."""
        gone = error.ecode == ErrorCode.NOENT
        return self.was_repeated and gone and self._rules.repeat is Repeat.DELETION


def _retry_delays() -> Iterator[float]:
    return itertools.chain(_RETRY_DELAYS_S, itertools.repeat(_RETRY_DELAYS_S[-1]))

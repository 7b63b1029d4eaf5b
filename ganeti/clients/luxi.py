"""Talks to LuxiD: submits jobs, waits for them, asks questions.  Synchronous.

A read that loses its connection is asked again.  A change is not: it may have been carried out,
and the error says so.

Source: luxi.json, "transport" and "methods".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from msgspec import Raw

from ganeti.base.errors import ConfigurationError, NotMasterError, TransportError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.base.versions import LUXI_VERSION
from ganeti.protocol.luxi import WAIT_FOR_JOB_CHANGE_S_MAX, JobChange, LuxiCalls, Rules
from ganeti.protocol.service import Call
from ganeti.store import ssconf
from ganeti.system import clock
from ganeti.system.environment import own_hostname
from ganeti.transport.unix_client import (
    AnswerTimeoutError,
    ConnectionLostError,
    NobodyListensError,
    UnixClient,
)

if TYPE_CHECKING:
    from ganeti.opcodes.opcode import OpCode

_Job: TypeAlias = "Sequence[OpCode | Mapping[str, object]]"

CONNECT_TIMEOUT_S: Final = 30.0  # luxi.json, "timeouts_seconds"
ANSWER_TIMEOUT_S: Final = 180.0
TRIES_MAX: Final = 15  # luxi.json, "client_retry"; its waits of 5 s times the try are not needed:
_RETRY_DELAY_S_MAX: Final = 5.0  # the socket tells at once when LuxiD is back
_CONNECT_RETRY_S: Final = 0.1


class LuxiClient(LuxiCalls):
    """A connection to LuxiD, opened when first used and again when it broke."""

    def __init__(
        self,
        paths: Paths,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        sleep: Callable[[float], None] = clock.pause,
        socket: str = "",
        on_call: Callable[[str], object] = lambda _name: None,
    ) -> None:
        """Make a client; ``on_call`` gets the name of each call before it is sent."""
        self._paths = paths
        self._on_call = on_call
        self._connect_timeout_s = connect_timeout_s
        self._sleep = sleep
        self._connection = UnixClient(
            socket or paths.query_socket,
            connect_timeout_s=connect_timeout_s,
            timeout_s=answer_timeout_s,
            version=LUXI_VERSION,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        self._connection.close()

    def submit_job(self, opcodes: _Job) -> JobId:
        """As declared; encodes opcodes."""
        return super().submit_job(_encode_job(opcodes))

    def submit_job_to_drained_queue(self, opcodes: _Job) -> JobId:
        """As declared; encodes opcodes."""
        return super().submit_job_to_drained_queue(_encode_job(opcodes))

    def submit_many_jobs(self, jobs: Sequence[_Job]) -> list[tuple[bool, JobId | str]]:
        """As declared; encodes opcodes."""
        return super().submit_many_jobs([_encode_job(job) for job in jobs])

    def wait_for_job_change(
        self,
        job_id: int | str,
        fields: Sequence[str],
        previous: Sequence[object] | None,
        previous_log: int | None,
        timeout_s: float = WAIT_FOR_JOB_CHANGE_S_MAX,
    ) -> JobChange | None:
        """As declared; None if nothing has changed in time."""
        timeout_s = min(timeout_s, WAIT_FOR_JOB_CHANGE_S_MAX)
        change = super().wait_for_job_change(job_id, fields, previous, previous_log, timeout_s)
        if not isinstance(change, JobChange) or change.fields is None:
            return None
        if previous is not None and not change.log_entries and change.fields == list(previous):
            return None
        return change

    def invoke(self, call: Call[Rules], args: list[Any]) -> Any:
        """Make a call; a question is asked again when the connection broke.

        Raises:
            NotMasterError: this node is not the master.
            TransportError: no answer; the text says whether a change may have been made.
            GenericError: the error that LuxiD answered.
        """
        rules = call.rules
        while rules.ours and len(args) > len(call.names) - rules.ours and args[-1] is None:
            args.pop()
        self._on_call(call.name)
        delay_s = 0.0
        for left in reversed(range(TRIES_MAX)):
            try:
                return call.decode_answer(self._ask(call.name, args))
            except (ConnectionLostError, AnswerTimeoutError) as err:
                if rules.changes:
                    raise perhaps_done(call.name, err) from err
                if not left or isinstance(err, AnswerTimeoutError):
                    raise
            self._sleep(delay_s)
            delay_s = min(2 * delay_s + _CONNECT_RETRY_S, _RETRY_DELAY_S_MAX)
        raise AssertionError("the last try returns or raises")

    def _ask(self, method: str, args: Sequence[object]) -> Raw:
        deadline = clock.monotonic() + self._connect_timeout_s
        while True:
            try:
                return self._connection.call_as(Raw, method, args)
            except NobodyListensError as err:
                check_is_master(self._paths, err)
                if clock.monotonic() >= deadline:
                    raise TransportError(f"{err.message}; is ganeti-luxid running here?") from err
            self._sleep(_CONNECT_RETRY_S)


def perhaps_done(method: str, reason: TransportError) -> TransportError:
    """Return the error of a change that may have been made, as its answer got lost."""
    return TransportError(
        f"{reason.message}; {method} may have been carried out, look before you try again"
    )


def check_is_master(paths: Paths, reason: TransportError) -> None:
    """Tell "LuxiD is down" from "LuxiD runs on another node".

    Raises:
        NotMasterError: this node is not the master; names it, if this is a cluster at all.
    """
    try:
        master = ssconf.master_node(paths)
    except ConfigurationError as err:
        raise NotMasterError(
            f"{reason.message}, and this node is not part of a cluster: {err.message}"
        ) from reason
    own_name = own_hostname()
    if master != own_name:
        raise NotMasterError(
            f"this is not the master node (this is {own_name}), connect to {master} instead", master
        ) from reason


def _encode_job(opcodes: _Job) -> list[Mapping[str, Any]]:
    # Commands that submit nothing load no opcode: that takes as long as the rest of them.
    from ganeti.opcodes.registry import encode_opcode

    return [opcode if isinstance(opcode, Mapping) else encode_opcode(opcode) for opcode in opcodes]

"""The context of a logical unit: its job, and its two ways to act.

A logical unit changes the configuration through `JobContext.config` and nodes through
`JobContext.rpc`; it speaks to the operator through `JobContext.feedback`.  The process that runs
the job fills the context in; tests fill it with fakes.  Everything that blocks goes through the
context, so that a job can be canceled wherever it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Concatenate, Final, ParamSpec, Protocol

import msgspec

from ganeti.base.errors import GenericError, LockError
from ganeti.base.paths import Paths
from ganeti.clients.node_rpc import NodeClient
from ganeti.objects.model import Node
from ganeti.opcodes.opcode import OpCode
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.service import Call
from ganeti.protocol.wconfd import Effect, Rules, WConfCalls
from ganeti.system import clock
from ganeti.system.filelock import FileLock

P = ParamSpec("P")

LOG_MESSAGE: Final = "message"
_ALONE_S_MAX: Final = 300.0  # dead nodes make another job slow


class Feedback(Protocol):
    """Appends one entry to the log of the running opcode."""

    def __call__(self, message: object, kind: str = LOG_MESSAGE) -> None:
        """Log a message; ``kind`` is one of the log types of the job file."""


class RecordingConfig(WConfCalls):
    """Passes calls of WConfD on and notes their effect: locks go back at the end of the job.

    Attributes:
        effects: kinds of changes asked for since it was last emptied.
        changed: whether the configuration was ever changed through this client.
    """

    def __init__(self, inner: WConfCalls) -> None:
        self.owner = inner.owner
        self.effects: set[Effect] = set()
        self.changed = False
        self._inner = inner

    def invoke(self, call: Call[Rules], args: list[Any]) -> Any:
        """Make a call, and note its effect."""
        effect = call.rules.effect
        self.effects.add(effect)
        self.changed = self.changed or effect is Effect.CONFIG
        return self._inner.invoke(call, args)


class JobContext(msgspec.Struct):
    """The job that an opcode belongs to, as seen by its logical unit.

    Attributes:
        feedback: appends to the job's log.
        check_canceled: raises JobCanceled once somebody has asked to cancel the job.
        priority: the job's current priority (-20 most urgent, 19 least); it may change.
        on_locks_held: called when all locks are held and the work begins (waiting -> running).
        submit_jobs: submits further jobs (each a list of opcodes), returns their ids.
        wait: sleeps so many seconds; raises JobCanceled as soon as the job is canceled.
        attempts_before: how often the opcode waited for its locks in vain, in other processes.
        at_once: a client of WConfD that gives up when there is no answer at once.
        now, monotonic, new_uuid: time and chance.
        interruptible: inside this, a request to cancel raises JobCanceled even while a call to a
            daemon blocks; used around waits for locks only.
    """

    paths: Paths
    job_id: int
    config: WConfCalls
    rpc: NodeClient
    feedback: Feedback
    check_canceled: Callable[[], None]
    wait: Callable[[float], None]
    priority: Callable[[], int]
    on_locks_held: Callable[[], None]
    submit_jobs: Callable[[Sequence[Sequence[OpCode]]], list[int]]
    interruptible: Callable[[], AbstractContextManager[None]]
    attempts_before: int = 0
    at_once: WConfCalls | None = None
    now: Callable[[], float] = clock.now
    monotonic: Callable[[], float] = clock.monotonic
    new_uuid: Callable[[], str] = clock.new_uuid

    def __post_init__(self) -> None:
        self.config = RecordingConfig(self.config)

    @property
    def recorder(self) -> RecordingConfig:
        """The client of WConfD, which notes the effects of calls."""
        assert isinstance(self.config, RecordingConfig)
        return self.config

    @property
    def nodes(self) -> NodeClient:
        """The nodes to be called."""
        return self.rpc

    @property
    def config_changed(self) -> bool:
        """Whether the job has changed the configuration so far."""
        return self.recorder.changed

    def info(self, text: str) -> None:
        """Tell the operator of a step."""
        self.feedback(f" - INFO: {text}")

    def created(self, what: str, uuid: str) -> None:
        """Tell the UUID of an object that was created, as design-2.1 wants it."""
        self.info(f"{what} has the UUID {uuid}")

    def warn(self, text: str) -> None:
        """Tell the operator of a failure that does not end the work."""
        self.feedback(f" - WARNING: {text}")

    def failure(
        self,
        doing: str,
        call: Callable[Concatenate[NodeCalls, P], object],
        node: Node,
        *args: P.args,
        **named: P.kwargs,
    ) -> str | None:
        """Make one call on a node; return the text of its failure, None if there is none.

        Args:
            doing: the work, as it reads after "cannot".
        """
        result = self.nodes.call_one(call, node, *args, **named)
        return None if result.error is None else result.explain(doing)

    def attempt(
        self,
        doing: str,
        call: Callable[Concatenate[NodeCalls, P], object],
        node: Node,
        *args: P.args,
        **named: P.kwargs,
    ) -> bool:
        """Make one call on a node; tell a failure, and return whether it was done."""
        try:
            failure = self.failure(doing, call, node, *args, **named)
        except GenericError as err:
            failure = f"cannot {doing}: {err}"
        if failure is not None:
            self.warn(failure)
        return failure is None


def alone(context: JobContext, name: str, doing: str) -> FileLock:
    """Take the lock by which jobs do something one after the other; to be used as a context.

    Args:
        name: of the lock; never to be taken twice.
        doing: what another job may be doing, for people.

    Raises:
        LockError: another job has still not ended after some minutes.
    """
    lock = FileLock(context.paths.job_lock(name))
    try:
        lock.acquire()
    except LockError:
        context.info(f"another job {doing}; waiting for its end")
        lock.acquire(timeout_s=_ALONE_S_MAX)
    return lock

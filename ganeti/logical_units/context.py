"""What a logical unit is given: the job it runs for, and its two ways to act.

A logical unit changes the configuration through `JobContext.config` and nodes through
`JobContext.rpc`; it speaks to the operator through `JobContext.feedback`.  The process that runs
the job fills the context in; tests fill it with fakes.  Everything that blocks goes through the
context, so that a job can be canceled wherever it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from ganeti.base.errors import ProgrammerError
from ganeti.logical_units.recorder import RecordingConfig
from ganeti.system import clock

if TYPE_CHECKING:
    from ganeti.base.paths import Paths
    from ganeti.clients.node_rpc import RpcResult, Target
    from ganeti.clients.wconfd_stub import WConfStub
    from ganeti.opcodes.opcode import OpCode

LOG_MESSAGE: Final = "message"


class Feedback(Protocol):
    """Appends one entry to the log of the running opcode."""

    def __call__(self, message: object, kind: str = LOG_MESSAGE) -> None:
        """Log a message; ``kind`` is one of the log types of the job file."""


class NodeRpc(Protocol):
    """Calls node daemons."""

    def call(self, name: str, targets: Mapping[Target, Sequence[object]]) -> dict[str, RpcResult]:
        """Make one call on many nodes at once; returns {node name: result}."""

    def single(self, name: str, target: Target, *args: object) -> RpcResult:
        """Make one call on one node."""


def _nothing() -> None:
    """Do nothing: there is nobody to tell."""


def _no_jobs(jobs: Sequence[Sequence[OpCode]]) -> list[int]:
    """Refuse to submit jobs."""
    raise ProgrammerError(f"this context cannot submit jobs ({len(jobs)} were to be)")


# A Struct, not a dataclass: every job process pays for making this class.
class JobContext(msgspec.Struct):
    """The job that an opcode belongs to, as seen by its logical unit.

    Attributes:
        feedback: appends to the job's log.
        check_canceled: raises JobCanceled once somebody has asked to cancel the job.
        priority: the job's current priority (-20 most urgent, 19 least); it may change.
        on_locks_held: called when all locks are held and the work begins (waiting -> running).
        submit_jobs: submits further jobs (each a list of opcodes), returns their ids.
        wait: sleeps so many seconds; raises JobCanceled as soon as the job is canceled.
        now, monotonic, new_uuid: time and chance.
        interruptible: inside this, a request to cancel raises JobCanceled even while a call to a
            daemon blocks; used around waits for locks only.
    """

    paths: Paths
    job_id: int
    config: WConfStub
    rpc: NodeRpc
    feedback: Feedback
    check_canceled: Callable[[], None]
    wait: Callable[[float], None]
    priority: Callable[[], int] = lambda: 0
    on_locks_held: Callable[[], None] = _nothing
    submit_jobs: Callable[[Sequence[Sequence[OpCode]]], list[int]] = _no_jobs
    interruptible: Callable[[], AbstractContextManager[None]] = nullcontext
    now: Callable[[], float] = clock.now
    monotonic: Callable[[], float] = clock.monotonic
    new_uuid: Callable[[], str] = clock.new_uuid
    debug_level: int = 0

    def __post_init__(self) -> None:
        self.config = RecordingConfig(self.config)

    @property
    def recorder(self) -> RecordingConfig:
        """What was asked of WConfD so far; it stands between this job and the real client."""
        assert isinstance(self.config, RecordingConfig)
        return self.config

    @property
    def config_changed(self) -> bool:
        """Whether the job has changed the configuration so far."""
        return self.recorder.changed

    def info(self, text: str) -> None:
        """Tell the operator what is being done."""
        self.feedback(f" - INFO: {text}")

    def warn(self, text: str) -> None:
        """Tell the operator what went wrong although the work goes on."""
        self.feedback(f" - WARNING: {text}")

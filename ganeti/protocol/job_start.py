"""The dialog by which a warm process gets its job: messages and their order, and no more.

Theory of operation.  LuxiD and a job process share one stream socket (standard input and output
of the process); a message is JSON and one ETX byte, as everywhere.

    process -> LuxiD   ready       I hold my lock file under a temporary name
    LuxiD -> process   assign      the job to run
    process -> LuxiD   named       my lock file has its final name now
    (LuxiD makes the start record durable: lock file, process number, status waiting)
    LuxiD -> process   confirm     run; here are the secret parameters, one entry per opcode

    and then, as often as the process likes, while LuxiD is there:
    process -> LuxiD   progress    an opcode has ended: bring this version to the candidates, too;
                                   nobody waits for that
    process -> LuxiD   copy        bring this version of my job file to the candidates
    LuxiD -> process   copied      these have it

Only after ``confirm`` may the process act.  If the stream ends before, the process goes away
without having started; LuxiD has either not written the start record, then the job is still in
the queue, or it has, then the job is found dead by its lock file.

The process alone writes its job file, and it alone sees to the copies; LuxiD only lends it the
connections that it keeps open anyway.  A process whose LuxiD went away does without.

Source: ARCHITECTURE, invariant 1.
"""

from enum import Enum, auto
from typing import Final, Literal

import msgspec

from ganeti.base.errors import ProtocolError
from ganeti.base.json import dumps, loads_as

REHEARSAL_PREFIX: Final = "rehearsal-"  # of the directory of a played job, before the process
WARM_LOCK_PREFIX: Final = "warm-job-process"  # name of the lock file before there is a job
MESSAGE_BYTES_MAX: Final = 256 << 20  # a job file with a long log, quoted


# Annotations here are values, not text: a process that reads a Struct for the first time would have
# to evaluate the text.


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The process is there and holds its lock file."""

    livelock: str
    process_id: int


class Assign(msgspec.Struct, frozen=True, tag="assign"):
    """The job that the process is for."""

    job_id: int


class Named(msgspec.Struct, frozen=True, tag="named"):
    """The lock file has its final name."""

    livelock: str


class Confirm(msgspec.Struct, frozen=True, tag="confirm"):
    """The start record is durable: run.

    ``lagging`` names the candidates that have not acknowledged the start record: it may still
    arrive there after later ones, so their copies do not count.  ``turns`` is how often the job
    waited for its locks in vain and stepped back.
    """

    secrets: tuple[dict[str, object] | None, ...] = ()
    lagging: tuple[str, ...] = ()
    turns: int = 0


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """A version of the job file, as text; it is not answered."""

    content: str


class Copy(msgspec.Struct, frozen=True, tag="copy"):
    """A version of the job file, as text.

    ``wait_s`` is how long to wait until enough candidates have it; 0: while that is likely.
    """

    content: str
    wait_s: float = 0.0


class Copied(msgspec.Struct, frozen=True, tag="copied"):
    """All candidates besides the master, and those of them that have the version now."""

    others: tuple[str, ...]
    reached: tuple[str, ...]


Message = Ready | Assign | Named | Confirm | Progress | Copy | Copied
Side = Literal["process", "luxid"]


class Stage(Enum):
    """How far the dialog has come; the table below has the messages that may come next."""

    STARTING = auto()
    READY = auto()
    ASSIGNED = auto()
    NAMED = auto()
    CONFIRMED = auto()
    COPYING = auto()


_NEXT: Final[dict[tuple[Stage, type[Message]], tuple[Side, Stage]]] = {
    (Stage.STARTING, Ready): ("process", Stage.READY),
    (Stage.READY, Assign): ("luxid", Stage.ASSIGNED),
    (Stage.ASSIGNED, Named): ("process", Stage.NAMED),
    (Stage.NAMED, Confirm): ("luxid", Stage.CONFIRMED),
    (Stage.CONFIRMED, Progress): ("process", Stage.CONFIRMED),
    (Stage.CONFIRMED, Copy): ("process", Stage.COPYING),
    (Stage.COPYING, Copied): ("luxid", Stage.CONFIRMED),
}


def decode_message(data: bytes) -> Message:
    """Read a message.

    Raises:
        ProtocolError: it is none.
    """
    message: Message = loads_as(Message, data)  # type: ignore[arg-type]  # a union is no type
    return message


class Dialog:
    """One side of the dialog; refuses every message out of turn."""

    def __init__(self, side: Side) -> None:
        self.side: Final = side
        self.stage = Stage.STARTING

    def send(self, message: Message) -> bytes:
        """Return the bytes of a message (without ETX) and note that it was said."""
        self._advance(message, self.side)
        return dumps(message)

    def receive(self, data: bytes) -> Message:
        """Decode a message of the other side.

        Raises:
            ProtocolError: not a message, or not its turn.
        """
        message = decode_message(data)
        self._advance(message, "luxid" if self.side == "process" else "process")
        return message

    def _advance(self, message: Message, sender: Side) -> None:
        turn, stage = _NEXT.get((self.stage, type(message)), (None, self.stage))
        if turn != sender:
            raise ProtocolError(
                f"{type(message).__name__} from {sender} in stage {self.stage.name}"
            )
        self.stage = stage

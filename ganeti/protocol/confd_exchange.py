"""The client's side of RConfD's protocol: questions that wait for answers of several daemons.

Theory of operation.  One question goes to several master candidates as the same packet; its salt
tells it from all others.  Every candidate may answer once, in any order or never, and a candidate
may be behind: whoever asks wants the answer with the highest serial number.  A question ends when
all have answered or when its time is over.  What comes besides (another salt, a wrong signature, a
second copy) is nothing.  Time and salts are given from outside.

Source: confd.json, "client_rules"; design 2.1, "Ganeti Confd".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ganeti.base.errors import ConfdClientError, ProtocolError
from ganeti.base.json import dumps
from ganeti.protocol.confd import (
    DATAGRAM_BYTES_MAX,
    ErrorKind,
    Reply,
    Signer,
    Status,
    open_reply,
    request_packet,
)
from ganeti.protocol.confd_queries import QUERIES, QueryType, Takes

CANDIDATES_ASKED: Final = 6
EXPIRE_S: Final = 10.0
PENDING_MAX: Final = 4096  # questions at once; a program that has more has forgotten to listen
_SHOWN_CHARS: Final = 200

_ERROR_TEXTS: Final = {
    ErrorKind.UNKNOWN_ENTRY: "there is no such entry in the configuration",
    ErrorKind.INTERNAL: "the daemon failed",
    ErrorKind.ARGUMENT: "the question has an argument of a wrong form",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What one candidate answered to a question."""

    type: QueryType
    query: object
    status: Status
    value: object
    serial: int
    peer: str

    def check(self) -> object:
        """Return the value.

        Raises:
            ConfdClientError: the question was refused; the text says why.
        """
        if self.status is Status.OK:
            return self.value
        query = QUERIES[self.type]
        reason = str(self.value)
        if isinstance(self.value, int) and self.value in tuple(ErrorKind):
            reason = _ERROR_TEXTS[ErrorKind(self.value)]
            if query.takes is Takes.PATH and self.value == ErrorKind.ARGUMENT:
                reason = "there is nothing at this path; paths begin with '/'"
        about = "" if self.query is None else f" about {dumps(self.query).decode():.{_SHOWN_CHARS}}"
        raise ConfdClientError(
            f"RConfD on {self.peer} refused the question {query.name!r}{about}: {reason}"
        )

    def is_newer_than(self, other: Answer | None) -> bool:
        """Tell whether it is to be preferred: an answer to a refusal, then by serial number."""
        if other is None:
            return True
        ours, theirs = self.status is Status.OK, other.status is Status.OK
        return (ours, self.serial) > (theirs, other.serial)


@dataclass(slots=True, eq=False)
class Asked:
    """A question that was sent, and what has come so far.

    ``waiting`` has the peers that have not answered, ``best`` the newest answer.
    """

    type: QueryType
    query: object
    packet: bytes
    deadline_s: float
    peers: tuple[str, ...]
    on_event: Callable[[Event], None]
    waiting: set[str]
    strangers_left: int
    best: Answer | None = None


class EventKind(StrEnum):
    """What happened to a question."""

    ANSWER = "answer"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a question.

    ANSWER: a candidate answered, ``answer`` has what.  ENDED: all have, or the time is over;
    ``answer`` is the newest then, or None if nobody answered.
    """

    kind: EventKind
    asked: Asked
    answer: Answer | None


Callback = Callable[[Event], None]


@dataclass(slots=True)
class Exchange:
    """All questions of a client that are not ended yet."""

    signer: Signer
    _pending: dict[str, Asked] = field(default_factory=dict)

    def ask(
        self,
        query_type: QueryType,
        query: object,
        peers: Sequence[str],
        on_event: Callback,
        *,
        salt: str,
        unix_time_s: int,
        deadline_s: float,
    ) -> Asked:
        """Begin a question; its packet is to be sent to every peer.

        Args:
            deadline_s: by whatever clock `expire` is told the time of.

        Raises:
            ConfdClientError: too many questions wait already, there is nobody to ask, or the
                question is too long.
        """
        if not peers:
            raise ConfdClientError("there is no master candidate to ask")
        if len(self._pending) >= PENDING_MAX:
            raise ConfdClientError(f"{PENDING_MAX} questions to RConfD wait for answers already")
        packet = request_packet(self.signer, query_type, query, rsalt=salt, now_s=unix_time_s)
        if len(packet) > DATAGRAM_BYTES_MAX:
            raise ConfdClientError(
                f"the question has {len(packet)} bytes, {DATAGRAM_BYTES_MAX} fit into a datagram"
            )
        asked = Asked(
            query_type,
            query,
            packet,
            deadline_s,
            tuple(peers),
            on_event,
            waiting=set(peers),
            strangers_left=len(peers),
        )
        self._pending[salt] = asked
        return asked

    def receive(self, data: bytes, peer: str) -> None:
        """Take a datagram: an answer that was waited for becomes an event, all else nothing.

        A daemon with several addresses may answer from another one than was asked; the signature
        says that it is one of ours.
        """
        try:
            salt, reply = open_reply(self.signer, data)
        except ProtocolError:
            return
        asked = self._pending.get(salt)
        if asked is None:
            return
        if peer in asked.waiting:
            asked.waiting.discard(peer)
        elif peer not in asked.peers and asked.strangers_left:
            asked.strangers_left -= 1
        else:
            return
        answer = _answer(asked, reply, peer)
        if answer.is_newer_than(asked.best):
            asked.best = answer
        asked.on_event(Event(EventKind.ANSWER, asked, answer))
        if not asked.waiting:
            self._end(salt, asked)

    def expire(self, now_s: float) -> None:
        """End the questions whose time is over."""
        for salt, asked in list(self._pending.items()):
            if asked.deadline_s <= now_s:
                self._end(salt, asked)

    def forget(self, asked: Asked) -> None:
        """Drop a question without an event: nobody wants to know any more."""
        for salt, other in list(self._pending.items()):
            if other is asked:
                del self._pending[salt]

    def _end(self, salt: str, asked: Asked) -> None:
        if self._pending.pop(salt, None) is asked:
            asked.on_event(Event(EventKind.ENDED, asked, asked.best))

    @property
    def next_deadline_s(self) -> float | None:
        """When `expire` has something to do next; None while nothing waits."""
        return min((asked.deadline_s for asked in self._pending.values()), default=None)

    def __len__(self) -> int:
        return len(self._pending)


def _answer(asked: Asked, reply: Reply, peer: str) -> Answer:
    return Answer(asked.type, asked.query, reply.status, reply.answer, reply.serial, peer)

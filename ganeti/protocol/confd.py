"""The protocol of RConfD: signed packets, and the client's questions that wait for answers.

A packet is ``plj0`` and one JSON object: a message, which is JSON text itself, a salt, and the
HMAC-SHA1 of salt and message under the cluster's key.  The salt of a request is the time, that of a
reply is the salt of its request, so nobody can pass off an old packet as a new one.

Theory of operation of a client (`Exchange`).  One question goes to several master candidates as the
same packet; its salt tells it from all others.  Every candidate may answer once, in any order or
never, and a candidate may be behind: the answer with the highest serial number counts.  A question
ends when all have answered or when its time is over.  Any other packet (another salt, a wrong
signature, a second copy) is ignored.  Time and salts are given from outside.

Source: confd.json, "packet", "request", "reply" and "client_rules"; design 2.1, "Ganeti Confd".
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from functools import lru_cache
from hmac import compare_digest
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from ganeti.base.errors import ConfdClientError, ProtocolError
from ganeti.base.json import check_nesting, dumps
from ganeti.protocol.confd_queries import QueryType, Takes, page_query

MAGIC: Final = b"plj0"
DEFAULT_PORT: Final = 1814
DATAGRAM_BYTES_MAX: Final = 61440
CLOCK_SKEW_S_MAX: Final = 300
PROTOCOL_VERSION: Final = 1

_SHA1_BLOCK_BYTES: Final = 64
_TIME_DIGITS_MAX: Final = 15  # seconds until long after the sun
_INNER_PAD: Final = bytes(octet ^ 0x36 for octet in range(256))
_OUTER_PAD: Final = bytes(octet ^ 0x5C for octet in range(256))


class ReplyStatus(IntEnum):
    """The outcome of a question."""

    OK = 0
    ERROR = 1
    NOT_IMPLEMENTED = 2


class ErrorKind(IntEnum):
    """The answer of a question that failed; a text may stand in its place."""

    UNKNOWN_ENTRY = 0
    INTERNAL = 1
    ARGUMENT = 2


class Request(msgspec.Struct, frozen=True, gc=False):
    """A question; ``query`` stays JSON text until it is known whether the answer is kept ready.

    The protocol's number is not looked at, as in 3.0.
    """

    type: int
    rsalt: str
    query: Raw = Raw(b"null")
    protocol: int = PROTOCOL_VERSION


class Reply(msgspec.Struct, frozen=True):
    """The answer of one RConfD."""

    status: ReplyStatus
    answer: object
    serial: int
    protocol: int = PROTOCOL_VERSION


class Packet(msgspec.Struct, frozen=True, gc=False):
    """The JSON object of a packet."""

    msg: str
    salt: str
    hmac: str


_decode_packet: Final = msgspec.json.Decoder(Packet).decode
_decode_request: Final = msgspec.json.Decoder(Request).decode
_decode_reply: Final = msgspec.json.Decoder(Reply).decode
_encode: Final = msgspec.json.Encoder().encode


class Signer:
    """Signs with one key, whose part of the work is done once.

    This is HMAC of RFC 2104 spelt out: copying two hashes costs half of copying the objects that
    the standard library wraps around them.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        if len(key) > _SHA1_BLOCK_BYTES:
            key = hashlib.sha1(key).digest()  # noqa: S324 - the protocol says so
        block = key.ljust(_SHA1_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha1(block.translate(_INNER_PAD))  # noqa: S324
        self._outer = hashlib.sha1(block.translate(_OUTER_PAD))  # noqa: S324

    def sign(self, data: bytes) -> str:
        """Return the HMAC of data in hexadecimal digits."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(data)
        outer.update(inner.digest())
        return outer.hexdigest()

    def __repr__(self) -> str:
        return "Signer(***)"


def sign(key: bytes, salt: str, message: str) -> str:
    """Return the HMAC that a packet with this salt and message carries."""
    return Signer(key).sign((salt + message).encode())


class Sealable(NamedTuple):
    """A message and the part of its packet that does not change from one salt to the next."""

    message: bytes
    middle: bytes


def sealable(message: bytes) -> Sealable:
    """Return a message ready to be sealed again and again."""
    return Sealable(message, b'", "msg": %b, "salt": ' % _encode(message.decode()))


def seal(signer: Signer, salt: str, ready: Sealable) -> bytes:
    """Return the packet with a message."""
    mac = signer.sign(salt.encode() + ready.message)
    return b"".join((b'plj0{"hmac": "', mac.encode(), ready.middle, _encode(salt), b"}"))


def unseal(signer: Signer, data: bytes) -> Packet:
    """Return the packet in a datagram whose signature is right.

    Raises:
        ProtocolError: too long, of another form, or not signed with this key.
    """
    if len(data) > DATAGRAM_BYTES_MAX:
        raise ProtocolError(f"more than {DATAGRAM_BYTES_MAX} bytes")
    if data[:4] != MAGIC:
        raise ProtocolError(f"does not begin with {MAGIC.decode()}")
    check_nesting(data)
    try:
        packet = _decode_packet(data[4:])
        right = signer.sign((packet.salt + packet.msg).encode())
        is_right = compare_digest(right, packet.hmac)
    except (msgspec.DecodeError, RecursionError, UnicodeError, TypeError) as err:
        raise ProtocolError(f"not the JSON of a packet: {err}") from err
    if not is_right:
        raise ProtocolError("not signed with the key of this cluster")
    return packet


@lru_cache(maxsize=16)  # most requests of a second have the same; refusals are not kept
def check_time(salt: str, now_s: int) -> None:
    """Refuse a request whose salt is not the time, give or take five minutes.

    Raises:
        ProtocolError: so.
    """
    if not (len(salt) <= _TIME_DIGITS_MAX and salt.isascii() and salt.isdigit()):
        raise ProtocolError("its salt is not a time in seconds")
    off_s = int(salt) - now_s
    if not -CLOCK_SKEW_S_MAX <= off_s <= CLOCK_SKEW_S_MAX:
        raise ProtocolError(f"its time is {off_s} s off, {CLOCK_SKEW_S_MAX} s are allowed")


def open_request(signer: Signer, data: bytes, now_s: int) -> Request:
    """Return the request in a datagram.

    Raises:
        ProtocolError: it gets no answer; the text says why.
    """
    packet = unseal(signer, data)
    check_time(packet.salt, now_s)
    check_nesting(packet.msg)
    try:
        return _decode_request(packet.msg)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as err:
        raise ProtocolError(f"a malformed request: {err}") from err


def request_packet(
    signer: Signer, query_type: int, query: object, *, rsalt: str, now_s: int
) -> bytes:
    """Return the packet of a request."""
    message = _encode(
        {"protocol": PROTOCOL_VERSION, "type": query_type, "query": query, "rsalt": rsalt}
    )
    return seal(signer, str(now_s), sealable(message))


def open_reply(signer: Signer, data: bytes) -> tuple[str, Reply]:
    """Return the salt and the reply in a datagram.

    Raises:
        ProtocolError: it is not signed with this key, or no reply.
    """
    packet = unseal(signer, data)
    try:
        return packet.salt, _decode_reply(packet.msg)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as err:
        raise ProtocolError(f"a malformed reply: {err}") from err


def reply_message(status: ReplyStatus, answer: bytes, serial: int) -> bytes:
    """Return the message of a reply; the answer is JSON already."""
    form = b'{"protocol":%d,"status":%d,"answer":%b,"serial":%d}'
    return form % (PROTOCOL_VERSION, status, answer, serial)


CANDIDATES_ASKED: Final = 6
EXPIRE_S: Final = 10.0
PENDING_MAX: Final = 4096  # questions at once; a program that has more has forgotten to listen
_SHOWN_CHARS: Final = 200
_BEGUN_AGAIN_MAX: Final = 20  # 20,000 instances take a tenth of a second each time

_ERROR_TEXTS: Final = {
    ErrorKind.UNKNOWN_ENTRY: "there is no such entry in the configuration",
    ErrorKind.INTERNAL: "the daemon failed",
    ErrorKind.ARGUMENT: "the question has an argument of a wrong form",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one candidate to a question."""

    type: QueryType
    query: object
    status: ReplyStatus
    value: object
    serial: int
    peer: str

    def check(self) -> object:
        """Return the value.

        Raises:
            ConfdClientError: the question was refused; the text says why.
        """
        if self.status is ReplyStatus.OK:
            return self.value
        reason = str(self.value)
        if isinstance(self.value, int) and self.value in tuple(ErrorKind):
            reason = _ERROR_TEXTS[ErrorKind(self.value)]
            if self.type.takes is Takes.PATH and self.value == ErrorKind.ARGUMENT:
                nothing = "no object or list" if self.type.is_paged else "nothing"
                reason = f"there is {nothing} at this path; paths begin with '/'"
        about = "" if self.query is None else f" about {dumps(self.query).decode():.{_SHOWN_CHARS}}"
        raise ConfdClientError(
            f"RConfD on {self.peer} refused the question {self.type.label!r}{about}: {reason}"
        )

    def is_newer_than(self, other: Answer | None) -> bool:
        """Tell whether it is to be preferred: by serial number, a refusal like anything else.

        A refusal of 3.0 has the number 0, so it counts only if nothing else came.
        """
        if other is None:
            return True
        ours, theirs = self.status is ReplyStatus.OK, other.status is ReplyStatus.OK
        return (self.serial, ours) > (other.serial, theirs)


@dataclass(slots=True)
class Pages:
    """The pages of one list so far.

    Pages of one list have one serial number: if the configuration changes between two of them, the
    list begins again.
    """

    type: QueryType
    key: str = ""
    serial: int | None = None
    _entries: list[object] = field(default_factory=list)
    _begun_again: int = 0

    @property
    def query(self) -> str:
        """The query of the page to ask for now."""
        return page_query(self.key, len(self._entries))

    def take(self, answer: Answer) -> Answer | None:
        """Take the answer for the page asked for; return that of all pages after the last one.

        Raises:
            ConfdClientError: it was refused, is no page, or the configuration changes too often.
        """
        if self.serial not in (None, answer.serial):
            self._begin_again()
            return None
        answer = replace(answer, query=self.key or None)  # what the user asked
        entries, following = self._page(answer.check())
        self.serial = answer.serial
        self._entries += entries
        if following is not None:
            return None
        return replace(answer, value=self._entries)

    def _page(self, value: object) -> tuple[list[object], int | None]:
        match value:
            case [list(entries), None]:
                return entries, None
            case [list(entries), int(following)] if entries:
                if following == len(self._entries) + len(entries):
                    return entries, following
        raise ConfdClientError(f"RConfD answers no page of a list: {value!r:.{_SHOWN_CHARS}}")

    def _begin_again(self) -> None:
        if self._begun_again >= _BEGUN_AGAIN_MAX:
            raise self.too_slow()
        self._begun_again += 1
        self._entries, self.serial = [], None

    def too_slow(self) -> ConfdClientError:
        """Return the error for a list that never came to its end."""
        about = f" about {self.key}" if self.key else ""
        return ConfdClientError(
            f"the list {self.type.label!r}{about} could not be read to its end: RConfD told"
            f" {len(self._entries)} entries; the configuration changed {self._begun_again} times"
            " meanwhile; try again"
        )


@dataclass(slots=True, eq=False)
class Asked:
    """A question that was sent, and the answers so far.

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

    def has(self, serial: int | None) -> bool:
        """Tell whether the newest answer has a serial number."""
        return self.best is not None and self.best.serial == serial


class EventKind(StrEnum):
    """An event of a question."""

    ANSWER = "answer"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a question.

    ANSWER: a candidate answered; ``answer`` is its answer.  ENDED: all have, or the time is over;
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
            deadline_s: by the same clock that `expire` is given the time of.

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
            query_type, query, packet, deadline_s, tuple(peers), on_event, set(peers), len(peers)
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

"""What agents say to each other, without etcd: who is there, who is condemned.  Signed datagrams.

A question has a nonce, which its answer repeats; so an old answer is worth nothing, and an answer
shows that its node is alive now.  A question shows nothing of that kind: whoever has recorded one
can send it again, from anywhere.  So an old question only makes an agent answer, or condemn a boot
of a node once more, beside what it has condemned since.  That boot, if it still runs, is reset if
etcd does not answer it meanwhile; nothing ever runs twice by that.

    {"ask": "vouch", "nonce": ..., "node": ..., "boot_id": ..., "nodes": ...}
                                                may that boot live on, which counts by these nodes?
    {"ask": "condemn", "nonce": ..., "node": ..., "boot_id": ..., "hold_s": ...}
                                                vouch for it no more, for so long at least
    {"nonce": ..., "node": ..., "yes": true}                       the answer, and who gave it

Before the JSON stands its HMAC-SHA256 under the cluster's key.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final, cast

import msgspec

from ganeti.base.errors import ProtocolError

logger = logging.getLogger(__name__)

PORT: Final = 1817
_MAC_BYTES: Final = 32
_DATAGRAM_BYTES_MAX: Final = 2048
_DOMAIN: Final = b"ganeti-ha-1"  # the same key signs other things elsewhere


class Ask(StrEnum):
    """The kinds of questions."""

    VOUCH = "vouch"
    CONDEMN = "condemn"


class Question(msgspec.Struct, frozen=True, tag_field="kind", tag="question"):
    """A question about a boot of a node.

    Attributes:
        nodes: by which list of nodes the asking one counts; "" where that does not matter.
    """

    ask: Ask
    nonce: str
    node: str
    boot_id: str
    hold_s: float = 0.0
    nodes: str = ""


class Answer(msgspec.Struct, frozen=True, tag_field="kind", tag="answer"):
    """The answer, and the node that gives it."""

    nonce: str
    node: str
    yes: bool


_decode: Final = msgspec.json.Decoder(Question | Answer).decode
_encode: Final = msgspec.json.Encoder().encode


def seal(key: bytes, message: Question | Answer) -> bytes:
    """Return the datagram of a message."""
    text = _encode(message)
    return hmac.digest(key, _DOMAIN + text, hashlib.sha256) + text


def unseal(key: bytes, datagram: bytes) -> Question | Answer:
    """Return the message in a datagram.

    Raises:
        ProtocolError: it is too long, not signed with this key, or of another form.
    """
    if len(datagram) > _DATAGRAM_BYTES_MAX:
        raise ProtocolError(f"more than {_DATAGRAM_BYTES_MAX} bytes")
    mac, text = datagram[:_MAC_BYTES], datagram[_MAC_BYTES:]
    if not hmac.compare_digest(mac, hmac.digest(key, _DOMAIN + text, hashlib.sha256)):
        raise ProtocolError("not signed with the key of this cluster")
    try:
        message: Question | Answer = _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
        raise ProtocolError(f"not the JSON of a message: {err}") from err
    return message


class Friends(asyncio.DatagramProtocol):
    """Asks the agents of other nodes, and answers them.

    Args:
        key: of the cluster.
        new_nonce: draws another one each time.
        answer: decides about a question.
    """

    def __init__(
        self, own: str, key: bytes, new_nonce: Callable[[], str], answer: Callable[[Question], bool]
    ) -> None:
        self._own, self._key = own, key
        self._new_nonce, self._answer = new_nonce, answer
        self._transport: asyncio.DatagramTransport | None = None
        self._waiting: dict[str, Callable[[Answer], None]] = {}

    def use_key(self, key: bytes) -> None:
        """Sign and believe by another key from now on."""
        self._key = key

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As declared."""
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """As declared: what is not signed is dropped."""
        try:
            message = unseal(self._key, data)
        except ProtocolError as err:
            logger.debug("Dropped a datagram of %s: %s", addr[0], err.message)
            return
        if isinstance(message, Answer):
            if heard := self._waiting.get(message.nonce):
                heard(message)
        else:
            yes = self._answer(message)
            self._send(Answer(message.nonce, self._own, yes), addr)

    def error_received(self, exc: Exception) -> None:
        """As declared: a node that is away is one that does not answer."""

    async def ask(
        self,
        ask: Ask,
        node: str,
        boot_id: str,
        others: Mapping[str, str],
        timeout_s: float,
        port: int = PORT,
        enough: Callable[[Mapping[str, bool]], bool] = lambda _answers: False,
        hold_s: float = 0.0,
        nodes: str = "",
    ) -> dict[str, bool]:
        """Ask other nodes; returns {name: the answer} of those that answered in time.

        Args:
            others: {name: IP address}.
            enough: ends the wait sooner.
        """
        nonce, answers = self._new_nonce(), dict[str, bool]()
        done = asyncio.get_running_loop().create_future()

        def heard(answer: Answer) -> None:
            if answer.node in others:
                answers[answer.node] = answer.yes
            if not done.done() and (len(answers) == len(others) or enough(answers)):
                done.set_result(None)

        self._waiting[nonce] = heard
        try:
            for address in others.values():
                question = Question(ask, nonce, node, boot_id, hold_s, nodes)
                self._send(question, (address, port))
            if others:
                await asyncio.wait([done], timeout=timeout_s)
        finally:
            del self._waiting[nonce]
        return dict(answers)

    def close(self) -> None:
        """Hear nobody any more."""
        if self._transport is not None:
            self._transport.close()

    def _send(self, message: Question | Answer, address: tuple[str, int]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(seal(self._key, message), address)


def names_of(answers: Mapping[str, bool]) -> Iterable[str]:
    """Return the nodes that said yes."""
    return [name for name, yes in answers.items() if yes]

"""From a datagram to the datagram that answers it.  Pure.

What a question is answered does not change before the configuration does, so its message is kept,
ready signed but for the salt: then an answer costs two hashes, however large the cluster is.
"""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import ProtocolError
from ganeti.base.json import dumps
from ganeti.config.tables import Tables
from ganeti.protocol.confd import (
    DATAGRAM_BYTES_MAX,
    Sealable,
    Signer,
    Status,
    open_request,
    reply_message,
    seal,
    sealable,
)
from ganeti.protocol.confd_queries import QueryType, decode_question
from ganeti.rconfd.answers import HANDLERS, Refused

# Ten questions about each thing of a cluster of 5,000 instances need less than either.
KEPT_MAX: Final = 50_000
KEPT_BYTES_MAX: Final = 8_000_000
_KEPT_OVERHEAD_BYTES: Final = 500  # of a small entry, about


class Answerer:
    """Answers from one version of the configuration.

    Attributes:
        config: that version.
    """

    def __init__(self, config: Tables, signer: Signer) -> None:
        self.config = config
        self._signer = signer
        self._kept: dict[tuple[int, bytes], Sealable] = {}
        self._kept_bytes = 0

    def answer(self, data: bytes, now_s: int) -> bytes:
        """Return the answer to a datagram.

        Raises:
            ProtocolError: it gets none; the text says why.
        """
        request = open_request(self._signer, data, now_s)
        key = (request.type, bytes(request.query))
        message = self._kept.get(key)
        if message is None:
            message = self._keep(key)
        packet = seal(self._signer, request.rsalt, message)
        if len(packet) <= DATAGRAM_BYTES_MAX:
            return packet
        packet = seal(self._signer, request.rsalt, _too_large(len(packet)))
        if len(packet) > DATAGRAM_BYTES_MAX:
            raise ProtocolError(f"the salt for its answer has {len(request.rsalt)} characters")
        return packet

    def _keep(self, key: tuple[int, bytes]) -> Sealable:
        message = sealable(self._find(*key))
        if len(message.middle) > DATAGRAM_BYTES_MAX:
            message = _too_large(len(message.middle))
        size_bytes = len(key[1]) + sum(map(len, message)) + _KEPT_OVERHEAD_BYTES
        if len(self._kept) >= KEPT_MAX or self._kept_bytes + size_bytes > KEPT_BYTES_MAX:
            self._kept.clear()
            self._kept_bytes = 0
        self._kept[key] = message
        self._kept_bytes += size_bytes
        return message

    def _find(self, number: int, raw: bytes) -> bytes:
        """Return the message that answers a question."""
        try:
            handler = HANDLERS[QueryType(number)]
        except ValueError as err:
            raise ProtocolError(f"there is no query type {number}") from err
        question = decode_question(raw)
        try:
            found = handler(self.config, question)
        except Refused as err:
            return reply_message(Status.ERROR, b"%d" % err.kind, 0)
        return reply_message(Status.OK, found.value, found.serial)


def _too_large(size_bytes: int) -> Sealable:
    """Return the message that says that an answer cannot be sent."""
    reason = (
        f"the answer has {size_bytes} bytes, {DATAGRAM_BYTES_MAX} fit into a datagram;"
        " ask for a part of it"
    )
    return sealable(reply_message(Status.ERROR, dumps(reason), 0))

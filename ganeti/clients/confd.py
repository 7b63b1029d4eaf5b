"""Clients of RConfD: ask several master candidates at once, take the newest answer.

`ConfdClient` waits for each answer; `AsyncConfdClient` does so for programs with an event loop, and
calls back for programs with many questions.  Works while the master is away: the candidates stand
in the simple configuration of every node.

Source: confd.json, "client_rules"; design 2.1, "Ganeti Confd".
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import Final, Self

from ganeti.base.errors import ConfigurationError, TransportError
from ganeti.base.paths import Paths
from ganeti.protocol import confd as wire
from ganeti.protocol.confd import Answer, Asked
from ganeti.protocol.confd_queries import QueryType
from ganeti.store import ssconf
from ganeti.system import clock, files

RESEND_S: Final = 1.0  # a datagram may get lost; asked again, a daemon just answers again
SETTLE_S: Final = 0.1  # how long after the first answer others may still bring a newer one
LIST_S: Final = 60.0  # for all pages of a list; those of 20,000 instances take a tenth of a second
_ROUND_MAX: Final = 64  # datagrams taken before others get their turn


def read_key(paths: Paths) -> bytes:
    """Return the key that questions are signed with.

    Raises:
        ConfigurationError: this node has none, or it is not for us to read.
    """
    try:
        return files.read_bytes(paths.hmac_key)
    except OSError as err:
        raise ConfigurationError(
            f"cannot read {paths.hmac_key}: {err.strerror}; questions to RConfD are signed with it"
        ) from err


def candidate_addresses(paths: Paths) -> list[str]:
    """Return the addresses of the master candidates that are not known to be away.

    Raises:
        ConfigurationError: this node belongs to no cluster.
    """
    offline = ssconf.offline_nodes(paths)
    candidates = ssconf.master_candidates(paths)
    return [node.ip for node in candidates if node.name not in offline]


def choose(addresses: Sequence[str], count: int) -> list[str]:
    """Return so many of the addresses, by chance, in the form in which answers show them."""
    usual = dict.fromkeys(map(_usual_form, addresses))
    keyed = sorted((clock.random_bytes(4), address) for address in usual)
    return [address for _key, address in keyed[:count]]


def _usual_form(address: str) -> str:
    if ":" not in address:
        return address
    try:
        return socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, address))
    except OSError:
        return address


class _Sockets:
    """One socket for each address family that is used, none of them ever waits."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._by_family: dict[int, socket.socket] = {}

    def send(self, packet: bytes, address: str) -> None:
        """Send a datagram; one that cannot be sent is one that got lost."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = self._by_family.get(family)
        if sock is None:
            sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            self._by_family[family] = sock
        with contextlib.suppress(OSError):
            sock.sendto(packet, (address, self._port))

    def all(self) -> list[socket.socket]:
        """Return the sockets that there are by now."""
        return list(self._by_family.values())

    def close(self) -> None:
        """Close them."""
        for sock in self._by_family.values():
            sock.close()
        self._by_family.clear()


def _receive(sock: socket.socket, exchange: wire.Exchange) -> None:
    """Take the datagrams that have arrived, up to a limit."""
    for _ in range(_ROUND_MAX):
        try:
            data, peer = sock.recvfrom(wire.DATAGRAM_BYTES_MAX + 1)
        except OSError:  # nothing more, or the echo of a datagram that got lost
            return
        exchange.receive(data, peer[0].partition("%")[0])


@dataclass(eq=False)
class _Asker:
    """The common part of both clients.

    Args:
        addresses: of the candidates; up to six of them, by chance, are asked each question.
        timeout_s: how long to wait for the first answer.
        settle_s: how long to wait for the others after that.
        list_s: how long the pages of one list may take together.
    """

    key: InitVar[bytes]
    addresses: Sequence[str]
    _: KW_ONLY
    port: int = wire.DEFAULT_PORT
    timeout_s: float = wire.EXPIRE_S
    settle_s: float = SETTLE_S
    list_s: float = LIST_S

    def __post_init__(self, key: bytes) -> None:
        self._exchange = wire.Exchange(wire.Signer(key))
        self._sockets = _Sockets(self.port)

    @classmethod
    def of_node(cls, paths: Paths, *, timeout_s: float = wire.EXPIRE_S) -> Self:
        """Return a client for the cluster that a node belongs to.

        Raises:
            ConfigurationError: it belongs to none, or the key cannot be read.
        """
        return cls(read_key(paths), candidate_addresses(paths), timeout_s=timeout_s)

    def _begin(
        self, query_type: QueryType, query: object, on_event: wire.Callback, deadline_s: float
    ) -> Asked:
        return self._exchange.ask(
            query_type,
            query,
            choose(self.addresses, wire.CANDIDATES_ASKED),
            on_event,
            salt=clock.new_uuid(),
            unix_time_s=int(clock.now()),
            deadline_s=deadline_s,
        )

    def _best(self, asked: Asked) -> Answer:
        """Return the newest answer.

        Raises:
            TransportError: nobody answered.
        """
        if asked.best is None:
            peers = ", ".join(sorted(asked.peers))
            raise TransportError(
                f"no RConfD answered within {self.timeout_s:g} s (asked: {peers});"
                " do they run, are the clocks right, and is the key the same?"
            )
        return asked.best


class ConfdClient(_Asker):
    """Asks and waits."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets."""
        self._sockets.close()

    def ask(self, query_type: QueryType, query: object = None) -> Answer:
        """Return the newest of the answers that came in time; it may be a refusal.

        Raises:
            TransportError: nobody answered.
        """
        return self.ask_all(query_type, query)[0]

    def ask_all(self, query_type: QueryType, query: object = None) -> list[Answer]:
        """Return all answers that came in time, the newest first; errors as of `ask`."""
        return self._ask(query_type, query, clock.monotonic() + self.timeout_s)

    def read_list(self, query_type: QueryType, key: str = "") -> Answer:
        """Return the answer of all pages of a list as one; its value is the list of all entries.

        Raises:
            TransportError: nobody answered.
            ConfdClientError: the question was refused, or the configuration changed all the time.
        """
        pages = wire.Pages(query_type, key)
        until_s = clock.monotonic() + self.list_s
        while (now_s := clock.monotonic()) < until_s:
            deadline_s = min(until_s, now_s + self.timeout_s)
            answers = self._ask(query_type, pages.query, deadline_s, pages.serial)
            if whole := pages.take(answers[0]):
                return whole
        raise pages.too_slow()

    def _ask(
        self,
        query_type: QueryType,
        query: object,
        deadline_s: float,
        wanted_serial: int | None = None,
    ) -> list[Answer]:
        """Return the answers that came until one has the wanted serial number, or in time."""
        answers: list[Answer] = []

        def on_event(event: wire.Event) -> None:
            if event.kind is wire.EventKind.ANSWER and event.answer is not None:
                answers.append(event.answer)

        asked = self._begin(query_type, query, on_event, deadline_s)
        try:
            self._wait(asked, deadline_s, wanted_serial)
        finally:
            self._exchange.forget(asked)
        best = self._best(asked)
        return [best, *(answer for answer in answers if answer is not best)]

    def value(self, query_type: QueryType, query: object = None) -> object:
        """Return the value of the newest answer.

        Raises:
            TransportError: nobody answered.
            ConfdClientError: the question was refused.
        """
        return self.ask(query_type, query).check()

    def _wait(self, asked: Asked, deadline_s: float, wanted_serial: int | None) -> None:
        """Send, and receive until all have answered, the wanted answer is there, or it is time."""
        resend_s = 0.0
        while asked.waiting and not asked.has(wanted_serial):
            now_s = clock.monotonic()
            if asked.best is None and now_s >= resend_s:
                for peer in asked.waiting:
                    self._sockets.send(asked.packet, peer)
                resend_s = now_s + RESEND_S
            if now_s >= deadline_s:
                return
            had_none = asked.best is None
            until_s = min(deadline_s, resend_s) if had_none else deadline_s
            self._receive_until(until_s)
            if had_none and asked.best is not None:
                deadline_s = min(deadline_s, clock.monotonic() + self.settle_s)

    def _receive_until(self, until_s: float) -> None:
        poller = select.poll()
        by_descriptor = {sock.fileno(): sock for sock in self._sockets.all()}
        for descriptor in by_descriptor:
            poller.register(descriptor, select.POLLIN)
        wait_ms = max(0.0, (until_s - clock.monotonic()) * 1000)
        for descriptor, _event in poller.poll(wait_ms):
            _receive(by_descriptor[descriptor], self._exchange)


class AsyncConfdClient(_Asker):
    """Asks from an event loop; must be made and used in it."""

    def __post_init__(self, key: bytes) -> None:
        super().__post_init__(key)
        self._loop = asyncio.get_running_loop()
        self._watched: set[socket.socket] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def close(self) -> None:
        """Stop listening; questions that wait get no more events."""
        self._is_closed = True
        for sock in self._watched:
            self._loop.remove_reader(sock)
        self._watched.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._sockets.close()

    def send(self, query_type: QueryType, query: object, callback: wire.Callback) -> Asked:
        """Ask; every answer and the end of the question are told to the callback.

        See `ganeti.protocol.confd` for filters to put around it.

        Raises:
            ConfdClientError: there is nobody to ask, or too many questions wait.
        """
        return self._send(query_type, query, callback, self._loop.time() + self.timeout_s)

    def _send(
        self, query_type: QueryType, query: object, callback: wire.Callback, deadline_s: float
    ) -> Asked:
        asked = self._begin(query_type, query, callback, deadline_s)
        self._transmit(asked)
        self._set_timer()
        return asked

    async def ask(self, query_type: QueryType, query: object = None) -> Answer:
        """Return the newest of the answers that came in time; it may be a refusal.

        Raises:
            TransportError: nobody answered.
        """
        return await self._ask(query_type, query, self._loop.time() + self.timeout_s)

    async def read_list(self, query_type: QueryType, key: str = "") -> Answer:
        """Return the answer of all pages of a list as one; as `ConfdClient.read_list` does."""
        pages = wire.Pages(query_type, key)
        until_s = self._loop.time() + self.list_s
        while (now_s := self._loop.time()) < until_s:
            deadline_s = min(until_s, now_s + self.timeout_s)
            answer = await self._ask(query_type, pages.query, deadline_s, pages.serial)
            if whole := pages.take(answer):
                return whole
        raise pages.too_slow()

    async def _ask(
        self,
        query_type: QueryType,
        query: object,
        deadline_s: float,
        wanted_serial: int | None = None,
    ) -> Answer:
        is_over = asyncio.Event()
        timer: asyncio.TimerHandle | None = None

        def on_event(event: wire.Event) -> None:
            nonlocal timer
            if event.kind is wire.EventKind.ENDED or event.asked.has(wanted_serial):
                is_over.set()
            elif timer is None:
                timer = self._loop.call_later(self.settle_s, is_over.set)

        asked = self._send(query_type, query, on_event, deadline_s)
        try:
            await is_over.wait()
        finally:
            self._exchange.forget(asked)
            if timer is not None:
                timer.cancel()
        return self._best(asked)

    def _transmit(self, asked: Asked) -> None:
        """Send to the peers that have not answered, and again while none has."""
        is_over = asked.best is not None or self._loop.time() >= asked.deadline_s
        if is_over or self._is_closed:
            return
        for peer in asked.waiting:
            self._sockets.send(asked.packet, peer)
        for sock in self._sockets.all():
            if sock not in self._watched:
                self._watched.add(sock)
                self._loop.add_reader(sock, _receive, sock, self._exchange)
        self._loop.call_later(RESEND_S, self._transmit, asked)

    def _set_timer(self) -> None:
        deadline_s = self._exchange.next_deadline_s
        if self._timer is None and deadline_s is not None:
            self._timer = self._loop.call_at(deadline_s, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._exchange.expire(self._loop.time())
        self._set_timer()

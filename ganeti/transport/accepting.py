"""Takes clients from a listening socket, no more than there is room for.

Theory of operation.  A `Listener` leaves clients in the kernel's queue while the file descriptors
that are left are for the server's own work; it says so once and looks again.  A `Reception` is for
TLS, where a client costs a hundred times as much from its handshake on: it is NEW until its first
byte comes, then QUEUED for one of the handshakes at a time, of which no client address has more
than half.  A handshake may be slow for as long as nobody else waits for its turn; where many wait,
the last one comes first: those before it are likely to have given up, or to mean no good.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import resource
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol, TypeVar

from ganeti.system import clock

logger = logging.getLogger(__name__)

_OWN_DESCRIPTORS_MAX: Final = 256  # of a quarter of all
_AT_ONCE_MAX: Final = 64  # clients in a row, before others get their turn
_RETRY_S: Final = 0.25
_CALM_S: Final = 60.0  # a shortage after so long is told as another one
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_GONE: Final = frozenset({errno.EAGAIN, errno.EINTR, errno.ECONNABORTED})


class Listener:
    """A listening socket.

    Args:
        take: gets each client.
        make_room: may drop some others when there are no descriptors for more.
    """

    def __init__(
        self,
        sock: socket.socket,
        name: str,
        take: Callable[[socket.socket], None],
        make_room: Callable[[], object] = lambda: None,
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._name = name
        self._take = take
        self._make_room = make_room
        self._retry: asyncio.TimerHandle | None = None
        self._short_s = float("-inf")
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._limit = limit
        self._for_clients = limit - min(limit // 4, _OWN_DESCRIPTORS_MAX)
        self._listen()

    def close(self) -> None:
        """Take no more clients."""
        if self._retry is not None:
            self._retry.cancel()
        asyncio.get_running_loop().remove_reader(self._sock)
        self._sock.close()

    def _listen(self) -> None:
        self._retry = None
        asyncio.get_running_loop().add_reader(self._sock, self._on_clients)

    def _on_clients(self) -> None:
        try:
            for _ in range(_AT_ONCE_MAX):
                self._leave_some_descriptors()
                client, _address = self._sock.accept()
                self._take(client)
        except OSError as err:
            if err.errno in _SHORTAGES:
                self._pause(err)
            elif err.errno not in _GONE:
                raise

    def _leave_some_descriptors(self) -> None:
        """Raise as if there were none, once the lowest that is free is not for clients."""
        probe = os.dup(self._sock.fileno())
        os.close(probe)
        if probe >= self._for_clients:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def _pause(self, error: OSError) -> None:
        """Leave clients where they are for a while."""
        now_s = clock.monotonic()
        if now_s - self._short_s > _CALM_S:
            logger.warning(
                "No more clients can be served %s for now: %s; %d of %d descriptors are for them."
                " New ones wait until others leave",
                self._name,
                error.strerror,
                self._for_clients,
                self._limit,
            )
        self._short_s = now_s
        self._make_room()
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._sock)
        self._retry = loop.call_later(_RETRY_S, self._listen)


class Waiting(Protocol):
    """A client that is waited for, and could be dropped to make room for others."""

    @property
    def origin(self) -> str:
        """Where it comes from, as of `origin_of`."""

    @property
    def since(self) -> float:
        """When it began to wait."""


WaitingT = TypeVar("WaitingT", bound=Waiting)


def in_the_way(waiting: Iterable[WaitingT]) -> list[WaitingT]:
    """Choose the connections to drop: a part of the most frequent origin's, longest waiting first.

    So a client that opens a thousand connections loses its own.
    """
    found = list(waiting)
    if not found:
        return []
    [(origin, count)] = Counter(each.origin for each in found).most_common(1)
    of_it = sorted((each for each in found if each.origin == origin), key=lambda each: each.since)
    return of_it[: max(1, count // 16)]


_IPV6_PREFIX: Final = 64  # one customer has so many addresses, and can take any of them


def origin_of(address: str) -> str:
    """Return the network of an address: all clients in it count as one."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip
    if ip.version == 6:
        return str(ipaddress.ip_network((ip, _IPV6_PREFIX), strict=False))
    return str(ip)


class Newcomer:
    """A client on its way through the reception."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.since = clock.monotonic()
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        try:
            self.address = str(sock.getpeername()[0])
        except OSError:  # gone already
            self.address = "?"
        self.origin = origin_of(self.address)


Shake = Callable[[Newcomer], Awaitable[object]]


class Reception:
    """The clients whose handshake has not ended.

    Args:
        shake: does the handshake; the client is served from then on.
        new_s_max: how long a client may say nothing.
        turn_s: how long a handshake may take while others wait for theirs.
        at_once_max: handshakes at the same time.
    """

    def __init__(self, shake: Shake, *, new_s_max: float, turn_s: float, at_once_max: int) -> None:
        self._shake = shake
        self._new_s_max = new_s_max
        self._turn_s = turn_s
        self._at_once_max = at_once_max
        self._new: dict[Newcomer, asyncio.TimerHandle] = {}
        self._queued: dict[Newcomer, None] = {}
        self._shaking: dict[Newcomer, None] = {}
        self._origins: Counter[str] = Counter()  # of handshakes
        self._turn_over: asyncio.TimerHandle | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._new) + len(self._queued) + len(self._shaking)

    def take(self, newcomer: Newcomer) -> None:
        """Take a client."""
        sock = newcomer.sock
        loop = asyncio.get_running_loop()
        self._new[newcomer] = loop.call_later(self._new_s_max, self.drop, newcomer)
        loop.add_reader(sock, self._on_first_byte, newcomer)

    def waiting(self) -> list[Newcomer]:
        """Return all of them."""
        return [*self._new, *self._queued, *self._shaking]

    def drop(self, newcomer: Newcomer) -> None:
        """Close the connection of a client."""
        logger.debug("Dropping client %s: its handshake did not come about", newcomer.address)
        if newcomer.task is not None:
            newcomer.task.cancel()  # closes it
            return
        self._leave_new(newcomer)
        self._queued.pop(newcomer, None)
        newcomer.sock.close()

    def close(self) -> None:
        """Drop all."""
        self._is_closed = True
        for newcomer in self.waiting():
            self.drop(newcomer)
        if self._turn_over is not None:
            self._turn_over.cancel()

    def _leave_new(self, newcomer: Newcomer) -> None:
        timer = self._new.pop(newcomer, None)
        if timer is not None:
            timer.cancel()
            asyncio.get_running_loop().remove_reader(newcomer.sock)

    def _on_first_byte(self, newcomer: Newcomer) -> None:
        self._leave_new(newcomer)
        newcomer.since = clock.monotonic()
        self._queued[newcomer] = None
        self._go_on()

    def _go_on(self) -> None:
        """Begin the handshakes that there is room for."""
        if len(self._shaking) < self._at_once_max:
            for newcomer in reversed(list(self._queued)):
                if self._origins[newcomer.origin] < max(1, self._at_once_max // 2):
                    self._begin(newcomer)
                    if len(self._shaking) >= self._at_once_max:
                        break
        if self._queued and self._turn_over is None:
            oldest_s = next(iter(self._shaking)).since
            due_s = max(0.0, oldest_s + self._turn_s - clock.monotonic())
            self._turn_over = asyncio.get_running_loop().call_later(due_s, self._end_turns)

    def _end_turns(self) -> None:
        """Drop whose turn is over, as others wait for theirs."""
        self._turn_over = None
        if not self._queued:
            return
        begun_before_s = clock.monotonic() - self._turn_s
        for newcomer in list(self._shaking):
            if newcomer.since <= begun_before_s:
                self.drop(newcomer)
        self._go_on()

    def _begin(self, newcomer: Newcomer) -> None:
        del self._queued[newcomer]
        self._shaking[newcomer] = None
        self._origins[newcomer.origin] += 1
        newcomer.since = clock.monotonic()
        newcomer.task = asyncio.create_task(self._do(newcomer), name="handshake")
        newcomer.task.add_done_callback(lambda _task: self._on_done(newcomer))

    async def _do(self, newcomer: Newcomer) -> None:
        newcomer.has_begun = True
        try:
            await self._shake(newcomer)
        except OSError as err:  # errors of TLS are of this class too
            logger.debug("No handshake with client %s: %s", newcomer.address, err)
        except Exception:
            logger.exception("Internal error in the handshake with client %s", newcomer.address)

    def _on_done(self, newcomer: Newcomer) -> None:
        if not newcomer.has_begun:
            newcomer.sock.close()
        del self._shaking[newcomer]
        self._origins[newcomer.origin] -= 1
        if not self._origins[newcomer.origin]:
            del self._origins[newcomer.origin]
        if self._queued and not self._is_closed:
            self._go_on()

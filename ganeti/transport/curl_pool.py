"""Many HTTP requests at once over connections that stay open.  The one module that knows pycurl.

A pool is one multi handle: it keeps connections of earlier requests open and takes them again.
Each request has its own time limit, so a call on many nodes ends at the latest of them, however
many are dead.  Where many connections have to be made, they are begun at a pace that this process
can keep (`ganeti.base.pace`); the time of a request counts from its beginning.  `CurlPool`
blocks; `AsyncCurlPool` lives in an event loop, without threads or polling.

Source: node_rpc.json, "transport" and "tls"; libcurl-multi(3).
"""

from __future__ import annotations

import math
import os
import select
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Self

import msgspec
import pycurl

from ganeti.base.errors import X509CertError
from ganeti.base.pace import Pace
from ganeti.base.paths import Paths
from ganeti.system import clock
from ganeti.transport.clocks import clock_words

CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 256 << 20
# A machine that lost its power, and boots again, never says that it has forgotten a connection:
# it has to be asked.  One that does not come back is given up after a minute, as is one that does
# not acknowledge what it was sent; shorter interruptions of the network are waited for.
_ASKED_AFTER_S: Final = 20
_ASKED_EVERY_S: Final = 10
_LOST_AFTER_S: Final = 60
_CIPHERS: Final = "HIGH:-DES:-3DES:-EXPORT:-DH"
_CONNECTIONS_KEPT_MAX: Final = 512  # one per node of a large cluster
_CONNECTION_AGE_S_MAX: Final = 540  # less than our servers keep an idle one
_EASY_KEPT_MAX: Final = 64
_CUT_OFF_CODES: Final = frozenset({pycurl.E_GOT_NOTHING, pycurl.E_SEND_ERROR, pycurl.E_RECV_ERROR})
_CUT_OFF: Final = "closed the connection without an answer"
_PERHAPS_DONE: Final = "it may have carried out the call"


# Structs, not dataclasses: every job process pays for making these classes.


_NOT_YET_VALID: Final = "certificate is not yet valid"


class TlsIdentity(msgspec.Struct, frozen=True):
    """PEM files: our key and certificate, and the authority for the certificates of others."""

    certificate_path: str
    authority_path: str

    @classmethod
    def of_node(cls, paths: Paths) -> Self:
        """Return the files with which a node calls others: its own certificate, or the cluster's.

        Raises:
            X509CertError: neither exists, or there is no authority to check the others with.
        """
        found = [path for path in (paths.client_pem, paths.server_pem) if os.path.exists(path)]
        if paths.server_pem not in found:
            hint = "" if found else "; is this node part of a cluster?"
            raise X509CertError(paths.server_pem, f"this file does not exist{hint}")
        return cls(found[0], paths.server_pem)


class TlsTrust(msgspec.Struct, frozen=True):
    """The servers that a client without a certificate of its own trusts.

    Attributes:
        authority_path: PEM file with the certificates to believe; "" for those of the system.
        checks_certificate: False believes anybody.
        checks_name: whether the certificate must be for the host asked.
    """

    authority_path: str = ""
    checks_certificate: bool = True
    checks_name: bool = True


class CurlRequest(msgspec.Struct, frozen=True):
    """One request, a POST by default; ``timeout_s`` counts from its start, connecting included.

    libcurl sends a request again by itself when a connection that it kept ends without an answer;
    one that is not ``repeatable`` fails then instead, as the peer may have begun to act.
    """

    url: str
    body: bytes
    timeout_s: float
    headers: tuple[str, ...] = ()
    repeatable: bool = True
    method: str = "POST"


class CurlResponse(msgspec.Struct, frozen=True):
    """The result of a request: an answer, or an error for people.

    Attributes:
        date: what the clock of the peer says, as it says it.
    """

    status: int = 0
    body: bytes = b""
    error: str | None = None
    date: str = ""


class Transfer:
    """One request under way, on a handle that is used again afterwards."""

    def __init__(self, easy: pycurl.Curl) -> None:
        self.easy = easy
        self.request: CurlRequest | None = None
        self.on_done: Callable[[CurlResponse], None] | None = None
        self.response: CurlResponse | None = None
        self._body = bytearray()
        self._date = ""
        self._sent_count = 0
        easy.setopt(pycurl.HEADERFUNCTION, self._take_header)

    def begin(self, request: CurlRequest) -> None:
        """Prepare the handle for a request."""
        self.request = request
        self.response = None
        self.on_done = None
        self._body = bytearray()
        self._date = ""
        self._sent_count = 0
        easy = self.easy
        easy.setopt(pycurl.URL, request.url)
        easy.setopt(pycurl.PREREQFUNCTION, self._may_send)
        easy.setopt(pycurl.CUSTOMREQUEST, request.method)
        easy.setopt(pycurl.POSTFIELDS, request.body)
        # Without the empty Expect, curl waits for a "100 Continue" before it sends large bodies.
        headers = ["Content-type: application/json", "Expect:", *request.headers]
        easy.setopt(pycurl.HTTPHEADER, headers)
        easy.setopt(pycurl.TIMEOUT_MS, max(1, int(request.timeout_s * 1000)))
        easy.setopt(pycurl.WRITEFUNCTION, self._write)

    def _may_send(self, *_addresses: object) -> int:
        """Called by libcurl each time when it is about to send the request."""
        assert self.request is not None
        self._sent_count += 1
        is_refused = self._sent_count > 1 and not self.request.repeatable
        return int(pycurl.PREREQFUNC_ABORT if is_refused else pycurl.PREREQFUNC_OK)

    def _take_header(self, line: bytes) -> None:
        if line[:5].lower() == b"date:":
            self._date = line[5:].decode("latin-1").strip()

    def _write(self, data: bytes) -> int:
        if len(self._body) + len(data) > ANSWER_BYTES_MAX:
            return 0  # makes curl give up
        self._body += data
        return len(data)

    def succeed(self) -> None:
        """Take the answer."""
        status = self.easy.getinfo(pycurl.RESPONSE_CODE)
        self._finish(CurlResponse(status, bytes(self._body), date=self._date))

    def fail(self, code: int, text: str) -> None:
        """Take libcurl's error."""
        self._finish(CurlResponse(error=self._describe(code, text)))

    def _finish(self, response: CurlResponse) -> None:
        self.response = response
        self._body = bytearray()
        self.easy.setopt(pycurl.POSTFIELDS, b"")  # lets go of the request's body
        if self.on_done is not None:
            self.on_done(response)

    def _describe(self, code: int, text: str) -> str:
        assert self.request is not None
        if self._was_cut_off(code):
            return _CUT_OFF if self.request.repeatable else f"{_CUT_OFF}; {_PERHAPS_DONE}"
        if code == pycurl.E_COULDNT_CONNECT:
            number = self.easy.getinfo(pycurl.OS_ERRNO)
            return os.strerror(number).lower() if number else f"cannot connect: {text}"
        if code == pycurl.E_OPERATION_TIMEDOUT:
            if self.easy.getinfo(pycurl.REQUEST_SIZE) == 0:
                seconds = min(CONNECT_TIMEOUT_S, self.request.timeout_s)
                return f"no connection within {seconds:g} s"
            return f"no answer within {self.request.timeout_s:g} s"
        if code == pycurl.E_WRITE_ERROR:
            return f"the answer is larger than {ANSWER_BYTES_MAX} bytes"
        if code == pycurl.E_PEER_FAILED_VERIFICATION:
            if _NOT_YET_VALID in text:
                return text
            return f"its certificate is not one of this cluster: {text}"
        return text or f"transfer failed (libcurl error {code})"

    def _was_cut_off(self, code: int) -> bool:
        """Tell whether the request was sent, and the connection ended without an answer.

        libcurl tells the outcome of its own second attempt: we refused it, or so did the peer.
        """
        return code in _CUT_OFF_CODES or (
            self._sent_count > 0
            and code in (pycurl.E_ABORTED_BY_CALLBACK, pycurl.E_COULDNT_CONNECT)
        )


def _limit_silence(descriptor: int, _purpose: int) -> int:
    """Called by libcurl for each new socket: let the kernel give a peer up that is silent."""
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _LOST_AFTER_S * 1000)
    return int(pycurl.SOCKOPT_OK)


def _trust(easy: pycurl.Curl, trust: TlsTrust) -> None:
    if trust.authority_path:
        easy.setopt(pycurl.CAINFO, trust.authority_path)
    easy.setopt(pycurl.SSL_VERIFYPEER, int(trust.checks_certificate))
    is_checked = trust.checks_certificate and trust.checks_name
    easy.setopt(pycurl.SSL_VERIFYHOST, 2 if is_checked else 0)


def _place(request: CurlRequest) -> str:
    """Return scheme, host and port of a request: requests with the same share connections."""
    return "/".join(request.url.split("/", 3)[:3])


class Pool(ABC):
    """The base of both pools: the handles, and the transfers under way."""

    def __init__(self, identity: TlsIdentity | TlsTrust | None) -> None:
        self._identity = identity
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, _CONNECTIONS_KEPT_MAX)
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._pace = Pace()
        self._queue: deque[Transfer] = deque()  # of those that have not begun
        self._connected: dict[str, None] = {}  # places that have answered, the last one last
        self._free: list[Transfer] = []
        self._active: dict[pycurl.Curl, Transfer] = {}
        self._is_retired = False

    def close(self) -> None:
        """Close all connections; open requests fail."""
        for transfer in list(self._active.values()):
            transfer.fail(pycurl.E_ABORTED_BY_CALLBACK, "the connection was closed")
            self._remove(transfer)
        for transfer in self._free:
            transfer.easy.close()
        self._free.clear()
        self._multi.close()

    def retire(self) -> None:
        """Close the pool once nothing is under way."""
        self._is_retired = True
        if not self._active:
            self.close()

    def _add(self, request: CurlRequest) -> Transfer:
        transfer = self._free.pop() if self._free else Transfer(self._new_easy())
        transfer.begin(request)
        self._active[transfer.easy] = transfer
        if _place(request) in self._connected:
            self._multi.add_handle(transfer.easy)
        else:
            self._queue.append(transfer)
            self._begin_more()
        return transfer

    def _begin_more(self) -> None:
        """Begin the next requests, as far as the pace allows."""
        now_s = clock.monotonic()
        while self._queue:
            if not self._pace.try_begin(self._queue[0], now_s):
                self._begin_more_at(self._pace.free_at_s())
                return
            self._multi.add_handle(self._queue.popleft().easy)

    def _remove(self, transfer: Transfer) -> None:
        if transfer in self._queue:
            self._queue.remove(transfer)
        else:
            self._multi.remove_handle(transfer.easy)
        self._pace.end(transfer)
        del self._active[transfer.easy]
        if len(self._free) < _EASY_KEPT_MAX:
            self._free.append(transfer)
        else:
            transfer.easy.close()

    def _collect(self) -> None:
        left = 1
        while left:
            left, succeeded, failed = self._multi.info_read()
            for easy in succeeded:
                self._note_connected(self._active[easy])
                self._active[easy].succeed()
                self._remove(self._active[easy])
            for easy, code, text in failed:
                self._active[easy].fail(code, self._explained(text))
                self._remove(self._active[easy])
        self._begin_more()
        if self._is_retired and not self._active:
            self.close()

    def _note_connected(self, transfer: Transfer) -> None:
        """Note a place that needs no handshake the next time, as long as there are not too many."""
        assert transfer.request is not None
        place = _place(transfer.request)
        self._connected.pop(place, None)
        self._connected[place] = None
        if len(self._connected) > _CONNECTIONS_KEPT_MAX:
            del self._connected[next(iter(self._connected))]

    def _explained(self, text: str) -> str:
        """Add what there is to know of the clocks where they may be the reason."""
        if _NOT_YET_VALID in text and isinstance(self._identity, TlsIdentity):
            from ganeti.transport.tls import validity_of  # ssl: not for each command

            validity, now = validity_of(self._identity.authority_path), clock.now()
            if validity is not None and validity[0] > now:
                return f"{text}: {clock_words(validity[0], now)}"
        return text

    def _new_easy(self) -> pycurl.Curl:
        easy = pycurl.Curl()
        easy.setopt(pycurl.NOSIGNAL, 1)
        easy.setopt(pycurl.NOPROXY, "*")
        easy.setopt(pycurl.POST, 1)
        easy.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        easy.setopt(pycurl.CONNECTTIMEOUT_MS, int(CONNECT_TIMEOUT_S * 1000))
        easy.setopt(pycurl.MAXAGE_CONN, _CONNECTION_AGE_S_MAX)
        easy.setopt(pycurl.FOLLOWLOCATION, 0)
        easy.setopt(pycurl.TCP_KEEPALIVE, 1)
        easy.setopt(pycurl.TCP_KEEPIDLE, _ASKED_AFTER_S)
        easy.setopt(pycurl.TCP_KEEPINTVL, _ASKED_EVERY_S)
        easy.setopt(pycurl.SOCKOPTFUNCTION, _limit_silence)
        if isinstance(self._identity, TlsTrust):
            _trust(easy, self._identity)
        elif self._identity is not None:
            easy.setopt(pycurl.SSLCERTTYPE, "PEM")
            easy.setopt(pycurl.SSLCERT, self._identity.certificate_path)
            easy.setopt(pycurl.SSLKEY, self._identity.certificate_path)
            easy.setopt(pycurl.CAINFO, self._identity.authority_path)
            easy.setopt(pycurl.SSL_CIPHER_LIST, _CIPHERS)
            easy.setopt(pycurl.SSL_VERIFYPEER, 1)
            easy.setopt(pycurl.SSL_VERIFYHOST, 0)  # the certificate names the cluster, not hosts
        return easy

    def _act(self, descriptor: int, *, reads: bool, writes: bool, fails: bool = False) -> None:
        """Let libcurl use a socket that is ready, and take the transfers finished by that."""
        mask = (reads and pycurl.CSELECT_IN) | (writes and pycurl.CSELECT_OUT)
        self._multi.socket_action(descriptor, mask | (fails and pycurl.CSELECT_ERR))
        self._collect()

    def _act_on_timer(self) -> None:
        """Let libcurl do the work that is due, and take the transfers finished by that."""
        self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        self._collect()

    def _on_socket(self, what: int, descriptor: int, _multi: object, _data: object) -> None:
        if what == pycurl.POLL_REMOVE:
            self._unwatch(descriptor)
        else:
            reads = what in (pycurl.POLL_IN, pycurl.POLL_INOUT)
            writes = what in (pycurl.POLL_OUT, pycurl.POLL_INOUT)
            self._watch(descriptor, reads=reads, writes=writes)

    @abstractmethod
    def _watch(self, descriptor: int, *, reads: bool, writes: bool) -> None:
        """Call `_act` when the socket can be read or written; replaces an earlier wish."""

    @abstractmethod
    def _unwatch(self, descriptor: int) -> None:
        """Forget the socket."""

    @abstractmethod
    def _on_timer(self, timeout_ms: int) -> None:
        """Call `_act_on_timer` after so long; -1: not at all."""

    @abstractmethod
    def _begin_more_at(self, when_s: float) -> None:
        """Call `_begin_more` at that time of the monotonic clock; replaces an earlier wish."""


class CurlPool(Pool):
    """Performs batches of requests, blocking until all are answered or have failed."""

    def __init__(self, identity: TlsIdentity | TlsTrust | None) -> None:
        self._poller = select.poll()
        self._due: float | None = None  # on the monotonic clock
        self._more_due: float | None = None
        super().__init__(identity)

    def perform(self, requests: Sequence[CurlRequest]) -> list[CurlResponse]:
        """Make all requests at once; responses come in their order."""
        transfers = [self._add(request) for request in requests]
        try:
            self._act_on_timer()
            while self._active:
                self._wait()
        finally:  # an exception from a signal handler leaves transfers under way
            for transfer in list(self._active.values()):
                self._remove(transfer)
        return [transfer.response or CurlResponse(error="not finished") for transfer in transfers]

    def _wait(self) -> None:
        left_ms = None
        due = min((each for each in (self._due, self._more_due) if each is not None), default=None)
        if due is not None:
            left_ms = max(0, math.ceil((due - clock.monotonic()) * 1000))
        for descriptor, event in self._poller.poll(left_ms):
            self._act(
                descriptor,
                reads=bool(event & (select.POLLIN | select.POLLHUP)),
                writes=bool(event & select.POLLOUT),
                fails=bool(event & (select.POLLERR | select.POLLNVAL)),
            )
        # Sockets that are always ready must not keep a deadline from passing.
        if self._due is not None and clock.monotonic() >= self._due:
            self._due = None  # a timer counts once, libcurl sets the next
            self._act_on_timer()
        if self._more_due is not None and clock.monotonic() >= self._more_due:
            self._more_due = None
            self._begin_more()

    def _watch(self, descriptor: int, *, reads: bool, writes: bool) -> None:
        events = (reads and select.POLLIN) | (writes and select.POLLOUT)
        self._poller.register(descriptor, events)

    def _unwatch(self, descriptor: int) -> None:
        self._poller.unregister(descriptor)

    def _on_timer(self, timeout_ms: int) -> None:
        self._due = None if timeout_ms < 0 else clock.monotonic() + timeout_ms / 1000

    def _begin_more_at(self, when_s: float) -> None:
        self._more_due = when_s

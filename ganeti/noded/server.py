"""Answers the requests of a node daemon: finds the call, and the place where it runs.

Quick reads and file writes run in a thread of the daemon, so that no call waits for another one's
fsync; everything else goes to a child (see `children`).  How much runs at once is bounded, for
quick, normal and slow calls apart: twenty installations under way must not keep the master from
asking for this node's version.

Source: node_rpc.json, "transport".
"""

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from msgspec import structs

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.daemon import log
from ganeti.node_ops import dispatch
from ganeti.node_ops.context import NodeContext
from ganeti.noded.child import RequestHead
from ganeti.noded.children import Children
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import (
    FAST_S,
    JOB_HEADER,
    NORMAL_S,
    NodeCall,
    Place,
    deadline_s,
    decode_arguments,
    encode_failure,
)
from ganeti.system import clock
from ganeti.transport.http_message import HttpRequest, HttpResponse

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Threads for the job queue's calls, which may wait for the queue's lock, and for all others.
_THREADS: Final = 4
# Served at any time, whatever else is going on: it is asked for when nothing else works.
_NEVER_WAITS: Final = "node_powercycle"
# How long to look whether a call has nothing to do, before it is given to a child anyway.
_SHORTCUT_S: Final = 1.0


class NodeServer:
    """The calls of one node."""

    def __init__(
        self,
        paths: Paths,
        hostname: str,
        children: Children,
        *,
        clients_max: int,
        stop: Callable[[], None],
    ) -> None:
        self._paths = paths
        self._hostname = hostname
        self._children = children
        self._stop = stop
        self._queue_threads = ThreadPoolExecutor(_THREADS, "queue")
        self._threads = ThreadPoolExecutor(_THREADS, "quick")
        self._slots: Mapping[str, asyncio.Semaphore] = {
            speed: asyncio.Semaphore(clients_max) for speed in ("quick", "normal", "slow")
        }

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer one request that is authorized."""
        if request.method != "POST":
            return HttpResponse.text(400, "only POST is understood here")
        call = NodeCalls.calls.get(request.path.removeprefix("/"))
        if call is None:
            return HttpResponse.text(404, f"there is no call {request.path!r}")
        head = _request_head(request, call)
        with log.job_context(head.job_id):
            answer = await self._run(call, head, request.body)
        if call.rules.stops_daemon and answer.startswith(b"[true"):
            logger.info("%s asks this daemon to end", call.name)
            self._stop()
        return HttpResponse(body=answer)

    def close(self) -> None:
        """Let the threads end."""
        for pool in (self._queue_threads, self._threads):
            pool.shutdown(wait=False, cancel_futures=True)

    async def _run(self, call: NodeCall, head: RequestHead, body: bytes) -> bytes:
        """Run a call where it belongs."""
        if call.rules.place is Place.DAEMON:
            return await self._run_here(call, head, body)
        if call.name == _NEVER_WAITS:
            return await self._children.call(call, head, body, call.rules.limit_s)
        if dispatch.may_have_nothing_to_do(call):
            answered = await self._try_shortcut(call, head, body)
            if answered is not None:
                return answered
        limit_s = _limit_s(call, body)
        ends_s = clock.monotonic() + limit_s
        slot = self._slots[_speed(call)]
        try:
            await asyncio.wait_for(slot.acquire(), limit_s)
        except TimeoutError:
            return encode_failure(
                f"{call.name} was not begun within {limit_s:g} s: too many other calls run on"
                f" node {self._hostname}"
            )
        try:
            left_s = ends_s - clock.monotonic()
            return await self._children.call(call, _with_deadline(head, ends_s), body, left_s)
        finally:
            slot.release()

    async def _run_here(self, call: NodeCall, head: RequestHead, body: bytes) -> bytes:
        """Run a call in a thread of the daemon."""
        is_queue_call = call.name.startswith("jobqueue_")
        threads = self._queue_threads if is_queue_call else self._threads
        work = self._in_thread(threads, dispatch.answer, call, head, body)
        await asyncio.wait([work], timeout=call.rules.limit_s)
        if work.done():
            return work.result()
        logger.warning("%s ran into its deadline of %g s", call.name, call.rules.limit_s)
        return encode_failure(
            f"{call.name} did not end within {call.rules.limit_s:g} s on node {self._hostname};"
            " it may still come to its end"
        )

    async def _try_shortcut(self, call: NodeCall, head: RequestHead, body: bytes) -> bytes | None:
        """Answer a call for a child in a thread, if there is nothing to do for it."""
        work = self._in_thread(self._threads, dispatch.answer_if_nothing_to_do, call, head, body)
        await asyncio.wait([work], timeout=_SHORTCUT_S)
        return work.result() if work.done() else None

    def _in_thread(
        self,
        threads: ThreadPoolExecutor,
        serve: Callable[[NodeContext, NodeCall, bytes], T],
        call: NodeCall,
        head: RequestHead,
        body: bytes,
    ) -> asyncio.Future[T]:
        context = NodeContext(self._paths, self._hostname, **structs.asdict(head))
        run = contextvars.copy_context().run
        return asyncio.get_running_loop().run_in_executor(threads, run, serve, context, call, body)


def _request_head(request: HttpRequest, call: NodeCall) -> RequestHead:
    """Return what the handler is told beside the arguments."""
    job = request.headers.get(JOB_HEADER.lower(), "")
    name = request.peer.common_name if request.peer is not None else ""
    return RequestHead(
        call.name,
        f"{request.client_address} ({name})" if name else request.client_address,
        int(job) if job.isdecimal() else None,
        peer_name=name,
    )


def _limit_s(call: NodeCall, body: bytes) -> float:
    """Return how long a call may take; wrong arguments are the handler's to complain about."""
    if call.rules.extra_s is not None:
        with contextlib.suppress(GenericError):
            return deadline_s(call, decode_arguments(call, body))
    return call.rules.limit_s


def _with_deadline(head: RequestHead, ends_s: float) -> RequestHead:
    """Return a request's head that says when its time is over."""
    return structs.replace(head, deadline_s=ends_s)


def _speed(call: NodeCall) -> str:
    """Return which calls this one shares its slots with."""
    if call.rules.limit_s <= FAST_S:
        return "quick"
    return "normal" if call.rules.limit_s <= NORMAL_S else "slow"

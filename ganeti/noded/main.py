"""The node daemon: carries out the calls of the master candidates on its node.

Serves HTTPS with mutual TLS; every request's certificate is checked anew.  See `helper` for the
process that makes children, `memory` for staying in memory.

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
import ssl
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Final, TypeVar

from msgspec import structs

from ganeti.base import metrics
from ganeti.base.daemons import MASTER_DAEMONS
from ganeti.base.errors import GenericError, NotSupportedError, OpExecError
from ganeti.base.json import loads_as
from ganeti.daemon import log, memory
from ganeti.daemon.context import DaemonContext, listen_address
from ganeti.daemon.follow import follow_certificate
from ganeti.daemon.main import DaemonSpec
from ganeti.daemon.options import Port, TlsOptions, option
from ganeti.daemon.partner import look_after_pair
from ganeti.daemon.tally import Tally
from ganeti.node_ops import dispatch
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine import job_queue
from ganeti.noded.child import RequestHead
from ganeti.noded.children import Children, HelperHandle, start_helper
from ganeti.noded.consoles import Consoles
from ganeti.noded.former_masters import FormerMasters
from ganeti.noded.helper import DAEMON_NAME
from ganeti.objects.model import InstanceConsole
from ganeti.protocol import node_rpc
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import NodeCall
from ganeti.protocol.service import call_of
from ganeti.system import clock
from ganeti.transport import tls
from ganeti.transport.http_message import HttpRequest, HttpResponse
from ganeti.transport.http_server import HttpLimits, serve_http

T = TypeVar("T")

logger = logging.getLogger(__name__)

_LIMITS: Final = HttpLimits(body_bytes_max=node_rpc.BODY_BYTES_MAX)

# Threads for the job queue's calls, which may wait for the queue's lock, and for all others.
_THREADS: Final = 4
# How long to look whether a call has nothing to do, before it is given to a child anyway.
_SHORTCUT_S: Final = 1.0


class NodeServer:
    """The calls of one node."""

    def __init__(self, context: DaemonContext, children: Children, clients_max: int) -> None:
        self._paths = context.paths
        self._hostname = context.hostname
        self._stop = context.stop
        self._children = children
        self._consoles = Consoles(self._find_consoles)
        self._former = FormerMasters(context.paths)
        self._queue_threads = ThreadPoolExecutor(_THREADS, "queue")
        self._threads = ThreadPoolExecutor(_THREADS, "quick")
        self._slots: Mapping[str, asyncio.Semaphore] = {
            speed: asyncio.Semaphore(clients_max) for speed in ("quick", "normal", "slow")
        }
        self._running = 0
        self._tally = Tally(metrics.NODED_CALLS, metrics.NODED_CALLS_SECONDS, metrics.NODED_CALL_S)

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer one request that is authorized."""
        if request.method == "GET" and request.path == "/metrics":
            return self._tally.answer({metrics.NODED_RUNNING: self._running})
        if request.method != "POST":
            return HttpResponse.text(400, "only POST is understood here")
        if request.path == node_rpc.CONSOLE_PATH:
            return self._consoles.answer(request)
        call = NodeCalls.calls.get(request.path.removeprefix("/"))
        if call is None:
            return HttpResponse.text(404, f"there is no call {request.path!r}")
        head = _request_head(request, call)
        self._former.look()
        if head.job_id is not None and call.rules.changes and not call.rules.from_former:
            refusal = self._former.refusal(head.peer_name)
            if refusal is not None:
                logger.warning("Refusing %s of job %d: %s", call.name, head.job_id, refusal)
                return HttpResponse(body=node_rpc.encode_failure(refusal))
        with log.job_context(head.job_id):
            watch = request.watch_client if call.rules.ends_with_caller else None
            gone = watch() if watch is not None else None
            answer = await self._counted(call, head, request.body, gone)
        if call.rules.stops_daemon and answer.startswith(b"[true"):
            logger.info("%s asks this daemon to end", call.name)
            self._stop()
        return HttpResponse(body=answer)

    async def _find_consoles(self, request: HttpRequest, body: bytes) -> list[InstanceConsole]:
        """Ask the driver how the consoles of an instance are reached.

        Raises:
            GenericError: that cannot be told.
        """
        call = call_of(NodeCalls.instance_consoles)
        answer = await self._run(call, _request_head(request, call), body, None)
        is_fine, payload = node_rpc.decode_answer(answer)
        if not is_fine:
            raise OpExecError(loads_as(str, bytes(payload)))
        found = loads_as(dict[str, list[dict[str, object]]], bytes(payload))
        return [InstanceConsole.from_wire(each) for ways in found.values() for each in ways]

    def close(self) -> None:
        """Let the threads end."""
        for pool in (self._queue_threads, self._threads):
            pool.shutdown(wait=False, cancel_futures=True)

    async def _counted(
        self, call: NodeCall, head: RequestHead, body: bytes, gone: asyncio.Future[None] | None
    ) -> bytes:
        """Run a call as `_run`, and count it for the metrics."""
        begun_s = clock.monotonic()
        outcome = "failed"
        self._running += 1
        try:
            answer = await self._run(call, head, body, gone)
            outcome = "done" if answer.startswith(b"[true") else outcome
        finally:
            self._running -= 1
            self._tally.add((call.name, outcome), clock.monotonic() - begun_s)
        return answer

    async def _run(
        self, call: NodeCall, head: RequestHead, body: bytes, gone: asyncio.Future[None] | None
    ) -> bytes:
        """Run a call where it belongs; ``gone``: once done, nobody waits for it any more."""
        if call.rules.place is node_rpc.Place.DAEMON:
            return await self._run_here(call, head, body)
        if call.rules.place is node_rpc.Place.LOOP:
            return dispatch.answer(self._context(head), call, body)
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
            return node_rpc.encode_failure(
                f"{call.name} was not begun within {limit_s:g} s: too many other calls run on"
                f" node {self._hostname}"
            )
        try:
            left_s = ends_s - clock.monotonic()
            told = structs.replace(head, deadline_s=ends_s)
            return await self._children.call(call, told, body, left_s, gone)
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
        return node_rpc.encode_failure(
            f"{call.name} did not end within {call.rules.limit_s:g} s on node {self._hostname};"
            " it may still come to its end"
        )

    async def _try_shortcut(self, call: NodeCall, head: RequestHead, body: bytes) -> bytes | None:
        """Answer a call for a child in a thread, if there is nothing to do for it."""
        work = self._in_thread(self._threads, dispatch.answer_if_nothing_to_do, call, head, body)
        await asyncio.wait([work], timeout=_SHORTCUT_S)
        return work.result() if work.done() else None

    def _context(self, head: RequestHead) -> NodeContext:
        return NodeContext(self._paths, self._hostname, **structs.asdict(head))

    def _in_thread(
        self,
        threads: ThreadPoolExecutor,
        serve: Callable[[NodeContext, NodeCall, bytes], T],
        call: NodeCall,
        head: RequestHead,
        body: bytes,
    ) -> asyncio.Future[T]:
        context = self._context(head)
        run = contextvars.copy_context().run
        return asyncio.get_running_loop().run_in_executor(threads, run, serve, context, call, body)


def _request_head(request: HttpRequest, call: NodeCall) -> RequestHead:
    """Return the facts of a call beside its arguments."""
    job = request.headers.get(node_rpc.JOB_HEADER.lower(), "")
    name = request.peer.common_name if request.peer is not None else ""
    return RequestHead(
        call.name,
        f"{request.client_address} ({name})" if name else request.client_address,
        int(job) if job.isdecimal() else None,
        peer_name=name,
    )


def _limit_s(call: NodeCall, body: bytes) -> float:
    """Return how long a call may take; wrong arguments are the handler's to complain about."""
    if call.rules.limit_depends:
        with contextlib.suppress(GenericError):
            return node_rpc.deadline_s(call, node_rpc.decode_arguments(call, body))
    return call.rules.limit_s


def _speed(call: NodeCall) -> str:
    """Return the group of calls whose slots this one shares."""
    if call.rules.limit_s <= node_rpc.FAST_S:
        return "quick"
    return "normal" if call.rules.limit_s <= node_rpc.NORMAL_S else "slow"


class Options(TlsOptions, frozen=True, kw_only=True):
    """The options of NodeD."""

    port: Port = node_rpc.DEFAULT_PORT
    no_mlock: Annotated[bool, option("do not keep the daemon's memory from being swapped out")] = (
        False
    )


def _start_helper(context: DaemonContext) -> HelperHandle:
    """Fork the helper, while there is neither an event loop nor a thread."""
    _check_options(context)
    if not context.options_as(Options).no_mlock:
        memory.enable()
    return start_helper(context.paths, context.hostname, _log_descriptors())


async def _serve(context: DaemonContext) -> None:
    """Answer requests until told to stop."""
    for call in NodeCalls.calls.values():
        if call.rules.place is node_rpc.Place.DAEMON:
            dispatch.warm_up(call)
    memory.lock_everything()
    threading.stack_size(memory.THREAD_STACK_BYTES)
    policy = tls.CandidatePolicy(context.paths, node_name=context.hostname)

    def authorize(request: HttpRequest) -> HttpResponse | None:
        refusal = policy.refusal(request.peer)
        return None if refusal is None else HttpResponse.text(403, refusal, close=True)

    def give_up(reason: str) -> None:
        logger.critical("%s; giving up", reason)
        context.stop(exit_status=1)

    options = context.options_as(Options)
    children = Children(context.prepared, context.hostname, give_up)
    server = NodeServer(context, children, options.max_clients or node_rpc.CLIENTS_MAX_DEFAULT)
    certificate = options.ssl_cert or context.paths.server_pem

    def make_context() -> ssl.SSLContext:
        return tls.node_server_context(context.paths, certificate)

    address = listen_address(context)
    try:
        async with serve_http(
            address,
            options.port,
            server.handle,
            tls=make_context(),
            authorize=authorize,
            limits=_LIMITS,
        ) as listening:
            logger.info("Listening on %s port %d", address, listening.port)
            followed = {certificate, context.paths.server_pem}
            context.spawn(look_after_pair(context, MASTER_DAEMONS), "watch over LuxiD and WConfD")
            with follow_certificate(context, listening, followed, make_context):
                context.ready()
                await context.stopping.wait()
    finally:
        server.close()
        children.close()
        job_queue.SPARES.clear()


def _check_options(context: DaemonContext) -> None:
    """Refuse options that this daemon knows from other daemons but cannot obey.

    Raises:
        NotSupportedError: naming the option.
    """
    for name in ("no_ssl", "ssl_key"):
        if getattr(context.options, name):
            option = name.replace("_", "-")
            raise NotSupportedError(f"--{option} is not supported by the node daemon")


def _log_descriptors() -> list[int]:
    """Return the descriptors of files and sockets that are logged to."""
    streams = [
        getattr(handler, "socket", None) or handler
        for handler in logging.getLogger().handlers
        if not isinstance(handler, logging.StreamHandler)
    ]
    return [stream.fileno() for stream in streams if hasattr(stream, "fileno")]


SPEC: Final = DaemonSpec(
    name=DAEMON_NAME,
    description="does on this node what master candidates tell it to",
    serve=_serve,
    options=Options,
    pre_loop=_start_helper,
    runs_as_root=True,
)

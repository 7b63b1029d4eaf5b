"""The node daemon: does on its node what master candidates tell it to.

Serves HTTPS with mutual TLS; every request's certificate is checked anew.  See `server` for where
calls run, `helper` for the process that makes children, `memory` for staying in memory.
"""

import logging
import ssl
import threading
from typing import Annotated, Final

from ganeti.base.errors import NotSupportedError
from ganeti.daemon.context import DaemonContext, listen_address
from ganeti.daemon.follow import follow_certificate
from ganeti.daemon.main import DaemonSpec
from ganeti.daemon.options import Port, TlsOptions, option
from ganeti.node_ops import dispatch
from ganeti.noded import memory
from ganeti.noded.children import Children, HelperHandle, start_helper
from ganeti.noded.helper import DAEMON_NAME
from ganeti.noded.server import NodeServer
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import BODY_BYTES_MAX, CLIENTS_MAX_DEFAULT, DEFAULT_PORT, Place
from ganeti.transport import tls
from ganeti.transport.http_message import HttpRequest, HttpResponse
from ganeti.transport.http_server import HttpLimits, serve_http

logger = logging.getLogger(__name__)

_LIMITS: Final = HttpLimits(body_bytes_max=BODY_BYTES_MAX)


class Options(TlsOptions, frozen=True, kw_only=True):
    """The options of NodeD."""

    port: Port = DEFAULT_PORT
    no_mlock: Annotated[bool, option("do not keep the daemon's memory from being swapped out")] = (
        False
    )


_REFUSED: Final = ("no_ssl", "ssl_key")


def _start_helper(context: DaemonContext) -> HelperHandle:
    """Fork the helper, while there is neither an event loop nor a thread."""
    _check_options(context)
    if not context.options_as(Options).no_mlock:
        memory.enable()
    return start_helper(context.paths, context.hostname, _log_descriptors())


async def _serve(context: DaemonContext) -> None:
    """Answer requests until told to stop."""
    for call in NodeCalls.calls.values():
        if call.rules.place is Place.DAEMON:
            dispatch.warm_up(call)
    memory.lock_everything()
    threading.stack_size(memory.THREAD_STACK_BYTES)
    policy = tls.CandidatePolicy(context.paths)

    def authorize(request: HttpRequest) -> HttpResponse | None:
        refusal = policy.refusal(request.peer)
        return None if refusal is None else HttpResponse.text(403, refusal, close=True)

    def give_up(reason: str) -> None:
        logger.critical("%s; giving up", reason)
        context.stop(exit_status=1)

    options = context.options_as(Options)
    children = Children(context.prepared, context.hostname, give_up)
    server = NodeServer(
        context.paths,
        context.hostname,
        children,
        clients_max=options.max_clients or CLIENTS_MAX_DEFAULT,
        stop=context.stop,
    )
    certificate = options.ssl_cert or context.paths.server_pem

    def make_context() -> ssl.SSLContext:
        return tls.server_context(certificate, context.paths.server_pem)

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
            with follow_certificate(
                context, listening, {certificate, context.paths.server_pem}, make_context
            ):
                context.ready()
                await context.stopping.wait()
    finally:
        server.close()
        children.close()


def _check_options(context: DaemonContext) -> None:
    """Refuse options that this daemon knows from other daemons but cannot obey.

    Raises:
        NotSupportedError: naming the option.
    """
    for name in _REFUSED:
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

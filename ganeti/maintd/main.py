"""The maintenance daemon: acts on what nodes report of themselves, on the master node.

Every node is asked at the rate at which it looks; a round follows as soon as there is work and
the last one is over.  While maintenance is switched off the daemon asks WConfD every few seconds
whether that has changed, and does nothing else.

Source: seed document "Ganeti Maintenance Daemon", "Repair daemon"; maintd.json, "daemon".
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Annotated, Final

from ganeti.base.errors import ConfigurationError, GenericError, OpPrereqError
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.async_services import AsyncLuxiClient, AsyncWConfClient
from ganeti.daemon.context import DaemonContext
from ganeti.daemon.main import DaemonSpec
from ganeti.daemon.master_watch import MasterWatch, confirm
from ganeti.daemon.options import MasterOptions, Port, option
from ganeti.maintd.acting import Worker
from ganeti.maintd.cluster import LiveCluster
from ganeti.maintd.incidents import is_active
from ganeti.maintd.service import StatusService, authorize
from ganeti.protocol.wconfd import ClientId
from ganeti.store import ssconf
from ganeti.system import clock, environment, files
from ganeti.system.filelock import LiveLock
from ganeti.transport import tls
from ganeti.transport.addresses import addresses_of
from ganeti.transport.http_server import HttpLimits, serve_http

logger = logging.getLogger(__name__)

DEFAULT_PORT: Final = 1816  # maintd.json, "daemon"
IDLE_S: Final = 5.0  # between two looks while maintenance is off, or after an error
ACT_S: Final = 2.0  # between two looks at the jobs of a round
_LIVELOCK_MODE: Final = 0o750
_LIMITS: Final = HttpLimits(
    head_bytes_max=8 * 1024, body_bytes_max=1024, idle_s_max=120.0, connections_max=256
)


class Options(MasterOptions, frozen=True, kw_only=True):
    """The options of the maintenance daemon."""

    port: Port = DEFAULT_PORT
    bind: Annotated[str | None, option("address to listen on", "-b", "ADDRESS")] = None
    ssl_key: Annotated[str | None, option("file of the TLS key", "-K", "SSL_KEY_PATH")] = None
    ssl_cert: Annotated[
        str | None, option("serve by TLS with the certificate in this file", "-C", "SSL_CERT_PATH")
    ] = None


def _listen_address(context: DaemonContext) -> str:
    """Return the address on the master network device; a virtual node has one of its own.

    Raises:
        OpPrereqError: the device has no address, or it is not known.
    """
    given = context.options_as(Options).bind
    if given:
        return given
    if context.paths.root:
        return environment.resolve(context.hostname, context.paths)[1]
    try:
        device = ssconf.read_key_or_none(context.paths, "master_netdev") or ""
    except ConfigurationError as err:
        raise OpPrereqError(f"the master network device is not known: {err.message}") from err
    found = addresses_of(device)
    if not found:
        raise OpPrereqError(f"the master network device {device!r} has no address; use --bind")
    return found[0]


async def serve(context: DaemonContext) -> None:
    """Run until told to stop."""
    paths, options = context.paths, context.options_as(Options)
    await confirm(context)
    files.ensure_directory(paths.livelock_dir, _LIVELOCK_MODE)
    address = _listen_address(context)
    certificate, key = options.ssl_cert, options.ssl_key
    secure = tls.server_context(certificate, key_path=key) if certificate else None
    name = f"maint-daemon_{clock.now_ns()}"
    with LiveLock.create(f"{paths.livelock_dir}/{name}") as livelock:
        owner = ClientId(name, livelock.path, os.getpid())
        async with (
            AsyncNodeRpcClient(paths) as rpc,
            AsyncLuxiClient(paths) as luxi,
            AsyncWConfClient(paths, owner) as wconfd,
        ):
            cluster = LiveCluster(paths, luxi, wconfd)
            worker = Worker(cluster, clock.now, clock.new_uuid)
            service = StatusService(worker)
            async with serve_http(
                address,
                options.port,
                service.handle,
                tls=secure,
                authorize=authorize,
                limits=_LIMITS,
            ) as server:
                if not options.no_voting:
                    watch = MasterWatch(context, rpc)
                    context.spawn(watch.run(), "watch over the master role")
                context.spawn(_work(cluster, worker), "maintenance")
                logger.info("Listening on %s port %d", address, server.port)
                context.ready()
                await context.stopping.wait()


async def _work(cluster: LiveCluster, worker: Worker) -> None:
    """Take reports and act on them, for ever."""
    said: str | None = None
    asked_s = -cluster.interval_s
    while True:
        try:
            if await worker.read() is None:
                delay_s = IDLE_S
            else:
                if clock.monotonic() - asked_s >= cluster.interval_s:
                    asked_s = clock.monotonic()
                    await worker.hear(await cluster.reports(worker.nodes))
                await worker.act()
                delay_s = _delay_s(cluster, worker, asked_s)
            said = None
        except GenericError as err:
            delay_s = IDLE_S
            if err.message != said:
                logger.warning("Nothing is done for now: %s", err.message)
            said = err.message
        await asyncio.sleep(delay_s)


def _delay_s(cluster: LiveCluster, worker: Worker, asked_s: float) -> float:
    """Return how long to wait: for the next reports, or less while there is work."""
    left_s = max(asked_s + cluster.interval_s - clock.monotonic(), 0.0)
    has_work = worker.state is not None and any(map(is_active, worker.state.incidents))
    return min(left_s, ACT_S) if has_work else min(left_s, IDLE_S)


SPEC: Final = DaemonSpec(
    name="ganeti-maintd",
    description="Acts on what nodes report of their health, on the master node.",
    serve=serve,
    options=Options,
)

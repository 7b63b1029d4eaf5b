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

from ganeti.base.errors import GenericError
from ganeti.clients import maintd
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
from ganeti.store import lease
from ganeti.system import clock, files
from ganeti.system.filelock import LiveLock
from ganeti.transport import tls
from ganeti.transport.http_server import HttpLimits, serve_http

logger = logging.getLogger(__name__)

IDLE_S: Final = 5.0  # between two looks while maintenance is off, or after an error
ACT_S: Final = 2.0  # between two looks at the jobs of a round
_LIVELOCK_MODE: Final = 0o750
_LIMITS: Final = HttpLimits(
    head_bytes_max=8 * 1024, body_bytes_max=1024, idle_s_max=120.0, connections_max=256
)


class Options(MasterOptions, frozen=True, kw_only=True):
    """The options of the maintenance daemon."""

    port: Port = maintd.PORT
    bind: Annotated[str | None, option("address to listen on", "-b", "ADDRESS")] = None
    ssl_key: Annotated[str | None, option("file of the TLS key", "-K", "SSL_KEY_PATH")] = None
    ssl_cert: Annotated[
        str | None, option("serve by TLS with the certificate in this file", "-C", "SSL_CERT_PATH")
    ] = None


async def serve(context: DaemonContext) -> None:
    """Run until told to stop."""
    paths, options = context.paths, context.options_as(Options)
    await confirm(context)
    files.ensure_directory(paths.livelock_dir, _LIVELOCK_MODE)
    address = options.bind or maintd.listen_address(paths, context.hostname)
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
            service = StatusService(paths, worker, clock.now_ns() // 1_000_000)
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
                context.spawn(_work(cluster, worker, service), "maintenance")
                site = _act_on_losses(context, owner, service)
                context.spawn(site, "high availability")
                logger.info("Listening on %s port %d", address, server.port)
                context.ready()
                await context.stopping.wait()


async def _work(cluster: LiveCluster, worker: Worker, service: StatusService) -> None:
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
        service.publish()
        await asyncio.sleep(delay_s)


async def _act_on_losses(context: DaemonContext, owner: ClientId, service: StatusService) -> None:
    """Act on nodes that are proved dead, while high availability is on, for ever."""
    paths = context.paths
    while True:
        await asyncio.sleep(IDLE_S)
        if lease.is_on(paths):
            from ganeti.maintd import restarting  # most clusters do without it

            try:
                # Connections of its own: what is urgent waits for no work of maintenance.
                async with AsyncLuxiClient(paths) as luxi, AsyncWConfClient(paths, owner) as wconfd:
                    await restarting.run(context, luxi, wconfd, service)
            except GenericError as err:
                logger.warning("Nothing is done about dead nodes: %s", err.message)


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

"""The monitoring daemon: tells over HTTP how its node is.

Runs on every node, asks RConfD about the cluster, and goes on without the master.
See `service` for the addresses, `sampling` for when collectors work, `cluster_watch` for the
questions to RConfD.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final

from ganeti.base.daemons import MOND_PORT
from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.clients.confd import AsyncConfdClient
from ganeti.collectors.cluster_facts import Need
from ganeti.collectors.collector import NodeView, RunCommand
from ganeti.collectors.history import MINUTE_S, History, look
from ganeti.collectors.node_lookup import value_or_none
from ganeti.collectors.registry import COLLECTORS
from ganeti.daemon.context import DaemonContext, listen_address
from ganeti.daemon.main import DaemonSpec
from ganeti.daemon.options import NetworkOptions, Port
from ganeti.mond.cluster_watch import ClusterWatch
from ganeti.mond.sampling import Sampler
from ganeti.mond.service import MonitoringService
from ganeti.protocol.confd_queries import QueryType
from ganeti.system import clock, process
from ganeti.transport.http_server import HttpLimits, serve_http

logger = logging.getLogger(__name__)

_LIMITS: Final = HttpLimits(
    head_bytes_max=8 * 1024,
    body_bytes_max=1024,
    idle_s_max=120.0,
    connections_max=1024,
    origin_connections_max=256,
)
_FIRST_S: Final = 2.0  # until the second look, so that there is a value soon
_QUESTION_TIMEOUT_S: Final = 5.0  # on a network where answers come in milliseconds
_THREADS: Final = 2 * len(COLLECTORS)  # each works in one at a time; no other ever waits for it


class Options(NetworkOptions, frozen=True, kw_only=True):
    """The options of MonD."""

    port: Port = MOND_PORT


async def _serve(context: DaemonContext) -> None:
    """Answer requests until told to stop."""
    paths, hostname = context.paths, context.hostname
    with _threads() as threads, _stoppable_commands() as run:
        watch = ClusterWatch(paths, hostname, Questions(paths))

        async def look_around(needs: frozenset[Need]) -> NodeView:
            return NodeView(paths, hostname, await watch.look(needs), run)

        spawn, rows = context.spawn, COLLECTORS.items()
        samplers = {name: Sampler(row, look_around, threads, spawn) for name, row in rows}
        service = MonitoringService(paths, hostname, watch, samplers, threads)
        watch.read_hypervisors()
        service.obey(watch.facts)
        address = listen_address(context)
        async with serve_http(
            address,
            context.options_as(Options).port,
            service.handle,
            tls=None,
            authorize=service.authorize,
            limits=_LIMITS,
        ) as listening:
            context.spawn(watch.run(service.obey), "questions to RConfD")
            context.spawn(_keep_history(service.history, paths, threads), "history")
            for sampler in samplers.values():
                context.spawn(sampler.run(), f"sampler {sampler.name}")
            logger.info("Listening on %s port %d", address, listening.port)
            context.ready()
            await context.stopping.wait()


async def _keep_history(history: History, paths: Paths, threads: Executor) -> None:
    """Look every minute what the node and its instances used."""
    loop = asyncio.get_running_loop()
    pause_s = _FIRST_S
    while True:
        try:
            found = await loop.run_in_executor(threads, look, paths)
            history.add(clock.now(), found)
        except (GenericError, OSError, ValueError, KeyError) as err:
            logger.warning("Cannot see what is used: %s; going on", err)
        await asyncio.sleep(pause_s)
        pause_s = MINUTE_S


class Questions:
    """Puts questions to RConfD, on the master candidates that there are at the time."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    async def __call__(self, query_type: QueryType, query: object = None) -> object:
        """Return the answer; None if there is no such thing.

        Raises:
            TransportError: no candidate answered.
            GenericError: RConfD could not answer, or this node cannot ask.
        """
        # A new client for each question: candidates come and go, and we ask rarely.
        client = AsyncConfdClient.of_node(self._paths, timeout_s=_QUESTION_TIMEOUT_S)
        try:
            answer = await client.ask(query_type, query)
        finally:
            client.close()
        return value_or_none(answer)


@contextlib.contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    """Threads for the collectors; at the end, work that has not begun is dropped."""
    threads = ThreadPoolExecutor(_THREADS, "collector")
    try:
        yield threads
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


@contextlib.contextmanager
def _stoppable_commands() -> Iterator[RunCommand]:
    """A way to run commands that end, with all that they started, when we leave."""
    stop_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    try:
        yield functools.partial(process.run, stop_fd=stop_fd)
    finally:
        os.eventfd_write(stop_fd, 1)  # stays open: threads that are late look at it


SPEC: Final = DaemonSpec(
    name="ganeti-mond",
    description="tells over HTTP how this node is",
    serve=_serve,
    options=Options,
    runs_as_root=True,
)

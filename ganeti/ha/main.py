"""The agent of high availability, on every node where it is switched on.

Small, with few imports, kept in memory; the loop that feeds the watchdog waits for nothing.  What
it decides, and when, is told in `ganeti.availability` and in `ganeti.ha.agent`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterator
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from typing import Annotated, Final

from ganeti.base.daemons import AGENT
from ganeti.base.errors import (
    ConfigurationError,
    GenericError,
    OpPrereqError,
    ProtocolError,
    TransportError,
)
from ganeti.base.paths import Paths
from ganeti.clients.etcd import EtcdClient
from ganeti.daemon import memory
from ganeti.daemon.context import DaemonContext
from ganeti.daemon.main import DaemonSpec
from ganeti.daemon.options import Options as DaemonOptions
from ganeti.daemon.options import option
from ganeti.ha.agent import Agent, Means
from ganeti.ha.facts import read_facts
from ganeti.ha.friends import PORT, Friends
from ganeti.ha.hands import NodeHands
from ganeti.store import availability, lease
from ganeti.store.availability import Settings
from ganeti.system import clock, files

logger = logging.getLogger(__name__)

LOOK_S: Final = 2.0  # between two looks at the node's own files
_KEY_BYTES_MAX: Final = 4096
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_LEAVE_S: Final = 8.0
_MASTER_ENDS_S: Final = 3.0
_LOOK_AGAIN_S: Final = 0.1


class Options(DaemonOptions, frozen=True, kw_only=True):
    """The options of the agent."""

    no_mlock: Annotated[bool, option("do not keep the daemon's memory from being swapped out")] = (
        False
    )


async def serve(context: DaemonContext) -> None:
    """Run until told to stop; meanwhile a thread writes the log, as disks may hang.

    Raises:
        OpPrereqError: high availability is off.
        ConfigurationError: the node's files cannot be read.
    """
    paths = context.paths
    digest, settings = _read(paths)
    if settings is None:
        raise OpPrereqError("high availability is off ('gnt-cluster ha-enable' switches it on)")
    if not context.options_as(Options).no_mlock:
        memory.enable()
    memory.lock_everything()
    threading.stack_size(memory.THREAD_STACK_BYTES)
    with _log_in_background():
        await _serve(context, digest, settings)


async def _serve(context: DaemonContext, digest: str, settings: Settings) -> None:
    paths = context.paths
    hands = NodeHands(paths, settings, context.hostname)
    etcd = EtcdClient.of(settings, settings.timing.ask_s)
    facts = read_facts(paths, settings)
    agent = Agent(context.hostname, _boot_id(paths), settings.timing, facts, etcd, hands)
    agent.state, agent.digest = availability.read_state(paths) or agent.state, digest
    agent.friends = friends = Friends(context.hostname, _key(paths), clock.new_uuid, agent.answer)
    address = facts.addresses.get(context.hostname)
    if address is None:
        raise ConfigurationError(f"the cluster has no node {context.hostname}")
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(lambda: friends, local_addr=(address, PORT))
    context.spawn(agent.feed(), "feeding the watchdog")
    beats = context.spawn(agent.beats(), "beat")
    context.spawn(_follow(context, agent, friends, settings), "looking at the node's files")
    context.ready()
    try:
        await context.stopping.wait()
        agent.is_leaving = True
        await _let_master_end(agent, paths)
        beats.cancel()  # a beat would show the node again
        await _leave(agent, paths)
    finally:
        agent.etcd.close()


@contextlib.contextmanager
def _log_in_background() -> Iterator[None]:
    root = logging.getLogger()
    lines: SimpleQueue[object] = SimpleQueue()
    handlers = list(root.handlers)
    listener = QueueListener(lines, *handlers)
    listener.start()
    root.handlers[:] = [QueueHandler(lines)]
    try:
        yield
    finally:
        root.handlers[:] = handlers
        listener.stop()


async def _let_master_end(agent: Agent, paths: Paths) -> None:
    """Wait a moment for a master here that is being stopped, too; only without it its mark goes.

    What stops all daemons of a node at once, such as ``systemctl stop ganeti.target``, puts them in
    no order: master daemons that started after the agent would wait for one that cannot start.
    """
    gives_up_s = clock.monotonic() + _MASTER_ENDS_S
    # Only whether the settings are there: damaged ones must keep no agent from leaving in order.
    while agent.acts_for_master and lease.is_on(paths):
        if clock.monotonic() > gives_up_s:
            logger.info("The master, or jobs of it, run on here without this agent")
            return
        await asyncio.sleep(_LOOK_AGAIN_S)


async def _leave(agent: Agent, paths: Paths) -> None:
    """Leave in order; etcd may need a moment to find a leader.

    Raises:
        TransportError, ProtocolError: as `Agent.leave`.
    """
    gives_up_s = clock.monotonic() + _LEAVE_S
    while True:
        try:
            return await agent.leave()
        except (TransportError, ProtocolError) as err:
            # Switched off, nobody proves anything any more; paused, not by a watchdog.
            if not agent.is_guarded or not lease.is_on(paths):
                logger.info("Left without telling etcd: %s", err.message)
                return agent.end_watchdog()
            if clock.monotonic() > gives_up_s:
                logger.warning(
                    "The watchdog will reset this node, as etcd cannot be told that its agent"
                    " stops; before all nodes are stopped, type 'gnt-cluster ha-pause'"
                )
                raise
        await asyncio.sleep(agent.timing.beat_s)


async def _follow(
    context: DaemonContext, agent: Agent, friends: Friends, settings: Settings
) -> None:
    """Keep facts, settings and the key up to date; the files may be on a disk that hangs."""
    paths, known = context.paths, agent.digest
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            digest, found = await asyncio.to_thread(_read, paths)
            if found is not None and digest != known:
                known, settings = digest, found
                etcd, hands = (
                    EtcdClient.of(settings, settings.timing.ask_s),
                    NodeHands(paths, settings, context.hostname),
                )
                agent.take(Means(digest, settings.timing, etcd, hands))
            agent.facts = await asyncio.to_thread(read_facts, paths, settings)
            friends.use_key(await asyncio.to_thread(_key, paths))
        except (GenericError, OSError) as err:
            logger.warning("Going on with what was known of the cluster: %s", err)


def _key(paths: Paths) -> bytes:
    return files.read_bytes(paths.hmac_key, _KEY_BYTES_MAX)


def _read(paths: Paths) -> tuple[str, Settings | None]:
    """Return the digest of the settings, and what they are; of a later one if they just change."""
    return availability.digest_here(paths), availability.read(paths)


def _boot_id(paths: Paths) -> str:
    """Return what differs with each boot; a virtual node boots when its run directory is new."""
    if not paths.root:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    path = f"{paths.run_dir}/boot-id"
    known = files.read_bytes_or_none(path, _KEY_BYTES_MAX)
    if known is None:
        known = clock.new_uuid().encode()
        files.write_atomic(path, known)
    return known.decode()


SPEC: Final = DaemonSpec(
    name=AGENT,
    description="shows that this node lives, and finds out whether others do",
    serve=serve,
    options=Options,
    runs_as_root=True,
)

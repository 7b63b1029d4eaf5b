"""WConfD: the only writer of the configuration and the only grantor of locks.

Theory of operation.  One loop.  A request is decided at once on state in memory, made lasting
(`committing` for the configuration, `volatile` for locks and reservations) and then answered, so
what a client was told survives ``kill -9``.  Everything else hangs on to these: `deaths` frees what
the dead owned, `distribution` brings the configuration to other nodes.

Source: design of the 2.12 daemons, "WConfD details"; wconfd.json; ARCHITECTURE.
"""

from __future__ import annotations

import logging
import os
from typing import Final

from ganeti.base.paths import Paths
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.daemon.context import DaemonContext
from ganeti.daemon.main import DaemonSpec, run_daemon
from ganeti.daemon.mastership import MasterWatch, check_self, confirm
from ganeti.daemon.options import VOTING, Option
from ganeti.protocol.wconfd import MESSAGE_BYTES_MAX, SOCKET_MODE, ClientId
from ganeti.system import clock, files
from ganeti.system.filelock import LiveLock
from ganeti.transport.unix_server import UnixLimits, serve_unix
from ganeti.wconfd.change_methods import OwnChanges, V3Changes
from ganeti.wconfd.deaths import DeathWatch
from ganeti.wconfd.dispatch import Dispatcher
from ganeti.wconfd.distribution import Distributor
from ganeti.wconfd.keeper import Keeper
from ganeti.wconfd.lock_methods import LockMethods
from ganeti.wconfd.mastership import Returning, overrule
from ganeti.wconfd.read_methods import ReadMethods
from ganeti.wconfd.reservation_methods import ReservationMethods
from ganeti.wconfd.startup import read_files

logger = logging.getLogger(__name__)

DRAIN_S: Final = 1.0  # a change takes milliseconds; who waits for a lock asks the next WConfD
_LIVELOCK_MODE: Final = 0o750
_FORCE_NODE: Final = Option(("--force-node",), "run even if this node is not the master")


async def serve(context: DaemonContext) -> None:
    """Run WConfD until it is told to stop."""
    paths = context.paths
    if context.options.force_node:
        logger.warning("Not asking whether this node is the master, as was wished")
        contents = read_files(paths)
    else:
        await check_self(context)  # before any file is touched
        contents = read_files(paths)
        await confirm(context)
    keeper = Keeper(paths, contents)
    files.ensure_directory(paths.livelock_dir, _LIVELOCK_MODE)
    with _own_livelock(paths) as livelock:
        async with AsyncNodeRpcClient(paths) as rpc:
            own = ClientId(os.path.basename(livelock.path), livelock.path, os.getpid())
            distributor = Distributor(keeper, rpc, context.hostname, context.spawn)
            deaths = DeathWatch(keeper, livelock.path)
            keeper.on_flush = distributor.changed
            watch = MasterWatch(context, rpc)
            if not context.options.no_voting:
                distributor.on_return = Returning(keeper, rpc, watch, context.hostname)
            locks = LockMethods(keeper, deaths, own)
            dispatcher = Dispatcher(
                keeper,
                [
                    locks,
                    ReadMethods(keeper, distributor),
                    ReservationMethods(keeper),
                    OwnChanges(keeper),
                    V3Changes(keeper, locks),
                ],
            )
            context.spawn(keeper.committer.run(), "writer of the configuration")
            try:
                await deaths.sweep()  # before anybody asks, and before locks go to the dead
                context.spawn(deaths.run(), "watch over owners")
                limits = UnixLimits(message_bytes_max=MESSAGE_BYTES_MAX, drain_s=DRAIN_S)
                async with serve_unix(paths.wconfd_socket, SOCKET_MODE, dispatcher, limits):
                    distributor.start()
                    _care_for_mastership(context, keeper, rpc, watch)
                    context.ready()
                    await context.stopping.wait()
            finally:
                deaths.close()
                keeper.close()


def _care_for_mastership(
    context: DaemonContext, keeper: Keeper, rpc: AsyncNodeRpcClient, watch: MasterWatch
) -> None:
    if context.options.no_voting:
        context.spawn(overrule(context, keeper, rpc), "overruling other masters")
    elif not context.options.force_node:
        context.spawn(watch.run(), "watch over the master role")


def _own_livelock(paths: Paths) -> LiveLock:
    seconds = int(clock.now())
    while True:
        path = f"{paths.livelock_dir}/wconf-daemon_{seconds}"
        if not os.path.lexists(path):
            return LiveLock.create(path)
        seconds += 1


SPEC: Final = DaemonSpec(
    name="ganeti-wconfd",
    description="Keeps the configuration and the locks of the cluster.",
    serve=serve,
    options=(*VOTING, _FORCE_NODE),
)


def main() -> int:
    """Run the daemon from the command line."""
    return run_daemon(SPEC)

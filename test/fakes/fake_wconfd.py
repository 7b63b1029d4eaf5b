"""WConfD in a thread of the test: its real handlers behind its real socket, without other nodes.

A test sees which calls came, and the lock table itself.  It starts without asking other nodes for
their votes, and distributes nothing.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any, cast

from fakes.fake_config import InPlace, served_by

from ganeti.base.paths import Paths
from ganeti.clients.wconfd import WConfClient
from ganeti.protocol.envelope import Request
from ganeti.protocol.wconfd import SOCKET_MODE, ClientId
from ganeti.system.filelock import LiveLock
from ganeti.transport.unix_server import Connection, serve_unix
from ganeti.wconfd.deaths import DeathWatch
from ganeti.wconfd.keeper import Keeper
from ganeti.wconfd.main import read_files


class FakeWConfd:
    """Serves a node until `stop`; the configuration is that of its file."""

    def __init__(self, paths: Paths) -> None:
        self.calls: list[tuple[str, list[Any]]] = []
        self.priorities: dict[object, int] = {}
        self._paths = paths
        self._livelocks: dict[object, LiveLock] = {}
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> FakeWConfd:
        self._thread.start()
        assert self._started.wait(60)
        return self

    def stop(self) -> None:
        for owner in reversed(list(self._livelocks)):  # a grant would send a signal to the test
            self.let_go(owner)
        self._loop.call_soon_threadsafe(self._serving.cancel)
        self._thread.join(60)
        assert not self._thread.is_alive()

    def holders(self) -> dict[str, list[object]]:
        """Return {lock: identifiers of its holders}."""
        owned = self._keeper.locks.allocation.list_all_owners()
        return {lock: [owner.identifier for owner, _mode in owners] for lock, owners in owned}

    def waiting(self) -> set[object]:
        """Return the identifiers of those whose request waits."""

        async def look() -> set[object]:
            return {each.owner.identifier for each in self._keeper.locks.allocation.pending()}

        return asyncio.run_coroutine_threadsafe(look(), self._loop).result(60)

    def hold(self, *locks: tuple[str, str], owner: int | str = "test", wait: bool = False) -> None:
        """Take locks as a client of the test itself, or wait for them without taking time."""
        path = f"{self._paths.livelock_dir}/{owner}"
        if owner not in self._livelocks:
            self._livelocks[owner] = LiveLock.create(path)
        with WConfClient(self._paths, ClientId(owner, path, os.getpid())) as client:
            request = [("cluster/BGL", "shared"), *locks]
            blockers = (
                client.update_locks_waiting(0, request)
                if wait
                else client.try_update_locks(request)
            )
        assert bool(blockers) == wait

    def let_go(self, owner: int | str = "test") -> None:
        """Free all locks of such a client."""
        livelock = self._livelocks.pop(owner)
        with WConfClient(self._paths, ClientId(owner, livelock.path, os.getpid())) as client:
            client.free_locks()
        livelock.release()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._serve())
            except asyncio.CancelledError:
                return

    async def _serve(self) -> None:
        self._serving = cast("asyncio.Task[None]", asyncio.current_task())
        keeper = self._keeper = Keeper(self._paths, read_files(self._paths))
        own = f"{self._paths.livelock_dir}/wconfd"
        deaths = DeathWatch(keeper, own)
        self._dispatcher = served_by(keeper, InPlace(), deaths, own)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(keeper.committer.run())
                tasks.create_task(deaths.run())
                async with serve_unix(self._paths.wconfd_socket, SOCKET_MODE, self._answer):
                    self._started.set()
                    await asyncio.Event().wait()
        finally:
            deaths.close()
            keeper.close()

    async def _answer(self, request: Request, connection: Connection) -> Any:
        args: list[Any] = request.args
        self.calls.append((request.method, args))
        if request.method in ("waitLocks", "changeWaitPriority"):
            [[identifier, *_], priority, *_] = args
            self.priorities[identifier] = priority
        return await self._dispatcher(request, connection)

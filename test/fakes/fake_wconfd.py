"""A WConfD for tests of LuxiD and job processes: a lock table behind a real socket, in a thread.

Locks are exclusive or shared by name; a request waits until it can be granted in full.  It answers
only what a job that changes nothing asks for, and records what it was asked.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from ganeti.base.errors import GenericError
from ganeti.protocol.envelope import Request
from ganeti.protocol.wconfd import WConfCalls
from ganeti.transport.unix_server import Connection, serve_unix

Request_ = list[list[str]]

LOCKS_WAITING = [
    [["cluster/BGL", [[[7, "/l", 1], "shared"]]], ["instance/i1", [[[7, "/l", 1], "exclusive"]]]],
    [
        [10, [8, "/m", 2], [["instance/i1", "exclusive"], ["node/n1", "shared"]]],
        [-5, [9, "/n", 3], [["instance/i1", "exclusive"]]],
    ],
]


class FakeWConfd:
    """Serves on a path until `stop`."""

    def __init__(self, path: str, config: Mapping[str, Any]) -> None:
        self.calls: list[tuple[str, list[Any]]] = []
        self.priorities: dict[object, int] = {}
        self._path = path
        self._config = config
        self._held: dict[str, dict[object, str]] = {}
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> FakeWConfd:
        self._thread.start()
        assert self._started.wait(60)
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    def holders(self) -> dict[str, list[object]]:
        """Return {lock: identifiers of its holders}."""
        return {name: list(owners) for name, owners in self._held.items() if owners}

    def hold(self, name: str) -> None:
        """Take a lock for a test itself."""
        self._held.setdefault(name, {})["test"] = "exclusive"

    def let_go(self, name: str) -> None:
        """Give a lock taken by `hold` back."""
        self._held[name].pop("test")
        self._loop.call_soon_threadsafe(self._changed)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        self._change = asyncio.Condition()
        async with serve_unix(self._path, 0o600, self._answer):
            self._started.set()
            await self._stopping.wait()

    def _changed(self) -> None:
        task = asyncio.ensure_future(self._notify())
        task.add_done_callback(lambda done: done.result())

    async def _notify(self) -> None:
        async with self._change:
            self._change.notify_all()

    async def _answer(self, request: Request, connection: Connection) -> Any:
        args: list[Any] = request.args
        self.calls.append((request.method, args))
        index = WConfCalls.calls[request.method].rules.owner
        owner = None if index is None else args[index][0]
        match request.method:
            case "waitLocks":
                return await self._wait_locks(owner, *args[1:], connection)
            case "changeWaitPriority":
                self.priorities[owner] = args[1]
                return []
            case "freeLocks":
                for owners in self._held.values():
                    owners.pop(owner, None)
                await self._notify()
                return []
            case "listAllLocksOwners":
                return []
            case "listLocksWaitingStatus":
                return LOCKS_WAITING
            case "getCluster":
                return self._config["cluster"]
            case "getNodes":
                nodes = self._config["nodes"]
                keys = args[0] if args[0] is not None else list(nodes)
                by_name = {node["name"]: node for node in nodes.values()}
                return [nodes.get(key) or by_name.get(key) for key in keys]
            case "dropAllReservations" | "releaseNodeResources" | "flushConfig":
                return []
        raise GenericError(f"the fake does not answer {request.method}")

    async def _wait_locks(
        self,
        owner: object,
        priority: int,
        request: Request_,
        timeout_s: float,
        connection: Connection,
    ) -> list[Any]:
        self.priorities[owner] = priority
        gone = asyncio.ensure_future(connection.wait_closed())
        gone.add_done_callback(lambda _: self._changed())
        try:
            async with asyncio.timeout(timeout_s), self._change:
                await self._change.wait_for(lambda: gone.done() or self._is_free(owner, request))
        except TimeoutError:
            return ["timeout", []]
        finally:
            gone.cancel()
        if not connection.is_closed:
            for name, mode in request:
                self._held.setdefault(name, {})[owner] = mode
        return ["granted", []]

    def _is_free(self, owner: object, request: Request_) -> bool:
        for name, mode in request:
            for other, its_mode in self._held.get(name, {}).items():
                if other != owner and "exclusive" in (mode, its_mode):
                    return False
        return True

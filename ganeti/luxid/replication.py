"""Puts files of the queue where they count: on this disk and on the other master candidates.

A write is sent to all candidates while it is made durable here, and is done when enough copies
exist.  Candidates that have not answered by then *lag*: the caller is told who, because a late
write could still overtake a newer one from another process.  Writes of one file to one node go out
one after the other.  A write that fails on a connection which had been idle is repeated at once on
another one (by `ganeti.transport.curl_pool`: a file that is written whole may be written twice).
What a candidate missed all the same is owed to it (`debts`).

Source: ARCHITECTURE, invariants 4 and 9.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from ganeti.base.errors import ConfigurationError, GenericError, JobQueueError
from ganeti.base.paths import Paths
from ganeti.clients import mastership
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.node_rpc import RpcResult, Target
from ganeti.jobs.copies import copies_needed, describe_shortage
from ganeti.luxid.debts import Debts
from ganeti.luxid.quorum import Quorum
from ganeti.luxid.tasks import Tasks
from ganeti.store import ssconf
from ganeti.system import environment, files

logger = logging.getLogger(__name__)

# A candidate that needs longer than this for a small file is not waited for.
PATIENCE_S: Final = 2.0
# Each connection costs a handshake at both ends; a few carry all that a disk can take.
SENDS_PER_NODE_MAX: Final = 3


class Replicator:
    """Sends to the other candidates.

    Args:
        tasks: carries what goes on after an answer.
        is_ours: tells whether we are the writer of a file; what is owed of others' files waits.

    Attributes:
        quorum: whether enough candidates answer.
        on_refused: hears of candidates that answer, but do not do what they are told.
    """

    def __init__(
        self,
        paths: Paths,
        rpc: AsyncNodeRpcClient,
        tasks: Tasks,
        is_ours: Callable[[str], bool],
    ) -> None:
        self._paths = paths
        self._rpc = rpc
        self._tasks = tasks
        self._is_ours = is_ours
        self.quorum = Quorum(self.others, rpc, tasks)
        self.on_refused: Callable[[], None] | None = None
        self._own_name = environment.own_hostname()
        self._others: list[Target] | None = None
        self._is_stale = True
        self._sending: dict[tuple[str, str], asyncio.Task[bool]] = {}
        self._writing: Counter[str] = Counter()
        self._debts = Debts(self, tasks)
        self._turns: dict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(SENDS_PER_NODE_MAX)
        )

    def others(self) -> list[Target]:
        """Return the master candidates besides this node, as the simple configuration has them.

        Raises:
            ConfigurationError: they were never known.
        """
        if self._is_stale:
            try:
                self._others = self._read_others()
                self._is_stale = False
            except ConfigurationError as err:
                if self._others is None:
                    raise
                # Two files make the list, and are written one after the other.
                logger.debug("The master candidates are just changing: %s; ignoring", err)
        assert self._others is not None
        return self._others

    def on_candidates_changed(self) -> None:
        """Read the list of candidates again when it is needed next."""
        self._is_stale = True
        self.quorum.tell_news()

    def _read_others(self) -> list[Target]:
        offline = ssconf.offline_nodes(self._paths)
        return [
            Target(node.name, node.ip, offline=node.name in offline)
            for node in ssconf.master_candidates(self._paths)
            if node.name != self._own_name
        ]

    async def write(
        self,
        path: str,
        data: bytes,
        local: Callable[[], None],
        *,
        patience_s: float = 0.0,
        alone_is_enough: bool = False,
    ) -> tuple[str, ...]:
        """Make a file durable here (by calling ``local``) and on enough candidates.

        Args:
            patience_s: how long to wait for all candidates, once there are enough.
            alone_is_enough: the copy here counts as enough.

        Returns:
            Names of the candidates that have not acknowledged.

        Raises:
            JobQueueError: not written here (disk full, ...) or not on enough candidates; what was
                written stays where it is.
        """
        try:
            others = self.others()
        except ConfigurationError as err:
            raise JobQueueError(f"the master candidates are not known: {err.message}") from err
        if not alone_is_enough and self.quorum.is_lost and not await self.quorum.look():
            raise JobQueueError(self.quorum.shortage(path))
        sends = {target.name: self.send(target, path, data) for target in others}
        self._writing[path] += 1
        try:
            await asyncio.to_thread(local)
        except OSError as err:
            raise JobQueueError(f"cannot write {path}: {err.strerror or err}") from err
        finally:
            self._writing[path] -= 1
            self._writing += Counter()  # forgets what is zero
        needed = 1 if alone_is_enough else copies_needed(len(others) + 1)
        await self._wait_enough(sends, needed - 1)
        if patience_s and any(not task.done() for task in sends.values()):
            await asyncio.wait(sends.values(), timeout=patience_s)
        missing = tuple(name for name, task in sends.items() if not _is_there(task))
        copies = 1 + len(sends) - len(missing)
        if copies < needed:
            raise JobQueueError(describe_shortage(path, copies, needed, missing))
        return missing

    def spread(self, path: str, data: bytes) -> None:
        """Send a file to all candidates without waiting."""
        for target in self.others():
            self.send(target, path, data)

    def owe(self, node_names: Iterable[str], *paths: str) -> None:
        """Note that candidates may have old versions of files, or none, of which we are the writer.

        They get them now, and so does every other one that these files were owed to.
        """
        for name in node_names:
            self._debts.add(name, paths)
            self._debts.pay(name)
        for path in paths:
            self._debts.pay_file(path)

    async def rename_all(self, renames: Mapping[str, str]) -> None:
        """Let all candidates rename files of the queue, {old path: new path}.

        Where a file is still being sent, that comes first: it would bring the old name back.  Such
        a candidate is not waited for.
        """
        globalize = self._paths.globalize
        args: list[object] = [[[globalize(old), globalize(new)] for old, new in renames.items()]]
        targets: dict[Target, list[object]] = {}
        for target in self.others():
            self._debts.drop(target.name, renames)
            keys = ((target.name, old) for old in renames)
            sends = [self._sending[key] for key in keys if key in self._sending]
            if sends:
                self._tasks.create_task(
                    self._rename_after(sends, target, args), name=f"archive on {target.name}"
                )
            else:
                targets[target] = args
        await self._tell("jobqueue_rename", targets)

    async def _rename_after(
        self, sends: Collection[asyncio.Task[bool]], target: Target, args: list[object]
    ) -> None:
        await asyncio.wait(sends)
        await self._tell("jobqueue_rename", {target: args})

    async def tell_all(self, call: str, *args: object) -> None:
        """Make a call on all candidates; failures are logged."""
        await self._tell(call, {target: list(args) for target in self.others()})

    async def _tell(self, call: str, targets: Mapping[Target, Sequence[object]]) -> None:
        if not targets:
            return
        try:
            results = await self._rpc.call(call, targets)
        except GenericError as err:
            logger.warning("%s on the candidates: %s; ignoring", call, err.message)
            for target in targets:
                self._miss(target.name)
            return
        for name, result in results.items():
            if not self.note(result):
                logger.warning("%s on candidate %s: %s; ignoring", call, name, result.error)

    def note(self, result: RpcResult) -> bool:
        """Take note of what a candidate answered; returns whether it did what it was told."""
        if result.error is None:
            self.quorum.reached(result.node_name)
            return True
        self._miss(result.node_name)
        is_refused = not result.address and not result.offline
        if is_refused and self.on_refused is not None:
            self.on_refused()
        return False

    def _miss(self, name: str) -> None:
        self.quorum.missed(name)
        self._debts.look_after(name)

    @staticmethod
    async def _wait_enough(sends: Mapping[str, asyncio.Task[bool]], count: int) -> None:
        """Return once so many have it, or all have answered."""
        pending = set(sends.values())
        while pending and sum(map(_is_there, sends.values())) < count:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)

    def send(self, target: Target, path: str, data: bytes) -> asyncio.Task[bool]:
        """Send a file to one candidate, in turn; the result is whether it has it now."""
        key = (target.name, path)
        task = self._tasks.create_task(
            self._send_in_turn(target, path, data, self._sending.get(key)),
            name=f"send {path} to {target.name}",
        )
        self._sending[key] = task
        task.add_done_callback(lambda done: self._forget(key, done))
        return task

    def _forget(self, key: tuple[str, str], task: asyncio.Task[bool]) -> None:
        if self._sending.get(key) is task:
            del self._sending[key]

    async def _send_in_turn(
        self, target: Target, path: str, data: bytes, before: asyncio.Task[bool] | None
    ) -> bool:
        """Send one file to one node; returns whether the node has it now."""
        if before is not None and not before.done():
            await asyncio.wait([before])
        was_missing = self.quorum.is_missing(target.name)
        error = await self._send_now(target, path, data)
        if error is None:
            self._debts.paid(target.name, path)
            return True
        self._debts.add(target.name, [path])
        self._debts.look_after(target.name)
        if not target.offline:
            level = logging.DEBUG if was_missing else logging.WARNING
            logger.log(
                level, "Candidate %s has not got %s: %s; it gets it later", target.name, path, error
            )
        return False

    async def _send_now(self, target: Target, path: str, data: bytes) -> str | None:
        wire_path = sys.intern(self._paths.globalize(path))  # one body for all candidates
        try:
            async with self._turns[target.name]:
                result = await self._rpc.single("jobqueue_update", target, wire_path, data)
        except GenericError as err:
            self._miss(target.name)
            return str(err)
        self.note(result)
        return result.error

    # What `debts` needs.

    def candidate(self, name: str) -> Target | None:
        """Return a candidate that is not offline."""
        try:
            others = self.others()
        except ConfigurationError:
            return None
        return next((each for each in others if each.name == name and not each.offline), None)

    def is_missing(self, name: str) -> bool:
        """Tell whether a candidate did not answer, or not do what it was told, last."""
        return self.quorum.is_missing(name)

    def is_ours(self, path: str) -> bool:
        """Tell whether we are the writer of a file."""
        return self._is_ours(path)

    async def ask(self, target: Target) -> bool:
        """Ask whether a candidate is there; it is not missing then."""
        answer = await mastership.ask_one(self._rpc, target)
        if isinstance(answer, str):
            return False
        self.quorum.reached(target.name)
        return True

    async def send_again(self, target: Target, path: str) -> bool:
        """Send a file as it is now; returns whether the candidate has it, or needs it no more.

        What it has not got is owed to it again.
        """
        if self._writing[path] or (target.name, path) in self._sending:
            self._debts.add(target.name, [path])  # a newer version is under way, and not read here
            return False
        # Read in place: a version written while a thread reads would be overtaken by this one.
        data = files.read_bytes_or_none(path)
        return data is None or await self.send(target, path, data)  # without data: archived


def _is_there(task: asyncio.Task[bool]) -> bool:
    return task.done() and not task.cancelled() and task.result()

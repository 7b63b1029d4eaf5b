"""Puts files of the queue where they count: on this disk and on the other master candidates.

A write is sent to all candidates while it is made durable here, and is done when enough copies
exist.  Candidates that have not answered by then *lag*: the caller is told their names, because a
late write could still overtake a newer one from another process.  The files that a candidate misses
reach it as soon as it can (`clients.couriers`); its queue is compared with this one when it is back
or new (`luxid.queue.candidate_calls`).

Contents are kept here only until those candidates have them that answer; later they are read from
the disk, if LuxiD is the writer of the file at that time.

While too few candidates answer nothing counts, so nothing may begin: the *quorum* is lost.  When
enough are back, all nodes are asked whether this one is still the master before anything begins.

Source: ARCHITECTURE, invariants 4 and 9.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from ganeti.base.errors import ConfigurationError, GenericError, JobQueueError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.clients import master_poll
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.couriers import Courier, Couriers, Delivery
from ganeti.clients.node_rpc import Target
from ganeti.copies.node import NodeCopies, Versions, Wanted
from ganeti.copies.quorum import Tally
from ganeti.jobs.merging import digest
from ganeti.jobs.votes import Poll
from ganeti.luxid.queue.candidate_calls import CandidateCalls, Content
from ganeti.luxid.queue.known_jobs import KnownJobs, Phase
from ganeti.luxid.tasks import Tasks
from ganeti.store import lease, ssconf
from ganeti.store.job_files import job_id_of
from ganeti.system import clock, files

logger = logging.getLogger(__name__)

# Without enough answers for so long, a write is refused; slower candidates count as missing.
WRITE_S_MAX: Final = 10.0
# A client that submits a job while there are too few candidates waits so long for one to be back.
LOOK_S_MAX: Final = 2.0
# A job process hears of us within `jobexec.luxid_link.COPY_TIMEOUT_S`.
JOB_COPY_S_MAX: Final = 3.0
FILES_PER_TRIP_MAX: Final = 64  # more go at the same time, so that the node writes in parallel
BYTES_PER_TRIP_MAX: Final = 4 << 20
_CONFIRM_AGAIN_S: Final = 1.0
_WRITERS_LOOK_S: Final = 0.5

_SWEEP_AT_LEAST: Final = 100

CopiesMade = tuple[tuple[str, ...], tuple[str, ...]]


class Replication:
    """The queue on the other candidates.

    Args:
        tasks: runs the work that goes on after an answer.
        known_jobs: the jobs, which tell whether LuxiD is the writer of a file.
        on_quorum: hears whether too few candidates answer, at each change.
        on_refused: hears that a candidate answers, but refuses the call.
        confirm: tells whether this node is still the master.
        pass_over: has new jobs get higher ids than this one, which a candidate knows.
    """

    def __init__(
        self,
        paths: Paths,
        own_name: str,
        rpc: AsyncNodeRpcClient,
        tasks: Tasks,
        known_jobs: KnownJobs,
        *,
        on_quorum: Callable[[bool], None],
        on_refused: Callable[[], None],
        confirm: Callable[[], Awaitable[bool]],
        pass_over: Callable[[int], None],
    ) -> None:
        self.is_lost = False
        self._paths = paths
        self._rpc = rpc
        self._tasks = tasks
        self._known_jobs = known_jobs
        self._on_quorum = on_quorum
        self._calls = CandidateCalls(paths, rpc, on_refused)
        self._confirm = confirm
        self._pass_over = pass_over
        self._own_name = own_name
        self._names: tuple[str, ...] | None = None
        self._is_stale = True
        self._confirming: asyncio.Task[None] | None = None
        self._comparing: set[str] = set()
        self._contents: dict[str, Content] = {}
        self._writing: set[str] = set()  # files that may be on candidates before they are here
        self._sweep_at = _SWEEP_AT_LEAST
        self._last_version = 0
        self._couriers = Couriers(
            self, self._spawn, files_max=FILES_PER_TRIP_MAX, trip_s_max=WRITE_S_MAX
        )

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.create_task(work, name=name)

    # The candidates.

    def start(self, poll: Poll) -> None:
        """Bring all copies up to date, and have those removed that are left over.

        Args:
            poll: the answers of the nodes to the question for the master.
        """
        known = poll.known()
        names = self.names()
        for courier in self._couriers:
            facts = known.get(courier.name)
            courier.is_known = facts is not None
            courier.takes_many = facts is not None and facts.takes_many_files
            self._compare_soon(courier)
        for name, facts in known.items():
            if facts.last_job_id and name not in names and name != poll.own_name:
                self._purge_soon(name)

    def names(self) -> tuple[str, ...]:
        """Return the master candidates besides this node, as the simple configuration has them.

        Raises:
            ConfigurationError: they were never known.
        """
        if self._is_stale:
            try:
                targets = self._read_others()
            except ConfigurationError as err:
                if self._names is None:
                    raise
                # Two files make the list, and are written one after the other.
                logger.debug("The master candidates are just changing: %s; ignoring", err)
            else:
                self._is_stale = False
                self._take_targets(targets)
        assert self._names is not None
        return self._names

    def _known_names(self) -> tuple[str, ...]:
        try:
            return self.names()
        except ConfigurationError:
            return ()

    def _read_others(self) -> list[Target]:
        offline = ssconf.offline_nodes(self._paths)
        return [
            Target(node.name, node.ip, offline=node.name in offline)
            for node in ssconf.master_candidates(self._paths)
            if node.name != self._own_name
        ]

    def _take_targets(self, targets: Sequence[Target]) -> None:
        """Take another list of candidates: new ones get the queue, former ones lose it."""
        is_first = self._names is None  # then `start` compares all of them
        self._names = tuple(target.name for target in targets)
        for target in targets:
            courier = self._couriers.get(target.name)
            was_there = courier is not None and not courier.target.offline
            if courier is None:
                courier = self._couriers.add(target, NodeCopies())
            elif courier.target != target:
                courier.target = target
                courier.is_known = False
            if not is_first and not was_there and not target.offline:
                logger.info("Node %s is a candidate now, it gets the queue", target.name)
                self._compare_soon(courier)
        for name in sorted({courier.name for courier in self._couriers} - set(self._names)):
            self._couriers.remove(name)
            self._purge_soon(name)

    def on_candidates_changed(self) -> None:
        """Take note that others may be candidates now."""
        self._is_stale = True
        try:
            self.names()
        except ConfigurationError as err:
            logger.warning("The master candidates are not known: %s; ignoring", err)
            return
        self._couriers.start_soon()
        self._couriers.wake()
        self._evaluate()

    def _compare_soon(self, courier: Courier) -> None:
        if courier.name not in self._comparing and not courier.target.offline:
            self._comparing.add(courier.name)
            self._spawn(self._compare(courier), f"compare with {courier.name}")

    async def _compare(self, courier: Courier) -> None:
        """Bring one copy up to date; failed calls are repeated when the node is back.

        A former master that stood still may still write into its queue, until its daemons and its
        jobs have ended: then it is compared once more.
        """
        try:
            has_writers = await self._calls.has_writers(courier.target)
            await self._bring_up_to_date(courier)
            if has_writers:
                logger.info("Node %s still ends what it began as master", courier.name)
                while has_writers:
                    await asyncio.sleep(_WRITERS_LOOK_S)
                    has_writers = await self._calls.has_writers(courier.target)
                await self._bring_up_to_date(courier)
        except (GenericError, OSError) as err:
            logger.warning(
                "The queue on candidate %s is not compared: %s; ignoring", courier.name, err
            )
            self._fail(courier, str(err))
        finally:
            self._comparing.discard(courier.name)

    async def _bring_up_to_date(self, courier: Courier) -> None:
        job_ids = await self._calls.compare(
            courier.target,
            is_new=lambda job_id: self._paths.job_file(job_id) in self._writing,
            pass_over=self._pass_over,
        )
        paths = [self._paths.job_file(job_id) for job_id in job_ids]
        fixed = (self._paths.queue_version, self._paths.queue_serial)
        self.renew([courier.name], *fixed, *self._calls.states, *paths)

    def _purge_soon(self, name: str) -> None:
        def target() -> Target | None:
            """Return the node, unless it has become a candidate again, or is gone or offline."""
            found = master_poll.other_nodes(self._paths, self._own_name)
            names = self._known_names()
            return next(
                (t for t in found if t.name == name and not t.offline and name not in names), None
            )

        self._spawn(self._calls.purge(target), f"purge {name}")

    # The quorum.

    def _evaluate(self) -> None:
        """Find out whether enough of the present candidates answer."""
        if self._tally_of_present().is_enough:
            if self.is_lost and (self._confirming is None or self._confirming.done()):
                self._confirming = self._tasks.create_task(
                    self._regain(), name="confirm the master role"
                )
        elif not self.is_lost:
            self.is_lost = True
            logger.error("%s. No jobs are started.", self._shortage("The job queue"))
            self._on_quorum(True)
            if self._needs_both():
                self._spawn(self._watch_alone(), "look whether the master goes on alone")

    def _tally_of_present(self) -> Tally:
        present = [each.name for each in self._couriers if not each.copies.is_missing]
        return lease.tally(self._paths, self._own_name, self._known_names(), present)

    def _shortage(self, what: str) -> str:
        return self._tally_of_present().shortage(what)

    def _needs_both(self) -> bool:
        return lease.needs_both(self._paths, self._known_names())

    async def _watch_alone(self) -> None:
        """Look again and again: the agent may say at any time that one copy is enough."""
        while self.is_lost and self._needs_both():
            await asyncio.sleep(lease.LOOK_S)
            self._evaluate()

    async def _regain(self) -> None:
        while self.is_lost and self._tally_of_present().is_enough:
            if await self._is_master():
                self.is_lost = False
                logger.info("Enough master candidates answer again")
                self._on_quorum(False)
                self._couriers.wake()
                return
            await asyncio.sleep(_CONFIRM_AGAIN_S)

    async def _is_master(self) -> bool:
        try:
            return await self._confirm()
        except GenericError as err:
            logger.warning("Cannot ask who is master: %s; trying again", err.message)
            return False

    async def _is_regained(self, path: str) -> bool:
        """Ask the missing candidates once more; returns whether there are enough."""
        self._couriers.hurry()
        wait_s = WRITE_S_MAX if self._needs_both() else LOOK_S_MAX
        await self._couriers.wait_until(path, lambda: not self.is_lost, wait_s)
        return not self.is_lost

    # What the agent of high availability hears.

    def wanted(self) -> Wanted:
        """Return what other candidates should have and have not."""
        return self._couriers.wanted()

    def lacking(self, wanted: Wanted) -> set[str]:
        """Return the candidates that do not answer, or still lack some of that."""
        return {*self._couriers.lacking(wanted), *self._comparing}

    # Files.

    async def write(
        self,
        path: str,
        data: bytes,
        local: Callable[[], None],
        *,
        wait_for_all: bool = False,
        alone_is_enough: bool = False,
    ) -> tuple[str, ...]:
        """Make a file durable here (by calling ``local``) and on enough candidates.

        Args:
            wait_for_all: wait a little for all candidates, once there are enough.
            alone_is_enough: the copy here counts as enough.

        Returns:
            Names of the candidates that have not acknowledged.

        Raises:
            JobQueueError: not written here (disk full, ...) or not on enough candidates; copies
                written stay where they are.
        """
        try:
            self.names()
        except ConfigurationError as err:
            raise JobQueueError(f"the master candidates are not known: {err.message}") from err
        if not alone_is_enough and self.is_lost and not await self._is_regained(path):
            raise JobQueueError(self._shortage(path))
        version = self._put(path, data)
        self._writing.add(path)
        try:
            await asyncio.to_thread(local)
            if not alone_is_enough:
                await self._wait_for_enough(path, version)
            if wait_for_all:
                await self._couriers.wait_for_all(path, lambda: self._lacking(path, version))
        except OSError as err:
            raise JobQueueError(f"cannot write {path}: {err.strerror or err}") from err
        finally:
            self._writing.discard(path)
            self._release(path)
        tally = self._tally(path, version)
        if not (alone_is_enough or tally.is_enough):
            raise JobQueueError(tally.shortage(path))
        return tuple(tally.missing)

    async def _wait_for_enough(self, path: str, version: int) -> None:
        """Wait for enough candidates; one that failed before may be back, so all get a chance."""
        deadline = clock.monotonic() + WRITE_S_MAX
        look_s = lease.LOOK_S if self._needs_both() else None
        await self._couriers.wait_until(
            path, lambda: self._is_decided(path, version), WRITE_S_MAX, look_s
        )
        if not self._tally(path, version).is_enough:
            self._couriers.hurry()
            left_s = min(LOOK_S_MAX, deadline - clock.monotonic())
            await self._couriers.wait_until(
                path, lambda: self._tally(path, version).is_enough, left_s
            )

    def spread(self, path: str, data: bytes) -> None:
        """Send a file to all candidates that answer, without waiting."""
        self._put(path, data)
        self._release(path)  # a missing candidate gets the file on the disk when it is back

    def renew(self, names: Iterable[str], *paths: str) -> None:
        """Bring files to candidates that may have old versions of them, or none.

        LuxiD is the writer of these files by now, so any candidate that waits for them gets them.
        """
        self._last_version += 1
        for name in names:
            courier = self._couriers.get(name)
            if courier is not None:
                for path in paths:
                    courier.copies.want(path, self._last_version)
        self._couriers.start_soon()

    def settle(self, path: str, names: Iterable[str], brought: str) -> None:
        """Bring the last version of a file to candidates that may have got an older one after it.

        A process that waits for us in vain sends by itself: versions that we still had from it then
        may arrive after its last one.

        Args:
            names: of candidates that may have old versions in any case.
            brought: digest of the last version that we had from it.
        """
        last = self._read(path)
        if last is not None and last.data is not None and digest(last.data) != brought:
            self.spread(path, last.data)
        else:
            self.renew(names, path)

    async def archive(self, job_ids: Sequence[JobId]) -> None:
        """Let the candidates move job files to the archive; waits a little for all of them."""
        paths = [self._paths.job_file(job_id) for job_id in job_ids]
        versions = {path: self._put(path, None, self._behind(path)) for path in paths}
        for path, version in versions.items():
            lacking = functools.partial(self._lacking, path, version)
            await self._couriers.wait_for_all(path, lacking)
            self._release(path)

    def _behind(self, path: str) -> frozenset[str]:
        """Return the candidates that may not have the last version of a file."""
        return frozenset(
            each.name
            for each in self._couriers
            if path in each.copies.wanted or each.name in self._comparing
        )

    async def bring(self, path: str, data: bytes, wait_s: float) -> CopiesMade:
        """Send a job file for the process that the job belongs to.

        Args:
            wait_s: how long to wait until enough candidates have it, in any case; 0 for as
                long as that is likely.

        Returns:
            The names of the candidates, and of the ones that have it.
        """
        content = self._contents.get(path)
        version = (
            content.version
            if content is not None and content.data == data
            else self._put(path, data)
        )

        def is_decided() -> bool:
            if wait_s:
                return self._tally(path, version).is_enough
            return self._is_decided(path, version)

        await self._couriers.wait_until(path, is_decided, wait_s or JOB_COPY_S_MAX)
        names = self._known_names()
        missing = self._tally(path, version).missing
        return names, tuple(name for name in names if name not in missing)

    async def tell_state(self, path: str) -> None:
        """Let all candidates follow a file that a call of its own carries, as it is here now.

        Waits a little; a candidate that does not answer hears of it when it is back.
        """
        version = self._put(path, None)
        await self._couriers.wait_for_all(path, functools.partial(self._lacking, path, version))
        self._release(path)

    def _put(self, path: str, data: bytes | None, behind: frozenset[str] = frozenset()) -> int:
        """Take the newest content of a file, for all candidates; returns its version."""
        self._last_version += 1
        self._contents[path] = Content(self._last_version, data, behind)
        if len(self._contents) > self._sweep_at:
            self._sweep()
        self._known_names()
        for courier in self._couriers:
            courier.copies.want(path, self._last_version)
        self._couriers.start_soon()
        return self._last_version

    def _release(self, path: str) -> None:
        """Forget a content if all candidates that answer have it; others get it from the disk."""
        content = self._contents.get(path)
        if content is not None and all(
            each.copies.is_missing for each in self._lacking(path, content.version)
        ):
            del self._contents[path]
            if content.data is None and path not in self._calls.states:
                for courier in self._couriers:
                    courier.copies.forget([path])

    def _sweep(self) -> None:
        for path in list(self._contents)[:-1]:  # the last one is just being put
            self._release(path)
        self._sweep_at = 2 * len(self._contents) + _SWEEP_AT_LEAST

    def _lacking(self, path: str, version: int) -> list[Courier]:
        return [
            each
            for each in self._couriers
            if not each.target.offline and not each.copies.has_version(path, version)
        ]

    def _tally(self, path: str, version: int) -> Tally:
        names = self._known_names()
        reached = [e.name for e in self._couriers if e.copies.has_version(path, version)]
        return lease.tally(self._paths, self._own_name, names, reached)

    def _is_decided(self, path: str, version: int) -> bool:
        """Tell whether enough candidates have a file, or all others have failed to take it."""
        if self._tally(path, version).is_enough:
            return True
        if self._needs_both():
            return False  # within seconds the other one is back, or the master goes on alone
        now = clock.monotonic()
        return all(each.copies.rests(now) for each in self._lacking(path, version))

    # The interface for the couriers.

    def may_send(self, file: str) -> bool:
        """As declared; the file of a running job belongs to its process."""
        if file in self._contents:
            return True
        job_id = job_id_of(os.path.basename(file))
        known = None if job_id is None else self._known_jobs.get(job_id)
        return known is None or known.phase is not Phase.RUNNING

    async def greet(self, courier: Courier) -> str | None:
        """As declared."""
        answer = await master_poll.ask_one(self._rpc, courier.target)
        if isinstance(answer, str):
            return answer
        courier.takes_many = answer.facts is not None and answer.facts.takes_many_files
        return None

    async def deliver(self, courier: Courier, versions: Versions) -> Delivery:
        """As declared; jobs archived meanwhile are dropped."""
        found: dict[str, Content] = {}
        size_bytes = 0
        states = self._calls.states.keys() & versions.keys()
        for path in versions.keys() - states:
            content = self._contents.get(path) or self._read(path)
            if content is None:
                courier.copies.forget([path])
                continue
            found[path] = content
            size_bytes += len(content.data or b"")
            if size_bytes > BYTES_PER_TRIP_MAX:
                break
        refused = await self._calls.write(
            courier, {path: each for path, each in found.items() if each.data is not None}
        )
        refused |= await self._calls.archive(
            courier, {path: each for path, each in found.items() if each.data is None}
        )
        refused |= await self._calls.tell_states(courier, states)
        taken = {path: versions[path] for path in {*found, *states} if path not in refused}
        return Delivery(taken, refused)

    def _read(self, path: str) -> Content | None:
        """Return a file as it is on the disk; None if it is archived, or gone.

        It is read in place: a version written while a thread reads would be overtaken by this one.
        """
        try:
            data = files.read_regular(path)
        except (GenericError, OSError) as err:
            logger.warning("Candidates do not get %s: %s", path, err)
            return None
        return Content(0, data) if data else None

    def on_result(self, courier: Courier, *, was_missing: bool, error_before: str | None) -> None:
        """As declared."""
        copies = courier.copies
        if copies.error is not None and error_before is None:
            logger.warning(
                "Candidate %s does not take files of the queue: %s; trying again",
                courier.name,
                copies.error,
            )
        if copies.is_missing == was_missing:
            return
        self._evaluate()
        if copies.is_missing:
            self._sweep()
        else:
            logger.info("Candidate %s takes files of the queue again", courier.name)
            self._compare_soon(courier)

    def _fail(self, courier: Courier, error: str) -> None:
        before = (courier.copies.is_missing, courier.copies.error)
        courier.copies.fail(error, clock.monotonic())
        self.on_result(courier, was_missing=before[0], error_before=before[1])
        self._couriers.start_soon()

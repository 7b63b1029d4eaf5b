"""Keeps the copies of the queue on the other master candidates equal to this one.

Every write goes to all of them (`replication`).  This is for whatever else there is: a node that
becomes a candidate gets the whole queue, one that is none any more loses it, one that was away or
belongs to a queue that was taken over is compared and brought up to date, so that nothing is
missing and nothing piles up.

Source: ARCHITECTURE, invariant 9.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ganeti.base.errors import ConfigurationError, GenericError, JobFileCorrupted
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.node_rpc import Target
from ganeti.jobs import changes
from ganeti.jobs.mastership import Poll
from ganeti.jobs.merging import plan_copy
from ganeti.jobs.record import decode_job, encode_job
from ganeti.luxid.replication import Replicator
from ganeti.luxid.tasks import Tasks
from ganeti.objects.node import Node
from ganeti.protocol.mastership import QueueListing, decode_listing
from ganeti.protocol.node_rpc_values import decompress
from ganeti.store.job_files import JobFiles
from ganeti.store.queue_copy import list_queue
from ganeti.system.clock import timestamp

logger = logging.getLogger(__name__)

ARCHIVED_PER_CALL_MAX: Final = 500
LOST_TEXT: Final = "The master was interrupted before it had accepted this job"
_PURGE_DELAYS_S: Final = (1.0, 5.0, 30.0)  # what was under way arrives before the first of them


class Candidates:
    """Follows who is a candidate.

    Args:
        find_node: returns a node by its name, or None.
    """

    def __init__(
        self,
        paths: Paths,
        rpc: AsyncNodeRpcClient,
        replicator: Replicator,
        tasks: Tasks,
        find_node: Callable[[str], Node | None],
    ) -> None:
        self._paths = paths
        self._rpc = rpc
        self._replicator = replicator
        self._tasks = tasks
        self._find_node = find_node
        self._names: frozenset[str] = frozenset()
        self._comparing: set[str] = set()

    def start(self, poll: Poll) -> None:
        """Bring all copies up to date, and have those removed that are left over.

        Args:
            poll: what the nodes said when they were asked who is master.
        """
        others = self._others()
        self._names = frozenset(others)
        for target in others.values():
            self._compare_soon(target)
        for name, facts in poll.known().items():
            if facts.last_job_id and name not in self._names and name != poll.own_name:
                self._tasks.create_task(self._purge(name), name=f"purge {name}")

    def on_changed(self) -> None:
        """Take note that others may be candidates now."""
        try:
            others = self._others()
        except ConfigurationError as err:
            logger.warning("The master candidates are not known: %s; ignoring", err)
            return
        new, gone = others.keys() - self._names, self._names - others.keys()
        self._names = frozenset(others)
        for name in sorted(new):
            logger.info("Node %s is a candidate now, it gets the queue", name)
            self._compare_soon(others[name])
        for name in sorted(gone):
            self._tasks.create_task(self._purge(name), name=f"purge {name}")

    def on_back(self, name: str) -> None:
        """Take note that a candidate answers again."""
        target = self._others().get(name)
        if target is not None:
            self._compare_soon(target)

    def _others(self) -> dict[str, Target]:
        return {target.name: target for target in self._replicator.others()}

    # Candidates.

    def _compare_soon(self, target: Target) -> None:
        if target.name not in self._comparing and not target.offline:
            self._comparing.add(target.name)
            self._tasks.create_task(self._compare(target), name=f"compare with {target.name}")

    async def _compare(self, target: Target) -> None:
        """Bring one copy up to date; what fails is done when the node is back."""
        try:
            await self._bring_up_to_date(target)
        except (GenericError, OSError) as err:
            logger.warning(
                "The queue on candidate %s is not compared: %s; ignoring", target.name, err
            )
        finally:
            self._comparing.discard(target.name)

    async def _bring_up_to_date(self, target: Target) -> None:
        result = await self._rpc.single("jobqueue_list", target)
        if result.error is not None:
            self._replicator.note(result)
            await self._send_all(target)  # a node of another release cannot list it
            return
        theirs = decode_listing(result.payload)
        own = await asyncio.to_thread(list_queue, self._paths)
        plan = plan_copy(own, theirs)
        for start in range(0, len(plan.archive), ARCHIVED_PER_CALL_MAX):
            await self._archive(target, plan.archive[start : start + ARCHIVED_PER_CALL_MAX])
        if theirs.is_drained != own.is_drained:
            await self._send_drain_flag(target, own.is_drained)
        self._owe(target, plan.send)

    async def _send_drain_flag(self, target: Target, is_drained: bool) -> None:
        result = await self._rpc.single("jobqueue_set_drain_flag", target, is_drained)
        by = JobFiles(self._paths).drained_by()
        if by is not None and result.error is None:
            path = self._paths.globalize(self._paths.queue_drain)
            result = await self._rpc.single("jobqueue_update", target, path, by.encode())
        self._replicator.note(result)

    async def _send_all(self, target: Target) -> None:
        own: QueueListing = await asyncio.to_thread(list_queue, self._paths)
        self._owe(target, tuple(own.jobs))

    def _owe(self, target: Target, job_ids: tuple[int, ...]) -> None:
        files = [self._paths.job_file(job_id) for job_id in job_ids]
        self._replicator.owe([target.name], self._paths.queue_serial, *files)

    async def _archive(self, target: Target, job_ids: tuple[int, ...]) -> None:
        """Let a candidate archive jobs that are not in the queue here, each with its end.

        One that is unknown here was never accepted: LuxiD was killed before that.
        """
        logger.info("Candidate %s archives %s jobs that it still had", target.name, len(job_ids))
        result = await self._rpc.single("jobqueue_read", target, list(job_ids))
        payload = result.payload if self._replicator.note(result) else None
        theirs = payload if isinstance(payload, dict) else {}
        for job_id in map(JobId, job_ids):
            content = theirs.get(str(job_id))
            if content is not None and not await self._end(target, job_id, decompress(content)):
                return  # it is compared again once it is back
        renames = [
            [
                self._paths.globalize(self._paths.job_file(JobId(job_id))),
                self._paths.globalize(self._paths.archived_job_file(JobId(job_id))),
            ]
            for job_id in job_ids
        ]
        self._replicator.note(await self._rpc.single("jobqueue_rename", target, renames))

    async def _end(self, target: Target, job_id: JobId, theirs: bytes) -> bool:
        """Give a candidate the end of a job, if it has not; returns whether it has it now."""
        own = await asyncio.to_thread(JobFiles(self._paths).read_archived, job_id)
        record = own or _never_accepted(job_id, theirs)
        if record is None or record == theirs:
            return True
        path = self._paths.globalize(self._paths.job_file(job_id))
        return self._replicator.note(
            await self._rpc.single("jobqueue_update", target, path, record)
        )

    # Former candidates.

    async def _purge(self, name: str) -> None:
        """Have a node remove its copy, unless it becomes a candidate again or leaves."""
        for delay_s in _PURGE_DELAYS_S:
            await asyncio.sleep(delay_s)
            node = self._find_node(name)
            if node is None or node.offline or name in self._names:
                return
            try:
                result = await self._rpc.single("jobqueue_purge", Target(name, node.primary_ip))
                result.check("its copy of the queue cannot be removed")
            except GenericError as err:
                logger.warning("Node %s is no candidate any more: %s; ignoring", name, err.message)
            else:
                logger.info("Node %s is no candidate, it has removed its copy of the queue", name)
                return


def _never_accepted(job_id: JobId, data: bytes) -> bytes | None:
    """Return the record of a job that will not run; None if it has ended, or makes no sense."""
    try:
        job = decode_job(data, job_id)
    except JobFileCorrupted:
        return None
    return None if job.is_final else encode_job(changes.canceled(job, LOST_TEXT, timestamp()))

"""LuxiD's calls to one candidate: to write, to archive, to have the same queue as here.

Every write goes to all candidates (`luxid.queue.replication`).  A comparison is for everything
else: a node that becomes a candidate gets the whole queue, a former candidate loses it, and the
copy of one that was away, or of a queue that was taken over, is compared, so that nothing is
missing and nothing piles up.

Source: ARCHITECTURE, invariant 9.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Concatenate, Final, ParamSpec, TypeVar

from ganeti.base.errors import GenericError, JobFileCorrupted, OpExecError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.clients import master_poll
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.couriers import Courier, NodeSilentError
from ganeti.clients.node_rpc import RpcResult, Target
from ganeti.jobs import changes
from ganeti.jobs.merging import plan_copy
from ganeti.jobs.record import decode_job, encode_job
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import CompressedText, PackedText
from ganeti.store.job_files import JobFiles, job_id_of, list_queue
from ganeti.store.notes import watcher_pause
from ganeti.system.clock import timestamp

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

ARCHIVED_PER_CALL_MAX: Final = 500
LOST_TEXT: Final = "The master was interrupted before it had accepted this job"
_PURGE_DELAYS_S: Final = (1.0, 5.0, 30.0)  # late writes arrive before the first of them


class Content:
    """The newest version of a file; without data, it has moved to the archive.

    Attributes:
        behind: names of the candidates that may not have its last data.
    """

    __slots__ = ("behind", "data", "text", "version")

    def __init__(
        self, version: int, data: bytes | None, behind: frozenset[str] = frozenset()
    ) -> None:
        self.version = version
        self.data = data
        self.behind = behind
        self.text = CompressedText(data or b"")


class CandidateCalls:
    """Calls to candidates.

    Args:
        on_refused: hears that a candidate answers, but refuses the call.
    """

    def __init__(
        self, paths: Paths, rpc: AsyncNodeRpcClient, on_refused: Callable[[], None]
    ) -> None:
        self._paths = paths
        self._rpc = rpc
        self._on_refused = on_refused
        self.states: Mapping[str, Callable[[Courier], Awaitable[RpcResult[None]]]] = {
            paths.queue_drain: self._tell_drain_flag,
            paths.watcher_pause: self._tell_watcher_pause,
        }

    async def write(self, courier: Courier, contents: Mapping[str, Content]) -> dict[str, str]:
        """Write files; returns the files that the node refused, with its reasons."""
        if len(contents) > 1 and courier.takes_many:
            sent = [
                (self._paths.globalize(path), PackedText(each.text.to_wire()))
                for path, each in contents.items()
            ]
            written = await self._call(courier, NodeCalls.jobqueue_write, sent)
            if written.error is None:
                answers = zip(contents, written.payload, strict=True)
                return {path: error for path, error in answers if error is not None}
            return dict.fromkeys(contents, written.error)
        refused = {}
        for path, content in contents.items():
            wire_path = sys.intern(self._paths.globalize(path))  # one body for all candidates
            result = await self._call(courier, NodeCalls.jobqueue_update, wire_path, content.text)
            if result.error is not None:
                refused[path] = result.error
        return refused

    async def archive(self, courier: Courier, contents: Mapping[str, Content]) -> dict[str, str]:
        """Move files to the archive, each with its last data; returns as `write`."""
        if not contents:
            return {}
        globalize = self._paths.globalize
        ids = {path: job_id_of(os.path.basename(path)) for path in contents}
        refused: dict[str, str] = {}
        renames = []
        for path, job_id in ids.items():
            if job_id is None:
                continue
            own = self._archived(job_id) if courier.name in contents[path].behind else None
            if own is not None:
                refused |= await self.write(courier, {path: Content(0, own)})
            if path not in refused:
                renames.append((globalize(path), globalize(self._paths.archived_job_file(job_id))))
        result = await self._call(courier, NodeCalls.jobqueue_rename, renames)
        return refused if result.error is None else dict.fromkeys(contents, result.error)

    def _archived(self, job_id: JobId) -> bytes | None:
        """Return the record of a job in the archive here; None if it cannot be read."""
        try:
            return JobFiles(self._paths).read_archived(job_id)
        except (JobFileCorrupted, OSError) as err:
            logger.warning("Candidates do not get the end of job %s: %s", job_id, err)
            return None

    async def tell_states(self, courier: Courier, paths: Iterable[str]) -> dict[str, str]:
        """Let a candidate follow files that have calls of their own; returns as `write`."""
        refused = {}
        for path in paths:
            result = await self.states[path](courier)
            if result.error is not None:
                refused[path] = result.error
        return refused

    async def _tell_drain_flag(self, courier: Courier) -> RpcResult[None]:
        queue = JobFiles(self._paths)
        is_drained, by = queue.is_drained(), queue.drained_by()
        result = await self._call(courier, NodeCalls.jobqueue_set_drain_flag, is_drained)
        if by is None or result.error is not None:
            return result
        path = self._paths.globalize(self._paths.queue_drain)  # the call above has no name
        text = CompressedText(by.encode())
        return await self._call(courier, NodeCalls.jobqueue_update, path, text)

    async def _tell_watcher_pause(self, courier: Courier) -> RpcResult[None]:
        until = watcher_pause.read(self._paths)
        return await self._call(courier, NodeCalls.set_watcher_pause, until)

    async def _call(
        self,
        courier: Courier,
        method: Callable[Concatenate[NodeCalls, P], R],
        *args: P.args,
        **named: P.kwargs,
    ) -> RpcResult[R]:
        result = await self._rpc.call_one(method, courier.target, *args, **named)
        if result.address or result.offline:
            raise NodeSilentError(result.error)
        if result.error is not None:
            self.note_refusal(result)
        return result

    def note_refusal(self, result: RpcResult[object]) -> None:
        """Have the nodes asked for the master if a node answers, but refuses the call."""
        if not result.address and not result.offline:
            self._on_refused()

    # Comparison.

    async def has_writers(self, target: Target) -> bool:
        """Tell whether the daemons or jobs of a master run on a candidate.

        Raises:
            GenericError: it does not answer.
        """
        answer = await master_poll.ask_one(self._rpc, target)
        if isinstance(answer, str):
            raise OpExecError(f"it cannot be asked who is master: {answer}")
        facts = answer.facts
        return facts is not None and bool(facts.daemons or facts.running_jobs)

    async def compare(
        self, target: Target, is_new: Callable[[JobId], bool], pass_over: Callable[[int], None]
    ) -> tuple[JobId, ...]:
        """Let a candidate archive jobs that have left the queue; returns jobs that it should get.

        Args:
            is_new: tells of a job whether it may be on the candidate already, and not yet here.
            pass_over: has new jobs get higher ids than this one.  A former master may have given
                some to jobs that it never accepted; a new job of such an id would be archived.

        Raises:
            GenericError: it does not answer, or refuses the call.
        """
        result = await self._rpc.call_one(NodeCalls.jobqueue_list, target)
        if result.error is None:
            pass_over(max([0, *result.payload.jobs, *result.payload.archived]))
        own = await asyncio.to_thread(list_queue, self._paths)
        if result.error is not None:
            if result.address and not result.error.startswith("HTTP status"):
                result.check("it cannot be listed")
            return tuple(map(JobId, own.jobs))  # a node of another release cannot list it
        theirs = result.payload
        plan = plan_copy(own, theirs)
        # A new job gets here before it is not new any more: who asks first, overlooks none.
        gone = [job_id for job_id in map(JobId, plan.archive) if not is_new(job_id)]
        # A file that cannot be read here, or was set aside, may be whole on the candidate.
        here = await asyncio.to_thread(JobFiles(self._paths).present)
        left = [job_id for job_id in gone if job_id not in here]
        for start in range(0, len(left), ARCHIVED_PER_CALL_MAX):
            await self._archive_left(target, left[start : start + ARCHIVED_PER_CALL_MAX])
        return tuple(map(JobId, plan.send))

    async def _archive_left(self, target: Target, job_ids: Sequence[JobId]) -> None:
        """Let a candidate archive jobs that are not in the queue here, each with its end.

        One that is unknown here was never accepted: LuxiD was killed before that.
        """
        logger.info("Candidate %s archives %s jobs that it still had", target.name, len(job_ids))
        unread = list(job_ids)
        while unread:
            result = await self._rpc.call_one(NodeCalls.jobqueue_read, target, unread)
            theirs = result.check("jobs that it still has cannot be read")
            read = [job_id for job_id in unread if str(job_id) in theirs]
            for job_id in read:
                await self._send_end(target, job_id, theirs[str(job_id)].content)
            # A full answer leaves some for later; jobs that an empty answer lacks are gone.
            unread = [job_id for job_id in unread if job_id not in read] if read else []
        renames = [
            (
                self._paths.globalize(self._paths.job_file(job_id)),
                self._paths.globalize(self._paths.archived_job_file(job_id)),
            )
            for job_id in job_ids
        ]
        result_of_move = await self._rpc.call_one(NodeCalls.jobqueue_rename, target, renames)
        result_of_move.check("jobs cannot be archived")

    async def _send_end(self, target: Target, job_id: JobId, theirs: bytes) -> None:
        """Give a candidate the end of a job, if it has not."""
        try:
            own = await asyncio.to_thread(JobFiles(self._paths).read_archived, job_id)
        except JobFileCorrupted:
            own = None
        record = own or _never_accepted(job_id, theirs)
        if record is not None and record != theirs:
            path = self._paths.globalize(self._paths.job_file(job_id))
            result = await self._rpc.call_one(
                NodeCalls.jobqueue_update, target, path, CompressedText(record)
            )
            result.check(f"the end of job {job_id} cannot be written")

    async def purge(self, find_target: Callable[[], Target | None]) -> None:
        """Have a node that is no candidate any more remove its copy.

        Args:
            find_target: returns the node, or None if it is to be left alone by now.
        """
        for delay_s in _PURGE_DELAYS_S:
            await asyncio.sleep(delay_s)
            try:
                target = find_target()
                if target is None:
                    return
                result = await self._rpc.call_one(NodeCalls.jobqueue_purge, target)
                result.check("its copy of the queue cannot be removed")
            except GenericError as err:
                logger.warning("A node is no candidate any more: %s; ignoring", err.message)
            else:
                logger.info("Node %s is no candidate, it has removed its copy", target.name)
                return


def _never_accepted(job_id: JobId, data: bytes) -> bytes | None:
    """Return the record of a job that will not run; None if it has ended, or makes no sense."""
    try:
        job = decode_job(data, job_id)
    except JobFileCorrupted:
        return None
    return None if job.is_final else encode_job(changes.canceled(job, LOST_TEXT, timestamp()))

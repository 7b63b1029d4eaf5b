"""Brings this node's copy of the job queue up to date from the copies on other nodes.

Used by a node that becomes master, and by a master that finds others ahead of it.  The jobs to
take are chosen in `ganeti.jobs.merging`.

Source: ARCHITECTURE, invariant 9.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from ganeti.base.errors import GenericError, JobFileCorrupted
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.clients.node_rpc import NodeRpcClient, Target
from ganeti.jobs.merging import furthest, plan_merge
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import QueueListing
from ganeti.store.job_files import FILE_MODE, JobFiles, list_queue
from ganeti.system import files

JOBS_PER_CALL_MAX: Final = 500

Wanted = Iterable[tuple[int, str]]  # ids of jobs, and the names of nodes to read them from
Versions = Sequence[tuple[int, list[bytes]]]  # ids of jobs in order, and their versions


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs taken from other nodes: ids of changed and of archived ones."""

    changed: tuple[int, ...]
    archived: tuple[int, ...]


def merge_queue(
    paths: Paths, rpc: NodeRpcClient, targets: Sequence[Target], *, own_first: bool = True
) -> Merged:
    """Take the newer records of other nodes; they are durable when this returns.

    The caller holds the lock of the queue.

    Args:
        targets: of equally good records the one of the first node counts.
        own_first: the one of this node does so before all.

    Raises:
        OpExecError: a copy cannot be read; names the node.
        OSError: a file cannot be written here.
    """
    queue = JobFiles(paths)
    queue.prepare()
    by_name = {target.name: target for target in targets}
    plan = plan_merge(list_queue(paths), list_queues(rpc, targets))
    to_archive = [*plan.archive.items(), *plan.fetch_archived.items()]
    archived = _merge_archive(paths, _read(rpc, by_name, to_archive))
    to_compare = [(job_id, name) for job_id, names in plan.compare.items() for name in names]
    changed = _merge_jobs(queue, _read(rpc, by_name, to_compare), own_first=own_first)
    return Merged(changed=changed, archived=archived)


def list_queues(rpc: NodeRpcClient, targets: Iterable[Target]) -> dict[str, QueueListing]:
    """Return the list of jobs that each of these nodes has.

    Raises:
        OpExecError: one does not tell.
    """
    results = rpc.call_all(NodeCalls.jobqueue_list, targets)
    return {name: result.check("cannot list the job queue") for name, result in results.items()}


def _read(rpc: NodeRpcClient, targets: Mapping[str, Target], wanted: Wanted) -> Versions:
    """Read jobs from the nodes that they stand with."""
    by_node: dict[str, list[int]] = {}
    for job_id, name in wanted:
        by_node.setdefault(name, []).append(job_id)
    found: dict[int, list[bytes]] = {}
    for name, job_ids in by_node.items():
        for job_id, data in _read_from(rpc, targets[name], job_ids):
            found.setdefault(job_id, []).append(data)
    return sorted(found.items())


def _read_from(rpc: NodeRpcClient, target: Target, job_ids: list[int]) -> list[tuple[int, bytes]]:
    """Read files of one node; files that are gone meanwhile are left out."""
    found: list[tuple[int, bytes]] = []
    left = job_ids
    while left:
        asked = left[:JOBS_PER_CALL_MAX]
        contents = rpc.call_one(NodeCalls.jobqueue_read, target, asked).check("cannot read jobs")
        found += [(int(job_id), text.content) for job_id, text in contents.items()]
        got = {job_id for job_id, _ in found}
        rest = [job_id for job_id in asked if job_id not in got]
        # A full answer leaves some for later; jobs that an empty answer lacks are gone.
        left = (rest if contents else []) + left[JOBS_PER_CALL_MAX:]
    return found


def _merge_jobs(queue: JobFiles, found: Versions, *, own_first: bool) -> tuple[int, ...]:
    changed = []
    for job_id, versions in found:
        try:
            own = queue.read(JobId(job_id))
        except JobFileCorrupted:
            queue.set_aside(JobId(job_id))
            own = None
        mine = [] if own is None else [own]
        best = furthest(job_id, [*mine, *versions] if own_first else [*versions, *mine])
        if best is not None and best != own:
            queue.write_durable(JobId(job_id), best)
            changed.append(job_id)
    return tuple(changed)


def _merge_archive(paths: Paths, found: Versions) -> tuple[int, ...]:
    """Write the archived records first, so that a job is never in neither place."""
    directories = set()
    for job_id, versions in found:
        target = paths.archived_job_file(job_id)
        files.ensure_directory(
            os.path.dirname(target), 0o750, inherits_owner=True, syncs_parent=True
        )
        files.write_durable(target, versions[0], FILE_MODE, syncs_directory=False)
        directories.add(os.path.dirname(target))
    for directory in sorted(directories):
        files.fsync_directory(directory)
    for job_id, _versions in found:
        files.remove_if_exists(paths.job_file(job_id))
    return tuple(job_id for job_id, _versions in found)


def describe(merged: Merged) -> str:
    """Describe the result in words."""
    parts = []
    if merged.changed:
        parts.append(f"jobs {_ids(merged.changed)}")
    if merged.archived:
        parts.append(f"{len(merged.archived)} archived jobs")
    return " and ".join(parts) or "nothing"


def _ids(job_ids: Sequence[int], shown_max: int = 10) -> str:
    text = ", ".join(map(str, job_ids[:shown_max]))
    return text + (f" and {len(job_ids) - shown_max} more" if len(job_ids) > shown_max else "")


def raise_serial(paths: Paths, last_id: int) -> None:
    """Note that ids up to this one have been given out.

    Raises:
        GenericError: that cannot be written.
    """
    queue = JobFiles(paths)
    try:
        if queue.last_id() < last_id:
            queue.write_serial(last_id)
    except OSError as err:
        raise GenericError(f"cannot write {paths.queue_serial}: {err.strerror}") from err

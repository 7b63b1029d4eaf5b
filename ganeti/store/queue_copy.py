"""A node's copy of the job queue as a whole: what is in it.

Source: ARCHITECTURE, invariant 9.
"""

from __future__ import annotations

from ganeti.base.paths import Paths
from ganeti.jobs.merging import digest
from ganeti.protocol.node_facts import QueueListing
from ganeti.store.job_files import JobFiles


def list_queue(paths: Paths) -> QueueListing:
    """Return what is in the queue and its archive on this node."""
    queue = JobFiles(paths)
    jobs = {int(job_id): digest(data) for job_id in queue.ids() if (data := queue.read(job_id))}
    return QueueListing(
        jobs=jobs, archived=tuple(queue.archived_ids()), is_drained=queue.is_drained()
    )

"""Reading this node's copy of the job queue: which jobs there are, and their files.

Source: ARCHITECTURE, invariant 9.
"""

from typing import Final

import msgspec

from ganeti.base.ids import JobId
from ganeti.node_ops.context import NodeContext
from ganeti.protocol.node_rpc_values import compress
from ganeti.store.job_files import JobFiles
from ganeti.store.queue_copy import list_queue

# One answer stays well below the limit of a message; whoever asks comes back for the rest.
ANSWER_BYTES_MAX: Final = 16 << 20


def jobqueue_list(context: NodeContext) -> object:
    """Return what there is: QueueListing."""
    return msgspec.to_builtins(list_queue(context.paths), str_keys=True)


def jobqueue_read(context: NodeContext, job_ids: list[int]) -> dict[str, list[object]]:
    """Return {id: compressed content} of job files, from the queue or the archive.

    Files that are not here are left out, and so is what would make the answer too large.
    """
    queue = JobFiles(context.paths)
    found: dict[str, list[object]] = {}
    size_bytes = 0
    for job_id in map(JobId, job_ids):
        data = queue.read(job_id) or queue.read_archived(job_id)
        if data is None:
            continue
        size_bytes += len(data)
        if found and size_bytes > ANSWER_BYTES_MAX:
            break
        found[str(job_id)] = compress(data)
    return found

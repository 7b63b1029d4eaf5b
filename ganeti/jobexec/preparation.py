"""What a job process does between learning its job and being allowed to run it.

LuxiD makes the start record durable meanwhile, so reading and importing here costs no time.
Nothing of this changes anything anywhere.
"""

from __future__ import annotations

import logging
import os

from ganeti.base.errors import GenericError, JobLost
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.daemon import log
from ganeti.jobexec.control import Control
from ganeti.jobexec.hand import Hand
from ganeti.jobexec.runner import JobRunner
from ganeti.jobs.record import QueuedJob, decode_job
from ganeti.logical_units.registry import logical_unit_class
from ganeti.opcodes.registry import opcode_class
from ganeti.protocol.job_start import Confirm
from ganeti.protocol.wconfd import ClientId
from ganeti.store.job_files import JobFiles

logger = logging.getLogger(__name__)


class Prepared:
    """A job that is ready to run."""

    def __init__(self, paths: Paths, job_id: int, owner: ClientId) -> None:
        self._paths = paths
        self._job_id = job_id
        self._owner = owner

    def run(self, confirm: Confirm, control: Control, hand: Hand) -> None:
        """Run the job to its end, whatever that is."""
        job = read_job(self._paths, self._job_id)  # as of the start record
        JobRunner(self._paths, job, self._owner, confirm, control, hand).run()


def read_job(paths: Paths, job_id: int) -> QueuedJob:
    """Return the job as its file has it.

    Raises:
        JobLost: there is no such file.
        JobFileCorrupted: it cannot be understood.
    """
    data = JobFiles(paths).read(JobId(job_id))
    if data is None:
        raise JobLost(f"the file of job {job_id} is gone")
    return decode_job(data, job_id)


def prepare(paths: Paths, job_id: int, livelock: str) -> Prepared:
    """Import what the first opcode needs, if it is not there yet, and note whose job this is."""
    log.set_job(job_id)
    try:
        op_id = read_job(paths, job_id).ops[0].op_id
        opcode_class(op_id)
        logical_unit_class(op_id)
    except (GenericError, OSError) as err:
        logger.debug("Cannot prepare: %s; the run will tell, ignoring", err)
    return Prepared(paths, job_id, ClientId(job_id, livelock, os.getpid()))

"""What nodes tell each other about who is master, and what each of them has.

Answers of the node calls ``master_facts`` and ``jobqueue_list``, which Ganeti 3.0 does not know.

Source: ARCHITECTURE, invariant 9.
"""

from __future__ import annotations

import msgspec


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has and believes.

    Attributes:
        master_name: the master node as it knows it; "" if it does not.
        cluster_uuid: of its copy of the configuration; "" without one.
        config_serial: serial number of that copy; 0 without one.
        last_job_id: the highest job id that it has ever seen.
        candidates: the master candidates as it knows them.
        claim_serial: the configuration that it has promised itself to, see `claim_name`; or 0.
        claim_name: who announced that configuration, in order to become master.
        daemons: the master's daemons that run here.
        running_jobs: jobs whose processes live here.
        takes_many_files: it knows the call ``jobqueue_write``.
    """

    master_name: str
    cluster_uuid: str = ""
    config_serial: int = 0
    last_job_id: int = 0
    candidates: tuple[str, ...] = ()
    claim_serial: int = 0
    claim_name: str = ""
    daemons: tuple[str, ...] = ()
    running_jobs: tuple[int, ...] = ()
    takes_many_files: bool = False


class QueueListing(msgspec.Struct, frozen=True, kw_only=True):
    """The copy of the job queue on a node: a digest of each job's file, and what is archived."""

    jobs: dict[int, str] = {}
    archived: tuple[int, ...] = ()
    is_drained: bool = False


class DrainResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the wish that a master be idle: the jobs that are not done yet.

    ``was_drained``: the queue took no jobs before that either.
    """

    left: tuple[int, ...] = ()
    was_drained: bool = False

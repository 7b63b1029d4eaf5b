"""A master for tests of LuxiD together with real node daemons on other master candidates."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Self

from fakes.luxid_node import LuxidNode
from fakes.noded_node import NodedNode, short_directory

from ganeti.base.ids import JobId
from ganeti.jobs.record import QueuedJob, decode_job
from ganeti.store import ssconf
from ganeti.store.job_files import JobFiles


class LuxidCluster:
    """`master` runs LuxiD; `others` are candidates with a running node daemon each."""

    def __init__(self, count: int = 2, **cluster: object) -> None:
        self._directory = short_directory()
        base = self._directory.__enter__()
        self.others = [
            NodedNode(base, f"node{number}.example.com") for number in range(2, count + 2)
        ]
        candidates = {LuxidNode.name: "127.0.0.1"}
        candidates.update((node.name, node.address) for node in self.others)
        self.master = LuxidNode(candidates, **cluster)
        self._share_certificates()

    def _share_certificates(self) -> None:
        first = self.others[0]
        paths = self.master.paths
        shutil.copy(first.paths.server_pem, paths.server_pem)
        first.issue(paths.client_pem, self.master.name, 100)
        for node in self.others:
            if node is not first:
                shutil.copy(first.paths.server_pem, node.paths.server_pem)
                first.issue(node.paths.client_pem, node.name, 101)
            node.trust(paths.client_pem)
            ssconf.write_values(node.paths, {"master_node": self.master.name})
            JobFiles(node.paths).prepare()

    def __enter__(self) -> Self:
        for node in self.others:
            node.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.master.__exit__(*exc)
        for node in self.others:
            if node.pid:
                os.kill(node.pid, signal.SIGCONT)  # it may have been paused
            node.stop()
        self._directory.__exit__(None, None, None)

    def copy_of(self, node: NodedNode, job_id: int) -> QueuedJob | None:
        """Return a job as a candidate has it, or None."""
        data = JobFiles(node.paths).read(JobId(job_id))
        return None if data is None else decode_job(data, job_id)

    def files_on(self, node: NodedNode) -> list[str]:
        """Return the names of the queue files on a candidate, sorted."""
        names = os.listdir(node.paths.queue_dir)
        return sorted(name for name in names if name != "archive" and name[:7] != ".spare.")


def read_text(path: str) -> str | None:
    """Return the content of a file, or None."""
    return Path(path).read_text() if os.path.exists(path) else None

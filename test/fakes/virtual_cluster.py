"""A virtual cluster to test on: commands by short words, waiting for states, tidying up."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ganeti.base.daemons import FACES
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.bootstrap.virtual import lifecycle
from ganeti.bootstrap.virtual.layout import VirtualCluster
from ganeti.clients.luxi import LuxiClient
from ganeti.jobs.status import FINAL
from ganeti.system import process

TIMEOUT_S = 120.0  # some commands take seconds, and machines may be slow


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    command: str
    status: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"{self.command}: exit {self.status}\n{self.out}\n{self.err}"

    @property
    def lines(self) -> list[str]:
        """The lines of the output."""
        return self.out.splitlines()


class TestCluster:
    """One virtual cluster with running daemons."""

    __test__ = False

    def __init__(self, cluster: VirtualCluster) -> None:
        self.layout = cluster
        self.nodes = cluster.node_names
        self.master = cluster.first_node

    @property
    def paths(self) -> Paths:
        """The paths of the master."""
        return self.layout.paths_of(self.master)

    def paths_of(self, node: str) -> Paths:
        """Return the paths of a node."""
        return self.layout.paths_of(node)

    def run(
        self,
        command: str | Sequence[str],
        *,
        node: str | None = None,
        stdin: bytes | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Outcome:
        """Run a command on a node, the master by default."""
        argv = command.split() if isinstance(command, str) else list(command)
        environment = lifecycle.command_environment(self.layout, node or self.master)
        program = lifecycle.find_program(argv[0], environment)
        result = process.run(
            [program, *argv[1:]], timeout_s=timeout_s, env=environment, stdin=stdin
        )
        assert not result.timed_out, f"{argv} did not end in {timeout_s} s"
        return Outcome(
            " ".join(argv), result.status, result.stdout.decode(), result.stderr.decode()
        )

    def gnt(self, command: str | Sequence[str]) -> Outcome:
        """Run a command that must succeed; the words follow ``gnt-``."""
        words = command.split() if isinstance(command, str) else list(command)
        outcome = self.run([f"gnt-{words[0]}", *words[1:]])
        assert outcome.status == 0, outcome
        return outcome

    def refused(self, command: str | Sequence[str], text: str, status: int = 1) -> Outcome:
        """Run a command that must fail with that text and status."""
        words = command.split() if isinstance(command, str) else list(command)
        outcome = self.run([f"gnt-{words[0]}", *words[1:]])
        assert outcome.status == status, outcome
        assert text in outcome.err, outcome
        assert "Traceback" not in outcome.err, outcome
        assert not re.search(r"<\w+\.\w+: ", outcome.err), f"the name of a class in {outcome}"
        return outcome

    def client(self) -> LuxiClient:
        """Return a connection to LuxiD; the caller closes it."""
        return LuxiClient(self.paths)

    def submit(self, command: str) -> int:
        """Run a command with ``--submit``; returns the number of the job."""
        program, verb, *rest = command.split()
        outcome = self.gnt([program, verb, "--submit", "--print-jobid", *rest])
        return int(outcome.out)

    def job_status(self, job_id: int) -> str:
        """Return the status of a job."""
        with self.client() as client:
            [[status]] = client.query_jobs([JobId(job_id)], ["status"])
        return str(status)

    def instance_field(self, name: str, field: str) -> str:
        """Return one field of an instance as text."""
        command = f"instance list --no-headers --separator=| -o {field} {name}"
        return self.gnt(command).out.strip()

    def instance_names(self) -> list[str]:
        """Return the names of all instances."""
        with self.client() as client:
            return [str(name) for [name] in client.query_instances([], ["name"])]

    def processes(self) -> list[lifecycle.NodeProcess]:
        """Return all processes of the cluster."""
        return lifecycle.find_processes(self.layout.base)

    def files_below(self, node: str, path: str) -> list[str]:
        """Return the files below a directory of a node."""
        top = self.paths_of(node).root + path
        return [os.path.join(where, name) for where, _, names in os.walk(top) for name in names]

    def tidy_up(self) -> None:
        """Remove all instances, and wait for the jobs that have not ended."""
        for name in self.instance_names():
            words = ["remove", "-f", "--ignore-failures", "--shutdown-timeout=1"]
            self.run(["gnt-instance", *words, name])
        with self.client() as client:  # not by commands: this comes after each test
            jobs = client.query_jobs(None, ["id", "status"])
        for job_id, status in jobs:
            if status not in FINAL:
                self.run(["gnt-job", "wait", str(job_id)])


@contextmanager
def own_cluster(
    nodes: int = 3, without: tuple[str, ...] = FACES, hypervisor: str | None = "fake"
) -> Iterator[TestCluster]:
    """A cluster with the fake hypervisor for one module that does to it what it likes.

    Args:
        hypervisor: another one, or None for all that work here.
    """
    base = os.path.join(tempfile.mkdtemp(prefix="gnt-"), "vc")
    layout = lifecycle.plan(base, nodes, hypervisor, without=without)
    lifecycle.create(layout)
    try:
        yield TestCluster(layout)
    finally:
        lifecycle.destroy(layout)
        os.rmdir(os.path.dirname(base))

"""A virtual cluster whose nodes die, come back, and take the master role from each other."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from fakes.virtual_cluster import Outcome, TestCluster
from fakes.waiting import wait_until

from ganeti.base import json
from ganeti.base.daemons import FACES, MASTER_DAEMONS, Place
from ganeti.base.errors import GenericError
from ganeti.bootstrap.virtual import lifecycle
from ganeti.clients.luxi import LuxiClient
from ganeti.clients.master_poll import other_nodes
from ganeti.clients.node_rpc import NodeRpcClient, Target
from ganeti.store import ssconf
from ganeti.store.config_file import read_config, write_config
from ganeti.system import daemon_control, process

DEADLINE_S = 60.0


class FailingCluster(TestCluster):
    """`master` is the node that the commands of `gnt` run on."""

    __test__ = False

    @property
    def others(self) -> list[str]:
        """All nodes but the master."""
        return [name for name in self.nodes if name != self.master]

    def fail_over(self, node: str, *options: str) -> Outcome:
        """Make a node the master; the command must succeed."""
        outcome = self.run(["gnt-cluster", "master-failover", *options], node=node)
        assert outcome.status == 0, outcome
        self.master = node
        return outcome

    def refused_failover(self, node: str, *texts: str, options: Sequence[str] = ()) -> Outcome:
        """Try to make a node the master; the command must fail with these texts."""
        outcome = self.run(["gnt-cluster", "master-failover", *options], node=node)
        assert outcome.status == 1, outcome
        for text in texts:
            assert text in outcome.err, outcome
        assert "Traceback" not in outcome.err, outcome
        return outcome

    def fail_over_to_one_of(self, nodes: Sequence[str]) -> str:
        """Try to make several nodes the master at once; exactly one must become it, and stay so.

        One whose program comes late takes over from the other one, which is the master by then.
        """
        with ThreadPoolExecutor() as threads:
            command = ["gnt-cluster", "master-failover"]
            found = list(threads.map(lambda node: self.run(command, node=node), nodes))
        made = {node: one for node, one in zip(nodes, found, strict=True) if one.status == 0}
        stopped = [f"Stopping the master's daemons on {node}\n" for node in made]
        winners = [
            node
            for node, text in zip(made, stopped, strict=True)
            if not any(text in one.out for one in made.values())
        ]
        assert len(winners) == 1, found
        [self.master] = winners
        return self.master

    # Nodes.

    def let_lie(self, node: str, *, named: str, newer_by: int) -> None:
        """Let a node name a master, with a configuration that is newer, or older, than it was."""
        self.stop_noded(node)
        paths = self.paths_of(node)
        config = json.loads_as(dict[str, object], read_config(paths))
        assert isinstance(config["serial_no"], int)
        config["serial_no"] += newer_by
        write_config(paths, json.dumps(config))
        os.unlink(paths.ssconf_file("master_node"))
        ssconf.write_values(paths, {"master_node": named})
        self.start_noded(node)

    def processes_of(self, node: str) -> list[lifecycle.NodeProcess]:
        root = self.paths_of(node).root
        return [each for each in self.processes() if each.root.rstrip("/") == root]

    def kill_node(self, node: str) -> None:
        """End all processes of a node at once, as a power cut does."""
        for each in self.processes_of(node):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
            assert process.wait_gone(each.pid, DEADLINE_S)

    def cut_power(self, node: str) -> None:
        """End all processes of a node at once; what it holds in memory is gone."""
        self.signal_node(node, signal.SIGSTOP)  # so that nothing is started meanwhile
        self.kill_node(node)
        shutil.rmtree(self.paths_of(node).run_dir, ignore_errors=True)

    def switch_on(self, node: str) -> None:
        """Let a node boot again."""
        paths = self.paths_of(node)
        daemon_control.start_wanted(paths, frozenset({Place.NODE}), print, hostname=node)

    def kill_master_daemons(self) -> None:
        """Kill LuxiD and WConfD on the master, and wait for their ends."""
        for each in self.processes_of(self.master):
            if each.command.endswith(("ganeti-luxid", "ganeti-wconfd")):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)
        wait_until(lambda: self.running(self.master) == [], "the daemons are dead")

    def signal_node(self, node: str, number: signal.Signals) -> None:
        for each in self.processes_of(node):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, number)

    def start_noded(self, *nodes: str) -> None:
        for node in nodes:
            daemon_control.start_daemon(self.paths_of(node), "ganeti-noded", hostname=node)

    def stop_noded(self, *nodes: str) -> None:
        for node in nodes:
            daemon_control.stop_daemon(self.paths_of(node), "ganeti-noded")

    def start_master_daemons(self) -> None:
        for name in MASTER_DAEMONS:
            daemon_control.start_daemon(self.paths, name, hostname=self.master)

    def running(self, node: str) -> list[str]:
        """Return the master's daemons that run on a node."""
        paths = self.paths_of(node)
        return [d for d in MASTER_DAEMONS if daemon_control.running_pid(paths, d) is not None]

    def start_daemon_by_hand(self, node: str, daemon: str) -> Outcome:
        """Run a daemon as an operator would; it may refuse."""
        return self.run([daemon], node=node)

    def masters_known(self) -> dict[str, str]:
        """Return whom each node takes for the master."""
        return {node: ssconf.master_node(self.paths_of(node)) for node in self.nodes}

    def wait_all_follow(self, nodes: Sequence[str] | None = None) -> None:
        """Wait until these nodes, by default all, know the master."""
        wanted = set(nodes or self.nodes)
        wait_until(
            lambda: all(
                master == self.master
                for node, master in self.masters_known().items()
                if node in wanted
            ),
            f"{sorted(wanted)} follow {self.master}: {self.masters_known()}",
            timeout_s=DEADLINE_S,
        )

    @contextlib.contextmanager
    def rpc(self, node: str) -> Iterator[NodeRpcClient]:
        """Return a client for calls from a node."""
        with NodeRpcClient(self.paths_of(node)) as client:
            yield client

    def target(self, node: str) -> Target:
        return Target(node, self.layout.address_of(node))

    def targets_from(self, node: str) -> list[Target]:
        return other_nodes(self.paths_of(node), node)

    # Jobs.

    def luxi(self) -> LuxiClient:
        """Return a connection to LuxiD on the master; the caller closes it."""
        os.environ["GANETI_HOSTNAME"] = self.master
        return LuxiClient(self.paths, connect_timeout_s=DEADLINE_S)

    def statuses(self) -> dict[int, str]:
        """Return the status of every job in the queue."""
        with self.luxi() as client:
            rows = client.query_jobs(None, ["id", "status"])
        return {int(str(job_id)): str(status) for job_id, status in rows}

    def locks_held(self) -> list[str]:
        """Return the names of all locks that anybody holds."""
        with self.luxi() as client:
            rows = client.query("lock", ["name", "owner"]).rows()
        return [str(name) for name, owner in rows if owner]

    def wait_status(self, job_id: int, status: str) -> None:
        def has_it() -> bool:
            try:
                return self.statuses().get(job_id) == status
            except GenericError:
                return False

        wait_until(has_it, f"job {job_id} {status}", timeout_s=DEADLINE_S)


@contextlib.contextmanager
def failing_cluster(
    nodes: int, *init_options: str, hypervisor: str = "fake", without: tuple[str, ...] = FACES
) -> Iterator[FailingCluster]:
    """Make a cluster, and leave nothing of it behind."""
    with tempfile.TemporaryDirectory(prefix="gnt-") as directory:
        layout = lifecycle.plan(os.path.join(directory, "vc"), nodes, hypervisor, without=without)
        lifecycle.create(layout, extra_init=init_options)
        cluster = FailingCluster(layout)
        try:
            yield cluster
        finally:
            for node in cluster.nodes:
                cluster.signal_node(node, signal.SIGCONT)  # it may be paused
            lifecycle.destroy(layout)

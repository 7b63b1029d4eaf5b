"""A virtual cluster under high availability whose network can be cut, with a guest on each node."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from fakes import lan
from fakes.failing_cluster import FailingCluster, failing_cluster
from fakes.ha_world import AGENT, WITHOUT, World
from fakes.lan import Lan

from ganeti.availability.records import LOSSES
from ganeti.system import daemon_control

NEW: Final = "--no-name-check --no-ip-check -o test -B memory=16 --disk 0:size=8m -t sharedfile"


class Guests(threading.Thread):
    """Looks all the time where guests run.

    Attributes:
        twice: what was seen to run on two nodes.
    """

    def __init__(self, cluster: FailingCluster) -> None:
        super().__init__(daemon=True, name="guests")
        self._directories = {node: cluster.paths_of(node).fake_dir for node in cluster.nodes}
        self._is_over = threading.Event()
        self.twice: set[str] = set()

    def on(self, node: str) -> set[str]:
        with contextlib.suppress(FileNotFoundError):
            return {name for name in os.listdir(self._directories[node]) if "example.com" in name}
        return set()

    def node_of(self, guest: str) -> str | None:
        return next((node for node in self._directories if guest in self.on(node)), None)

    def run(self) -> None:
        while not self._is_over.wait(0.05):
            count = Counter(name for node in self._directories for name in self.on(node))
            self.twice |= {name for name, times in count.items() if times > 1}

    def stop(self) -> None:
        self._is_over.set()
        self.join()


class CutWorld(World):
    """One whose nodes have cables of their own."""

    def __init__(self, cluster: FailingCluster, cables: Lan) -> None:
        super().__init__(cluster)
        self.lan = cables
        self.guests = Guests(cluster)
        self.guests.start()

    def boot(self, node: str) -> None:
        with self.lan.inside(node):
            super().boot(node)

    def start_agent(self, node: str) -> None:
        with self.lan.inside(node):
            daemon_control.start_daemon(self.cluster.paths_of(node), AGENT, hostname=node)

    def runs_elsewhere(self, guest: str, *nodes: str) -> bool:
        return self.guests.node_of(guest) not in (None, *nodes)

    def is_settled(self) -> bool:
        """Tell whether all that is lost was dealt with."""
        return not any(key.startswith(LOSSES) for key in self.read().entries)

    def settle(self) -> None:
        """Wait until it is."""
        self.wait(self.is_settled, "all losses are dealt with")
        assert not self.guests.twice

    def close(self) -> None:
        self.guests.stop()
        super().close()


@contextlib.contextmanager
def cut_world(
    *options: str, before: Callable[[FailingCluster], None] = lambda _cluster: None
) -> Iterator[CutWorld]:
    """Five nodes with an etcd of their own.

    Args:
        options: of `gnt-cluster ha-enable`.
        before: is done to the cluster before that.
    """
    with lan.lan() as cables, failing_cluster(5, without=WITHOUT) as cluster:
        made = CutWorld(cluster, cables)
        try:
            for node in cluster.nodes:
                cluster.kill_node(node)
            cables.connect({node: cluster.layout.address_of(node) for node in cluster.nodes})
            for node in cluster.nodes:
                made.boot(node)
            with cables.inside(cluster.master):
                cluster.start_master_daemons()
                daemon_control.start_daemon(cluster.paths, "ganeti-maintd", hostname=cluster.master)
            before(cluster)
            made.enable(*options)
            jobs = [
                cluster.submit(f"instance add {NEW} -n {node} {guest_of(node)}")
                for node in cluster.nodes
            ]
            for job in jobs:
                cluster.gnt(f"job wait {job}")
            yield made
        finally:
            made.close()
            for node in cluster.nodes:  # agents that are told to stop would look for etcd
                cluster.kill_node(node)


def guest_of(node: str) -> str:
    """Return the guest that is made on a node."""
    return f"guest-{node.partition('.')[0]}.example.com"

"""Two virtual clusters whose nodes know each other by name, as those of one site do."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

from fakes.failing_cluster import FailingCluster

from ganeti.base.daemons import FACES
from ganeti.bootstrap.virtual import lifecycle

OTHER: str = "other.example.com"
_OTHER_HOST_NUMBER = 253


@contextlib.contextmanager
def two_clusters(own: int, other: int) -> Iterator[tuple[FailingCluster, FailingCluster]]:
    """Make two clusters of so many nodes each; the second is called `OTHER`."""
    with tempfile.TemporaryDirectory(prefix="gnt-") as directory:
        layout = lifecycle.plan(os.path.join(directory, "vc"), own + other, "fake", without=FACES)
        try:
            lifecycle.prepare(layout, lifecycle.bundled_os_definitions())
            hosts = f"{layout.hosts_text()}{layout.network}.{_OTHER_HOST_NUMBER}\t{OTHER}\n"
            for name in layout.node_names:
                with open(layout.paths_of(name).etc_hosts, "w", encoding="utf-8") as file:
                    file.write(hosts)
            *options, cluster_name = lifecycle.init_arguments(layout)
            made = []
            for name, nodes in (
                (cluster_name, layout.node_names[:own]),
                (OTHER, layout.node_names[own:]),
            ):
                first, *rest = nodes
                lifecycle.run_checked(layout, first, ["gnt-cluster", *options, name])
                for node in rest:
                    lifecycle.run_checked(layout, first, ["gnt-node", "add", node])
                cluster = FailingCluster(layout)
                cluster.nodes, cluster.master = tuple(nodes), first
                made.append(cluster)
            yield made[0], made[1]
        finally:
            lifecycle.destroy(layout)

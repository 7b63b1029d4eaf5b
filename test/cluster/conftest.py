"""A virtual cluster for all tests of this directory, made once by the real commands."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest
from fakes.virtual_cluster import TestCluster

from ganeti.base.daemons import FACES
from ganeti.bootstrap.virtual import lifecycle


def make_cluster(
    nodes: int, hypervisor: str | None = None, without: tuple[str, ...] = FACES
) -> Iterator[TestCluster]:
    """Make a cluster, by default without faces, and leave nothing of it behind."""
    with tempfile.TemporaryDirectory(prefix="gnt-") as directory:
        cluster = lifecycle.plan(os.path.join(directory, "vc"), nodes, hypervisor, without=without)
        lifecycle.create(cluster)
        try:
            yield TestCluster(cluster)
        finally:
            lifecycle.destroy(cluster)


@pytest.fixture(scope="session")
def cluster() -> Iterator[TestCluster]:
    """Three nodes; tests leave it as they found it: all nodes online, no instances."""
    yield from make_cluster(3)


@pytest.fixture(autouse=True)
def _left_as_found(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "cluster" in request.fixturenames and not request.session.shouldfail:
        request.getfixturevalue("cluster").tidy_up()

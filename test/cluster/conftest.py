"""A virtual cluster for all tests of this directory, made once by the real commands."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest
from fakes.browser import Browser, open_browser
from fakes.dashboard import first_visit
from fakes.rapi import RapiClient, rapi_of
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


@pytest.fixture(scope="module")
def rapi(cluster: TestCluster) -> Iterator[RapiClient]:
    """The remote API of the module's cluster."""
    with rapi_of(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    """A browser, for all pages of a module."""
    with open_browser() as browser:
        yield browser


@pytest.fixture
def page(rapi: RapiClient, window: Browser) -> Iterator[Browser]:
    """The dashboard as on a first visit."""
    with first_visit(rapi, window) as found:
        yield found


@pytest.fixture(autouse=True)
def _left_as_found(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "cluster" in request.fixturenames and not request.session.shouldfail:
        request.getfixturevalue("cluster").tidy_up()

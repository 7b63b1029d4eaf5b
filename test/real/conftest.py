"""Tests on real machines: made by the rig, collected only when asked for (``make test-real``)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig.cluster import cluster
from rig.installed import layer
from rig.virtual_machines import VirtualMachines
from rig.writer import install_os

if not os.environ.get("GANETI_TEST_REAL"):
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests beside this file."""
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.real)


@pytest.fixture(scope="session")
def seconds_max() -> int:
    """These machines are slow."""
    return 3600


@pytest.fixture(scope="session")
def root() -> None:
    """The right to make machines."""
    if os.geteuid():
        pytest.fail("the rig makes machines, for which it has to be root")


@pytest.fixture(scope="session")
def nodes(root: None) -> Iterator[VirtualMachines]:
    """Three virtual machines that are a cluster with LVM and DRBD.

    ``GANETI_TEST_NODES`` is the directory of nodes that run already (`make nodes-up`).
    """
    if directory := os.environ.get("GANETI_TEST_NODES"):
        running = VirtualMachines.of(Path(directory))
        running.at_all(install_os)
        yield running
        return
    with cluster(3) as running:
        running.at_all(install_os)
        yield running


@pytest.fixture(scope="session")
def installed(root: None) -> Iterator[Path]:
    """Ganeti, installed once as doc/installation.md tells, as a layer over Debian."""
    with layer() as directory:
        yield directory

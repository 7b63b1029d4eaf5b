"""A cluster in memory for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.fake_cluster import FakeCluster
from fakes.fake_config import OPEN
from fakes.pairs import add_pair, pair_cluster

from ganeti.logical_units.instance.storage import snapshots


def _write_hosts(root: Path) -> None:
    (root / "etc").mkdir()
    hosts = [f"192.0.2.{n} node{n}.example.com node{n}" for n in range(1, 6)]
    (root / "etc" / "hosts").write_text("\n".join(hosts))


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """A test makes hundreds of clusters, each with a file that is open."""
    with OPEN:
        yield


@pytest.fixture
def pairs(tmp_path: Path) -> Iterator[FakeCluster]:
    """Four nodes with volume groups, whose instances can have their disks on two of them."""
    _write_hosts(tmp_path)
    made = pair_cluster(str(tmp_path))
    yield made
    assert not made.config.held, "locks were left"


@pytest.fixture
def pair(pairs: FakeCluster) -> FakeCluster:
    """An instance that runs on node1 and has written something."""
    add_pair(pairs)
    pairs.rpc.write("acknowledged")
    return pairs


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    """Three nodes, no instances; names resolve by the hosts file of a virtual node."""
    _write_hosts(tmp_path)
    made = FakeCluster(str(tmp_path))
    yield made
    assert not made.config.held, "locks were left"


@pytest.fixture
def kept(running: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A running instance whose disk has a snapshot."""
    monkeypatch.setattr(snapshots, "keeps_snapshots", lambda _template, _format: True)
    running.rpc.answers["kept_snapshots"] = [[("a", 1.0)]]
    return running

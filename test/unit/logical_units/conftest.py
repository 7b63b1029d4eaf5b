"""A cluster in memory for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.fake_cluster import FakeCluster
from fakes.fake_config import OPEN


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    """Three nodes, no instances; names resolve by the hosts file of a virtual node."""
    (tmp_path / "etc").mkdir()
    hosts = [f"192.0.2.{n} node{n}.example.com node{n}" for n in range(1, 6)]
    (tmp_path / "etc" / "hosts").write_text("\n".join(hosts))
    with OPEN:
        made = FakeCluster(str(tmp_path))
        yield made
        assert not made.config.held, "locks were left"

"""hbal on a cluster of pairs that was skewed by hand: its jobs make it even while guests run.

Jobs carry out the real opcodes; nodes and mirrors are played (`fakes.fake_nodes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster
from fakes.luxi_client import FakeLuxiClient
from fakes.pairs import add_pair, nodes_of, pair_cluster
from fakes.run_tool import run_tool

from ganeti.base.ids import JobId
from ganeti.clients import luxi

NAMES = [f"i{number}.example.com" for number in range(8)]
NODES = ("node1", "node2", "node3", "node4")


class Master(FakeLuxiClient):
    """Answers about the cluster, and carries out each job as it is submitted."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__()
        self._cluster = cluster

    def query_cluster_info(self) -> Any:
        return self._cluster.execute("OP_CLUSTER_QUERY")

    def query_groups(self, _names: Sequence[str], fields: Sequence[str]) -> Any:
        return self._rows("group", fields)

    def query_nodes(self, _names: Sequence[str], fields: Sequence[str]) -> Any:
        return self._rows("node", fields)

    def query_instances(self, _names: Sequence[str], fields: Sequence[str]) -> Any:
        return self._rows("instance", fields)

    def _rows(self, what: str, fields: Sequence[str]) -> list[list[object]]:
        found: Any = self._cluster.execute("OP_QUERY", what=what, fields=fields)
        return [[value for _, value in row] for row in found["data"]]

    def submit_job(self, opcodes: Sequence[Mapping[str, Any]]) -> JobId:
        job_id = super().submit_job(opcodes)
        for each in opcodes:
            self._cluster.execute(**{"op_id" if key == "OP_ID" else key: each[key] for key in each})
        return job_id


def running(cluster: FakeCluster) -> list[list[str]]:
    """Return the short names of the nodes where each guest runs."""
    return [
        [
            name.partition(".")[0]
            for name, node in cluster.rpc.nodes.items()
            if guest in node.running
        ]
        for guest in NAMES
    ]


@pytest.fixture
def skewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Four nodes; all instances run on the first, with the copies of their disks on the second."""
    cluster = pair_cluster(str(tmp_path))
    for name in NAMES:
        add_pair(cluster, name=name, beparams={"maxmem": 256, "minmem": 256})
    real = cluster.rpc.perform

    def watched(call: Any, targets: Any) -> Any:
        answer = real(call, targets)
        gone = [name for name, nodes in zip(NAMES, running(cluster), strict=True) if not nodes]
        assert not gone, f"after {call.name} there are guests that do not run"
        return answer

    monkeypatch.setattr(cluster.rpc, "perform", watched)
    monkeypatch.setattr(luxi, "LuxiClient", lambda *_args, **_options: Master(cluster))
    return cluster


@pytest.mark.parametrize("way", [(), ("--plan",)], ids=["step by step", "a whole plan"])
def test_pairs_are_made_even_while_guests_run(
    way: tuple[str, ...],
    skewed: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert [nodes_of(skewed, name) for name in NAMES] == [["node1", "node2"]] * len(NAMES)
    status, out, err = run_tool(monkeypatch, capsys, "hbal", *way, "-L", "-X")
    assert (status, err) == (0, ""), (out, err)
    assert "Executing jobset 1 of " in out
    pairs = [nodes_of(skewed, name) for name in NAMES]
    assert all(len(set(pair)) == 2 for pair in pairs)
    for place in (0, 1):
        assert [[pair[place] for pair in pairs].count(node) for node in NODES] == [2] * len(NODES)
    assert running(skewed) == [[primary] for primary, _ in pairs]
    assert skewed.rpc.called("migration_info"), "guests have moved"
    for call in ("instance_start", "instance_shutdown", "instance_reboot"):
        assert not skewed.rpc.called(call)
    for node in skewed.rpc.nodes.values():
        for side in node.sides.values():
            assert side.is_complete, "each copy has all data"
    _, again, _ = run_tool(monkeypatch, capsys, "hbal", "-L")
    assert "No solution found" in again or "already well balanced" in again

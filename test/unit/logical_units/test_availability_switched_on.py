"""Tests of ganeti/logical_units/cluster/availability.py: in which order agents are started."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster

from ganeti.availability.records import MASTER_KEY, NODES
from ganeti.clients.etcd import Entry, Snapshot
from ganeti.logical_units.cluster import availability
from ganeti.system import clock

MASTER = "node1"


def test_no_other_agent_starts_before_the_master_holds_its_lease(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents that find no master's lease would take the master for lost."""
    started: list[set[str]] = []
    silent = 3  # the master's agent is slow

    def ask(_settings: Any, _act: Any) -> Snapshot:
        nonlocal silent
        agents = {node for node, _args in cluster.rpc.called("ha_start")}
        started.append(agents)
        silent -= bool(agents)
        keys = {f"{NODES}{node}.example.com" for node in agents}
        if agents and silent < 0:
            keys.add(MASTER_KEY)
        return Snapshot({key: Entry(b"", 1, 0) for key in keys}, 1)

    monkeypatch.setattr(availability, "ask_etcd", ask)
    monkeypatch.setattr(clock, "pause", lambda _seconds: None)
    cluster.rpc.answers |= {"ha_look": [], "ha_stop": None, "ha_start": None}
    cluster.execute("OP_CLUSTER_SET_AVAILABILITY", enabled=True, endpoints=["http://127.0.0.1:1"])
    assert started[1:5] == [{MASTER}] * 4
    assert started[-1] == {"node1", "node2", "node3"}

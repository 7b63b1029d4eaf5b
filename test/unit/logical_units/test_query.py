"""Queries carried out by a job: on the same engine as LuxiD's, without LuxiD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, uuid_of

from ganeti.clients.node_rpc import RpcResult
from ganeti.protocol.node_rpc import NodeCall

NAME = "web1.example.com"


def rows(cluster: FakeCluster, what: str, *fields: str, qfilter: object = None) -> list[Any]:
    answer: Any = cluster.execute("OP_QUERY", what=what, fields=fields, qfilter=qfilter)
    return list(answer["data"])


def break_answer(cluster: FakeCluster, call: str, node: str) -> None:
    """Let one node answer a call with nonsense."""
    real = cluster.rpc.perform

    def broken(asked: NodeCall, targets: Any) -> dict[str, RpcResult[Any]]:
        results = real(asked, targets)
        if asked.name == call and f"{node}.example.com" in results:
            results[f"{node}.example.com"] = RpcResult(f"{node}.example.com", payload=["nonsense"])
        return results

    cluster.rpc.perform = broken  # type: ignore[method-assign]


def test_one_bad_answer_costs_only_its_own_rows(cluster: FakeCluster) -> None:
    break_answer(cluster, "node_info", "node2")
    found = rows(cluster, "node", "name", "mfree")
    assert [row[1][0] for row in found] == [0, 2, 0], "no data of node2 alone"


def test_one_bad_answer_about_instances_costs_only_its_own_rows(cluster: FakeCluster) -> None:
    cluster.add_instance("a", pnode="node1")
    cluster.add_instance("b", pnode="node2")
    break_answer(cluster, "all_instances_info", "node2")
    assert rows(cluster, "instance", "name", "status") == [
        [[0, "a"], [0, "running"]],
        [[0, "b"], [0, "ERROR_nodedown"]],
    ]


@pytest.mark.parametrize(
    ("settings", "types"),
    [
        ({"enabled_disk_templates": ["file"], "file_storage_dir": "/f"}, ["file"]),
        ({"enabled_disk_templates": ["plain"], "volume_group_name": "xenvg"}, ["lvm-vg"]),
        ({"enabled_disk_templates": ["diskless"], "file_storage_dir": "/f"}, []),
        (
            {
                "enabled_disk_templates": ["sharedfile", "plain"],
                "shared_file_storage_dir": "/s",
                "volume_group_name": "xenvg",
            },
            ["sharedfile", "lvm-vg"],
        ),
    ],
)
def test_nodes_are_asked_for_the_storage_that_is_enabled(
    cluster: FakeCluster, settings: dict[str, Any], types: Sequence[str]
) -> None:
    cluster.config.cluster.update(settings)
    rows(cluster, "node", "name", "dfree")
    asked = [units for _node, (units, _hypervisors) in cluster.rpc.called("node_info")]
    assert len(asked) == 3
    assert all([unit[0] for unit in units] == types for units in asked)


def test_a_node_with_exclusive_storage_is_asked_for_its_spindles(cluster: FakeCluster) -> None:
    cluster.config.cluster.update(enabled_disk_templates=["plain"], volume_group_name="xenvg")
    cluster.config.nodes[uuid_of("node2")]["ndparams"] = {"exclusive_storage": True}
    rows(cluster, "node", "name", "spfree")
    asked = {node: units for node, (units, _specs) in cluster.rpc.called("node_info")}
    assert asked["node1"] == [["lvm-vg", "xenvg", [False]]]
    assert asked["node2"] == [["lvm-vg", "xenvg", [True]], ["lvm-pv", "xenvg", [True]]]


def test_consoles_are_asked_for_where_instances_run(cluster: FakeCluster) -> None:
    cluster.add_instance(NAME)
    cluster.add_instance("down.example.com")
    cluster.rpc.node("node1").running.pop("down.example.com", None)
    (found,) = rows(cluster, "instance", "name", "console", qfilter=["==", "name", NAME])
    assert found[1][0] == 0
    assert found[1][1]["message"] == "Console not available for fake hypervisor"


def test_guests_are_asked_for_where_instances_run(cluster: FakeCluster) -> None:
    cluster.add_instance(NAME)
    (found,) = rows(cluster, "instance", "name", "guest", qfilter=["==", "name", NAME])
    assert found[1] == [0, {"agent": False, "addresses": [], "forward": [], "console": ""}]


def test_filters_come_from_the_configuration(cluster: FakeCluster) -> None:
    assert rows(cluster, "filter", "uuid", "action") == []
    assert cluster.rpc.names() == []


def test_a_query_reads_the_configuration_once(cluster: FakeCluster) -> None:
    cluster.add_instance(NAME)
    cluster.config.calls.clear()
    rows(cluster, "instance", "name", "pnode")
    assert cluster.config.calls.count("readConfig") == 1

"""Warnings of a verification about backups by schedule."""

from __future__ import annotations

from fakes.fake_cluster import FakeCluster

from ganeti.protocol.export_description import ExportDescription, format_description

NAME = "web1.example.com"
DAY_S = 86_400.0


def description(timestamp: int) -> str:
    return format_description(
        ExportDescription(
            name=NAME,
            os="debian",
            source_node="node1",
            timestamp=timestamp,
            hypervisor="fake",
            disk_template="sharedfile",
            disks=[],
            nics=[],
        )
    )


def warnings(cluster: FakeCluster) -> list[str]:
    cluster.messages.clear()
    cluster.execute("OP_CLUSTER_VERIFY_CONFIG")
    return [each.partition("WARNING: ")[2] for each in cluster.messages if "WARNING: " in each]


def test_nobody_is_asked_without_a_policy(cluster: FakeCluster) -> None:
    cluster.add_instance()
    assert warnings(cluster) == []
    assert not cluster.rpc.called("export_chains")


def test_exports_that_are_too_old_are_told(cluster: FakeCluster) -> None:
    cluster.add_instance()
    cluster.config.instance(NAME)["ctime"] = cluster.context.now() - 3 * DAY_S
    cluster.config.cluster["tags"] = ["ganeti:backup:every:1d"]
    missing = f"instance {NAME}: there is no export of it, and the policy of its cluster wants one"
    assert warnings(cluster) == [missing]
    now = int(cluster.context.now())
    cluster.rpc.node("node2").add_export(NAME, description(now - int(2.5 * DAY_S)))
    [text] = warnings(cluster)
    assert text.startswith(f"instance {NAME}: its newest export, on node2.example.com, is 60 h old")
    assert text.endswith("too old by the policy of its cluster (2d)")
    cluster.rpc.node("node3").add_export(NAME, description(now))
    assert warnings(cluster) == []


def test_a_node_in_no_group_is_told_by_the_same_verification(cluster: FakeCluster) -> None:
    cluster.add_instance()
    cluster.config.cluster["tags"] = ["ganeti:backup:every:1d"]
    cluster.config.node(1)["group"] = "5a6e89c9-26b7-4042-9bf3-00000000beef"
    cluster.execute("OP_CLUSTER_VERIFY_CONFIG")
    assert cluster.said("its group 5a6e89c9-26b7-4042-9bf3-00000000beef does not exist")


def test_a_rehearsal_that_failed_or_is_too_old_is_told(cluster: FakeCluster) -> None:
    cluster.add_instance()
    now = cluster.context.now()
    cluster.rpc.node("node2").add_export(NAME, description(int(now)))
    instance = cluster.config.instance(NAME)
    instance["ctime"] = now - 3 * DAY_S
    instance["tags"] = ["ganeti:backup:every:1d:rehearse:1d"]
    [text] = warnings(cluster)
    assert text.startswith(f"instance {NAME}: no export of it was ever rehearsed")
    result = {"ended": now, "job": 3, "node": "node2", "exported": now, "failure": ""}
    instance["rehearsal"] = result
    assert warnings(cluster) == []
    instance["rehearsal"] = {**result, "failure": "no memory"}
    [text] = warnings(cluster)
    assert text.startswith(f"instance {NAME}: the rehearsal of its export of ")
    assert text.endswith(" on node2 failed (job 3): no memory")
    instance["rehearsal"] = {**result, "ended": now - 3 * DAY_S}
    [text] = warnings(cluster)
    assert "its last rehearsal is 3 days old, which is too old" in text


def test_a_policy_that_is_not_understood_is_told(cluster: FakeCluster) -> None:
    cluster.add_instance()
    cluster.config.instance(NAME)["tags"] = ["ganeti:backup:often"]
    [text] = warnings(cluster)
    assert text.startswith(f"cluster: instance {NAME}: tag 'ganeti:backup:often'")

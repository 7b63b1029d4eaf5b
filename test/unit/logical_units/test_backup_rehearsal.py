"""Rehearsals: an instance from an export, beside the original, started, looked at, removed."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster
from msgspec import structs

from ganeti.base.errors import JobCanceled, OpExecError, OpPrereqError
from ganeti.objects.tags import REHEARSAL_TAG
from ganeti.opcodes.instance import OpInstanceRemove
from ganeti.protocol.export_description import DumpedDisk, ExportDescription, format_description

NAME = "web1.example.com"
COPY = f"rehearsal.{NAME}"
EXPORT = ExportDescription(
    name=NAME,
    os="debian",
    source_node="x",
    timestamp=1_600_000_000,
    hypervisor="fake",
    disk_template="sharedfile",
    disks=[DumpedDisk(size_mib=100, dump="a.dump", sha256="ab" * 32)],
    nics=[{"mac": "aa:00:00:11:22:33", "mode": "bridged", "link": "br7"}],
)


@pytest.fixture
def exported(cluster: FakeCluster) -> FakeCluster:
    for name in ("node2", "node3"):
        cluster.rpc.node(name).add_export(NAME, format_description(EXPORT))
    return cluster


def rehearse(cluster: FakeCluster, **params: Any) -> str:
    params = {"instance_name": "web1", "src_node": "node2", "pnode": "node1", **params}
    result: str = cluster.execute("OP_BACKUP_REHEARSE", seconds=10, **params)
    return result


def test_nothing_is_held_while_it_is_looked_at_and_nothing_is_left(exported: FakeCluster) -> None:
    cluster, before = exported, exported.leftovers()
    assert rehearse(cluster).startswith("it ran for 10 s")
    assert sum(cluster.waits) == 10
    assert cluster.leftovers() == before
    names = cluster.rpc.names()
    order = ("import_start", "instance_start", "instance_guest_info", "instance_shutdown")
    assert [names.index(name) for name in order] == sorted(names.index(name) for name in order)
    [(node, args)] = cluster.rpc.called("instance_start")
    assert (node, args[0]["name"], args[0]["nics"]) == ("node1", COPY, [])
    held = [{name for name, _ in request} for request in cluster.config.lock_history]
    assert held[0] == {"cluster/BGL"}
    assert [f"instance/{COPY}" in names for names in held] == [False, True, True, True]
    assert cluster.said(f"{NAME} comes back from its export of ")
    assert cluster.said("on node2.example.com, as")


LENT = {"shared_dirs": "data=/srv/data", "pci_pass": "0000:01:00.0", "usb_devices": "host:1:2"}


def test_it_gets_nothing_of_the_node_that_the_original_uses(cluster: FakeCluster) -> None:
    cluster.config.cluster["hvparams"]["kvm"]["shared_dirs"] = "all=/srv/all"
    hvparams = {**LENT, "kvm_extra": "-drive file=/dev/sdx", "cpu_type": "host"}
    export = structs.replace(EXPORT, hypervisor="kvm", hvparams=hvparams)
    cluster.rpc.node("node2").add_export(NAME, format_description(export))
    rehearse(cluster)
    rehearse(cluster, hvparams={"kvm_extra": "-S"})
    first, second = (args[0]["hvparams"] for _, args in cluster.rpc.called("instance_start"))
    assert {first[name] for name in (*LENT, "kvm_extra")} == {""}
    assert (first["cpu_type"], second["kvm_extra"], second["pci_pass"]) == ("host", "-S", "")


def test_one_that_stops_or_says_nothing_has_failed(exported: FakeCluster) -> None:
    before = exported.leftovers()
    with pytest.raises(OpExecError, match=r"has not answered within 10 s; its console"):
        rehearse(exported, agent=True)
    assert exported.leftovers() == before

    exported.context.wait = lambda _: exported.rpc.node("node1").running.clear()
    with pytest.raises(OpExecError, match=f"{NAME} does not come back .* it stopped within"):
        rehearse(exported)
    assert exported.leftovers() == before


def test_one_that_cannot_be_made_has_failed(exported: FakeCluster) -> None:
    before = exported.leftovers()
    exported.rpc.fail("instance_start", text="no memory")
    with pytest.raises(OpExecError, match=r"does not come back.*no memory"):
        rehearse(exported)
    assert exported.leftovers() == before


def test_what_an_earlier_one_left_is_removed_and_nothing_else(exported: FakeCluster) -> None:
    exported.add_instance(COPY, tags=[REHEARSAL_TAG])
    rehearse(exported)
    assert exported.said(f"Removing {COPY}, which an earlier rehearsal left")
    exported.add_instance(COPY)
    with pytest.raises(OpPrereqError, match="is no rehearsal: it does not have the tag"):
        rehearse(exported)
    assert exported.config.instance(COPY)


def test_a_canceled_one_has_a_job_remove_the_instance(exported: FakeCluster) -> None:
    def cancel(_seconds: float) -> None:
        raise JobCanceled("canceled")

    exported.context.wait = cancel
    with pytest.raises(JobCanceled):
        rehearse(exported)
    [[op]] = exported.jobs
    assert isinstance(op, OpInstanceRemove)
    assert op.instance_name == COPY


POLICY = "ganeti:backup:every:1d:rehearse:30d"


def kept(cluster: FakeCluster) -> Any:
    return cluster.config.instance(NAME).get("rehearsal")


def test_the_result_is_kept_where_the_policy_wants_rehearsals(exported: FakeCluster) -> None:
    cluster = exported
    cluster.add_instance(NAME, tags=["ganeti:backup:every:1d"])
    rehearse(cluster)
    assert kept(cluster) is None

    cluster.config.cluster["tags"] = [POLICY]
    rehearse(cluster)
    assert kept(cluster) is None, "the nearest policy decides"
    cluster.config.instance(NAME)["tags"] = []
    with pytest.raises(OpExecError, match="does not come back"):
        rehearse(cluster, agent=True)
    failed = dict(kept(cluster))
    assert failed.pop("failure").startswith("its guest agent has not answered within 10 s")
    ended = failed.pop("ended")
    assert failed == {"job": 7, "node": "node2.example.com", "exported": 1_600_000_000}
    rehearse(cluster, src_point=0)
    assert kept(cluster)["ended"] == ended, "it was not of the newest point"

    rehearse(cluster)
    assert kept(cluster)["failure"] == ""
    assert kept(cluster)["ended"] > ended
    assert {name for name, _ in cluster.config.lock_history[-1]} == {
        "cluster/BGL",
        f"instance/{NAME}",
    }
    assert not cluster.config.held, "the locks are given back"


def test_a_result_that_cannot_be_kept_is_no_failure(
    exported: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported.add_instance(NAME, tags=[POLICY])
    invoke = exported.config.invoke

    def refuse(call: Any, args: list[Any]) -> Any:
        if call.method == "modify_objects" and "rehearsal" in args[0][0][2]:
            raise OpExecError("disk full")
        return invoke(call, args)

    monkeypatch.setattr(exported.config, "invoke", refuse)
    assert rehearse(exported).startswith("it ran for 10 s")
    assert exported.said("cannot keep the result of the rehearsal: disk full; ignoring")


def test_the_instance_has_the_tags_of_a_rehearsal_alone(cluster: FakeCluster) -> None:
    marked = structs.replace(EXPORT, tags=("ganeti:backup:every:1d", "web"))
    cluster.rpc.node("node2").add_export(NAME, format_description(marked))
    seen, wait = [], cluster.context.wait

    def look(seconds: float) -> None:
        seen.append(cluster.config.instance(COPY)["tags"])
        wait(seconds)

    cluster.context.wait = look
    rehearse(cluster)
    assert seen[0] == [REHEARSAL_TAG, f"{REHEARSAL_TAG}:job-7", "ganeti:backup:none"]


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"instance_name": "web2"}, "no export of 'web2' on node 'node2"),
        ({"instance_name": "web2", "src_node": None}, "no export of 'web2'; see"),
        ({"src_node": "node9"}, "node9"),
        ({"src_point": 7}, "has no point 7|point"),
    ],
)
def test_an_export_that_is_not_there(
    exported: FakeCluster, params: dict[str, Any], text: str
) -> None:
    with pytest.raises(OpPrereqError, match=text):
        rehearse(exported, **params)
    assert "import_start" not in exported.rpc.names()

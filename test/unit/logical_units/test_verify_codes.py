"""Every code of a verification: what breaks just that, and that nothing else is told then.

Source: constants.json, "verify_error_codes_with_item_kind".
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, uuid_of

from ganeti.base.errors import ConfigVerifyError
from ganeti.logical_units.cluster.findings import UNTOLD
from ganeti.objects.verify_errors import VerifyErrorCode, item_kind
from ganeti.protocol.node_rpc_values import STORED_DISKS_CHECK
from ganeti.system import certificates

NAME = "web1.example.com"
NOW = 1000.0  # what the clock of these clusters says
GROUP_AWAY = "5a6e89c9-26b7-4042-9bf3-00000000beef"
_LINE = re.compile(r"- (ERROR|WARNING):(E[A-Z0-9]+):(\w+):([^:]*):")

# Told only by what is not built yet; parameters that are missing are told as ECLUSTERCFG.
NOT_BUILT = frozenset({"EINSTANCEMISSINGCFGPARAMETER"})

Spoil = Callable[[FakeCluster], object]


def answering(**answers: object) -> Spoil:
    """All nodes answer so to some checks; _ stands for - in their names."""
    named = {name.replace("_", "-"): value for name, value in answers.items()}
    return lambda cluster: cluster.rpc.verify_answers.update(named)


def put(cluster: FakeCluster, name: str, content: bytes) -> str:
    """Write a well-known file of the master; returns its SHA-1."""
    path = getattr(cluster.context.paths, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


def the_disk(cluster: FakeCluster, **changes: Any) -> None:
    [uuid] = cluster.config.instance(NAME)["disks"]
    cluster.config.disks[uuid].update(changes)


def mirrored(cluster: FakeCluster, *numbers: int) -> None:
    """The instance's disk has copies on these nodes."""
    nodes = [uuid_of(f"node{n}") for n in numbers]
    cluster.config.cluster["ipolicy"]["disk-templates"].append("drbd")
    the_disk(cluster, dev_type="drbd", logical_id=[*nodes[:2], 11000, 0, 0, "s"], nodes=nodes)
    cluster.rpc.do_blockdev_getmirrorstatus_multi = (  # type: ignore[method-assign]
        lambda _node, disks: [[True, None] for _ in disks]
    )


def leave_file_behind(cluster: FakeCluster) -> None:
    """Node 3 is no candidate any more, but has the file of a candidate."""
    cluster.config.node(3)["master_candidate"] = False
    del cluster.config.cluster["candidate_certs"][uuid_of("node3")]
    cluster.config.cluster["candidate_pool_size"] = 2
    digest = put(cluster, "rapi_users", b"joe")
    path = cluster.context.paths.globalize(cluster.context.paths.rapi_users)
    cluster.rpc.verify_answers["filelist"] = {path: digest}


def another_group(cluster: FakeCluster) -> None:
    mirrored(cluster, 1, 3)
    cluster.config.nodegroups[GROUP_AWAY] = {
        **next(iter(cluster.config.nodegroups.values())),
        "uuid": GROUP_AWAY,
        "name": "away",
    }
    cluster.config.node(3)["group"] = GROUP_AWAY


def two_of_a_service(cluster: FakeCluster) -> None:
    cluster.config.cluster["tags"] = ["htools:iextags:service"]
    cluster.add_instance("web2.example.com")
    for name in (NAME, "web2.example.com"):
        cluster.config.instance(name)["tags"] = ["service:dns"]


def helper_is_missing(cluster: FakeCluster) -> None:
    cluster.config.cluster["ndparams"] = {"oob_program": "/bin/oob"}
    answering(oob_paths=["/bin/oob is not there"])(cluster)


def unknown_state(cluster: FakeCluster) -> None:
    cluster.rpc.do_blockdev_getmirrorstatus_multi = (  # type: ignore[method-assign]
        lambda _node, disks: [None for _ in disks]
    )


def with_drbd(**answers: object) -> Spoil:
    """The cluster has DRBD, and all nodes answer so."""
    well = {"drbd_helper": [True, "/bin/true"], "drbd_list": [], "drbd_version": "8.4.11"}

    def spoil(cluster: FakeCluster) -> None:
        cluster.config.cluster["drbd_usermode_helper"] = "/bin/true"
        answering(**well | answers)(cluster)

    return spoil


def different_volumes(cluster: FakeCluster) -> None:
    cluster.config.cluster.update(volume_group_name="xenvg", ndparams={"exclusive_storage": True})
    rows = [{"name": name, "size": size, "attributes": "a--"} for name, size in PVS.items()]
    answering(pvlist=rows, vglist={"xenvg": 90000}, lvlist={})(cluster)
    cluster.execute("OP_INSTANCE_REMOVE", instance_name=NAME)  # its template is not for such nodes


PVS = {"/dev/sda": 50000.0, "/dev/sdb": 90000.0}


BROKEN: dict[str, Spoil] = {
    "ECLUSTERCERT": lambda c: put(c, "server_pem", certificates.make_self_signed(now=NOW, days=3)),
    "ECLUSTERCFG": lambda c: c.config.failing.update(
        verifyConfig=ConfigVerifyError("bad", ["node 'x': lost"])
    ),
    "ECLUSTERCLIENTCERT": lambda c: c.config.cluster["candidate_certs"].update(
        {uuid_of("node2"): "other"}
    ),
    "ECLUSTERDANGLINGINST": lambda c: c.config.instance(NAME).update(primary_node="gone"),
    "ECLUSTERDANGLINGNODES": lambda c: c.config.node(3).update(group="gone"),
    "ECLUSTERFILECHECK": leave_file_behind,
    "EEXTAGS": two_of_a_service,
    "EGROUPDIFFERENTPVSIZE": different_volumes,
    "EINSTANCEBADNODE": lambda c: c.config.node(1).update(vm_capable=False),
    "EINSTANCEDOWN": lambda c: c.rpc.node("node1").running.clear(),
    "EINSTANCEFAULTYDISK": unknown_state,
    "EINSTANCELAYOUT": lambda c: mirrored(c, 1, 2, 3),
    "EINSTANCEMISSINGDISK": lambda c: c.rpc.shared.clear(),
    "EINSTANCEPOLICY": lambda c: c.config.instance(NAME)["beparams"].update(vcpus=99),
    "EINSTANCESPLITGROUPS": another_group,
    "EINSTANCEUNSUITABLENODE": lambda c: c.config.node(1).update(
        ndparams={"exclusive_storage": True}
    ),
    "EINSTANCEWRONGNODE": lambda c: c.rpc.node("node2").running.update({NAME: 0}),
    "ENODEDRBD": with_drbd(drbd_list=[7]),
    "ENODEDRBDHELPER": with_drbd(drbd_helper=[True, "/bin/false"]),
    "ENODEDRBDVERSION": with_drbd(drbd_version="9.1.23"),
    "ENODEFILECHECK": lambda c: put(c, "rapi_users", b"joe"),
    "ENODEFILESTORAGEPATHS": answering(allowed_file_storage_paths=["/bin"]),
    "ENODEFILESTORAGEPATHUNUSABLE": answering(file_storage_path="is not there"),
    "ENODEGLUSTERSTORAGEPATHUNUSABLE": answering(gluster_storage_path="is not mounted"),
    "ENODEHOOKS": lambda c: c.rpc.hook_results.update(
        {"node2:cluster-verify-post": [["x", 1, "no"]]}
    ),
    "ENODEHV": answering(hypervisor={"kvm": "no /dev/kvm"}),
    "ENODELVM": lambda c: (
        c.config.cluster.update(volume_group_name="xenvg"),
        answering(vglist={"other": 9}, lvlist={}, pvlist=[])(c),
    ),
    "ENODEN1": answering(hvinfo={"memory_free": 9}),
    "ENODENET": answering(node_net_test={"node3": "no route"}),
    "ENODEOOBPATH": helper_is_missing,
    "ENODEORPHANINSTANCE": lambda c: c.rpc.node("node2").running.update(ghost=0),
    "ENODEORPHANLV": answering(stored_disks=["/srv/ganeti/file-storage/ghost/disk0"]),
    "ENODEOS": answering(oslist=[["x", "/x", False, "no create script"]]),
    "ENODERPC": lambda c: c.rpc.fail("node_verify", "node3", "no route"),
    "ENODESETUP": answering(nodesetup=["/proc/sysrq-trigger is not there"]),
    "ENODESHAREDFILESTORAGEPATHUNUSABLE": answering(shared_file_storage_path="is not there"),
    "ENODESSH": answering(nodelist={"node3.example.com": "permission denied"}),
    "ENODETIME": answering(time=[5, 0]),
    "ENODEUSERSCRIPTS": answering(user_scripts=["/etc/ganeti/scripts/master-ip-setup"]),
    "ENODEVERSION": answering(version=[2160000, "2.16"]),
}


REFUSED_BY_WCONFD = {"ECLUSTERDANGLINGINST", "ECLUSTERDANGLINGNODES", "EINSTANCEBADNODE"}
"""It finds these as well when it checks the whole configuration."""


@pytest.fixture
def sound(cluster: FakeCluster) -> FakeCluster:
    """A cluster with a running instance where a verification finds nothing."""
    put(cluster, "server_pem", certificates.make_self_signed(now=NOW))
    cluster.config.cluster["candidate_certs"] = {uuid_of(f"node{n}"): f"D{n}" for n in (1, 2, 3)}
    cluster.add_instance()
    return cluster


def verify(cluster: FakeCluster, **params: Any) -> bool:
    """Look at everything; tells whether all is well."""
    options = {"error_codes": True, **params}
    skipped = options.pop("skip_checks", [])
    config = cluster.execute("OP_CLUSTER_VERIFY_CONFIG", **options)
    options["skip_checks"] = skipped
    group = cluster.execute("OP_CLUSTER_VERIFY_GROUP", group_name="default", **options)
    return bool(config and group)


def found(cluster: FakeCluster) -> list[tuple[str, ...]]:
    """Return (severity, code, kind, name) of what was told."""
    lines = [_LINE.search(message) for message in cluster.messages]
    return [match.groups() for match in lines if match is not None]


def test_every_code_is_here() -> None:
    assert BROKEN.keys() | NOT_BUILT == {code.value for code in VerifyErrorCode}
    assert not BROKEN.keys() & NOT_BUILT


def test_nothing_is_told_of_a_sound_cluster(sound: FakeCluster) -> None:
    assert verify(sound) is True
    assert found(sound) == []


@pytest.mark.parametrize("code", sorted(BROKEN))
def test_what_breaks_is_told_with_its_code_and_can_be_ignored(
    sound: FakeCluster, code: str
) -> None:
    BROKEN[code](sound)
    is_well = verify(sound)
    told = found(sound)
    codes = {code, "ECLUSTERCFG"} if code in REFUSED_BY_WCONFD else {code}
    assert {row[1] for row in told} == codes, sound.messages
    assert {row[2] for row in told} == {item_kind(VerifyErrorCode(code)) for code in codes}
    assert all(row[3] or row[2] == "cluster" for row in told)
    assert is_well == all(severity == "WARNING" for severity, *_ in told)
    sound.messages.clear()
    assert verify(sound, ignore_errors=sorted(codes)) is True
    assert {row[:2] for row in found(sound)} == {("WARNING", told) for told in codes}


def test_memory_after_a_failure_need_not_be_looked_at(sound: FakeCluster) -> None:
    BROKEN["ENODEN1"](sound)
    assert verify(sound, skip_checks=["nplusone_mem"]) is True
    assert found(sound) == []


def test_a_candidate_without_the_newest_configuration_is_told(
    sound: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose disk is full: only WConfD's log had it."""
    row = {"node": "node2.example.com", "candidate": True, "offline": False, "serial_no": 6}
    behind = {**row, "wanted_serial_no": 7, "ssconf_is_current": True, "error": None}
    sound.config.distribution.rows = [behind]
    assert (verify(sound), found(sound)) == (True, [])  # it is on its way
    sound.config.distribution.rows = [{**behind, "error": "no space left on device"}]
    assert verify(sound) is False
    assert found(sound) == [("ERROR", "ENODEFILECHECK", "node", "node2.example.com")]
    assert sound.said("cannot send the configuration to node node2.example.com: no space left")

    async def take(group: str | None) -> None:
        assert group in sound.config.nodegroups
        sound.config.distribution.rows = []

    monkeypatch.setattr(sound.config.distribution, "flush", take)
    sound.messages.clear()
    assert (verify(sound), found(sound)) == (True, []), "it takes it when it is tried again"
    sound.config.distribution.rows = [{**behind, "error": "no space left on device"}]
    sound.rpc.fail("node_verify", "node2", "no route")
    sound.messages.clear()
    assert verify(sound) is False
    assert [row[1] for row in found(sound)] == ["ENODERPC"]


@pytest.mark.parametrize("check", sorted(UNTOLD))
def test_a_check_that_a_node_could_not_make_is_told(sound: FakeCluster, check: str) -> None:
    """Nothing was told, as if all were well."""
    sound.rpc.verify_answers[check] = "it broke"
    is_well = verify(sound)
    severity = "WARNING" if check == STORED_DISKS_CHECK else "ERROR"
    assert {row[:2] for row in found(sound)} == {(severity, UNTOLD[check].value)}
    assert is_well == (severity == "WARNING")
    assert sound.said("it broke")


@pytest.mark.parametrize("call", ["all_instances_info", "blockdev_getmirrorstatus_multi"])
def test_a_node_that_does_not_tell_its_instances_or_disks_is_an_error(
    sound: FakeCluster, call: str
) -> None:
    """Nothing was told, as if all of them had been seen and were well."""
    sound.rpc.fail(call, "node1", "timed out")
    assert verify(sound) is False
    assert found(sound) == [("ERROR", "ENODERPC", "node", "node1.example.com")]
    assert sound.said(f"{call}: timed out")
    sound.rpc.failure = lambda where, *_: "no route" if where.startswith("node1") else None
    sound.messages.clear()
    assert verify(sound) is False
    assert len(found(sound)) == 1, "a node that does not answer at all is told once"

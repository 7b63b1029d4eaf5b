"""Checks of a node."""

import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from fakes import lvm_programs
from fakes.shell_scripts import write_script

from ganeti.base.versions import PROTOCOL_VERSION, RELEASE_VERSION
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.disks.volumes import Volumes
from ganeti.node_ops.verify import calls, network
from ganeti.node_ops.verify.calls import Verify
from ganeti.node_ops.verify.files import client_certificate
from ganeti.storage.drbd.status import NOT_LOADED, parse_proc
from ganeti.system import certificates, clock

DAY_S = 86400.0
WAIT_S = 30.0


def verify(context: NodeContext, **checks: Any) -> dict[str, Any]:
    wanted = {name.replace("_", "-"): value for name, value in checks.items()}
    return Verify(context).node_verify(wanted, "cluster.example.com", {})


def test_version_and_time(context: NodeContext) -> None:
    found = verify(context, version=None, time=None)
    assert found["version"] == [PROTOCOL_VERSION, RELEASE_VERSION]
    assert abs(found["time"][0] - clock.now()) < 60
    assert set(Verify(context).node_verify_light({"version": 1}, "c", {})) == {"version"}


def test_files(context: NodeContext) -> None:
    Path(context.paths.hmac_key).write_text("key")
    script = write_script(Path(context.paths.localize("/opt/run")), "")
    Path(context.paths.localize("/opt/data")).write_text("")
    os.mkfifo(context.paths.localize("/opt/fifo"))
    found = verify(
        context,
        filelist=["/var/lib/ganeti/hmac.key", "/absent", "relative", "/opt/fifo", "/opt"],
        user_scripts=["/opt/run", "/opt/data"],
        oob_paths=["/opt/run", "/opt/data", "/opt/none"],
    )
    assert found["filelist"] == {"/var/lib/ganeti/hmac.key": hashlib.sha1(b"key").hexdigest()}
    assert found["user-scripts"] == ["/opt/data"]
    assert found["oob-paths"][0] is None
    assert "not executable" in found["oob-paths"][1]
    assert "does not exist" in found["oob-paths"][2]
    assert os.access(script, os.X_OK)


@pytest.mark.parametrize(
    ("days", "severity", "words"),
    [
        (365.0, None, ":"),
        (20.0, "WARNING", "expires in about 20 days"),
        (3.0, "ERROR", "expires in about 3 days"),
        (-1.0, "ERROR", "has expired"),
    ],
)
def test_the_client_certificate_is_judged_by_the_days_it_has_left(
    context: NodeContext, days: float, severity: str | None, words: str
) -> None:
    path = Path(context.paths.client_pem)
    path.write_bytes(certificates.make_self_signed("node1", now=clock.now(), days=400))
    path.chmod(0o440)
    found = client_certificate(context.paths, clock.now() + (400 - days) * DAY_S)
    assert found[0] == severity
    assert words in found[1]


def test_a_missing_or_open_client_certificate(context: NodeContext) -> None:
    found = verify(context, client_cert=None)["client-cert"]
    assert found[0] == "ERROR"
    assert "does not exist" in found[1]
    path = Path(context.paths.client_pem)
    path.write_text("nonsense")
    assert verify(context, client_cert=None)["client-cert"][0] == "ERROR"
    path.write_bytes(certificates.make_self_signed("node1", now=clock.now()))
    path.chmod(0o644)
    assert verify(context, client_cert=None)["client-cert"][0] == "WARNING"


def test_storage_directories(context: NodeContext) -> None:
    found = verify(
        context,
        file_storage_path="/srv/ganeti/file-storage",
        shared_file_storage_path="/srv/ganeti/shared-file-storage",
    )
    assert "not an existing directory" in found["file-storage-path"]
    os.makedirs(context.paths.file_storage_dir)
    assert "file-storage-path" not in verify(context, file_storage_path="/srv/ganeti/file-storage")
    Path(context.paths.file_storage_paths_file).write_text("/srv/x\n/etc/y\n# /bin\n/\n")
    found = verify(context, allowed_file_storage_paths="node1.example.com")
    assert found["allowed-file-storage-paths"] == ["/", "/etc/y"]
    assert verify(context, allowed_file_storage_paths="node2.example.com") == {}


def test_hypervisors(context: NodeContext) -> None:
    found = verify(
        context,
        hypervisor=["fake", "xen-pvm", "odd"],
        instancelist=["fake"],
        hvinfo="fake",
        hvparms=[
            ["cluster", "fake", {"migration_mode": "live"}],
            ["instance inst1", "fake", {"migration_mode": "odd"}],
        ],
    )
    assert found["hypervisor"]["fake"] is None
    assert (
        "needs the node daemon" in found["hypervisor"]["xen-pvm"]
        or "Xen" in found["hypervisor"]["xen-pvm"]
    )
    assert "unknown" in found["hypervisor"]["odd"]
    assert found["instancelist"] == []
    assert found["hvinfo"]["memory_total"] > 0
    ((source, name, message),) = found["hvparms"]
    assert (source, name) == ("instance inst1", "fake")
    assert "migration_mode" in message


def test_the_parameters_of_the_cluster_say_where_qemu_is(context: NodeContext) -> None:
    def told(kvm_path: str) -> object:
        hvparams = {"kvm": {"kvm_path": kvm_path}}
        found = Verify(context).node_verify(
            {"hypervisor": ["kvm"]}, "cluster.example.com", hvparams
        )
        return found["hypervisor"]

    assert told("/bin/true") == {"kvm": None}
    assert told("/no/such/qemu") == {
        "kvm": "hypervisor parameter kvm_path: there is no program /no/such/qemu"
    }


def test_a_node_without_instances_is_not_asked_about_them(context: NodeContext) -> None:
    found = verify(context, nonvmnodes=["node1.example.com"], hypervisor=["fake"], version=1)
    assert set(found) == {"version"}
    found = verify(context, nonvmnodes=["node2.example.com"], hypervisor=["fake"])
    assert set(found) == {"hypervisor"}


def test_other_nodes_are_reached_by_candidates_only(context: NodeContext) -> None:
    nodes = [
        ["node1.example.com", "127.0.0.1", "127.0.0.1"],
        ["node2.example.com", "127.0.0.211", "127.0.0.212"],
    ]
    candidates = ["node1.example.com"]
    found = verify(context, node_net_test=[nodes, candidates])["node-net-test"]
    assert "primary interface (127.0.0.211)" in found["node2.example.com"]
    assert "secondary interface (127.0.0.212)" in found["node2.example.com"]
    assert verify(context, node_net_test=[nodes, []])["node-net-test"] == {}
    missing = verify(context, node_net_test=[nodes[1:], candidates])["node-net-test"]
    assert "not in the list" in missing["node1.example.com"]
    found = verify(context, master_ip=["node2", "127.0.0.211", candidates])
    assert found["master-ip"] is False
    assert verify(context, master_ip=["node2", "127.0.0.211", []])["master-ip"] is None


def test_nodes_that_do_not_answer_take_no_time_from_the_others(
    context: NodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_wait = threading.Barrier(12)

    def serves(address: str, *_args: object, **_named: object) -> bool:
        if address.startswith("192.0.2."):
            all_wait.wait(WAIT_S)
            return False
        return True

    monkeypatch.setattr(network, "serves", serves)
    silent = [
        [f"dead{number:02}", f"192.0.2.{number}", f"192.0.2.{number}"] for number in range(12)
    ]
    own = ["node1.example.com", "127.0.0.1", "127.0.0.1"]
    asked = [[*silent, own], [own[0]]]
    found = verify(context, node_net_test=asked)["node-net-test"]
    assert sorted(found) == [name for name, _, _ in silent]
    assert found["dead03"] == "failure using primary interface (192.0.2.3)"
    monkeypatch.setattr(network, "_ALL_TIMEOUT_S", 0.0)
    found = verify(context, node_net_test=asked)["node-net-test"]
    assert set(found.values()) == {"not tried, as too many other nodes do not answer"}


def test_volumes_and_their_groups(
    context: NodeContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lvm_programs.install(tmp_path / "programs")
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_LVM", str(tmp_path))
    lvm_programs.make_group(tmp_path, "xenvg", {"/dev/none/a": 1000, "/dev/none/b": 500})
    lvm_programs.make_group(tmp_path, "other", {"/dev/none/c": 50})
    for name in ("disk0", "disk1"):
        lvm_programs.main("lvcreate", f"--name={name}", "--size=100m", "xenvg", "/dev/none/a")
    volume = ("100.00", False, False)
    both = {"xenvg/disk0": volume, "xenvg/disk1": volume}
    checks = {"vglist": None, "lvlist": "xenvg", "pvlist": ["other"], "exclusive-pvs": True}
    found = Verify(context).node_verify(checks, "c", {})
    assert found["vglist"] == {"xenvg": 1500, "other": 50}
    assert found["lvlist"] == both
    [physical] = found["pvlist"]  # type: ignore[misc]
    assert (physical["name"], physical["size"], physical["attributes"]) == (
        "/dev/none/c",
        50,
        "a--",
    )
    assert found["exclusive-pvs"] == [("/dev/none/a", ["disk0", "disk1"])]
    volumes = Volumes(context)
    assert volumes.lv_list([]) == volumes.lv_list(["xenvg"]) == both
    assert volumes.lv_list(["other"]) == {}
    assert volumes.node_volumes()[0] == {
        "name": "disk0",
        "vg": "xenvg",
        "size": "100.00",
        "dev": "/dev/none/a",
    }
    programs = [call[0] for call in lvm_programs.calls(str(tmp_path))[2:6]]
    assert programs == ["vgs", "lvs", "pvs", "pvs"]  # one for each check
    (tmp_path / "programs" / "vgs").write_text("#!/bin/sh\necho '  broken' >&2\nexit 5\n")
    assert "broken" in str(Verify(context).node_verify({"vglist": None}, "c", {})["vglist"])


def test_unknown_checks_and_wrong_inputs_are_answered(context: NodeContext) -> None:
    found = Verify(context).node_verify({"colour": 1, "filelist": 7, "version": 1}, "c", {})
    assert "unknown check" in str(found["colour"])
    assert "Expected `array`" in str(found["filelist"])
    assert found["version"][0] == PROTOCOL_VERSION


def test_small_checks(context: NodeContext) -> None:
    found = verify(context, nodesetup=None, nodelist=[[], {}, []], bridges=["br0"], oslist=None)
    assert found == {"nodesetup": [], "nodelist": {}, "bridges": [], "oslist": []}


PROC = """\
version: 8.4.11 (api:1/proto:86-101)
srcversion: 8CE055A76B43C5AD8C4B9B9
 0: cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r-----
    ns:0 nr:0 dw:0 dr:0 al:0 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:0
 1: cs:Unconfigured
"""


def test_drbd_is_looked_at(context: NodeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = dict.fromkeys(("drbd-helper", "drbd-list", "drbd-version"), "")
    found = Verify(context).node_verify(asked, "c", {})
    assert found["drbd-helper"] == [False, NOT_LOADED]
    assert found["drbd-list"] == found["drbd-version"] == NOT_LOADED
    monkeypatch.setattr(calls, "usermode_helper", lambda: "/bin/true")
    monkeypatch.setattr(calls.drbdsetup, "status", lambda: parse_proc(PROC))
    assert Verify(context).node_verify(asked, "c", {}) == {
        "drbd-helper": [True, "/bin/true"],
        "drbd-list": [0],
        "drbd-version": "8.4.11",
    }

"""The cluster itself: settings, queries, verification, end."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, uuid_of
from msgspec.structs import replace

from ganeti.base.errors import ConfigurationError, ConfigVerifyError, OpExecError, OpPrereqError
from ganeti.base.versions import PROTOCOL_VERSION
from ganeti.logical_units import lookup
from ganeti.logical_units.cluster.findings import Clock, Finding, judge_node, softened
from ganeti.logical_units.cluster.verify_group import GroupMembers, checks_of_group
from ganeti.objects.model import Instance, Node
from ganeti.objects.verify_errors import VerifyErrorCode
from ganeti.protocol.wconfd import WConfCalls

NAME = "web1.example.com"


def modify(cluster: FakeCluster, **params: Any) -> None:
    cluster.execute("OP_CLUSTER_SET_PARAMS", **params)


@pytest.mark.shows(
    "2.0/opcodes/cluster-defaults", "2.0/gnt-cluster/hypervisor", "2.1/diskparams/diskparams"
)
@pytest.mark.parametrize(
    ("params", "field", "value"),
    [
        ({"max_running_jobs": 7}, "max_running_jobs", 7),
        ({"mac_prefix": "AA:BB:CC"}, "mac_prefix", "aa:bb:cc"),
        ({"enabled_hypervisors": ["fake"]}, "enabled_hypervisors", ["fake"]),
        ({"file_storage_dir": "/srv//x/"}, "file_storage_dir", "/srv/x"),
        ({"hidden_os": [["add", "a"], ["add", "a"]]}, "hidden_os", ["a"]),
        ({"uid_pool": [[20, 30], [1, 9]]}, "uid_pool", [[1, 9], [20, 30]]),
        ({"add_uids": [[5, 6]]}, "uid_pool", [[5, 6]]),
        ({"os_hvp": {"d": {"kvm": {"acpi": "no"}}}}, "os_hvp", {"d": {"kvm": {"acpi": False}}}),
        ({"osparams": {"d": {"a": "1"}}}, "osparams", {"d": {"a": "1"}}),
        (
            {"osparams_private_cluster": {"d": {"a": "1"}}},
            "osparams_private_cluster",
            {"d": {"a": "1"}},
        ),
        ({"ndparams": {"ssh_port": 23}}, "ndparams", {"ssh_port": 23}),
        ({"diskparams": {"rbd": {"pool": "x"}}}, "diskparams", {"rbd": {"pool": "x"}}),
        ({"reserved_lvs": ["x"]}, "reserved_lvs", ["x"]),
    ],
)
def test_settings(cluster: FakeCluster, params: dict[str, Any], field: str, value: object) -> None:
    modify(cluster, **params)
    assert cluster.config.cluster[field] == value


@pytest.mark.shows("2.0/opcodes/cluster-defaults")
def test_groups_of_parameters_are_laid_over_the_old(cluster: FakeCluster) -> None:
    modify(
        cluster, beparams={"vcpus": 2}, hvparams={"kvm": {"acpi": False}}, nicparams={"link": "b"}
    )
    stored = cluster.config.cluster
    assert stored["beparams"]["default"]["vcpus"] == 2
    assert stored["beparams"]["default"]["maxmem"] == 128
    assert stored["hvparams"]["fake"] == {"migration_mode": "live"}
    assert stored["hvparams"]["kvm"] == {"acpi": False}
    assert stored["nicparams"]["default"] == {"mode": "bridged", "link": "b", "vlan": ""}


@pytest.mark.shows("2.0/validation/syntax", "2.1/diskparams/unknown")
@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({}, "at least one change"),
        ({"mac_prefix": "01:00:00"}, "not a MAC prefix"),
        ({"enabled_hypervisors": []}, "must not be empty"),
        ({"hvparams": {"nix": {}}}, "unknown hypervisor 'nix'"),
        ({"hvparams": {"kvm": {"nix": 1}}}, "'nix'"),
        ({"beparams": {"minmem": 256}}, "larger than maxmem"),
        ({"nicparams": {"mode": "pool"}}, "'pool' is not one of bridged"),
        (
            {"diskparams": {"plain": {"stripes": -5}}},
            "plain disk parameter 'stripes': -5 is not between 1 and 128",
        ),
        (
            {"diskparams": {"drbd": {"disk-barriers": "zzz"}}},
            "drbd disk parameter 'disk-barriers': 'zzz' is not n, or some of the letters b, f",
        ),
        ({"file_storage_dir": "x"}, "not an absolute path"),
        ({"uid_pool": [[9, 1]]}, "upside down"),
        ({"remove_uids": [[1, 9]]}, "not in the pool"),
        ({"vg_name": "xenvg"}, "has 9 MiB, and needs 20480"),
        ({"ipolicy": {"std": "default"}}, "no default"),
        ({"enabled_data_collectors": {"nix": True}}, "unknown data collector"),
    ],
)
def test_settings_that_cannot_be(cluster: FakeCluster, params: dict[str, Any], text: str) -> None:
    before = dict(cluster.config.cluster)
    with pytest.raises(OpPrereqError, match=text):
        modify(cluster, **params)
    assert cluster.config.cluster == before


def test_what_is_in_use_stays_enabled(cluster: FakeCluster) -> None:
    cluster.add_instance()
    with pytest.raises(OpPrereqError, match=r"fake cannot be disabled.*web1"):
        modify(cluster, enabled_hypervisors=["kvm"])
    with pytest.raises(OpPrereqError, match=r"sharedfile cannot be disabled.*web1"):
        modify(cluster, enabled_disk_templates=["file"])


@pytest.mark.shows("2.0/validation/on-node")
def test_nodes_are_asked_about_new_hypervisor_parameters(cluster: FakeCluster) -> None:
    cluster.rpc.fail("hypervisor_validate_params", "node3", "no such file")
    with pytest.raises(OpPrereqError, match=r"node 'node3.example.com'.*no such file"):
        modify(cluster, hvparams={"kvm": {"kernel_path": "/nix"}})
    modify(cluster, hvparams={"kvm": {"kernel_path": "/nix"}}, force=True)


@pytest.mark.shows("backend/roles/pool-set")
def test_a_larger_pool_is_filled(cluster: FakeCluster) -> None:
    cluster.config.node(3)["master_candidate"] = False
    modify(cluster, candidate_pool_size=5)
    assert cluster.config.node(3)["master_candidate"]


def test_a_change_that_came_in_between_is_kept(cluster: FakeCluster) -> None:
    call = WConfCalls.calls["replaceCluster"]
    once = [True]

    def overtaken(wire: Any) -> Any:
        if once:
            once.clear()
            cluster.config.cluster |= {"hidden_os": ["other"], "serial_no": 2}
        return cluster.config.serve(call, [wire])

    cluster.config.stand_ins["replace_cluster"] = overtaken
    modify(cluster, hidden_os=[["add", "mine"]])
    assert cluster.config.cluster["hidden_os"] == ["other", "mine"]


def test_a_cluster_that_never_stands_still_is_given_up(cluster: FakeCluster) -> None:

    def overtaken(wire: Any) -> Any:
        cluster.config.cluster["serial_no"] += 1
        return cluster.config.serve(WConfCalls.calls["replaceCluster"], [wire])

    cluster.config.stand_ins["replace_cluster"] = overtaken
    with pytest.raises(OpExecError, match="kept changing"):
        modify(cluster, max_running_jobs=3)


def test_settings_that_the_configuration_cannot_have_are_not_tried_again(
    cluster: FakeCluster,
) -> None:
    cluster.config.failing["replaceCluster"] = ConfigurationError("cluster 'c': no good")
    with pytest.raises(OpExecError, match="settings were refused: cluster 'c': no good"):
        modify(cluster, max_running_jobs=3)


def test_the_cluster_is_described(cluster: FakeCluster) -> None:
    info = cluster.execute("OP_CLUSTER_QUERY")
    assert info["name"] == "cluster.example.com"
    assert info["master"] == "node1.example.com"
    assert info["hvparams"]["kvm"]["acpi"] is True
    assert cluster.execute("OP_CLUSTER_CONFIG_QUERY", output_fields=["name", "drain_flag"]) == [
        "cluster.example.com",
        False,
    ]
    with pytest.raises(OpPrereqError, match="unknown field"):
        cluster.execute("OP_CLUSTER_CONFIG_QUERY", output_fields=["nix"])


@pytest.mark.shows("backend/cluster-node/one-service")
@pytest.mark.parametrize("what", ["ACTIVATE", "DEACTIVATE"])
def test_the_cluster_address_is_the_masters(cluster: FakeCluster, what: str) -> None:
    cluster.execute(f"OP_CLUSTER_{what}_MASTER_IP")
    ((node, args),) = cluster.rpc.called(f"node_{what.lower()}_master_ip")
    assert (node, args[0]["ip"]) == ("node1", "192.0.2.100")
    cluster.rpc.fail(f"node_{what.lower()}_master_ip")
    with pytest.raises(OpExecError, match=r"192.0.2.100.*node1.example.com"):
        cluster.execute(f"OP_CLUSTER_{what}_MASTER_IP")


def test_only_an_empty_cluster_is_destroyed(cluster: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match=r"2 other node\(s\).*node2"):
        cluster.execute("OP_CLUSTER_DESTROY")
    for number in (2, 3):
        del cluster.config.nodes[uuid_of(f"node{number}")]
    cluster.add_instance()
    with pytest.raises(OpPrereqError, match=r"1 instance\(s\).*web1"):
        cluster.execute("OP_CLUSTER_DESTROY")
    cluster.execute("OP_INSTANCE_REMOVE", instance_name=NAME)
    assert cluster.execute("OP_CLUSTER_DESTROY") == uuid_of("node1")
    assert cluster.config.cluster["master_node"] == ""
    assert cluster.config.lock_history[-1] == [("cluster/BGL", "exclusive")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("high_availability", "gnt-cluster ha-disable"),
        ("ha_member", "gnt-cluster ha-disable"),
        ("merge_note", "cluster-merge --rollback"),
    ],
)
def test_no_cluster_is_destroyed_that_others_need(
    cluster: FakeCluster, name: str, text: str
) -> None:
    for number in (2, 3):
        del cluster.config.nodes[uuid_of(f"node{number}")]
    path = Path(getattr(cluster.context.paths, name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    with pytest.raises(OpPrereqError, match=text):
        cluster.execute("OP_CLUSTER_DESTROY")
    path.unlink()
    cluster.execute("OP_CLUSTER_DESTROY")


# Verification.


def healthy(cluster: FakeCluster) -> None:
    cluster.config.cluster["candidate_certs"] = {uuid_of(f"node{n}"): f"D{n}" for n in (1, 2, 3)}


def verify(cluster: FakeCluster, **params: Any) -> Any:
    return cluster.execute("OP_CLUSTER_VERIFY_GROUP", group_name="default", **params)


def test_a_healthy_group_is_found_so(cluster: FakeCluster) -> None:
    healthy(cluster)
    cluster.add_instance()
    assert verify(cluster) is True
    assert not cluster.said("ERROR")


def test_verification_submits_jobs(cluster: FakeCluster) -> None:
    result = cluster.execute("OP_CLUSTER_VERIFY")
    assert result == {"jobs": [(True, 100), (True, 101)]}
    config, group = (job[0] for job in cluster.jobs)
    assert type(config).__name__ == "OpClusterVerifyConfig"
    assert group.depends == [(-1, [])]


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda c: c.rpc.node("node1").running.clear(), "web1.example.com: does not run on its node"),
        (lambda c: c.rpc.node("node2").running.update({NAME: 0}), "runs on node node2.example.com, not"),
        (lambda c: c.rpc.node("node2").running.update({NAME: 1}), "standing still on node node2.example.com, not"),
        (lambda c: c.config.instance(NAME).update(forthcoming=True), f"'gnt-instance remove {NAME}' removes it"),
        (lambda c: c.rpc.node("node2").running.update(ghost=0), "runs the unknown instance ghost"),
        (lambda c: c.rpc.shared.clear(), "instance web1.example.com: disk/0 on node1"),
        (lambda c: c.rpc.fail("node_verify", "node3", "no route"), "node node3.example.com: node_verify: no route"),
        (lambda c: c.rpc.verify_answers.update(version=[2160000, "2.16"]), "speaks protocol 2160000"),
        (lambda c: c.rpc.verify_answers.update(time=[5, 0]), "its clock differs"),
        (lambda c: c.rpc.verify_answers.update(hypervisor={"kvm": "no kvm"}), "hypervisor kvm: no kvm"),
        (lambda c: c.rpc.verify_answers.update({"file-storage-path": "bad"}), "bad"),
        (lambda c: c.config.cluster["candidate_certs"].clear(), "is not on the list"),
        (lambda c: c.rpc.verify_answers.update({"node-net-test": {"node3": "no"}}), "cannot reach node node3: no"),
        (lambda c: c.rpc.verify_answers.update({"master-ip": False}), "cannot reach the cluster's address"),
        (lambda c: c.rpc.verify_answers.update({"hvparms": [["OS x", "kvm", "bad"]]}), "parameters of OS x, kvm, bad"),
        (lambda c: c.rpc.verify_answers.update({"user-scripts": ["/x"]}), "missing or not executable: /x"),
        (lambda c: c.rpc.verify_answers.update({"oslist": [["x", "/x", False, "no create"]]}), "OS x (/x) is not valid"),
        (lambda c: c.rpc.verify_answers.update({"oslist": "no"}), "did not tell its operating systems"),
        (lambda c: c.rpc.verify_answers.update({"hvinfo": {"memory_free": 9}}), "node node1.example.com: after its failure"),
        (lambda c: c.rpc.verify_answers.update({"bridges": ["br9"]}), "missing bridge br9"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(cluster: FakeCluster, spoil: Any, text: str) -> None:
    healthy(cluster)
    cluster.add_instance()
    spoil(cluster)
    assert verify(cluster) is False
    assert cluster.said(text), cluster.messages


def test_an_instance_that_is_being_worked_on_is_not_judged(cluster: FakeCluster) -> None:
    healthy(cluster)
    cluster.add_instance()
    cluster.rpc.node("node1").running.clear()
    cluster.config.lock_by_another(f"instance/{NAME}")
    assert verify(cluster) is True


def test_errors_can_be_ignored_and_shown_with_codes(cluster: FakeCluster) -> None:
    healthy(cluster)
    cluster.rpc.node("node2").running["ghost"] = 0
    assert verify(cluster, ignore_errors=["ENODEORPHANINSTANCE"], error_codes=True) is True
    assert cluster.said("WARNING:ENODEORPHANINSTANCE:node:node2.example.com:runs the unknown")


def test_hooks_of_a_verification_are_shown(cluster: FakeCluster) -> None:
    healthy(cluster)
    cluster.rpc.hook_results["node2:cluster-verify-post"] = [["x", 1, "line one\nline two"]]
    assert verify(cluster) is False
    assert cluster.said("node node2.example.com: hook x failed")
    assert cluster.said("      line two")


def test_the_configuration_is_verified(cluster: FakeCluster) -> None:
    cluster.config.failing["verifyConfig"] = ConfigVerifyError("bad", ["node 'x': lost"])
    assert cluster.execute("OP_CLUSTER_VERIFY_CONFIG") is False
    assert cluster.said("ERROR: cluster: node 'x': lost")
    assert cluster.said("server.pem is missing")


def test_simulated_errors_fail_the_verification(cluster: FakeCluster) -> None:
    healthy(cluster)
    assert verify(cluster, debug_simulate_errors=True) is False


@pytest.mark.shows("2.1/redist/compared")
def test_files_that_differ_are_named() -> None:
    from fakes.fake_cluster import make_node

    node = Node.from_wire(make_node(2, master_candidate=False))
    answer = {"version": [PROTOCOL_VERSION, "x"], "time": [10, 0], "filelist": {"/a": "1"}}
    sums = {"/a": "2", "/b": "3"}
    found = list(judge_node(node, answer, Clock(9, 11), certificate=None, file_sums=sums))
    assert [finding.text for finding in found] == [
        "file /a differs from the master's",
        "file /b is missing",
    ]


def test_softening_keeps_everything_else() -> None:
    finding = Finding(VerifyErrorCode.ENODEHV, "n", "t")
    assert softened(finding, set()) is finding
    assert softened(finding, {"ENODEHV"}).line(with_code=False) == "WARNING: node n: t"


def test_parameters_of_instances_are_tried_once_each_and_found_without_comparing_all(
    cluster: FakeCluster,
) -> None:
    """Each was compared with all others: 4,000 instances took nine seconds."""
    cluster.config.cluster["enabled_hypervisors"] = ["kvm"]
    cluster.add_instance()
    instance = Instance.from_wire({**cluster.config.instance(NAME), "hypervisor": "kvm"})
    count = 3000
    own = [
        replace(instance, hvparams={"vnc_password_file": f"/etc/ganeti/vnc-{number}"})
        for number in range(count)
    ]
    [node, *_] = lookup.all_nodes(cluster.config)
    [group] = lookup.all_groups(cluster.config)
    members = GroupMembers(group, [node], [*own, *own])
    started = time.process_time()
    settings = cluster.config.get_cluster()
    checks = checks_of_group(settings, members, master=node, candidates=[node.name])
    assert time.process_time() - started < 1.0
    rows = checks["hvparms"]
    assert isinstance(rows, list)
    assert sum(source.startswith("instance ") for source, _, _ in rows) == count


def test_a_finding_for_programs_is_one_line() -> None:
    """What ssh and lvs print has several; those behind the first looked like lines of their own."""
    finding = Finding(VerifyErrorCode.ENODESSH, "n1", "cannot log in: @@@\nkey changed\n@@@")
    expected = "ERROR:ENODESSH:node:n1:cannot log in: @@@ key changed @@@"
    assert finding.line(with_code=True) == expected
    assert finding.line(with_code=False).count("\n") == 2


def test_certificates_that_end_are_told(cluster: FakeCluster) -> None:
    from ganeti.logical_units.cluster.verify import certificate_findings
    from ganeti.system import certificates

    paths = cluster.context.paths
    os.makedirs(paths.data_dir, exist_ok=True)
    now = 1_900_000_000.0
    for name, days in (("server_pem", 20), ("rapi_pem", 3), ("spice_pem", 900)):
        with open(getattr(paths, name), "wb") as file:
            file.write(certificates.make_self_signed(now=now, days=days))
    with open(paths.client_pem, "w") as file:
        file.write("nothing")
    found = {
        name: finding.severity.value
        for finding in certificate_findings(paths, now)
        for name in ("server.pem", "client.pem", "rapi.pem", "spice.pem")
        if f"/{name}" in finding.text
    }
    assert found == {"server.pem": "WARNING", "client.pem": "ERROR", "rapi.pem": "ERROR"}


def test_lost_jobs_are_told(cluster: FakeCluster) -> None:
    from ganeti.logical_units.cluster.verify import lost_job_findings

    paths = cluster.context.paths
    assert not lost_job_findings(paths)
    os.makedirs(f"{paths.queue_dir}/job-7.corrupt")
    [finding] = lost_job_findings(paths)
    assert f"job 7 could not be read, so the job is lost; it is {paths.queue_dir}/job-7" in (
        finding.text
    )


def test_candidates_that_were_not_asked_do_not_count_as_reachable(cluster: FakeCluster) -> None:
    healthy(cluster)
    cluster.execute("OP_GROUP_ADD", group_name="other")
    cluster.execute("OP_GROUP_ASSIGN_NODES", group_name="other", nodes=["node3"])
    cluster.rpc.fail("node_verify", "node2", "no answer")
    assert verify(cluster) is False
    assert cluster.said("of the others 1 answered and 1 of other groups were not asked")


def test_nodes_cut_off_from_all_others_are_counted(cluster: FakeCluster) -> None:
    healthy(cluster)
    answer = {f"node{number:03}": "no" for number in range(100, 300)}
    cluster.rpc.verify_answers.update({"node-net-test": answer})
    assert verify(cluster) is False
    told = [text for text in cluster.messages if "cannot reach" in text and "node1." in text]
    assert len(told) == 11
    assert any("cannot reach 190 more nodes: node110, node111, node112 and 187" in t for t in told)


def test_one_group_is_verified_alone(cluster: FakeCluster) -> None:
    assert cluster.execute("OP_CLUSTER_VERIFY", group_name="default") == {"jobs": [(True, 100)]}
    assert cluster.jobs[0][0].depends is None


@pytest.mark.shows("2.0/offline/in-verify", "2.0/interaction/in-verify")
def test_the_role_of_each_node_is_told_and_what_a_silent_candidate_means(
    cluster: FakeCluster,
) -> None:
    healthy(cluster)
    cluster.rpc.fail("node_verify", "node2", "no answer")
    cluster.config.node(3).update(master_candidate=False, offline=True)
    assert verify(cluster) is False
    text = "node_verify: no answer; it is a master candidate; of the others 1 answered"
    assert [line for line in cluster.messages if line.endswith(text)]
    notes = cluster.messages[cluster.messages.index("* Other Notes") :]
    assert notes[1:4] == [
        "  - NOTICE: 1 master node(s): node1.example.com",
        "  - NOTICE: 1 master candidate node(s): node2.example.com",
        "  - NOTICE: 1 offline node(s) found: node3.example.com",
    ]

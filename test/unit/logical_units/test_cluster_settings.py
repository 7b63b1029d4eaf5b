"""Settings of the cluster: values, what they do together, and what stands in their way."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from fakes.fake_cluster import GROUP, FakeCluster

from ganeti.base.errors import GenericError, OpExecError, OpPrereqError
from ganeti.clients.node_rpc import RpcResult, Target
from ganeti.logical_units.cluster import settings
from ganeti.logical_units.processor import execute_opcode
from ganeti.objects.model import IpFamily
from ganeti.opcodes.summary import summary
from ganeti.protocol.node_rpc import NodeCall

NAME = "web1.example.com"
LIMITS = {
    "min": {"memory-size": 256, "cpu-count": 1, "disk-count": 0, "disk-size": 0}
    | {"nic-count": 0, "spindle-use": 0},
    "max": {"memory-size": 1024, "cpu-count": 4, "disk-count": 4, "disk-size": 4096}
    | {"nic-count": 4, "spindle-use": 4},
}
TEMPLATES = ("diskless", "ext", "file", "sharedfile")  # enabled at first
STD = {"memory-size": 512, "cpu-count": 1, "disk-count": 1, "disk-size": 1024} | {
    "nic-count": 1,
    "spindle-use": 1,
}


def modify(cluster: FakeCluster, **params: Any) -> dict[str, Any]:
    """Carry out one change and return the cluster's object."""
    cluster.execute("OP_CLUSTER_SET_PARAMS", **params)
    return cluster.config.cluster


def refused(cluster: FakeCluster, text: str, **params: Any) -> None:
    """Try a change that must fail and leave everything as it was."""
    before = dict(cluster.config.cluster)
    with pytest.raises(OpPrereqError, match=text):
        modify(cluster, **params)
    assert cluster.config.cluster == before


# Values.


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"file_storage_dir": "/"}, "cannot hold disks"),
        ({"file_storage_dir": "/srv/../etc"}, "cannot hold disks"),
        ({"master_netmask": 33}, "master_netmask: 33"),
        ({"master_netmask": 0}, "from 1 to 32"),
        ({"master_netdev": "a/b"}, "not the name of a network device"),
        ({"master_netdev": ""}, "not the name of a network device"),
        ({"master_netdev": ".."}, "not the name of a network device"),
        ({"compression_tools": ["xz"]}, "gzip must be among them"),
        ({"compression_tools": ["gzip", "rm -rf"]}, "not the name of a program"),
        ({"compression_tools": ["gzip", "none"]}, "not the name of a program"),
        ({"reserved_lvs": ["a("]}, "not a regular expression"),
        ({"data_collector_interval": {"lv": 0}}, "interval above 0"),
        ({"enabled_data_collectors": {"nix": True}}, "'nix'; known are: cpu-avg-load, diagnose, "),
        ({"diagnose_data_collector_filename": "../x"}, "not a name of letters"),
        ({"uid_pool": [[0, 4294967296]]}, "does not lie between"),
        ({"default_iallocator": "nonsense"}, "no allocator 'nonsense' on node"),
        ({"default_iallocator": "../hail"}, "no allocator"),
        ({"default_iallocator": "hail,mine"}, "no allocator 'mine' on node"),
        ({"default_iallocator": "hail,"}, "no allocator ''"),
        ({"default_iallocator": "hail,hail"}, "allocator 'hail' is named twice"),
        ({"default_iallocators": {"relocate": ["mine"]}}, "default_iallocators: .* 'mine' on node"),
        ({"default_iallocators": {"relocate": ["hail", "hail"]}}, "named twice"),
        ({"os_hvp": {"d": {"kvm": {"migration_port": 1}}}}, "only be set for the whole cluster"),
        ({"os_hvp": {"d": {"kvm": 1}}}, "must have an object"),
        ({"install_image": "x.img"}, "install_image: 'x.img' is neither an absolute path nor"),
        ({"zeroing_image": "http:///x"}, "zeroing_image: 'http:///x' is neither"),
        ({"instance_communication_network": "a b"}, "'a b' cannot be the name of a network"),
        ({"nicparams": {"link": "a\nb"}}, "NIC parameter 'link': .* is not a name without blanks"),
        ({"nicparams": {"vlan": "a\nb"}}, "NIC parameter 'vlan': .* is not a VLAN"),
        ({"ndparams": {"ovs_link": "a b"}}, "node parameter 'ovs_link': 'a b' is not a name with"),
        ({"vg_name": "-x"}, "'-x' cannot be the name of a volume group"),
        ({"vg_name": ".."}, "'..' cannot be the name of a volume group"),
        ({"drbd_helper": "true"}, "'true' is not an absolute path"),
        ({"enabled_disk_templates": [*TEMPLATES, "plain"]}, "plain is enabled and needs --vg-name"),
    ],
)
def test_wrong_values_are_refused(cluster: FakeCluster, params: dict[str, Any], text: str) -> None:
    cluster.config.cluster["data_collectors"] = {"lv": {"active": True, "interval": 5000000}}
    refused(cluster, text, **params)


@pytest.fixture
def block_storage(cluster: FakeCluster) -> dict[str, dict[str, Any]]:
    """What nodes answer about their volume groups, and about DRBD: {call: {node: answer}}."""
    nodes = ("node1.example.com", "node2.example.com", "node3.example.com")
    answers: dict[str, dict[str, Any]] = {
        "storage_list": {name: [[30000]] for name in nodes},
        "drbd_helper": dict.fromkeys(nodes, "/bin/true"),
    }
    nodes_answer = cluster.context.nodes.call_all

    def call_all(method: Any, targets: Sequence[Any], *args: Any, **more: Any) -> Any:
        if method.__name__ not in answers:
            return nodes_answer(method, targets, *args, **more)
        found = answers[method.__name__]
        return {node.name: RpcResult(node.name, found[node.name]) for node in targets}

    cluster.context.nodes.call_all = call_all  # type: ignore[method-assign]
    return answers


def test_a_volume_group_and_a_helper_are_stored_and_may_go(
    cluster: FakeCluster, block_storage: dict[str, dict[str, Any]]
) -> None:
    stored = modify(cluster, vg_name="xenvg", drbd_helper="/bin/true")
    assert (stored["volume_group_name"], stored["drbd_usermode_helper"]) == ("xenvg", "/bin/true")
    modify(cluster, enabled_disk_templates=[*TEMPLATES, "plain"])
    refused(cluster, "template plain is enabled and needs --vg-name", vg_name="")
    stored = modify(cluster, drbd_helper="")
    assert stored.get("drbd_usermode_helper") is None


@pytest.mark.parametrize(
    ("call", "answer", "text"),
    [
        ("storage_list", [], "node node2.example.com: there is no volume group 'xenvg'; 'vgs' "),
        ("storage_list", [[None]], "node node2.example.com: there is no volume group 'xenvg'"),
        ("storage_list", [[5]], "node node2.example.com: .*'xenvg' has 5 MiB, and needs 20480"),
        ("drbd_helper", "/sbin/drbdadm", "DRBD calls '/sbin/drbdadm', not '/bin/true': 'modprobe"),
    ],
)
def test_each_node_has_to_have_the_volume_group_and_the_helper(
    cluster: FakeCluster,
    block_storage: dict[str, dict[str, Any]],
    call: str,
    answer: object,
    text: str,
) -> None:
    block_storage[call]["node2.example.com"] = answer
    refused(cluster, text, vg_name="xenvg", drbd_helper="/bin/true")


def test_what_cannot_be_set_may_be_left_empty(cluster: FakeCluster) -> None:
    stored = modify(cluster, vg_name="", drbd_helper="", zeroing_image="", max_running_jobs=3)
    assert stored["max_running_jobs"] == 3


@pytest.mark.parametrize("name", ["install_image", "zeroing_image"])
def test_images_are_kept(cluster: FakeCluster, name: str) -> None:
    for image in ("/srv/x.img", "https://images.example.com/x.img", ""):
        assert modify(cluster, **{name: image})[name] == image


class Communication:
    """The network for communication, with the jobs about it carried out."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.jobs: list[list[str]] = []
        cluster.execute("OP_GROUP_ADD", group_name="far")
        cluster.context.submit_jobs = self._submit

    def _submit(self, jobs: Any) -> list[int]:
        for ops in jobs:
            self.jobs.append([summary(op) for op in ops])
            for op in ops:
                execute_opcode(self.cluster.context, op)
        return list(range(100, 100 + len(jobs)))

    def change(self, name: str) -> object:
        """Set the name; returns the result."""
        self.jobs.clear()
        return self.cluster.execute("OP_CLUSTER_SET_PARAMS", instance_communication_network=name)

    def connections(self, name: str) -> dict[str, Any]:
        """Return how a network is connected to each group, by name."""
        [uuid] = [key for key, each in self.cluster.config.networks.items() if each["name"] == name]
        groups = self.cluster.config.nodegroups.values()
        return {each["name"]: each["networks"].get(uuid) for each in groups}


@pytest.fixture
def communication(cluster: FakeCluster) -> Communication:
    return Communication(cluster)


ROUTED = {"mode": "routed", "link": "communication_rt", "vlan": ""}


def test_a_network_for_communication_is_made_and_connected(communication: Communication) -> None:
    assert communication.change("talk") == {"jobs": [(True, 100)]}
    cluster = communication.cluster
    assert cluster.config.cluster["instance_communication_network"] == "talk"
    [network] = cluster.config.networks.values()
    assert (network["name"], network["network"]) == ("talk", "169.254.0.0/16")
    assert (network["network6"], network["mac_prefix"]) == ("fe80::/10", "52:54:00")
    connected = communication.connections("talk")
    assert connected == dict.fromkeys(connected, ROUTED)
    assert len(connected) == 2
    assert communication.change("talk") == {"jobs": []}  # all is there


def test_groups_that_come_later_are_connected(communication: Communication) -> None:
    communication.change("talk")
    communication.cluster.execute("OP_GROUP_ADD", group_name="new")
    assert communication.connections("talk")["new"] == ROUTED


@pytest.mark.parametrize("name", ["", "other"])
def test_the_old_network_is_disconnected(communication: Communication, name: str) -> None:
    communication.change("talk")
    communication.change(name)
    assert set(communication.connections("talk").values()) == {None}
    assert communication.cluster.config.cluster["instance_communication_network"] == name
    assert len(communication.jobs) == (3 if name else 2)


def test_a_network_that_is_unusual_for_it_is_remarked_on(communication: Communication) -> None:
    cluster = communication.cluster
    cluster.execute("OP_NETWORK_ADD", network_name="lan", network="10.0.0.0/24")
    how = {"network_mode": "bridged", "network_link": "br0"}
    cluster.execute("OP_NETWORK_CONNECT", network_name="lan", group_name="far", **how)
    communication.change("lan")
    assert cluster.said("has network 10.0.0.0/24; for instances 169.254.0.0/16 is usual")
    assert cluster.said("to node group 'far' with mode=bridged,link=br0")
    assert len(communication.jobs) == 1


def test_hypervisors_of_an_older_configuration_may_stay(cluster: FakeCluster) -> None:
    cluster.config.cluster["enabled_hypervisors"] = ["fake", "xen-pvm"]
    cluster.rpc.do_hypervisor_validate_params = lambda *_args: None  # type: ignore[method-assign]
    stored = modify(cluster, enabled_hypervisors=["xen-pvm", "fake", "kvm"])
    assert stored["enabled_hypervisors"] == ["xen-pvm", "fake", "kvm"]


@pytest.mark.shows("2.0/cluster-parameters/hvparams")
def test_a_new_hypervisor_gets_all_its_parameters(cluster: FakeCluster) -> None:
    cluster.config.cluster["enabled_hypervisors"] = ["fake"]
    del cluster.config.cluster["hvparams"]["kvm"]
    stored = modify(cluster, enabled_hypervisors=["fake", "kvm"], hvparams={"kvm": {"vga": "std"}})
    assert stored["hvparams"]["kvm"]["vga"] == "std"
    assert stored["hvparams"]["kvm"]["acpi"] is True


@pytest.mark.shows("maintd/operation/rate")
def test_collectors_are_switched_and_timed_in_one_change(cluster: FakeCluster) -> None:
    cluster.config.cluster["data_collectors"] = {"lv": {"active": True, "interval": 5000000}}
    stored = modify(
        cluster, enabled_data_collectors={"lv": False}, data_collector_interval={"lv": 7000000}
    )
    assert stored["data_collectors"]["lv"] == {"active": False, "interval": 7000000}


def test_our_own_collectors_get_into_the_configuration_once_they_are_changed(
    cluster: FakeCluster,
) -> None:
    before = {"lv": {"active": True, "interval": 5000000}}
    cluster.config.cluster["data_collectors"] = before
    stored = modify(cluster, enabled_data_collectors={"diagnose": False})
    assert stored["data_collectors"] == {
        **before,
        "diagnose": {"active": False, "interval": 5000000},
    }


@pytest.mark.shows("maintd/collector/configurable")
def test_the_diagnose_command_is_set_and_taken_away(cluster: FakeCluster) -> None:
    stored = modify(cluster, diagnose_data_collector_filename="check-disks")
    assert stored["diagnose_data_collector_filename"] == "check-disks"
    assert modify(cluster, max_disk_transfers=2)["max_disk_transfers"] == 2
    assert "max_disk_transfers" not in modify(cluster, max_disk_transfers=0)
    assert modify(cluster, silent_node_tries=3)["silent_node_tries"] == 3
    assert "silent_node_tries" not in modify(cluster, silent_node_tries=0)
    stored = modify(cluster, diagnose_data_collector_filename="")
    assert "diagnose_data_collector_filename" not in stored


@pytest.mark.shows("maintd/store/in-config")
def test_maintenance_is_switched_on_and_off(cluster: FakeCluster) -> None:
    before = cluster.config.get_maintenance()
    assert before is None
    refused(cluster, "--maintenance-interval=300' switches it on", maint_balance=False)
    refused(cluster, "switched off", maint_balance_threshold=0.5)
    refused(cluster, "switched off", maint_auto_repair=True)
    assert cluster.config.get_maintenance() is None
    modify(cluster, maint_round_delay=60)
    found = cluster.config.get_maintenance()
    assert found is not None
    assert (found.round_delay, found.balance, found.balance_threshold) == (60, False, 0.1)
    modify(cluster, maint_balance=True, maint_balance_threshold=0.5)
    found = cluster.config.get_maintenance()
    assert found is not None
    assert (found.round_delay, found.balance, found.balance_threshold) == (60, True, 0.5)
    assert (found.auto_repair, found.use_load, found.move_disks) == (False, False, False)
    modify(cluster, maint_move_disks=True)
    modify(cluster, maint_auto_repair=True)
    found = cluster.config.get_maintenance()
    assert found is not None
    assert (found.auto_repair, found.use_load, found.move_disks) == (True, False, True)
    refused(cluster, "switches maintenance off", maint_round_delay=0, maint_balance=True)
    refused(cluster, "maint_round_delay", maint_round_delay=-1)
    refused(cluster, "maint_balance_threshold", maint_balance_threshold=-0.5)
    modify(cluster, maint_round_delay=0)
    assert cluster.config.get_maintenance() is None


def test_a_diagnose_command_that_nobody_acts_on_is_told(cluster: FakeCluster) -> None:
    modify(cluster, diagnose_data_collector_filename="check")
    assert cluster.said("nobody acts on what the command says")
    cluster.messages.clear()
    modify(cluster, maint_round_delay=60)
    modify(cluster, diagnose_data_collector_filename="check2")
    assert not cluster.said("nobody acts")


@pytest.mark.shows("2.1/allocator-default/default")
def test_allocators_are_looked_for_on_the_master(cluster: FakeCluster) -> None:
    directory = cluster.context.paths.iallocator_search_path[0]
    os.makedirs(directory)
    with open(f"{directory}/mine", "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o755)
    assert modify(cluster, default_iallocator="mine")["default_iallocator"] == "mine"
    assert modify(cluster, default_iallocator="hail")["default_iallocator"] == "hail"
    assert modify(cluster, default_iallocator="")["default_iallocator"] == ""


@pytest.mark.shows("2.1/allocator-default/several")
def test_lists_of_allocators_are_kept_beside_the_first_one(cluster: FakeCluster) -> None:
    directory = cluster.context.paths.iallocator_search_path[0]
    os.makedirs(directory)
    for name in ("mine", "other"):
        with open(f"{directory}/{name}", "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o755)
    stored = modify(cluster, default_iallocator="mine,hail")
    assert stored["default_iallocator"] == "mine"
    assert stored["default_iallocators"] == {"default": ["mine", "hail"]}
    stored = modify(cluster, default_iallocators={"relocate": ["other"], "allocate": ["hail"]})
    own = {"relocate": ["other"], "allocate": ["hail"]}
    assert stored["default_iallocators"] == {"default": ["mine", "hail"], **own}
    stored = modify(cluster, default_iallocator="hail")
    assert (stored["default_iallocator"], stored["default_iallocators"]) == ("hail", own)
    stored = modify(cluster, default_iallocators={"relocate": [], "allocate": []})
    assert "default_iallocators" not in stored  # 3.0 would not know it


def test_ipv6_prefixes_are_longer() -> None:
    assert settings.netmask(128, IpFamily.IPV6) == 128
    with pytest.raises(OpPrereqError, match="IPv4"):
        settings.netmask(128, IpFamily.IPV4)


# User ids.


@pytest.mark.shows("2.1/uid-storage/ranges", "2.1/uid-change/replace")
@pytest.mark.parametrize(
    ("params", "pool"),
    [
        ({"uid_pool": [[1, 10], [5, 20]]}, [[1, 20]]),
        ({"add_uids": [[95, 110]]}, [[50, 110]]),
        ({"remove_uids": [[60, 70]]}, [[50, 59], [71, 100]]),
        ({"remove_uids": [[50, 100]]}, []),
        ({"uid_pool": []}, []),
        ({"uid_pool": [[1, 9]], "add_uids": [[20, 20]], "remove_uids": [[3, 3]]},
         [[1, 2], [4, 9], [20, 20]]),
    ],
)  # fmt: skip
def test_user_ids_are_a_set(cluster: FakeCluster, params: dict[str, Any], pool: object) -> None:
    cluster.config.cluster["uid_pool"] = [[50, 100]]
    assert modify(cluster, **params)["uid_pool"] == pool


@pytest.mark.shows("2.1/uid-change/add-remove")
def test_only_user_ids_of_the_pool_can_be_removed(cluster: FakeCluster) -> None:
    cluster.config.cluster["uid_pool"] = [[50, 100]]
    refused(cluster, r"not in the pool: 40-49, 101", remove_uids=[[40, 60], [99, 101]])


# Settings that must suit each other.


def test_policies_allow_only_enabled_templates(cluster: FakeCluster) -> None:
    policy = {"disk-templates": ["sharedfile", "diskless"], "minmax": [LIMITS], "std": STD}
    cluster.config.cluster |= {
        "enabled_disk_templates": ["sharedfile", "file", "diskless"],
        "ipolicy": policy,
    }
    modify(cluster, enabled_disk_templates=["sharedfile", "diskless"])
    refused(
        cluster, "policy of the cluster allows.* diskless,", enabled_disk_templates=["sharedfile"]
    )
    refused(cluster, "allows.* file,", ipolicy={"disk-templates": ["file", "sharedfile"]})
    modify(
        cluster, enabled_disk_templates=["sharedfile"], ipolicy={"disk-templates": ["sharedfile"]}
    )
    modify(cluster, enabled_disk_templates=["sharedfile", "file"])
    cluster.config.nodegroups[GROUP]["ipolicy"] = {"disk-templates": ["file"]}
    refused(cluster, "node group 'default' allows.* file,", enabled_disk_templates=["sharedfile"])


def test_templates_in_files_need_their_directory(cluster: FakeCluster) -> None:
    cluster.config.cluster["enabled_disk_templates"] = ["sharedfile", "diskless"]
    refused(cluster, "--shared-file-storage-dir", shared_file_storage_dir="")
    cluster.config.cluster["ipolicy"]["disk-templates"] = ["sharedfile"]
    assert modify(cluster, file_storage_dir="")["file_storage_dir"] == ""
    refused(cluster, "--file-storage-dir", enabled_disk_templates=["sharedfile", "file"])
    modify(cluster, file_storage_dir="/x", enabled_disk_templates=["sharedfile", "file"])


def test_directories_that_change_nothing_yet_are_remarked_on(cluster: FakeCluster) -> None:
    cluster.config.cluster["enabled_disk_templates"] = ["sharedfile"]
    modify(cluster, file_storage_dir="/x")
    assert cluster.said("disk template file is not enabled")
    cluster.add_instance()
    modify(cluster, shared_file_storage_dir="/y")
    assert cluster.said("existing instances stay in /srv/ganeti/shared-file-storage")


def test_nodes_say_which_directories_they_do_not_allow(cluster: FakeCluster) -> None:
    cluster.rpc.verify_answers["shared-file-storage-path"] = "path /y is not allowed"
    modify(cluster, shared_file_storage_dir="/y")
    assert cluster.said("node node2.example.com: path /y is not allowed")
    cluster.messages.clear()
    modify(cluster, max_running_jobs=7)
    assert not cluster.messages


def test_default_nic_parameters_must_suit_the_nics_that_use_them(cluster: FakeCluster) -> None:
    cluster.add_instance(nics=[{"mode": "bridged"}, {}])
    refused(cluster, r"web1.example.com: nic/1 has no IP address", nicparams={"mode": "routed"})
    refused(cluster, r"nic/0 would have no link", nicparams={"mode": "openvswitch", "link": ""})
    cluster.add_instance("web2.example.com", nics=[{}])
    missing = r"web2.example.com: nic/0 would have no link, mode openvswitch"
    refused(cluster, missing, nicparams={"mode": "openvswitch", "link": ""})
    refused(cluster, "mode bridged needs a link", nicparams={"link": ""})
    modify(cluster, nicparams={"link": "br1"})


def test_a_node_that_is_not_reached_is_not_said_to_lack_the_default_bridge(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    perform = cluster.rpc.perform

    def silent(call: NodeCall, targets: Mapping[Target, Sequence[object]]) -> Any:
        found = perform(call, targets)
        if call.name == "bridges_exist":
            name = "node2.example.com"
            found[name] = RpcResult(name, error="no route", address="192.0.2.2:1811")
        return found

    monkeypatch.setattr(cluster.rpc, "perform", silent)
    modify(cluster, nicparams={"link": "br7"})
    assert cluster.said("node2.example.com could not be asked for the default bridge: no route")
    assert not cluster.said("cannot start there")


@pytest.mark.shows("2.0/gnt-cluster/bridge")
def test_nodes_without_the_default_bridge_are_named(cluster: FakeCluster) -> None:
    cluster.rpc.fail("bridges_exist", "node2", "missing bridges br7")
    modify(cluster, nicparams={"link": "br7"})
    assert cluster.said("node node2.example.com: missing bridges br7")
    assert not cluster.said("node1.example.com: ")
    cluster.messages.clear()
    modify(cluster, nicparams={"mode": "routed"})
    modify(cluster, max_running_jobs=7)
    assert not cluster.messages


def test_instances_that_no_longer_fit_are_named(cluster: FakeCluster) -> None:
    cluster.add_instance()
    modify(cluster, ipolicy={"minmax": [LIMITS], "std": STD})
    assert cluster.said(f"these instances violate it: {NAME}")
    cluster.messages.clear()
    modify(cluster, ipolicy={"vcpu-ratio": 2.0})
    assert not cluster.said("violate")


def test_a_group_may_be_for_larger_instances_than_usual(cluster: FakeCluster) -> None:
    cluster.config.cluster["ipolicy"] = {"minmax": [LIMITS], "std": STD}
    large = {**LIMITS, "min": {**LIMITS["min"], "memory-size": 1000}}
    cluster.execute("OP_GROUP_SET_PARAMS", group_name="default", ipolicy={"minmax": [large]})
    refused(cluster, "std .*lies outside all limits", ipolicy={"minmax": [large]})


def test_a_pool_larger_than_the_cluster_is_remarked_on(cluster: FakeCluster) -> None:
    modify(cluster, candidate_pool_size=99)
    assert cluster.said("pool is to have 99 nodes, but only 3")


def test_lists_of_operating_systems_tell_what_they_ignore(cluster: FakeCluster) -> None:
    modify(cluster, hidden_os=[["add", "a"]], blacklisted_os=[["remove", "b"]])
    assert cluster.said("OS 'b' is not in blacklisted_os")
    modify(cluster, hidden_os=[["add", "a"]])
    assert cluster.said("OS 'a' is already in hidden_os")


def test_hypervisor_parameters_of_an_os_are_asked_about_and_dropped_when_empty(
    cluster: FakeCluster,
) -> None:
    stored = modify(cluster, os_hvp={"d": {"kvm": {"acpi": "no"}}})
    asked = [args for _, args in cluster.rpc.called("hypervisor_validate_params")]
    assert {args[1]["acpi"] for args in asked} == {False}
    assert stored["os_hvp"] == {"d": {"kvm": {"acpi": False}}}
    assert modify(cluster, os_hvp={"d": {"kvm": {"acpi": "default"}}})["os_hvp"] == {}


def test_parameters_of_a_hypervisor_that_is_not_enabled_wait(cluster: FakeCluster) -> None:
    os_hvp = {"d": {"xen-pvm": {"kernel_path": "/x"}, "fake": {}}}
    assert "xen-pvm" in modify(cluster, os_hvp=os_hvp)["os_hvp"]["d"]
    assert cluster.said("'xen-pvm' is not enabled, so its parameters for OS 'd' wait")
    assert not cluster.said("'fake' is not enabled")


def test_operating_systems_check_their_parameters(cluster: FakeCluster) -> None:
    cluster.rpc.fail("os_validate", "node1", "no such size")
    refused(cluster, "operating system 'd'.*no such size", osparams={"d": {"size": "x"}})


def test_operating_systems_check_private_parameters_with_the_others(cluster: FakeCluster) -> None:
    stored = modify(cluster, osparams={"d": {"size": "1"}})
    assert stored["osparams"] == {"d": {"size": "1"}}
    cluster.rpc.calls.clear()
    modify(cluster, osparams_private_cluster={"d": {"key": "k"}, "gone": {"a": "b"}})
    asked = [args[1:4] for _, args in cluster.rpc.called("os_validate")]
    assert asked == [
        ["d", ["parameters"], {"size": "1", "key": "k"}],
        ["gone", ["parameters"], {"a": "b"}],
    ]
    assert cluster.said("no node has OS 'gone'")
    cluster.rpc.fail("os_validate", "node1", "no parameter a")
    refused(cluster, "no parameter a", osparams_private_cluster={"d": {"a": "b"}})


def test_an_operating_system_that_no_node_has_is_told(cluster: FakeCluster) -> None:
    cluster.rpc.os_list["node2"] = [["cloud", "/os/cloud", True, "", ["debian-12"], [], [20], True]]
    for name in ("cloud", "cloud+debian-12"):
        modify(cluster, osparams={name: {"a": "1"}}, hidden_os=[["add", name]])
        modify(cluster, os_hvp={name: {"kvm": {"acpi": "no"}}}, blacklisted_os=[["add", name]])
    assert not cluster.said("no node has")
    modify(cluster, osparams={"cloud+debain-12": {"a": "1"}}, hidden_os=[["add", "other"]])
    assert cluster.said("no node has OS 'cloud+debain-12'; see 'gnt-os list'")
    assert cluster.said("no node has OS 'other'")


def test_settings_of_an_operating_system_that_is_gone_are_taken_away_silently(
    cluster: FakeCluster,
) -> None:
    cluster.config.cluster |= {"osparams": {"gone": {"a": "1"}}, "hidden_os": ["gone"]}
    modify(cluster, osparams={"gone": {"a": "default"}}, hidden_os=[["remove", "gone"]])
    assert not cluster.said("no node has")


def test_instances_are_locked_where_a_new_one_could_stand_in_the_way(cluster: FakeCluster) -> None:
    modify(cluster, max_running_jobs=7)
    assert ("instance/[lockset]", "shared") not in cluster.config.lock_history[-1]
    modify(cluster, nicparams={"link": "br1"})
    assert ("instance/[lockset]", "shared") in cluster.config.lock_history[-1]


def test_only_what_matters_is_read(cluster: FakeCluster) -> None:
    cluster.config.calls.clear()
    modify(cluster, max_running_jobs=7)
    assert not {"getInstances", "getDisks"} & set(cluster.config.calls)


# The cluster's own address.


def calls_about_the_address(cluster: FakeCluster) -> list[str]:
    """Return the calls in order, with the device or the masks."""
    found = []
    for _, call, args in cluster.rpc.calls:
        if call in ("node_activate_master_ip", "node_deactivate_master_ip"):
            found.append(f"{call.split('_')[1]} {args[0]['netdev']}/{args[0]['netmask']}")
        elif call == "node_change_master_netmask":
            found.append(f"{args[0]}->{args[1]}")
    return found


@pytest.fixture
def net(cluster: FakeCluster) -> FakeCluster:
    cluster.rpc.do_node_change_master_netmask = lambda *_args: None  # type: ignore[attr-defined]
    return cluster


def test_the_address_moves_with_its_device(net: FakeCluster) -> None:
    stored = modify(net, master_netdev="eth1", master_netmask=24)
    assert calls_about_the_address(net) == ["deactivate lo/32", "activate eth1/24"]
    assert (stored["master_netdev"], stored["master_netmask"]) == ("eth1", 24)


def test_a_netmask_changes_in_place(net: FakeCluster) -> None:
    assert modify(net, master_netmask=24)["master_netmask"] == 24
    assert calls_about_the_address(net) == ["32->24"]
    modify(net, max_running_jobs=7)
    assert calls_about_the_address(net) == ["32->24"]


def test_a_script_of_the_administrator_is_told_by_down_and_up(net: FakeCluster) -> None:
    net.config.cluster["use_external_mip_script"] = True
    modify(net, master_netmask=24)
    assert calls_about_the_address(net) == ["deactivate lo/32", "activate lo/24"]


@pytest.mark.parametrize(
    ("failing", "calls"),
    [
        ("node_deactivate_master_ip", ["deactivate lo/32"]),
        ("node_activate_master_ip", ["deactivate lo/32", "activate eth1/32", "activate lo/32"]),
        (
            "replaceCluster",
            ["deactivate lo/32", "activate eth1/32", "deactivate eth1/32", "activate lo/32"],
        ),
    ],
)
def test_an_address_that_cannot_move_stays(
    net: FakeCluster, failing: str, calls: list[str]
) -> None:
    if failing == "replaceCluster":
        net.config.failing[failing] = GenericError("disk full")
    else:
        devices = ["lo"] if "deactivate" in failing else ["eth1"]
        net.rpc.failure = lambda _node, call, args: (
            "it broke" if call == failing and args[0]["netdev"] in devices else None
        )
    with pytest.raises(GenericError) as caught:
        modify(net, master_netdev="eth1")
    assert calls_about_the_address(net) == calls
    assert net.config.cluster["master_netdev"] == "lo"
    if failing != "replaceCluster":
        assert isinstance(caught.value, OpExecError)
        assert "192.0.2.100" in caught.value.message

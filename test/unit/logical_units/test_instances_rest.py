"""Everything else about instances: console, facts, disks, settings, name, operating system."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, uuid_of

from ganeti.base.errors import OpExecError, OpPrereqError

NAME = "web1.example.com"


def run(cluster: FakeCluster, op: str, **params: Any) -> Any:
    return cluster.execute(f"OP_INSTANCE_{op}", **{"instance_name": NAME, **params})


def instance(cluster: FakeCluster) -> dict[str, Any]:
    return cluster.config.instance(NAME)


def test_the_console_is_the_nodes_word(cluster: FakeCluster) -> None:
    cluster.add_instance()
    assert run(cluster, "CONSOLE") == {
        "instance": NAME,
        "kind": "msg",
        "message": "Console not available for fake hypervisor",
    }
    ((_, (request,)),) = cluster.rpc.called("instance_console_info")
    assert set(request[NAME]) == {"instance", "node", "group", "hvParams", "beParams"}


@pytest.mark.parametrize(
    ("state", "text"), [("up", "crashed"), ("down", "is down"), ("offline", "marked offline")]
)
def test_no_console_without_a_running_instance(cluster: FakeCluster, state: str, text: str) -> None:
    cluster.add_instance()
    cluster.rpc.node("node1").running.clear()
    instance(cluster)["admin_state"] = state
    with pytest.raises(OpPrereqError, match=text):
        run(cluster, "CONSOLE")


@pytest.mark.shows("2.1/disk-status/each")
def test_facts_of_all_instances_cost_one_call_per_node(cluster: FakeCluster) -> None:
    for number in range(4):
        cluster.add_instance(f"i{number}", pnode=f"node{number % 2 + 1}")
    facts = cluster.execute("OP_INSTANCE_QUERY_DATA")
    assert sorted(facts) == ["i0", "i1", "i2", "i3"]
    assert sorted(cluster.rpc.names()) == (
        ["all_instances_info"] * 2 + ["blockdev_getmirrorstatus_multi"] * 2
    )
    one = facts["i0"]
    assert (one["config_state"], one["run_state"]) == ("up", "up")
    assert one["pnode"] == "node1.example.com"
    assert one["disks"][0]["pstatus"][0].endswith("sharedfile.disk0")
    assert one["be_actual"]["maxmem"] == 128
    assert one["nics"][0][4] == "bridged"


@pytest.mark.shows("2.1/global/not-shown")
def test_parameters_of_the_whole_cluster_are_not_those_of_an_instance(cluster: FakeCluster) -> None:
    cluster.add_instance(hypervisor="kvm", hvparams={"acpi": False})
    facts = cluster.execute("OP_INSTANCE_QUERY_DATA", static=True)[NAME]
    assert facts["hv_actual"]["acpi"] is False
    assert not {"migration_mode", "migration_port"} & facts["hv_actual"].keys()


def test_static_facts_ask_no_node(cluster: FakeCluster) -> None:
    cluster.add_instance()
    facts = cluster.execute("OP_INSTANCE_QUERY_DATA", instances=["web1"], static=True)
    assert facts[NAME]["run_state"] is None
    assert not cluster.rpc.calls


@pytest.mark.shows("2.1/disk-status/each")
def test_a_disk_that_is_lost_is_told(cluster: FakeCluster) -> None:
    cluster.add_instance(disk_template="file", disks=[{"size": 1}, {"size": 2}])
    lost = cluster.config.disks[cluster.config.instance(NAME)["disks"][1]]
    cluster.rpc.node("node1").disks.discard(lost["logical_id"][1])
    there, gone = cluster.execute("OP_INSTANCE_QUERY_DATA")[NAME]["disks"]
    assert (there["pstatus"][-1], "pstatus_error" in there) == (1, False)
    assert (gone["pstatus"], gone["sstatus"]) == (None, None)
    assert gone["pstatus_error"] == "disk disk/1 does not exist on node node1.example.com"


def test_a_node_is_not_asked_for_all_its_instances_on_behalf_of_one(cluster: FakeCluster) -> None:
    for number in range(2):
        cluster.add_instance(f"i{number}", pnode="node1")
    assert cluster.execute("OP_INSTANCE_QUERY_DATA", instances=["i1"])["i1"]["run_state"] == "up"
    assert cluster.rpc.names() == ["instance_info", "blockdev_getmirrorstatus_multi"]
    cluster.execute("OP_INSTANCE_SHUTDOWN", instance_name="i1")
    assert cluster.execute("OP_INSTANCE_QUERY_DATA", instances=["i1"])["i1"]["run_state"] == "down"


def test_facts_without_an_answer_are_left_open(cluster: FakeCluster) -> None:
    cluster.add_instance()
    cluster.rpc.fail("instance_info")
    assert cluster.execute("OP_INSTANCE_QUERY_DATA")[NAME]["run_state"] is None
    assert cluster.said("cannot ask node node1.example.com")


def test_disks_are_activated_and_deactivated(cluster: FakeCluster) -> None:
    cluster.add_instance(start=False, disks=[{"size": 1}, {"size": 2}])
    result = run(cluster, "ACTIVATE_DISKS")
    assert [entry[:2] for entry in result] == [
        ("node1.example.com", "disk/0"),
        ("node1.example.com", "disk/1"),
    ]
    assert instance(cluster)["disks_active"] is True
    run(cluster, "DEACTIVATE_DISKS")
    assert instance(cluster)["disks_active"] is False


def test_a_disk_that_cannot_be_activated_closes_the_others(cluster: FakeCluster) -> None:
    cluster.add_instance(start=False)
    cluster.rpc.shared.clear()
    with pytest.raises(OpExecError, match=r"activate disk 0.*blockdev_assemble"):
        run(cluster, "ACTIVATE_DISKS")
    assert cluster.rpc.called("blockdev_shutdown")


def test_disks_of_a_running_instance_stay_open(cluster: FakeCluster) -> None:
    cluster.add_instance()
    with pytest.raises(OpPrereqError, match="is running"):
        run(cluster, "DEACTIVATE_DISKS")
    run(cluster, "DEACTIVATE_DISKS", force=True)


# Settings.


@pytest.mark.shows("2.0/parameters/only-own", "2.0/opcodes/modify")
def test_parameters_are_changed_and_told(cluster: FakeCluster) -> None:
    cluster.add_instance(beparams={"vcpus": 2})
    result = run(
        cluster,
        "SET_PARAMS",
        beparams={"vcpus": "default", "maxmem": "1g"},
        osparams={"a": "b"},
        osparams_private={"p": "hush"},
        os_name="other",
    )
    stored = instance(cluster)
    assert stored["beparams"] == {"maxmem": 1024}
    assert stored["osparams"] == {"a": "b"}
    assert stored["osparams_private"] == {"p": "hush"}
    assert stored["os"] == "other"
    assert ("be/maxmem", 1024) in result
    assert "hush" not in str(result)


@pytest.mark.shows("2.0/instance-parameters/kept")
def test_what_was_set_is_kept_until_it_is_reset(cluster: FakeCluster) -> None:
    cluster.add_instance()
    usual = cluster.config.cluster["beparams"]["default"]["vcpus"]
    run(cluster, "SET_PARAMS", beparams={"vcpus": usual})
    assert instance(cluster)["beparams"] == {"vcpus": usual}
    run(cluster, "SET_PARAMS", beparams={"vcpus": "default"})
    assert instance(cluster)["beparams"] == {}


def test_offline_and_back(cluster: FakeCluster) -> None:
    cluster.add_instance(start=False)
    run(cluster, "SET_PARAMS", offline=True)
    assert instance(cluster)["admin_state"] == "offline"
    for _times in range(2):
        run(cluster, "SET_PARAMS", offline=False)
        assert instance(cluster)["admin_state"] == "down"


def test_a_guest_that_runs_all_the_same_is_not_marked_offline(cluster: FakeCluster) -> None:
    cluster.add_instance()
    instance(cluster)["admin_state"] = "down"
    with pytest.raises(OpPrereqError, match=r"is running on node 'node1.* before marking it"):
        run(cluster, "SET_PARAMS", offline=True)
    assert instance(cluster)["admin_state"] == "down"
    cluster.config.node(1).update(offline=True)  # what runs there is not asked
    run(cluster, "SET_PARAMS", offline=True)
    assert instance(cluster)["admin_state"] == "offline"


def test_an_instance_without_operating_system_has_its_parameters(cluster: FakeCluster) -> None:
    cluster.add_instance(start=False, os_type=None, no_install=True)
    run(cluster, "SET_PARAMS", osparams={"a": "b"}, osparams_private={"p": "hush"})
    assert instance(cluster)["osparams"] == {"a": "b"}
    assert "os_validate" not in cluster.rpc.names()


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({}, "at least one change"),
        ({"offline": True}, "shut it down before"),
        ({"disks": [["add", {"size": 0}]]}, "the size must be from 1"),
        ({"beparams": {"minmem": 99999, "maxmem": 99999}}, "violates the instance policy"),
        ({"beparams": {"memory": 8192}}, "could not start any more"),
        ({"hvparams": {"nix": 1}}, "'nix'"),
    ],
)
def test_settings_that_cannot_be(cluster: FakeCluster, params: dict[str, Any], text: str) -> None:
    cluster.add_instance()
    before = dict(instance(cluster))
    with pytest.raises(OpPrereqError, match=text):
        run(cluster, "SET_PARAMS", **params)
    assert instance(cluster) == before


@pytest.mark.shows("2.1/global/not-modify")
def test_what_only_the_cluster_may_set_is_refused_for_an_instance(cluster: FakeCluster) -> None:
    cluster.add_instance(start=False)
    before = dict(instance(cluster))
    with pytest.raises(OpPrereqError, match=r"migration_mode.*whole cluster"):
        run(cluster, "SET_PARAMS", hvparams={"migration_mode": "live"})
    assert instance(cluster) == before


def test_a_mask_of_processors_has_one_entry_or_one_for_each(cluster: FakeCluster) -> None:
    cluster.add_instance(hypervisor="kvm")
    with pytest.raises(
        OpPrereqError, match=r"cpu_mask: '0:1' is for 2 virtual processors, .*has 1"
    ):
        run(cluster, "SET_PARAMS", hvparams={"cpu_mask": "0:1"})
    run(cluster, "SET_PARAMS", hvparams={"cpu_mask": "0:1"}, beparams={"vcpus": 2})
    with pytest.raises(OpPrereqError, match="has 4"):
        run(cluster, "SET_PARAMS", beparams={"vcpus": 4})
    run(cluster, "SET_PARAMS", hvparams={"cpu_mask": "0-3"}, beparams={"vcpus": 4})


def test_sockets_cores_and_threads_make_enough_processors(cluster: FakeCluster) -> None:
    cluster.add_instance(hypervisor="kvm")
    topology = {"cpu_sockets": 1, "cpu_cores": 2, "cpu_threads": 1}
    run(cluster, "SET_PARAMS", hvparams=topology)
    with pytest.raises(OpPrereqError, match="make 2 virtual processors, the instance has 3"):
        run(cluster, "SET_PARAMS", beparams={"vcpus": 3})
    run(cluster, "SET_PARAMS", hvparams={"cpu_sockets": 0}, beparams={"vcpus": 3})


def test_processors_given_for_a_start_are_checked_before_it(cluster: FakeCluster) -> None:
    cluster.add_instance(hypervisor="kvm", start=False)
    with pytest.raises(OpPrereqError, match="cpu_mask: '0:1' is for 2 virtual processors"):
        run(cluster, "STARTUP", hvparams={"cpu_mask": "0:1"})
    assert instance(cluster)["admin_state"] == "down"


def test_the_memory_of_a_running_guest_changes_within_its_limits(cluster: FakeCluster) -> None:
    cluster.add_instance(beparams={"minmem": 64, "maxmem": 256})
    assert run(cluster, "SET_PARAMS", runtime_mem=200) == [("runtime_memory", 200)]
    node = cluster.rpc.node("node1")
    assert list(node.memory.values()) == [200]
    assert instance(cluster)["beparams"] == {"minmem": 64, "maxmem": 256}
    for wrong, text in ((63, "from 64 to 256 MiB"), (2**63, "from 64 to 256 MiB")):
        with pytest.raises(OpPrereqError, match=text):
            run(cluster, "SET_PARAMS", runtime_mem=wrong)
    node.running.clear()
    with pytest.raises(OpPrereqError, match="does not run"):
        run(cluster, "SET_PARAMS", runtime_mem=100)


def sizes(cluster: FakeCluster) -> list[Any]:
    calls = [args for _node, args in cluster.rpc.called("hotplug_device")]
    return [
        tuple(device.items()) for _instance, _action, kind, device, *_ in calls if kind == "size"
    ]


def test_a_running_guest_grows_before_its_settings_do(cluster: FakeCluster) -> None:
    cluster.add_instance(beparams={"vcpus": 1, "memory": 128})
    run(cluster, "SET_PARAMS", beparams={"vcpus": 2, "memory": 256}, hotplug=True)
    assert sizes(cluster) == [(("vcpus", 2), ("memory", 256))]
    assert instance(cluster)["beparams"] == {"vcpus": 2, "maxmem": 256, "minmem": 256}
    assert cluster.said("has 2 processors and 256 MiB of memory now")
    run(cluster, "SET_PARAMS", beparams={"vcpus": 4})
    run(cluster, "SET_PARAMS", beparams={"auto_balance": False}, hotplug=True)
    assert len(sizes(cluster)) == 1


def test_a_running_guest_grows_to_what_was_set_before(cluster: FakeCluster) -> None:
    cluster.add_instance(beparams={"vcpus": 1, "memory": 128})
    run(cluster, "SET_PARAMS", beparams={"vcpus": 2, "memory": 256})
    assert not sizes(cluster)
    cluster.rpc.calls.clear()
    run(cluster, "SET_PARAMS", beparams={"vcpus": 2, "memory": 256}, hotplug=True)
    assert sizes(cluster) == [(("vcpus", 2), ("memory", 256))]
    assert cluster.rpc.called("node_info"), "whether it has so much more"


def test_a_guest_that_cannot_grow_keeps_its_settings(cluster: FakeCluster) -> None:
    cluster.add_instance(beparams={"vcpus": 1})
    cluster.rpc.fail("hotplug_device", text="no room")
    with pytest.raises(OpExecError, match="no room"):
        run(cluster, "SET_PARAMS", beparams={"vcpus": 3}, hotplug=True)
    assert instance(cluster)["beparams"]["vcpus"] == 1
    run(cluster, "SET_PARAMS", beparams={"vcpus": 3}, hotplug_if_possible=True)
    assert cluster.said("no room; the instance gets them when it is restarted")
    assert instance(cluster)["beparams"]["vcpus"] == 3


def test_a_guest_gets_no_memory_that_its_node_does_not_have(cluster: FakeCluster) -> None:
    cluster.add_instance()
    with pytest.raises(OpPrereqError, match="MiB"):
        run(cluster, "SET_PARAMS", beparams={"maxmem": 1 << 30}, hotplug=True, ignore_ipolicy=True)
    assert not sizes(cluster)


def test_another_primary_node_has_the_disks_already(cluster: FakeCluster) -> None:
    cluster.add_instance(disk_template="file")
    wanted = {"pnode": "node2"}
    with pytest.raises(OpPrereqError, match="is running on node 'node1"):
        run(cluster, "SET_PARAMS", **wanted)
    run(cluster, "SHUTDOWN")
    with pytest.raises(OpPrereqError, match=r"node 'node2.* does not have disk 0"):
        run(cluster, "SET_PARAMS", **wanted)
    with pytest.raises(OpPrereqError, match="before or after its primary node"):
        run(cluster, "SET_PARAMS", disks=[["add", -1, {"size": 8}]], **wanted)
    cluster.rpc.node("node2").disks |= cluster.rpc.node("node1").disks
    cluster.config.lock_history.clear()
    assert run(cluster, "SET_PARAMS", **wanted) == [("pnode", "node2.example.com")]
    assert ("node/" + uuid_of("node2"), "shared") in cluster.config.lock_history[0]
    assert instance(cluster)["primary_node"] == uuid_of("node2")
    [disk] = cluster.config.disks.values()
    assert disk["nodes"] == [uuid_of("node2")]
    run(cluster, "SET_PARAMS", pnode="node3", force=True)
    assert instance(cluster)["primary_node"] == uuid_of("node3")


def test_the_node_has_a_say_unless_forced(cluster: FakeCluster) -> None:
    cluster.add_instance(hypervisor="kvm")
    cluster.rpc.fail("hypervisor_validate_params", text="no such kernel")
    with pytest.raises(
        OpPrereqError, match=r"node1.example.com' cannot use the .* parameters: no such"
    ):
        run(cluster, "SET_PARAMS", hvparams={"kernel_path": "/nix"})
    run(cluster, "SET_PARAMS", hvparams={"kernel_path": "/nix"}, force=True)
    assert instance(cluster)["hvparams"] == {"kernel_path": "/nix"}


# Name.


@pytest.mark.shows("2.0/os-scripts/rename")
@pytest.mark.parametrize("template", ["file", "sharedfile"])
def test_a_rename_takes_the_files_along(cluster: FakeCluster, template: str) -> None:
    cluster.add_instance(start=False, disk_template=template)
    params = {"new_name": "web2.example.com", "name_check": False, "ip_check": False}
    assert run(cluster, "RENAME", **params) == "web2.example.com"
    renamed = cluster.config.instance("web2.example.com")
    path = cluster.config.disks[renamed["disks"][0]]["logical_id"][1]
    assert "/web2.example.com/" in path
    assert len(cluster.rpc.node("node1").directories) == 1
    ((_, args),) = cluster.rpc.called("instance_run_rename")
    assert (args[0]["name"], args[1]) == ("web2.example.com", NAME)


def test_a_rename_leaves_nothing_of_a_guest_that_has_switched_itself_off(
    cluster: FakeCluster,
) -> None:
    cluster.add_instance(start=False)
    node = cluster.rpc.node("node1")
    node.running[NAME] = 1
    run(cluster, "RENAME", new_name="web2", name_check=False, ip_check=False)
    assert not node.running
    names = cluster.rpc.names()
    assert names.index("instance_shutdown") < names.index("file_storage_dir_rename")


def test_a_rename_that_cannot_stop_what_is_left_changes_nothing(cluster: FakeCluster) -> None:
    cluster.add_instance(start=False)
    cluster.rpc.fail("instance_shutdown", text="it hangs")
    with pytest.raises(OpExecError, match="it hangs"):
        run(cluster, "RENAME", new_name="web2", name_check=False, ip_check=False)
    assert cluster.config.instance(NAME)["name"] == NAME
    assert not cluster.rpc.called("file_storage_dir_rename")


def test_a_failed_rename_keeps_the_old_name(cluster: FakeCluster) -> None:
    cluster.add_instance(start=False)
    before = set(cluster.rpc.node("node1").directories)
    cluster.config.failing["modifyObjects"] = OpExecError("disk full")
    with pytest.raises(OpExecError):
        run(cluster, "RENAME", new_name="web2", name_check=False, ip_check=False)
    assert cluster.rpc.node("node1").directories == before


@pytest.mark.parametrize("is_done", [True, False])
def test_a_rename_whose_answer_is_lost_leaves_the_files_where_they_were(
    cluster: FakeCluster, is_done: bool
) -> None:
    cluster.add_instance(start=False, disk_template="file")
    before = set(cluster.rpc.node("node1").disks)

    def lose(_node: str, call: str, args: Any) -> str | None:
        is_first = call == "file_storage_dir_rename" and args[1].endswith("/web2.example.com")
        if is_first and not is_done:
            cluster.rpc.do_file_storage_dir_rename(cluster.rpc.node("node1"), *reversed(args))
        return "the connection was closed" if is_first else None

    cluster.rpc.lost_answer = lose
    with pytest.raises(OpExecError, match="the connection was closed"):
        run(cluster, "RENAME", new_name="web2.example.com", name_check=False, ip_check=False)
    assert cluster.rpc.node("node1").disks == before
    assert not cluster.said("cannot rename")


@pytest.mark.parametrize(
    ("start", "params", "text"),
    [
        (True, {"new_name": "web2"}, "is running"),
        (False, {"new_name": "bad name"}, "no valid instance name"),
        (False, {"new_name": "web2", "ip_check": True}, "--no-ip-check"),
    ],
)
def test_renames_that_cannot_be(
    cluster: FakeCluster, start: bool, params: dict[str, Any], text: str
) -> None:
    cluster.add_instance(start=start)
    with pytest.raises(OpPrereqError, match=text):
        run(cluster, "RENAME", **{"name_check": False, "ip_check": False, **params})


def test_a_rename_to_its_own_name_changes_nothing(cluster: FakeCluster) -> None:
    cluster.add_instance(start=False)
    assert run(cluster, "RENAME", new_name=NAME, name_check=False, ip_check=False) == NAME
    assert cluster.said("nothing to change")


@pytest.mark.shows("2.0/os-scripts/optional")
def test_an_os_without_the_script_is_refused_before_anything_is_renamed(
    cluster: FakeCluster,
) -> None:
    cluster.add_instance(start=False)
    cluster.rpc.fail("os_validate", "node1", "no rename script")
    cluster.rpc.calls.clear()
    with pytest.raises(OpPrereqError, match="no rename script"):
        run(cluster, "RENAME", new_name="web2", name_check=False, ip_check=False)
    assert cluster.rpc.called("os_validate") == [
        ("node1", [True, "debian", ["script:rename"], {}, True])
    ]
    assert not cluster.rpc.called("file_storage_dir_rename")


def test_a_name_that_is_taken(cluster: FakeCluster) -> None:
    cluster.add_instance(start=False)
    cluster.add_instance("web2", start=False)
    with pytest.raises(OpPrereqError, match="already in the cluster"):
        run(cluster, "RENAME", new_name="web2", name_check=False, ip_check=False)


# Operating system.


@pytest.mark.shows("2.1/variants/reinstall")
def test_reinstall_with_another_os_forgets_the_old_parameters(cluster: FakeCluster) -> None:
    cluster.add_instance(start=False, osparams={"old": "1"})
    run(cluster, "REINSTALL", os_type="other", osparams={"new": "2"}, osparams_secret={"s": "3"})
    ((_, args),) = cluster.rpc.called("instance_os_add")
    assert args[0]["os"] == "other"
    assert args[0]["osparams"] == {"new": "2", "s": "3"}
    assert args[1] is True
    assert instance(cluster)["osparams"] == {"new": "2"}


def test_reinstall_takes_parameters_back_to_the_default(cluster: FakeCluster) -> None:
    private = {"p": "hush", "q": "r"}
    cluster.add_instance(start=False, osparams={"a": "1", "b": "2"}, osparams_private=private)
    back = {"osparams": {"a": "default"}, "osparams_private": {"p": "default"}}
    run(cluster, "REINSTALL", **back)
    ((_, args),) = cluster.rpc.called("instance_os_add")
    assert args[0]["osparams"] == {"b": "2", "q": "r"}
    assert instance(cluster)["osparams"] == {"b": "2"}
    assert instance(cluster)["osparams_private"] == {"q": "r"}


@pytest.mark.parametrize(
    ("made", "text"),
    [
        ({"start": True}, "is running"),
        ({"start": False, "disk_template": "diskless", "disks": []}, "diskless"),
        ({"os_type": None, "no_install": True}, "has no operating system"),
    ],
)
def test_reinstalls_that_cannot_be(cluster: FakeCluster, made: dict[str, Any], text: str) -> None:
    cluster.add_instance(**made)
    with pytest.raises(OpPrereqError, match=text):
        run(cluster, "REINSTALL")


def test_a_failed_reinstall_names_the_step(cluster: FakeCluster) -> None:
    cluster.add_instance(start=False)
    cluster.rpc.fail("instance_os_add", text="script failed: no space")
    with pytest.raises(OpExecError, match=r"call instance_os_add: script failed: no space"):
        run(cluster, "REINSTALL")


# What the nodes have.


def os_entry(name: str, ok: bool = True, variants: tuple[str, ...] = ()) -> list[Any]:
    return [name, f"/srv/ganeti/os/{name}", ok, "", list(variants), [["a", "doc"]], [20], True]


@pytest.mark.shows("2.1/variants/listed")
def test_operating_systems_are_valid_when_all_nodes_have_them(cluster: FakeCluster) -> None:
    cluster.rpc.os_list = {
        "node1": [os_entry("debian", variants=("a", "b")), os_entry("half")],
        "node2": [os_entry("debian", variants=("b",))],
        "node3": [os_entry("debian", variants=("c", "b"))],
    }
    fields = ["name", "valid", "variants"]
    assert cluster.execute("OP_OS_DIAGNOSE", output_fields=fields) == [
        ["debian", True, ["b"]],
        ["half", False, []],
    ]
    assert cluster.execute("OP_OS_DIAGNOSE", output_fields=["name"]) == [["debian"]]
    assert cluster.execute("OP_OS_DIAGNOSE", output_fields=["name"], names=["half"]) == [["half"]]


def test_hidden_ones_are_shown_only_when_asked_for(cluster: FakeCluster) -> None:
    cluster.config.cluster["hidden_os"] = ["debian"]
    cluster.rpc.os_list = {f"node{n}": [os_entry("debian")] for n in (1, 2, 3)}
    assert cluster.execute("OP_OS_DIAGNOSE", output_fields=["name"]) == []
    assert cluster.execute("OP_OS_DIAGNOSE", output_fields=["name", "hidden"]) == [["debian", True]]


def test_queries_by_job(cluster: FakeCluster) -> None:
    cluster.add_instance()
    answer = cluster.execute(
        "OP_QUERY", what="instance", fields=["name", "status"], qfilter=["=", "name", NAME]
    )
    assert answer["data"] == [[[0, NAME], [0, "running"]]]
    answer = cluster.execute("OP_QUERY", what="node", fields=["name", "mfree"])
    assert [row[0][1] for row in answer["data"]] == [f"node{n}.example.com" for n in (1, 2, 3)]
    assert answer["data"][0][1][0] == 0
    answer = cluster.execute("OP_QUERY", what="cluster", fields=["name"])
    assert answer["data"] == [[[0, "cluster.example.com"]]]
    described = cluster.execute("OP_QUERY_FIELDS", what="group", fields=["name"])
    assert described["fields"][0]["name"] == "name"


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"what": "job", "fields": ["id"]}, "use the LUXI query"),
        ({"what": "node", "fields": ["name"], "qfilter": ["nix"]}, "nix"),
    ],
)
def test_queries_that_cannot_be(cluster: FakeCluster, params: dict[str, Any], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        cluster.execute("OP_QUERY", **params)


def test_a_shutdown_that_fails_says_that_it_is_recorded_as_stopped(cluster: FakeCluster) -> None:
    cluster.add_instance("i1", start=True)
    cluster.rpc.fail("instance_shutdown")
    for is_recorded in (False, True):
        with pytest.raises(OpExecError, match="it broke"):
            cluster.execute("OP_INSTANCE_SHUTDOWN", instance_name="i1", no_remember=not is_recorded)
        told = [line for line in cluster.messages if "is recorded as stopped" in line]
        assert bool(told) == is_recorded

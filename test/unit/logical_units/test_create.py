"""Making instances: what is made, what is refused, and that a failure leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, uuid_of

from ganeti.base.errors import GenericError, HooksAbort, JobCanceled, OpExecError, OpPrereqError
from ganeti.logical_units.processor import execute_opcode
from ganeti.opcodes.registry import decode_opcode


def create_op(**params: Any) -> Any:
    values = {
        "OP_ID": "OP_INSTANCE_CREATE",
        "instance_name": "web1.example.com",
        "mode": "create",
        "disk_template": "file",
        "disks": [{"size": 1024}, {"size": "2g", "mode": "ro"}],
        "nics": [{}],
        "os_type": "debian",
        "pnode": "node2",
        "name_check": False,
        "ip_check": False,
        **params,
    }
    return decode_opcode({name: value for name, value in values.items() if value is not None})


def create(cluster: FakeCluster, **params: Any) -> object:
    return execute_opcode(cluster.context, create_op(**params))


@pytest.mark.shows("2.1/uuid-one/told")
def test_the_uuid_of_what_was_created_is_told(cluster: FakeCluster) -> None:
    create(cluster)
    [uuid] = cluster.config.instances
    assert cluster.said(f"instance web1.example.com has the UUID {uuid}")
    cluster.execute("OP_GROUP_ADD", group_name="far")
    [uuid] = [key for key, each in cluster.config.nodegroups.items() if each["name"] == "far"]
    assert cluster.said(f"node group far has the UUID {uuid}")
    cluster.execute("OP_NETWORK_ADD", network_name="lan", network="192.0.2.0/24")
    [uuid] = cluster.config.networks
    assert cluster.said(f"network lan has the UUID {uuid}")


@pytest.mark.shows(
    "2.0/opcodes/create", "2.0/variable-disks/at-creation", "2.1/allocator-default/nodes-win"
)
def test_an_instance_is_made_installed_and_started(cluster: FakeCluster) -> None:
    assert create(cluster) == ["node2.example.com"]
    instance = cluster.config.instance("web1.example.com")
    assert instance["admin_state"] == "up"
    assert instance["primary_node"] == uuid_of("node2")
    assert [cluster.config.disks[uuid]["size"] for uuid in instance["disks"]] == [1024, 2048]
    assert cluster.rpc.node("node2").running == {"web1.example.com": 0}
    assert len(cluster.rpc.node("node2").disks) == 2
    assert cluster.rpc.names().index("instance_os_add") < cluster.rpc.names().index(
        "instance_start"
    )
    assert not cluster.config.macs
    assert not cluster.config.resources


@pytest.mark.shows("2.0/hypervisor/default", "2.0/gnt-cluster/hypervisor")
@pytest.mark.parametrize("enabled", [["fake", "kvm"], ["kvm", "fake"]])
def test_the_first_hypervisor_of_the_cluster_is_the_default(
    cluster: FakeCluster, enabled: list[str]
) -> None:
    cluster.config.cluster["enabled_hypervisors"] = enabled
    create(cluster)
    assert cluster.config.instance("web1.example.com")["hypervisor"] == enabled[0]


@pytest.mark.shows("backend/templates/file", "2.0/file-storage/files")
def test_files_lie_in_a_directory_of_the_instance(cluster: FakeCluster) -> None:
    create(cluster, file_storage_dir="here")
    directory = "/srv/ganeti/file-storage/here/web1.example.com"
    assert cluster.rpc.node("node2").directories == {directory}
    assert all(path.startswith(directory + "/") for path in cluster.rpc.node("node2").disks)


@pytest.mark.shows(
    "backend/locks/instance-name", "2.12/aims/finer", "2.0/locks/instances", "2.0/add-remove/added"
)
def test_only_the_name_and_the_place_of_the_disks_are_locked_exclusively(
    cluster: FakeCluster,
) -> None:
    create(cluster)
    assert cluster.config.lock_history == [
        [
            ("cluster/BGL", "shared"),
            ("instance/web1.example.com", "exclusive"),
            ("node/" + uuid_of("node2"), "shared"),
            ("node-res/" + uuid_of("node2"), "exclusive"),
        ]
    ]


@pytest.mark.shows("backend/locks/node-res")
def test_the_place_of_the_disks_is_free_again_once_they_are_made(cluster: FakeCluster) -> None:
    held: dict[str, set[str]] = {}

    def look(_node: str, call: str, _args: object) -> None:
        held[call] = set(cluster.config.held)

    cluster.rpc.failure = look
    create(cluster)
    lock = "node-res/" + uuid_of("node2")
    assert lock in held["blockdev_create"]
    assert lock not in held["instance_os_add"]
    assert "instance/web1.example.com" in held["instance_os_add"]


@pytest.mark.shows("backend/locks/node-res")
def test_disks_are_not_made_where_others_are_being_made(cluster: FakeCluster) -> None:
    lock = "node-res/" + uuid_of("node2")
    cluster.config.lock_by_another(lock)
    cluster.cancel_after = 3
    with pytest.raises(JobCanceled):
        create(cluster)
    assert cluster.said(f"lock {lock} is held by job")
    cluster.cancel_after = None
    create(cluster, instance_name="a", disk_template="diskless", disks=[])
    create(cluster, instance_name="b", forthcoming=True)


def test_a_second_node_without_use_is_told_once(cluster: FakeCluster) -> None:
    create(cluster, snode="node3")
    told = [each for each in cluster.messages if "secondary node is ignored" in str(each)]
    assert len(told) == 1
    assert "for disk template file" in str(told)


def test_a_choice_that_nobody_makes_is_not_explained(cluster: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match="--explain is about the choice of an allocator"):
        create(cluster, explain=True)
    assert not cluster.config.instances


@pytest.mark.shows("backend/templates/sharedfile", "2.0/file-storage/live")
def test_a_shared_file_disk_belongs_to_no_node(cluster: FakeCluster) -> None:
    create(cluster, disk_template="sharedfile")
    assert [disk["nodes"] for disk in cluster.config.disks.values()] == [[], []]


@pytest.mark.shows("backend/templates/diskless")
def test_a_diskless_instance_needs_no_storage_calls(cluster: FakeCluster) -> None:
    create(cluster, disk_template="diskless", disks=[])
    assert not [name for name in cluster.rpc.names() if name.startswith(("blockdev", "file_"))]


def test_kvm_instances_get_a_port(cluster: FakeCluster) -> None:
    create(cluster, hypervisor="kvm")
    assert cluster.config.instance("web1.example.com")["network_port"] == 11000


def test_no_install_means_no_start(cluster: FakeCluster) -> None:
    create(cluster, no_install=True, os_type=None)
    assert "instance_os_add" not in cluster.rpc.names()
    assert cluster.config.instance("web1.example.com")["admin_state"] == "down"
    assert cluster.said("disabling startup")


@pytest.mark.parametrize(
    ("image", "text"),
    [
        ("debian.img", "os-image: 'debian.img' is neither an absolute path nor a URL"),
        ("http://", "neither an absolute path nor"),
        ("http://a b/", "neither an absolute path nor"),
        ("gopher://a/b", "neither an absolute path nor"),
        ("http://a:port/b", "neither an absolute path nor"),
        ("http://[::1/b", "neither an absolute path nor"),
    ],
)
def test_what_is_no_image_is_refused(cluster: FakeCluster, image: str, text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        create(cluster, osparams={"os-image": image})
    assert not cluster.config.instances
    assert not [name for name in cluster.rpc.names() if name.startswith("file_")]


@pytest.mark.parametrize(
    ("image", "asked"),
    [
        ("/srv/a.img", ["image:/srv/a.img"]),
        ("https://images.example.com/a.img", []),
        ("FTP://me:word@[2001:db8::1]:21/a.img?x#y", []),
    ],
)
def test_the_primary_node_looks_for_an_image(
    cluster: FakeCluster, image: str, asked: list[str]
) -> None:
    create(cluster, osparams={"os-image": image})
    [(node, args)] = cluster.rpc.called("os_validate")
    assert (node, args[2]) == ("node2", ["parameters", "hypervisor:fake", *asked, "script:create"])


def test_parameters_that_the_cluster_sets_are_named_when_the_node_refuses_them(
    cluster: FakeCluster,
) -> None:
    cluster.rpc.fail("os_validate", "node2", "no parameter a")
    with pytest.raises(OpPrereqError, match=r"no parameter a$"):
        create(cluster)
    cluster.config.cluster["osparams_private_cluster"] = {"debian": {"a": "hush"}}
    cluster.rpc.fail("os_validate", "node2", "no parameter a")
    with pytest.raises(OpPrereqError, match=r"set by 'gnt-os modify': a\)") as caught:
        create(cluster)
    assert "hush" not in caught.value.message


def test_secret_parameters_reach_the_script_and_nothing_else(cluster: FakeCluster) -> None:
    create(cluster, osparams={"a": "1"}, osparams_secret={"password": "hush"})
    (_, args) = cluster.rpc.called("instance_os_add")[0]
    assert args[0]["osparams"] == {"a": "1", "password": "hush"}
    assert "hush" not in str(cluster.config.instances)
    assert "hush" not in str(cluster.rpc.called("instance_start"))


def test_a_parameter_that_is_to_be_the_default_is_not_set(cluster: FakeCluster) -> None:
    cluster.config.cluster["osparams"] = {"debian": {"a": "1"}}
    private = {"p": "default", "q": "hush"}
    create(cluster, osparams={"a": "default", "b": "2"}, osparams_private=private)
    made = cluster.config.instance("web1.example.com")
    assert (made["osparams"], made["osparams_private"]) == ({"b": "2"}, {"q": "hush"})
    (_, args) = cluster.rpc.called("instance_os_add")[0]
    assert args[0]["osparams"] == {"a": "1", "b": "2", "q": "hush"}


def test_parameters_that_equal_the_defaults_may_stay_unset(cluster: FakeCluster) -> None:
    cluster.config.cluster["osparams"] = {"debian": {"a": "1", "b": "2"}}
    cluster.execute("OP_NETWORK_ADD", network_name="net1", network="198.51.100.0/28")
    link = cluster.config.cluster["nicparams"]["default"]["link"]
    like_default = {"mode": "bridged", "link": link}
    connection = {"network_mode": "bridged", "network_link": link}
    cluster.execute("OP_NETWORK_CONNECT", network_name="net1", group_name="default", **connection)
    create(
        cluster,
        identify_defaults=True,
        nics=[like_default, {**like_default, "link": "br9"}, {"network": "net1"}],
        osparams={"a": "1", "b": "3"},
    )
    made = cluster.config.instance("web1.example.com")
    params = [nic["nicparams"] for nic in made["nics"]]
    assert params == [{}, {"link": "br9"}, {**like_default, "vlan": ""}]
    assert made["osparams"] == {"b": "3"}


CHANGING = ("file_storage_dir_create", "blockdev_create", "instance_os_add", "instance_start")


@pytest.mark.parametrize("number", range(40))
@pytest.mark.parametrize("lost", [False, True], ids=["refused", "answer lost"])
def test_whichever_node_call_fails_nothing_is_left(
    cluster: FakeCluster, number: int, *, lost: bool
) -> None:
    seen = 0
    failed = ""

    def fail(_node: str, call: str, _args: object) -> str | None:
        nonlocal seen, failed
        if call == "hooks_runner":
            return None
        seen += 1
        if seen != number + 1:
            return None
        failed = call
        return "it broke"

    if lost:
        cluster.rpc.lost_answer = fail
    else:
        cluster.rpc.failure = fail
    error = None
    try:
        create(cluster, hypervisor="kvm")
    except GenericError as err:
        error = str(err)
    if error is None:
        assert seen < number + 1, "the failure was passed over"
        return
    # What a node says of parameters needs no name of a call: it is no failure.
    said = "hypervisor parameters" if failed == "hypervisor_validate_params" else f"call {failed}:"
    assert all(part in error for part in ("it broke", "node2.example.com", said))
    assert cluster.leftovers() == _tolerated(cluster, lost=lost)
    assert cluster.config.cluster["tcpudp_port_pool"] in ([], [11000])
    assert not cluster.config.disks


def _tolerated(cluster: FakeCluster, *, lost: bool) -> list[str]:
    """An empty directory stays when the answer that it was made is lost."""
    last = cluster.rpc.names()[-1]
    if lost and last == "file_storage_dir_create":
        return ["node2.example.com: /srv/ganeti/file-storage/web1.example.com"]
    return []


@pytest.mark.parametrize(
    "method", ["allocateInstancePort", "createInstance", "generateMAC", "reserveNodeResources"]
)
def test_whichever_change_of_the_configuration_fails_nothing_is_left(
    cluster: FakeCluster, method: str
) -> None:
    cluster.config.failing[method] = GenericError("no space left")
    with pytest.raises(GenericError, match="no space left"):
        create(cluster, hypervisor="kvm")
    assert cluster.leftovers() == []


@pytest.mark.parametrize("checks", range(12))
def test_wherever_it_is_canceled_nothing_is_left(cluster: FakeCluster, checks: int) -> None:
    cluster.cancel_after = checks
    try:
        create(cluster)
    except JobCanceled:
        assert cluster.leftovers() == []
    else:
        assert checks > 5


def test_an_undo_that_fails_is_told_and_the_others_go_on(cluster: FakeCluster) -> None:
    cluster.rpc.failure = lambda _node, call, _args: (
        "it broke" if call in ("instance_start", "blockdev_remove") else None
    )
    with pytest.raises(OpExecError, match="start instance"):
        create(cluster)
    [told] = [message for message in cluster.messages if "disk 0" in message]
    assert told.count("cannot remove disk 0") == 1
    assert "it broke" in told
    assert not cluster.config.instances
    assert not cluster.rpc.node("node2").directories


def test_a_pre_hook_can_refuse(cluster: FakeCluster) -> None:
    cluster.rpc.hook_results["node2:instance-add-pre"] = [["instance-add-pre.d/no", 1, "not now"]]
    with pytest.raises(HooksAbort, match="not now"):
        create(cluster)
    assert cluster.leftovers() == []


def test_hooks_are_told_about_the_instance(cluster: FakeCluster) -> None:
    create(cluster, tags=["t1"])
    phases = {args[1]: args[2] for _, args in cluster.rpc.called("hooks_runner")}
    env = phases["post"]
    assert env["GANETI_INSTANCE_NAME"] == "web1.example.com"
    assert env["GANETI_INSTANCE_DISK1_SIZE"] == "2048"
    assert env["GANETI_INSTANCE_NIC0_BRIDGE"] == "br0"
    assert env["GANETI_POST_INSTANCE_STATUS"] == "up"
    assert env["GANETI_ADD_MODE"] == "create"
    assert env["GANETI_MASTER"] == "node1.example.com"
    assert set(phases) == {"pre", "post"}


@pytest.mark.shows(
    "2.0/lock-code/check-then-work",
    "2.0/hypervisor/unknown",
    "2.1/global/not-instance",
    "2.1/routed/routed-ip",
    "2.1/allocator-default/nodes-win",
)
@pytest.mark.parametrize(
    ("params", "text", "ecode"),
    [
        ({"pnode": None}, "'hail' is not in", "environment_error"),
        ({"pnode": "node9"}, "node 'node9' is not known", "unknown_entity"),
        ({"iallocator": "hail"}, "give one of them", "wrong_input"),
        ({"opportunistic_locking": True}, "do not give a node as well", "wrong_input"),
        ({"mode": "import"}, "no node has an export", "unknown_entity"),
        ({"disks": []}, "at least one disk", "wrong_input"),
        ({"disks": [{"size": "some"}]}, "disk/0: 'some' is not a size", "wrong_input"),
        ({"disks": [{"size": 0}]}, "disk/0: the size must be from 1", "wrong_input"),
        ({"disks": [{"size": 2**62}]}, "must be from 1", "wrong_input"),
        ({"disks": [{"size": -5}]}, "must be from 1", "wrong_input"),
        ({"disks": [{"size": 5, "mode": "x"}]}, "rw or ro", "wrong_input"),
        ({"disks": [{"size": 5, "foo": "x"}]}, "disk/0: foo: not known", "wrong_input"),
        ({"disks": [{"size": 5}] * 17}, "at most 16 disks", "insufficient_resources"),
        ({"disk_template": "plain"}, "disk template 'plain' is not enabled", "wrong_state"),
        ({"disk_template": "diskless"}, "cannot have disks", "wrong_input"),
        ({"os_type": None}, "no operating system", "wrong_input"),
        ({"hypervisor": "xen-pvm"}, "is not enabled", "wrong_state"),
        ({"hvparams": {"what": 1}}, "'what'", "wrong_input"),
        ({"hvparams": {"migration_mode": "live"}}, "whole cluster", "wrong_input"),
        ({"hypervisor": "kvm", "hvparams": {"cpu_mask": "0:1"}}, "cpu_mask", "wrong_input"),
        ({"beparams": {"vcpus": "many"}}, "vcpus", "wrong_input"),
        ({"beparams": {"minmem": 256}}, "larger than maxmem", "wrong_input"),
        ({"beparams": {"memory": 65536}}, "memory-size", "wrong_input"),
        ({"beparams": {"memory": 8192}}, "not enough memory", "insufficient_resources"),
        ({"nics": [{"name": "a"}, {"name": "a"}]}, "nic 1 cannot be", "resource_not_unique"),
        ({"nics": [{"mode": "weird"}]}, "nic/0: unknown mode", "wrong_input"),
        ({"nics": [{"mode": "routed"}]}, "needs an IP address", "wrong_input"),
        ({"nics": [{"mac": "xx"}]}, "nic/0: 'xx' is not a MAC", "wrong_input"),
        ({"nics": [{"ip": "1.2"}]}, "not an IP address", "wrong_input"),
        ({"nics": [{"network": "net1"}]}, "network 'net1' is not known", "unknown_entity"),
        ({"nics": [{}] * 9}, "at most 8 NICs", "insufficient_resources"),
        ({"file_storage_dir": "/etc"}, "relative path", "wrong_input"),
        ({"file_storage_dir": "../up"}, "relative path", "wrong_input"),
        ({"instance_name": "a" * 300}, "300 characters", "wrong_input"),
        ({"instance_name": "bad name"}, "no valid instance name", "wrong_input"),
        ({"name_check": True}, "--no-name-check", "resolver_error"),
        ({"ip_check": True}, "--no-ip-check", "wrong_input"),
        ({"tags": ["a b"]}, "not allowed", "wrong_input"),
    ],
)
def test_what_cannot_be_is_refused(
    cluster: FakeCluster, params: dict[str, Any], text: str, ecode: str
) -> None:
    with pytest.raises(OpPrereqError) as caught:
        create(cluster, **params)
    assert text in str(caught.value)
    assert caught.value.ecode == ecode
    assert cluster.leftovers() == []
    assert not [name for name in cluster.rpc.names() if name in CHANGING]


def test_a_name_is_used_once(cluster: FakeCluster) -> None:
    create(cluster)
    with pytest.raises(OpPrereqError, match="already in the cluster"):
        create(cluster, pnode="node3")


@pytest.mark.shows(
    "backend/roles/offline-no-instances",
    "backend/roles/drained-no-new",
    "2.0/offline/no-primaries",
    "2.0/drained/no-allocation",
)
@pytest.mark.parametrize("flag", ["offline", "drained"])
def test_a_node_that_is_not_to_be_used_is_refused(cluster: FakeCluster, flag: str) -> None:
    cluster.config.node(2)[flag] = True
    with pytest.raises(OpPrereqError, match=f"node2.example.com.*{flag}"):
        create(cluster)


def test_a_policy_violation_can_be_ignored(cluster: FakeCluster) -> None:
    cluster.config.nodegroups[next(iter(cluster.config.nodegroups))]["ipolicy"] = {
        "disk-templates": ["diskless"]
    }
    with pytest.raises(OpPrereqError, match="disk template file is not allowed"):
        create(cluster)
    create(cluster, ignore_ipolicy=True)
    assert cluster.said("disk template file is not allowed")


def test_names_resolve_when_checked(cluster: FakeCluster) -> None:
    create(cluster, instance_name="node5", name_check=True)
    assert cluster.config.instance("node5.example.com")


@pytest.mark.shows("2.0/net/mac")
def test_given_mac_addresses_are_taken_once(cluster: FakeCluster) -> None:
    create(cluster, nics=[{"mac": "AA:00:00:11:22:33"}])
    assert cluster.config.instance("web1.example.com")["nics"][0]["mac"] == "aa:00:00:11:22:33"
    with pytest.raises(GenericError, match="in use"):
        create(cluster, instance_name="web2", nics=[{"mac": "aa:00:00:11:22:33"}])


@pytest.mark.shows("2.1/allocator-dry/simulated", "2.1/allocator-dry/nodes")
def test_dry_run_changes_nothing(cluster: FakeCluster) -> None:
    assert create(cluster, dry_run=True) == ["node2.example.com"]
    assert cluster.leftovers() == []
    assert cluster.said("dry-run mode requested")


def test_disks_are_wiped_in_pieces_when_the_cluster_says_so(cluster: FakeCluster) -> None:
    cluster.config.cluster["prealloc_wipe_disks"] = True
    create(cluster, disks=[{"size": 25}])
    offsets = [tuple(args[1:]) for _, args in cluster.rpc.called("blockdev_wipe")]
    assert offsets[0] == (0, 2)
    assert offsets[-1] == (24, 1)


def test_a_new_disk_is_wiped_to_the_end_of_its_device(cluster: FakeCluster) -> None:
    cluster.config.cluster["prealloc_wipe_disks"] = True
    cluster.rpc.do_blockdev_getdimensions = lambda _node, _disks: [[32 << 20, None]]  # type: ignore[method-assign]
    create(cluster, disks=[{"size": 25}])
    offsets = [tuple(args[1:]) for _, args in cluster.rpc.called("blockdev_wipe")]
    assert (offsets[0][0], sum(offsets[-1])) == (0, 32)

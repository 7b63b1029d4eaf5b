"""The configuration of a real WConfD over its socket: changes, durability, checks, old methods."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest
from fakes.large_config import disk, instance, mac_of, node, uuid_of
from fakes.waiting import wait_until
from fakes.wconfd_node import ALONE, WconfdNode

from ganeti.base.errors import (
    ConfigurationError,
    ConfigVerifyError,
    ErrorCode,
    GenericError,
    LockError,
    OpPrereqError,
    ReservationError,
    TagError,
)
from ganeti.clients.wconfd import WConfClient
from ganeti.protocol.wconfd import Effect, ObjectKind, WConfCalls
from ganeti.store import ssconf
from ganeti.system import files
from ganeti.transport.unix_client import UnixClient

T = TypeVar("T")

NODE1, NODE2, NODE3 = (uuid_of("node", number) for number in (1, 2, 3))
GROUP = uuid_of("group", 0)


@pytest.fixture
def node_() -> Iterator[WconfdNode]:
    with WconfdNode() as found:
        yield found.start()


@pytest.fixture
def old_node() -> Iterator[WconfdNode]:
    """A node where calls of Ganeti 3.0 may change things without an owner."""
    with WconfdNode() as found:
        yield found.start(*ALONE, "--changes-without-owner")


def only(found: Sequence[T | None]) -> T:
    (value,) = found
    assert value is not None
    return value


def new_instance(number: int, **changes: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    one = disk(number, NODE1)
    return {**instance(number, NODE1, [one["uuid"]]), **changes}, [one]


@pytest.mark.shows("backend/config-data/flushed", "2.12/wconfd/only-writer", "2.1/confd/serial")
def test_a_change_is_in_the_file_when_it_is_answered(node_: WconfdNode) -> None:
    client = node_.owner().hold().client
    before = node_.config()
    serial = client.add_tags("cluster", "", ["new"])
    after = node_.config()
    assert after["cluster"]["tags"] == ["new"]
    assert (after["cluster"]["serial_no"], after["cluster"]["mtime"]) == serial
    assert after["serial_no"] == before["serial_no"] + 1
    assert client.get_serial() == (after["serial_no"], after["mtime"])
    changed = {**after["cluster"], **{key: before["cluster"][key] for key in ("tags", "mtime")}}
    assert {**changed, "serial_no": before["cluster"]["serial_no"]} == before["cluster"]
    assert {key: after[key] for key in ("nodes", "instances")} == {
        key: before[key] for key in ("nodes", "instances")
    }


def test_a_change_of_nothing_writes_nothing(node_: WconfdNode) -> None:
    client = node_.owner().hold_everything().client
    before = files.read_bytes(node_.paths.config_data)
    client.modify(ObjectKind.INSTANCE, "inst0", {"admin_state": "up"})
    client.add_tags("cluster", "", [])
    assert files.read_bytes(node_.paths.config_data) == before


@pytest.mark.shows("maintd/store/kept")
def test_unknown_keys_survive_a_change() -> None:
    with WconfdNode() as found:
        config = found.config()
        config["from_the_future"] = {"x": [1.50, None]}
        config["instances"][uuid_of("instance", 0)]["later"] = 1
        config["instances"][uuid_of("instance", 0)]["nics"][0]["later"] = [2]
        files.write_durable(found.paths.config_data, json.dumps(config).encode())
        found.start()
        found.owner().hold_everything().client.modify(
            ObjectKind.INSTANCE, "inst0", {"admin_state": "down"}
        )
        after = found.config()
        assert after["from_the_future"] == {"x": [1.50, None]}
        changed = after["instances"][uuid_of("instance", 0)]
        assert (changed["later"], changed["nics"][0]["later"]) == (1, [2])
        assert changed["admin_state"] == "down"


@pytest.mark.shows("2.1/uuid-one/unchangeable")
@pytest.mark.parametrize(
    ("kind", "name"),
    [(ObjectKind.INSTANCE, "inst0"), (ObjectKind.NODE, "node1"), (ObjectKind.CLUSTER, "")],
)
def test_a_uuid_cannot_be_changed(node_: WconfdNode, kind: ObjectKind, name: str) -> None:
    client = node_.owner().hold_everything().client
    before = files.read_bytes(node_.paths.config_data)
    with pytest.raises(GenericError, match="uuid"):
        client.modify(kind, name, {"uuid": uuid_of("instance", 77)})
    assert files.read_bytes(node_.paths.config_data) == before


@pytest.mark.shows("2.1/uuid-two/outside")
def test_objects_are_found_by_name_short_name_and_uuid(node_: WconfdNode) -> None:
    client = node_.owner().client
    uuid, name = uuid_of("instance", 1), "inst1.example.com"
    assert client.expand_names("instance", ["inst1", name, uuid, "nothing"]) == [
        (uuid, name),
        (uuid, name),
        (uuid, name),
        None,
    ]
    assert [found and found.uuid for found in client.get_instances(["INST1", "x"])] == [uuid, None]
    assert len(client.get_nodes()) == 3
    with pytest.raises(OpPrereqError, match="wrong argument kind"):
        client.expand_names("thing", ["x"])


@pytest.mark.shows("backend/locks/config-lock")
def test_reads_are_typed_and_consistent(node_: WconfdNode) -> None:
    client = node_.owner().client
    context = client.get_instance_context("inst0")
    assert context.instance.name == "inst0.example.com"
    assert [found.uuid for found in context.disks] == context.instance.disks
    assert [found.name for found in context.nodes] == ["node1.example.com"]
    assert [found.uuid for found in context.groups] == [GROUP]
    assert set(context.groups[0].members) == {uuid_of("node", number) for number in (1, 2, 3)}
    assert client.get_node_instances(["node1"]) == [([uuid_of("instance", 0)], [])]
    nodes, instances = client.get_group_members([GROUP])[0] or ([], [])
    assert (len(nodes), len(instances)) == (3, 2)


@pytest.mark.shows("2.12/steps/wconfd-ipc", "2.12/config/methods")
def test_instance_life(node_: WconfdNode) -> None:
    client = node_.owner().hold_everything().client
    wire, disks = new_instance(10)
    assert client.create_instance(wire, disks)[0] == 2, "one and its disk"
    assert client.create_instance(wire, disks)[0] == 2, "a repetition changes nothing"
    assert only(client.get_instances(["inst10"])).nics[0].mac == mac_of(10)
    assert client.modify(ObjectKind.INSTANCE, "inst10", {"name": "other.example.com"})[0] == 3
    assert client.expand_names("instance", ["inst10", "other"])[0] is None
    more = {**disk(11, NODE1), "iv_name": ""}
    client.add_disk("other", more, None)
    assert only(client.get_disks([more["uuid"]])).iv_name == "disk/1"
    client.detach_disk("other", more["uuid"])
    client.attach_disk("other", more["uuid"], 0)
    assert only(client.get_instances(["other"])).disks == [more["uuid"], disks[0]["uuid"]]
    client.delete(ObjectKind.INSTANCE, "other")
    assert client.get_disks([more["uuid"], disks[0]["uuid"]]) == [None, None]
    with pytest.raises(OpPrereqError, match="not found") as caught:
        client.delete(ObjectKind.INSTANCE, "other")
    assert caught.value.ecode == ErrorCode.NOENT
    client.verify_config()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": "inst0.example.com"}, "name inst0.example.com is used"),
        ({"nics": [{"mac": mac_of(0), "nicparams": {}, "uuid": "n"}]}, "MAC address"),
        ({"primary_node": "nowhere"}, "primary node nowhere does not exist"),
        ({"disks": ["nothing"]}, "its disk nothing does not exist"),
        ({"disks": [uuid_of("disk", 0)]}, "owner of a disk"),
        ({"admin_state": "sideways"}, "admin_state"),
        ({"beparams": {"maxmem": "much"}}, "maxmem"),
        ({"beparams": {"colour": 1}}, "colour"),
        ({"hypervisor": "bochs"}, "unknown hypervisor"),
        ({"nics": [{"mac": "xx", "nicparams": {}, "uuid": "n"}]}, "is not a MAC address"),
        ({"name": None}, "name"),
    ],
)
def test_a_change_that_brings_in_a_problem_is_refused(
    node_: WconfdNode, changes: dict[str, Any], text: str
) -> None:
    client = node_.owner().hold_everything().client
    before = files.read_bytes(node_.paths.config_data)
    with pytest.raises(ConfigurationError, match=text):
        client.modify(ObjectKind.INSTANCE, "inst1", changes)
    assert files.read_bytes(node_.paths.config_data) == before
    client.verify_config()


def test_nodes_and_groups_keep_their_rules(node_: WconfdNode) -> None:
    client = node_.owner().hold_everything().client
    with pytest.raises(ConfigurationError, match="master"):
        client.modify(ObjectKind.NODE, "node1", {"offline": True, "master_candidate": False})
    with pytest.raises(ConfigurationError, match="at once"):
        client.modify(ObjectKind.NODE, "node2", {"offline": True, "drained": True})
    with pytest.raises(ConfigurationError, match="does not exist"):
        client.delete(ObjectKind.NODE, "node2")
    with pytest.raises(ConfigurationError, match="does not exist"):
        client.delete(ObjectKind.NODEGROUP, GROUP)
    client.create(ObjectKind.NODE, node(9, GROUP))
    assert only(client.get_nodes(["node9"])).name == "node9.example.com"
    client.delete(ObjectKind.NODE, "node9")
    client.verify_config()


def test_problems_that_were_there_do_not_stop_other_changes() -> None:
    with WconfdNode() as found:
        config = found.config()
        for one in config["instances"].values():
            one["nics"][0]["mac"] = mac_of(0)
        files.write_durable(found.paths.config_data, json.dumps(config).encode())
        client = found.start().owner().hold_everything().client
        client.modify(ObjectKind.INSTANCE, "inst0", {"admin_state": "down"})
        with pytest.raises(ConfigVerifyError) as caught:
            client.verify_config()
        problems = caught.value.args[1]
        assert len(problems) == 2
        assert all("MAC address" in problem for problem in problems)


@pytest.mark.shows("2.12/config/methods")
def test_tags(node_: WconfdNode) -> None:
    client = node_.owner().hold_everything().client
    client.add_tags("instance", "inst0", ["b", "a"])
    client.add_tags("instance", "inst0", ["a", "c"])
    assert only(client.get_instances(["inst0"])).tags == ["b", "a", "c"]
    client.remove_tags("instance", "inst0", ["a", "z"])
    assert only(client.get_instances(["inst0"])).tags == ["b", "c"]
    with pytest.raises(TagError):
        client.add_tags("instance", "inst0", ["not allowed!"])


@pytest.mark.shows(
    "backend/locks/config-lock",
    "2.12/wconfd/all-changes",
    "2.12/config/many-processes",
    "2.12/config/no-config-lock",
    "2.0/granular/coherent",
)
def test_concurrent_changes_all_count_and_share_writes(node_: WconfdNode) -> None:
    before = node_.config()
    owners = [node_.owner(number).hold() for number in range(8)]

    def work(number: int) -> None:
        for turn in range(10):
            owners[number].client.add_tags("cluster", "", [f"t{number}-{turn}"])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    after = node_.config()
    assert len(after["cluster"]["tags"]) == 80
    assert after["cluster"]["serial_no"] == before["cluster"]["serial_no"] + 80
    assert after["serial_no"] - before["serial_no"] < 80


def test_ports_go_to_instances_and_come_back(old_node: WconfdNode) -> None:
    node_ = old_node
    one, two = node_.owner(1).hold("instance/inst10.example.com").client, node_.owner(2).client
    port, other = one.allocate_instance_port(), two.allocate_instance_port()
    assert other == port + 1
    wire, disks = new_instance(10, network_port=port)
    one.create_instance(wire, disks)
    assert one.get_cluster().highest_used_port == port
    two.drop_all_reservations()
    one.delete(ObjectKind.INSTANCE, "inst10")
    assert one.get_cluster().tcpudp_port_pool == [port]
    assert two.allocate_instance_port() == port
    assert one.allocate_port() == port + 1
    one.verify_config()


@pytest.mark.shows("2.12/aims/reserve", "2.0/minors/lowest")
def test_reservations_exclude_each_other(old_node: WconfdNode) -> None:
    node_ = old_node
    one, two = node_.owner(1).client, node_.owner(2).client
    one.reserve_mac("aa:00:00:11:22:33")
    one.reserve_mac("aa:00:00:11:22:33")
    with pytest.raises(ReservationError, match="reserved by job 1"):
        two.reserve_mac("AA:00:00:11:22:33")
    with pytest.raises(ReservationError, match="in use"):
        two.reserve_mac(mac_of(0))
    assert two.generate_mac(None).startswith("aa:00:00:")
    one.reserve_lv("xenvg/a")
    with pytest.raises(ReservationError):
        two.reserve_lv("xenvg/a")
    one.drop_all_reservations()
    two.reserve_lv("xenvg/a")
    assert one.reserve_drbd_minors("disk-a", [NODE1, NODE2]) == [0, 0]
    assert two.allocate_drbd_minor("disk-b", [NODE1]) == [1]
    assert ["disk-a" in str(entry) for entry in one.compute_drbd_map()] == [True, True, False]
    one.reserve_node_resources([(NODE1, 100, 10)], [(NODE1, 150, None)])
    with pytest.raises(ReservationError, match="100 MiB are"):
        two.reserve_node_resources([(NODE1, 100, 10)], [(NODE1, 150, None)])
    assert two.list_node_reservations() == [[one.owner.to_wire(), NODE1, 100, 10]]
    one.release_node_resources()
    two.reserve_node_resources([(NODE1, 100, 10)], [(NODE1, 150, None)])


def test_addresses_in_networks(old_node: WconfdNode) -> None:
    node_ = old_node
    one, two = node_.owner(1).hold_everything().client, node_.owner(2).client
    network = {
        "name": "net",
        "network": "10.0.0.0/29",
        "gateway": "10.0.0.1",
        "reservations": "00000000",
        "ext_reservations": "11000001",
        "uuid": "net-uuid",
    }
    one.create(ObjectKind.NETWORK, network)
    assert one.generate_ip("net") == "10.0.0.2"
    assert two.generate_ip("net") == "10.0.0.3"
    with pytest.raises(ReservationError):
        one.reserve_ip("net", "10.0.0.3", True)
    with pytest.raises(ReservationError, match="externally"):
        one.reserve_ip("net", "10.0.0.1", True)
    nic = {"mac": mac_of(10), "ip": "10.0.0.2", "network": "net-uuid", "nicparams": {}, "uuid": "n"}
    wire, disks = new_instance(10, nics=[nic])
    one.create_instance(wire, disks)
    assert only(one.get_networks(["net"])).reservations == "00100000"
    assert one.list_reserved_ips() == []
    assert two.list_reserved_ips() == [["reserve", "10.0.0.3", "net-uuid"]]
    with pytest.raises(ConfigurationError, match="does not exist"):
        one.delete(ObjectKind.NETWORK, "net")
    one.modify(ObjectKind.INSTANCE, "inst10", {"nics": []})
    assert only(one.get_networks(["net"])).reservations == "00000000"
    one.free_locks()
    two.try_update_locks([("cluster/BGL", "shared")])
    two.commit_temporary_ips()
    assert only(one.get_networks(["net"])).reservations == "00010000"
    two.commit_release_temporary_ip("net", "10.0.0.3")
    assert only(one.get_networks(["net"])).reservations == "00000000"
    one.verify_config()


@pytest.mark.shows("backend/roles/promoted", "2.0/candidate/too-few-told")
def test_candidate_pool(node_: WconfdNode) -> None:
    client = node_.owner().hold_everything().client
    client.modify(ObjectKind.CLUSTER, "", {"candidate_pool_size": 2})
    with pytest.raises(ConfigVerifyError) as caught:
        client.verify_config()
    assert "too few master candidates" in str(caught.value.args[1])
    changed = client.maintain_candidate_pool([])
    [chosen] = changed["promoted"]  # at random
    assert (chosen in (NODE2, NODE3), changed["demoted"]) == (True, [])
    client.set_candidate_cert(chosen, "AA:BB")
    client.verify_config()
    client.modify(ObjectKind.CLUSTER, "", {"candidate_pool_size": 1})
    assert client.maintain_candidate_pool([chosen]) == {"promoted": [], "demoted": []}
    assert client.maintain_candidate_pool([]) == {"promoted": [], "demoted": [chosen]}
    assert client.get_cluster().candidate_certs == {}


@pytest.mark.shows("2.12/config/ssconf")
def test_ssconf_follows(node_: WconfdNode) -> None:
    client = node_.owner().hold_everything().client
    assert ssconf.master_node(node_.paths) == "node1.example.com"
    client.modify(ObjectKind.INSTANCE, "inst0", {"name": "a.example.com"})
    client.add_tags("cluster", "", ["x"])
    known = client.get_ssconf()
    assert known["cluster_tags"] == "x"
    assert known["instance_list"] == "a.example.com\ninst1.example.com"

    def in_files() -> dict[str, str]:
        found = ssconf.read_all(node_.paths)
        return {key: value.removesuffix("\n") for key, value in found.items()}

    wait_until(lambda: in_files() == known, "ssconf to follow")


def test_a_whole_cluster_replaces_only_the_one_it_was_made_from(node_: WconfdNode) -> None:
    one, two = node_.owner(1).hold(), node_.owner(2).hold()
    wire = one.client.get_cluster().to_wire()
    serial, _ = two.client.modify(ObjectKind.CLUSTER, "", {"max_running_jobs": 7})
    with pytest.raises(ConfigurationError, match="updated since"):
        one.client.replace_cluster(wire | {"mac_prefix": "aa:bb:cc"})
    fresh = one.client.get_cluster().to_wire()
    assert one.client.replace_cluster(fresh | {"mac_prefix": "aa:bb:cc"})[0] == serial + 1
    stored = node_.config()["cluster"]
    assert (stored["mac_prefix"], stored["max_running_jobs"]) == ("aa:bb:cc", 7)
    with pytest.raises(ConfigurationError, match="not a MAC prefix"):
        one.client.replace_cluster(one.client.get_cluster().to_wire() | {"mac_prefix": "zz"})


# Methods of Ganeti 3.0.


NAMELESS = [
    ("setInstanceStatus", ["inst0", "down", None, None], "modifyObjects"),
    ("setInstancePrimaryNode", ["inst0", NODE2], "modifyObjects"),
    ("removeInstance", ["inst0"], "deleteObject"),
    ("attachInstanceDisk", ["inst0", uuid_of("disk", 1), None], "attachDisk"),
    ("detachInstanceDisk", ["inst0", uuid_of("disk", 0)], "detachDisk"),
    ("addInstanceDisk", ["inst0", {}, None, False], "addDisk"),
    ("removeInstanceDisk", ["inst0", uuid_of("disk", 0)], "removeDisk"),
    *((f"update{kind}", [{}], "modifyObjects") for kind in ("Node", "Instance", "NodeGroup")),
    *((f"update{kind}", [{}], "modifyObjects") for kind in ("Network", "Disk")),
    ("updateCluster", [{}], "replaceCluster"),
    ("allocatePort", [], "allocateInstancePort"),
    ("addTcpUdpPort", [11000], "releaseInstancePort"),
    ("commitReleaseTemporaryIp", ["net", "10.0.0.3"], "releaseIp"),
    ("allocateDRBDMinor", ["disk-b", [NODE1]], "reserveDrbdMinors"),
    ("releaseDRBDMinors", ["disk-b"], "dropAllReservations"),
]


@pytest.mark.shows("2.12/aims/mandatory")
def test_changes_without_owner_are_refused(node_: WconfdNode) -> None:
    assert len(NAMELESS) == 18
    assert {name for name, _, _ in NAMELESS} == {
        call.name
        for call in WConfCalls.calls.values()
        if call.rules.owner is None and call.rules.effect in (Effect.CONFIG, Effect.RESERVE)
    }
    before = files.read_bytes(node_.paths.config_data)
    with contextlib.closing(UnixClient(node_.paths.wconfd_socket, timeout_s=60)) as raw:
        for name, args, instead in NAMELESS:
            with pytest.raises(LockError, match=f"{name} .* use {instead}; .*-without-owner"):
                raw.call(name, args)
    assert files.read_bytes(node_.paths.config_data) == before


@pytest.mark.shows("2.12/aims/logged")
def test_changes_without_owner_are_logged_where_they_are_allowed(old_node: WconfdNode) -> None:
    with contextlib.closing(UnixClient(old_node.paths.wconfd_socket, timeout_s=60)) as raw:
        for state in ("down", "up"):
            raw.call("setInstanceStatus", ["inst0", state, None, None])
    assert old_node.log().count("setInstanceStatus inst0: done without an owner") == 2


@pytest.mark.shows("2.12/aims/mandatory")
def test_an_old_call_with_an_owner_needs_the_lock_as_well(node_: WconfdNode) -> None:
    wire, _ = new_instance(10, disks=[])
    with pytest.raises(LockError, match=r"needs lock instance/inst10.example.com \(exclusive\)"):
        node_.owner(1).hold().client.add_instance(wire, False)
    with pytest.raises(LockError, match="needs lock cluster/BGL"):
        node_.owner(2).client.commit_temporary_ips()


def test_whole_objects_with_old_serial_numbers_are_refused(old_node: WconfdNode) -> None:
    node_ = old_node
    client = node_.owner().client
    wire = only(client.get_instances(["inst0"])).to_wire()
    serial = client.update_instance({**wire, "admin_state": "down"})
    assert serial is not None
    assert serial[0] == 2
    with pytest.raises(ConfigurationError, match="updated since"):
        client.update_instance({**wire, "admin_state": "up"})
    for update, found in (
        (client.update_cluster, client.get_cluster()),
        (client.update_node, only(client.get_nodes(["node1"]))),
        (client.update_node_group, only(client.get_node_groups(["default"]))),
        (client.update_disk, only(client.get_disks([uuid_of("disk", 0)]))),
    ):
        answer = update(found)
        assert answer is not None
        assert answer[0] == found.serial_no + 1
    assert node_.config()["nodegroups"][GROUP]["members"] == []


@pytest.mark.shows(
    "2.12/config/lock",
    "2.12/config/unlock",
    "2.12/config/read-all",
    "2.12/config/write-all",
    "2.0/locks/config",
)
def test_the_whole_configuration_is_locked_read_written(old_node: WconfdNode) -> None:
    node_ = old_node
    one, two = node_.owner(1).client, node_.owner(2).hold().client
    config = one.lock_config(False)
    assert config is not None
    assert two.lock_config(True) is None
    assert two.add_tcp_udp_port(11000) is False
    assert two.set_instance_status("inst0", "down", None, None) is None
    assert two.update_cluster(two.get_cluster()) is None
    blocked = threading.Thread(target=two.add_tags, args=("cluster", "", ["waited"]))
    blocked.start()
    config["cluster"]["tags"] = ["whole"]
    del config["instances"][uuid_of("instance", 1)]
    del config["disks"][uuid_of("disk", 1)]
    assert one.write_config_and_unlock(config) is True
    blocked.join(60)
    assert not blocked.is_alive()
    assert one.get_cluster().tags == ["whole", "waited"]
    assert one.get_instances(["inst1"]) == [None]
    assert one.write_config_and_unlock(config) is False
    with pytest.raises(GenericError, match="does not hold"):
        one.write_config(config)
    assert two.lock_config(False) is not None
    with pytest.raises(ConfigurationError, match="updated since"):
        two.write_config(config)
    two.unlock_config()
    one.verify_config()


@pytest.mark.shows("2.12/config/dead-locker")
def test_the_lock_on_the_configuration_goes_with_its_owner(node_: WconfdNode) -> None:
    dying, other = node_.owner(1), node_.owner(2).client
    assert dying.client.lock_config(False) is not None
    assert other.lock_config(False) is None
    dying.die()
    wait_until(lambda: other.lock_config(False) is not None, "the lock to be freed")
    other.unlock_config()


@pytest.mark.shows("2.12/config/methods")
def test_old_instance_methods(old_node: WconfdNode) -> None:
    client = old_node.owner().hold("instance/inst10.example.com").client
    wire, disks = new_instance(10, disks=[])
    assert client.add_instance(wire, False) is True
    with pytest.raises(ConfigurationError, match="already in use"):
        client.add_instance(wire, False)
    assert client.add_instance_disk(wire["uuid"], disks[0], None, False) is True
    assert only(client.get_instances(["inst10"])).disks == [disks[0]["uuid"]]
    assert client.detach_instance_disk(wire["uuid"], disks[0]["uuid"]) is True
    assert client.attach_instance_disk(wire["uuid"], disks[0]["uuid"], 0) is True
    before = only(client.get_instances(["inst10"])).serial_no
    same = client.set_instance_status(wire["uuid"], "up", True, "admin")
    assert same is not None
    assert same["serial_no"] == before
    changed = client.set_instance_status(wire["uuid"], "down", None, "user")
    assert changed is not None
    assert (changed["admin_state"], changed["admin_state_source"]) == ("down", "user")
    assert changed["serial_no"] == before + 1
    assert client.set_instance_primary_node(wire["uuid"], NODE2) is True
    assert client.remove_instance_disk(wire["uuid"], disks[0]["uuid"]) is True
    assert client.remove_instance(wire["uuid"]) is True
    client.verify_config()


@pytest.mark.shows("backend/locks/bgl-exclusive", "2.0/metalocks/bgl")
def test_destruction_takes_the_big_lock(node_: WconfdNode) -> None:
    owner = node_.owner()
    with pytest.raises(GenericError, match="does not hold"):
        owner.client.prepare_cluster_destruction()
    owner.client.try_update_locks([("cluster/BGL", "exclusive")])
    owner.client.prepare_cluster_destruction()
    assert owner.client.list_locks() == []
    assert node_.config()["cluster"]["master_node"] == ""
    assert node_.owner(2).client.try_update_locks([("cluster/BGL", "shared")]) != []
    owner.client.prepare_cluster_destruction()  # again, as the answer may have been lost


def test_a_destruction_that_fails_leaves_the_big_lock_with_its_job(node_: WconfdNode) -> None:
    owner = node_.owner()
    owner.client.try_update_locks([("cluster/BGL", "exclusive")])
    assert node_.process is not None
    limits = resource.prlimit(node_.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(node_.process.pid, resource.RLIMIT_FSIZE, (1000, limits[1]))
    with pytest.raises(GenericError, match="cannot write the configuration"):
        owner.client.prepare_cluster_destruction()
    resource.prlimit(node_.process.pid, resource.RLIMIT_FSIZE, limits)
    owner.client.free_locks()
    assert node_.owner(2).client.try_update_locks([("cluster/BGL", "shared")]) == []


# When things go wrong.


@pytest.mark.shows("backend/config-data/not-flushed")
def test_a_configuration_that_cannot_be_written_stays_as_it_was(node_: WconfdNode) -> None:
    client = node_.owner().hold().client
    assert node_.process is not None
    before = files.read_bytes(node_.paths.config_data)
    limits = resource.prlimit(node_.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(node_.process.pid, resource.RLIMIT_FSIZE, (100, limits[1]))
    with pytest.raises(GenericError, match="cannot write the configuration"):
        client.add_tags("cluster", "", ["lost"])
    assert client.get_cluster().tags == []
    assert files.read_bytes(node_.paths.config_data) == before
    left = [name for name in os.listdir(node_.paths.data_dir) if name.endswith(".tmp")]
    assert left == []
    resource.prlimit(node_.process.pid, resource.RLIMIT_FSIZE, limits)
    client.add_tags("cluster", "", ["kept"])
    assert node_.config()["cluster"]["tags"] == ["kept"]


@pytest.mark.shows("2.12/wconfd-details/any-point")
def test_changes_survive_kill_and_restart(node_: WconfdNode) -> None:
    client = node_.owner().hold().client
    for number in range(5):
        client.add_tags("cluster", "", [f"t{number}"])
        node_.kill()
        node_.start()
    assert client.get_cluster().tags == [f"t{number}" for number in range(5)]


INST1 = "instance/inst1.example.com"


@pytest.mark.shows(
    "2.12/aims/checked",
    "2.12/aims/mandatory",
    "2.0/add-remove/removed-owned",
    "2.0/lock-caveats/scrutinised",
)
@pytest.mark.parametrize(
    ("call", "lock"),
    [
        (
            lambda c: c.modify(ObjectKind.CLUSTER, "", {"volume_group_name": "x"}),
            "cluster/BGL (shared)",
        ),
        (lambda c: c.add_tags("cluster", "", ["x"]), "cluster/BGL (shared)"),
        (lambda c: c.maintain_candidate_pool([]), "cluster/BGL (shared)"),
        (
            lambda c: c.modify(ObjectKind.INSTANCE, "inst0", {"admin_state": "down"}),
            "instance/inst0",
        ),
        (lambda c: c.create_instance(*new_instance(10)), "instance/inst10"),
        (lambda c: c.put_instance("inst0", *new_instance(1)), "instance/inst0"),
        (lambda c: c.modify(ObjectKind.DISK, uuid_of("disk", 0), {"size": 2048}), "instance/inst0"),
        (lambda c: c.add_tags("node", "node1", ["x"]), f"node/{NODE1}"),
        (
            lambda c: c.modify(ObjectKind.NODEGROUP, "default", {"alloc_policy": "last_resort"}),
            GROUP,
        ),
        (
            lambda c: c.modify_objects(
                [("instance", "inst1", {"os": "x"}), ("disk", uuid_of("disk", 0), {"size": 2048})]
            ),
            "instance/inst0",
        ),
    ],
)
def test_a_change_without_the_lock_that_it_needs_is_refused(
    node_: WconfdNode, call: Callable[[WConfClient], object], lock: str
) -> None:
    owner = node_.owner()
    owner.client.try_update_locks([(INST1, "exclusive")])
    before = files.read_bytes(node_.paths.config_data)
    with pytest.raises(LockError, match=re.escape(lock)) as caught:
        call(owner.client)
    assert "by job 1: this needs lock" in str(caught.value)
    assert files.read_bytes(node_.paths.config_data) == before


@pytest.mark.shows("2.12/aims/checked")
def test_a_change_with_the_lock_that_it_needs_is_carried_out(node_: WconfdNode) -> None:
    client = node_.owner().hold(INST1, f"node/{NODE2}").client
    client.modify(ObjectKind.INSTANCE, "inst1", {"admin_state": "down"})
    client.modify(ObjectKind.DISK, uuid_of("disk", 1), {"size": 2048})
    client.modify_objects([("instance", "inst1", {"os": "x"}), ("node", "node2", {"ndparams": {}})])
    client.add_tags("cluster", "", ["x"])
    with pytest.raises(
        OpPrereqError, match="not found"
    ):  # nothing can be held of what is not there
        client.modify(ObjectKind.INSTANCE, "inst7", {"admin_state": "down"})
    with pytest.raises(LockError, match="exclusive"):
        node_.owner(2).client.modify(ObjectKind.INSTANCE, "inst1", {"admin_state": "up"})


@pytest.mark.shows("backend/locks/config-lock")
def test_a_snapshot_shows_everything_at_once(node_: WconfdNode) -> None:
    owner = node_.owner()
    owner.client.try_update_locks([("cluster/BGL", "shared")])
    mac = owner.client.generate_mac(None)
    snapshot = owner.client.snapshot()
    assert snapshot["config"] == node_.config()
    assert snapshot["locks"] == [[[owner.id.to_wire(), [["cluster/BGL", "shared"]]]], []]
    assert snapshot["reservations"]["tempres"]["mACs"] == [[owner.id.to_wire(), [mac]]]

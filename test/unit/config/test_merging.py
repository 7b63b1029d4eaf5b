"""Two configurations become one, or all that forbids it is told."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from fakes.large_config import large_config, uuid_of
from fakes.large_config import other_config as other
from fakes.sample_config import CONFIG

from ganeti.config.merging.merge import (
    Conflicts,
    Groups,
    Merged,
    Restart,
    Wishes,
    changes,
    is_merged,
    merge,
    restored,
)
from ganeti.config.reservations import Reservations
from ganeti.config.state import ConfigState, problems_in
from ganeti.protocol.wconfd import ClientId

Config = dict[str, Any]
APART = Wishes(groups=Groups.RENAME)
NOW = 1_800_000_000.0
NETWORK = next(iter(CONFIG["networks"].values()))
GROUP = uuid_of("group", 0)


def drbd(config: Config, kind: str, port: int) -> None:
    """Make the first disk of a cluster a mirrored one."""
    nodes = [uuid_of(kind, number) for number in (1, 2)]
    disk = next(iter(config["disks"].values()))
    disk.update(dev_type="drbd", nodes=nodes, logical_id=[*nodes, port, 0, 0, "secret"])


def merged(own: Config, there: Config, wishes: Wishes = APART) -> Merged:
    return merge(json.dumps(own).encode(), json.dumps(there).encode(), wishes, now=NOW)


def good(own: Config, there: Config, wishes: Wishes = APART) -> Config:
    found = merged(own, there, wishes)
    assert found.problems == []
    assert [each for each in problems_in(found.config) if "too few" not in each] == []
    config: Config = json.loads(found.config)
    return config


@pytest.mark.shows("2.1/merge-steps/config")
def test_nodes_and_instances_come_and_no_node_is_a_candidate() -> None:
    own, there = large_config(3, 3), other()
    there["nodes"][uuid_of("other-node", 1)]["kept"] = "unknown"
    found = good(own, there)
    for table in ("nodes", "instances", "disks"):
        assert found[table].keys() == own[table].keys() | there[table].keys()
    its = {uuid: found["nodes"][uuid] for uuid in there["nodes"]}
    assert not any(node["master_candidate"] for node in its.values())
    assert its[uuid_of("other-node", 1)]["kept"] == "unknown"
    assert found["cluster"]["cluster_name"] == own["cluster"]["cluster_name"]
    assert found["serial_no"] == own["serial_no"] + 1
    assert {uuid: found["nodes"][uuid] for uuid in own["nodes"]} == own["nodes"]


@pytest.mark.shows("2.1/merge-steps/ports")
def test_ports_are_given_anew() -> None:
    own, there = large_config(2, 2), other()
    own["cluster"].update(tcpudp_port_pool=[11003], highest_used_port=11004)
    own["cluster"]["enabled_disk_templates"].append("drbd")
    drbd(own, "node", 11001)
    drbd(there, "other-node", 11001)
    guest = there["instances"][uuid_of("other-instance", 1)]
    guest["network_port"] = 11002
    found = good(own, there)
    ports = {found["disks"][next(iter(there["disks"]))]["logical_id"][2]}
    ports.add(found["instances"][guest["uuid"]]["network_port"])
    assert ports == {11003, 11005}
    assert found["cluster"]["tcpudp_port_pool"] == []
    assert found["cluster"]["highest_used_port"] == 11005


def test_ports_of_what_runs_on_stay() -> None:
    own, there = large_config(2, 2), other()
    own["cluster"].update(tcpudp_port_pool=[11003], highest_used_port=11004)
    guest = there["instances"][uuid_of("other-instance", 1)]
    guest["network_port"] = 11003
    running = Wishes(groups=Groups.RENAME, keeps_running=True)
    found = good(own, there, running)
    assert found["cluster"]["tcpudp_port_pool"] == []
    own["instances"][uuid_of("instance", 0)]["network_port"] = 11002
    guest["network_port"] = 11002
    [problem] = merged(own, there, running).problems
    assert "port 11002 of the console of instance guest1" in problem
    assert "--skip-stop-instances" in problem


def test_ports_below_a_high_one_that_stays_are_free() -> None:
    own, there = large_config(2, 2), other(3)
    own["cluster"].update(tcpudp_port_pool=[11002], highest_used_port=11004)
    for number, port in enumerate((14990, 14985, 11005)):  # two lie below another one that stays
        there["instances"][uuid_of("other-instance", number)]["network_port"] = port
    config = good(own, there, Wishes(groups=Groups.RENAME, keeps_running=True))
    cluster = config["cluster"]
    assert cluster["highest_used_port"] == 14990
    assert cluster["tcpudp_port_pool"] == [11002, *range(11006, 14985), *range(14986, 14990)]
    view, reservations = ConfigState(json.dumps(config).encode()).durable, Reservations()
    job = ClientId(1, "/l/1", 1)
    assert [reservations.allocate_port(view, job) for _ in range(3)] == [11002, 11006, 11007]


def test_instances_that_are_to_stay_down_are_down_for_the_watcher_too() -> None:
    none = Wishes(groups=Groups.RENAME, restart=Restart.NONE)
    found = good(large_config(1), other(1), none)
    states = {each["name"]: each["admin_state"] for each in found["instances"].values()}
    assert states == {"inst0.example.com": "up", "guest0.example.com": "down"}


def test_groups_of_one_name_need_a_decision() -> None:
    own, there = large_config(1), other(1)
    [problem] = merged(own, there, Wishes()).problems
    assert "both clusters have a node group default; --groups=merge" in problem
    names = {each["name"] for each in good(own, there)["nodegroups"].values()}
    assert names == {"default", "default-other.example.com"}
    one = good(own, there, Wishes(groups=Groups.MERGE))
    assert list(one["nodegroups"]) == [GROUP]
    assert {node["group"] for node in one["nodes"].values()} == {GROUP}
    there["nodegroups"][uuid_of("other-group", 0)]["alloc_policy"] = "unallocable"
    [problem] = merged(own, there, Wishes(groups=Groups.MERGE)).problems
    assert "group default: alloc_policy" in problem


def test_groups_of_other_names_come_as_they_are() -> None:
    own, there = large_config(1), other(1)
    there["nodegroups"][uuid_of("other-group", 0)]["name"] = "rack9"
    names = {each["name"] for each in good(own, there, Wishes())["nodegroups"].values()}
    assert names == {"default", "rack9"}


PROBLEMS: list[tuple[str, Callable[[Config], object], str]] = [
    (
        "same cluster",
        lambda c: c["cluster"].update(uuid=large_config(0)["cluster"]["uuid"]),
        "both are the same cluster",
    ),
    ("version", lambda c: c.update(version=2160000), "upgrade first"),
    (
        "node",
        lambda c: c["nodes"][uuid_of("other-node", 2)].update(name="node2.example.com"),
        "both clusters have nodes named node2.example.com",
    ),
    (
        "instance",
        lambda c: c["instances"][uuid_of("other-instance", 0)].update(name="inst1.example.com"),
        "both clusters have instances named inst1.example.com",
    ),
    (
        "address",
        lambda c: c["nodes"][uuid_of("other-node", 2)].update(
            primary_ip="127.9.0.2", secondary_ip="127.9.0.2"
        ),
        "127.9.0.2 is used by",
    ),
    (
        "mac",
        lambda c: c["instances"][uuid_of("other-instance", 0)]["nics"][0].update(
            mac="aa:00:00:00:00:01"
        ),
        "MAC address aa:00:00:00:00:01",
    ),
    (
        "uuid",
        lambda c: c["disks"].update(
            {uuid_of("disk", 0): large_config(1)["disks"][uuid_of("disk", 0)]}
        ),
        f"both clusters have disks with the UUIDs {uuid_of('disk', 0)}",
    ),
    (
        "hypervisor",
        lambda c: c["instances"][uuid_of("other-instance", 0)].update(hypervisor="chroot"),
        "use hypervisor chroot, which is not enabled here",
    ),
    (
        "template",
        lambda c: c["disks"][uuid_of("other-disk", 0)].update(
            dev_type="gluster", logical_id=["gluster", "/x"]
        ),
        "use disk template gluster, which is not enabled here",
    ),
]


@pytest.mark.parametrize(
    ("change", "text"), [row[1:] for row in PROBLEMS], ids=[row[0] for row in PROBLEMS]
)
def test_what_forbids_it_is_told(change: Callable[[Config], object], text: str) -> None:
    there = other()
    change(there)
    found = merged(large_config(2, 2), there)
    assert any(text in problem for problem in found.problems), found.problems


@pytest.mark.parametrize("is_dual", [False, True])
def test_secondary_addresses_are_for_all_nodes_or_for_none(is_dual: bool) -> None:
    """No setting, so it cannot be decided by --parameter-conflicts: such a node never joins."""
    own, there = large_config(1, 2), other(1)
    dual = own if is_dual else there
    for number, node in enumerate(dual["nodes"].values()):
        node["secondary_ip"] = f"10.99.0.{number}"
    wishes = Wishes(groups=Groups.RENAME, conflicts=Conflicts.WARN)
    [problem] = merged(own, there, wishes).problems
    has = "no secondary address" if is_dual else "a secondary address"
    assert f"nodes there have {has}" in problem
    assert all(node["name"] in problem for node in there["nodes"].values())
    assert "gnt-node modify --secondary-ip" in problem
    for node in there["nodes"].values():
        node["offline"] = True  # it comes as it is
    good(own, there, wishes)


CONFLICTS: list[tuple[Callable[[Config], object], str]] = [
    (lambda c: c["cluster"]["beparams"]["default"].update(vcpus=7), "beparams: vcpus is 1"),
    (lambda c: c["cluster"]["nicparams"]["default"].update(link="br7"), "nicparams: link"),
    (lambda c: c["cluster"].update(file_storage_dir="/else"), "file_storage_dir"),
    (lambda c: c["cluster"]["osparams"].update(noop={"a": "b"}), "osparams of noop: a is None"),
    (
        lambda c: c["cluster"]["osparams_private_cluster"].update(noop={"a": "b"}),
        "private parameters",
    ),
]


@pytest.mark.parametrize(("change", "text"), CONFLICTS, ids=lambda _: "")
def test_settings_that_differ_are_in_the_way_or_told(
    change: Callable[[Config], object], text: str
) -> None:
    own, there = large_config(1), other(1)
    there["cluster"].setdefault("osparams_private_cluster", {})
    change(there)
    [problem] = merged(own, there).problems
    assert text in problem
    assert "--parameter-conflicts=warn" in problem
    warned = Wishes(groups=Groups.RENAME, conflicts=Conflicts.WARN)
    assert any(text in note for note in merged(own, there, warned).notes)
    assert good(own, there, warned)["cluster"]["beparams"] == own["cluster"]["beparams"]


def test_what_ends_is_told() -> None:
    there = other(1)
    there["cluster"]["tags"] = ["rack:9"]
    there["nodes"][uuid_of("other-node", 2)]["offline"] = True
    notes = merged(large_config(1), there).notes
    assert "tags of other.example.com (rack:9) ends" in notes
    assert any("node peer2.example.com is offline and stays so" in note for note in notes)


# Taken back.


def encoded(*configs: Config) -> list[bytes]:
    return [json.dumps(each).encode() for each in configs]


def test_the_configuration_before_comes_back_with_a_higher_number() -> None:
    own = large_config(1)
    present = good(own, other()) | {"serial_no": 900}
    found = json.loads(restored(*encoded(own, present), now=NOW))
    assert found == {**own, "serial_no": 901, "mtime": NOW}


def test_what_no_merge_touches_stays_as_it_became() -> None:
    own = large_config(1)
    kept = {"filters": {"f": {"uuid": "f"}}, "maintenance": {"roundDelay": 60}, "later": 1}
    present = good(own, other()) | kept
    found = json.loads(restored(*encoded(own, present), now=NOW))
    assert {name: found[name] for name in kept} == kept
    assert found["nodes"] == own["nodes"]


def test_a_configuration_tells_whether_it_is_merged() -> None:
    own, there = large_config(1), other()
    assert not is_merged(*encoded(own, there))
    assert is_merged(*encoded(good(own, there), there))


CHANGES: list[tuple[Callable[[Config], object], list[str]]] = [
    (lambda c: c.update(serial_no=99, mtime=9.0), []),
    (lambda c: c["cluster"].update(mtime=9.0), []),
    (lambda c: c["cluster"].update(candidate_pool_size=9), ["the cluster has changed"]),
    (lambda c: c["nodes"].pop(uuid_of("node", 1)), ["node node1.example.com is gone"]),
    (
        lambda c: c["instances"][uuid_of("instance", 0)].update(name="renamed"),
        ["instance renamed has changed"],
    ),
    (
        lambda c: c["networks"].update(net={**NETWORK, "name": "lan", "uuid": "net"}),
        ["network lan is new"],
    ),
    (lambda c: c["filters"].update(CONFIG["filters"]), []),
    (lambda c: c["nodes"][uuid_of("other-node", 1)].update(offline=True, serial_no=2), []),
]


@pytest.mark.parametrize(("change", "texts"), CHANGES, ids=lambda _: "")
def test_what_has_changed_since_is_told(
    change: Callable[[Config], object], texts: list[str]
) -> None:
    before = good(large_config(2, 3), other())
    now = copy.deepcopy(before)
    change(now)
    assert list(changes(*encoded(before, now), lost=["peer1.example.com"])) == texts

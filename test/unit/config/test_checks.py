"""Every kind of problem is found and names its object; a proper configuration has none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from bitarray import frozenbitarray
from fakes.large_config import large_config, mac_of, uuid_of
from fakes.sample_config import CONFIG_BYTES

from ganeti.config.addresses import pool
from ganeti.config.checks import cluster_problems, problems_of
from ganeti.config.index import INSTANCES
from ganeti.config.state import ConfigState

Config = dict[str, Any]
INST0, INST1 = uuid_of("instance", 0), uuid_of("instance", 1)
NODE1, NODE2, NODE3 = (uuid_of("node", number) for number in (1, 2, 3))
GROUP = uuid_of("group", 0)
DISK0 = uuid_of("disk", 0)
NET = {
    "name": "net", "network": "10.0.0.0/30", "uuid": "net", "serial_no": 1, "tags": [],
    "reservations": "0000", "ext_reservations": "1001",
}  # fmt: skip


def problems(config: Config) -> list[str]:
    view = ConfigState(json.dumps(config).encode()).durable
    found = cluster_problems(view, view.tables)
    for identity in view.identities():
        found += problems_of(view, identity)
    return found


def test_proper_configurations_have_none() -> None:
    assert problems(large_config(20, 10, 3)) == []
    assert problems(json.loads(CONFIG_BYTES)) == []


def inst(config: Config) -> Config:
    found: Config = config["instances"][INST0]
    return found


def nic(config: Config, number: int) -> Config:
    found: Config = config["instances"][uuid_of("instance", number)]["nics"][0]
    return found


def drbd(config: Config) -> None:
    for number in (0, 1):
        found = config["disks"][uuid_of("disk", number)]
        found.update(dev_type="drbd", logical_id=[NODE1, NODE2, 11000 + number, 5, number, "s"])


def on_same(
    template: str, place: list[object], node: str = NODE1, other: str = NODE1
) -> Callable[[Config], None]:
    """Put two disks, each on its node, at the same place."""

    def change(config: Config) -> None:
        for number, uuid in enumerate((node, other)):
            found = config["disks"][uuid_of("disk", number)]
            found.update(dev_type=template, logical_id=place, nodes=[uuid])

    return change


def volume_of_pair(config: Config) -> None:
    on_same("plain", ["xenvg", "data"], NODE1, NODE2)(config)
    drbd(config)
    child = {**config["disks"][DISK0], "dev_type": "plain", "logical_id": ["xenvg", "data"]}
    config["disks"][DISK0].update(nodes=[NODE1, NODE2], children=[child, dict(child)])
    config["disks"][uuid_of("disk", 1)].update(dev_type="plain", logical_id=["xenvg", "data"])


CASES: list[tuple[str, Callable[[Config], object], str]] = [
    ("name", lambda c: inst(c).update(name="inst1.example.com"), "inst1.example.com"),
    ("mac", lambda c: inst(c)["nics"][0].update(mac=mac_of(1).upper()), "MAC address"),
    ("mac twice", lambda c: inst(c)["nics"].append({**inst(c)["nics"][0], "uuid": "n"}), "two of"),
    ("malformed mac", lambda c: inst(c)["nics"][0].update(mac="aa:bb"), "not a MAC address"),
    ("uuid of nic", lambda c: inst(c)["nics"][0].update(uuid=uuid_of("nic", 1)), "UUID"),
    ("uuid", lambda c: inst(c).update(uuid="other"), "differs from its UUID"),
    ("port", lambda c: [i.update(network_port=11000) for i in c["instances"].values()], "port 11000"),
    ("node address", lambda c: c["nodes"][NODE2].update(primary_ip="127.9.0.2"), "127.9.0.2 is used"),
    ("primary node", lambda c: inst(c).update(primary_node="x"), "primary node x does not exist"),
    ("disk", lambda c: inst(c).update(disks=["x"]), "its disk x does not exist"),
    ("shared disk", lambda c: inst(c).update(disks=[uuid_of("disk", 1)]), "owner of a disk"),
    ("volume", on_same("plain", ["xenvg", "a"]), "logical volume xenvg/a is used by disk"),
    ("volume of a pair", volume_of_pair, "logical volume xenvg/data is used by disk"),
    ("file", on_same("file", ["loop", "/f"]), "path /f is used by disk"),
    ("shared file", on_same("sharedfile", ["loop", "/f"], other=NODE2), "path /f is used by disk"),
    ("device", on_same("blockdev", ["manual", "/dev/disk/a"], other=NODE2), "path /dev/disk/a is"),
    ("disk twice", lambda c: inst(c).update(disks=[DISK0, DISK0]), "a disk twice"),
    ("network", lambda c: inst(c)["nics"][0].update(network="x"), "network x, which does not"),
    ("beparams", lambda c: inst(c).update(beparams={"maxmem": "x"}), "maxmem"),
    ("hvparams", lambda c: inst(c).update(hvparams={"acpi": 1}), "acpi"),
    ("hypervisor", lambda c: inst(c).update(hypervisor="x"), "unknown hypervisor 'x'"),
    ("tag", lambda c: inst(c).update(tags=["a b"]), "the tag 'a b'"),
    ("group", lambda c: c["nodes"][NODE2].update(group="x"), "its group x does not exist"),
    ("roles", lambda c: c["nodes"][NODE2].update(offline=True, drained=True), "offline and drained"),
    ("capable", lambda c: c["nodes"][NODE1].update(master_capable=False), "not master-capable"),
    ("vm", lambda c: c["nodes"][NODE1].update(vm_capable=False), "not vm-capable but has inst"),
    ("master", lambda c: c["cluster"].update(master_node="x"), "master node x does not exist"),
    ("master role", lambda c: c["nodes"][NODE1].update(master_candidate=False), "must be a master"),
    ("offline master", lambda c: c["nodes"][NODE1].update(offline=True), "cannot be offline"),
    ("pool", lambda c: c["cluster"].update(candidate_pool_size=3), "too few master candidates: 1"),
    ("no groups", lambda c: c.update(nodegroups={}), "there is no node group"),
    ("mac prefix", lambda c: c["cluster"].update(mac_prefix="zz"), "'zz' is not a MAC prefix"),
    ("free port twice", lambda c: c["cluster"].update(tcpudp_port_pool=[10500] * 2), "twice"),
    ("free port used", lambda c: [c["cluster"].update(tcpudp_port_pool=[10500]), inst(c).update(network_port=10500)], "free port 10500 is used"),
    ("free port high", lambda c: c["cluster"].update(tcpudp_port_pool=[12000]), "above the highest"),
    ("highest port", lambda c: c["cluster"].update(highest_used_port=15000), "above 14999"),
    ("hypervisors", lambda c: c["cluster"].update(enabled_hypervisors=[]), "no hypervisor"),
    ("templates", lambda c: c["cluster"].update(enabled_disk_templates=[]), "no disk template"),
    ("certs", lambda c: c["cluster"].update(candidate_certs={"x": "AA"}), "candidate_certs names"),
    ("cert of others", lambda c: c["cluster"].update(candidate_certs={NODE2: "AA"}), "which is no master candidate"),
    ("uid pool", lambda c: c["cluster"].update(uid_pool=[[5, 3]]), "5-3"),
    ("cluster hv", lambda c: c["cluster"]["hvparams"].update(x={}), "unknown hypervisor 'x'"),
    ("diskparams", lambda c: c["cluster"]["diskparams"].update(x={}), "unknown disk template 'x'"),
    ("policy", lambda c: c["cluster"]["ipolicy"]["std"].update({"cpu-count": 99}), "cpu-count=99"),
    ("policy order", lambda c: c["cluster"]["ipolicy"]["minmax"][0]["min"].update({"cpu-count": 99}), "min 99 is greater"),
    ("no policy", lambda c: c["cluster"].update(ipolicy={}), "minmax"),
    ("group policy", lambda c: c["nodegroups"][GROUP].update(ipolicy={"minmax": [{}]}), "'min' and 'max'"),
    ("group network", lambda c: c["nodegroups"][GROUP].update(networks={"x": {}}), "network x"),
    ("disk node", lambda c: c["disks"][DISK0].update(nodes=["x"]), "node x, which does not exist"),
    ("disk type", lambda c: c["disks"][DISK0].update(dev_type="x"), "unknown type 'x'"),
    ("logical id", lambda c: c["disks"][DISK0].update(logical_id=[1]), "does not fit the type"),
    ("size", lambda c: c["disks"][DISK0].update(size=-1), "has the size -1"),
    ("minor", drbd, "DRBD minor 5 is used"),
    ("map", lambda c: c["networks"].update(net={**NET, "reservations": "0"}), "4 characters"),
    ("range", lambda c: c["networks"].update(net={**NET, "network": "x"}), "network net"),
    ("map of nobody", lambda c: c["networks"].update(net={**NET, "reservations": "0100"}), "10.0.0.1 is marked as used"),
    ("gateway", lambda c: c["networks"].update(net={**NET, "gateway": "10.9.0.1"}), "gateway 10.9.0.1 does not lie"),
    ("open gateway", lambda c: c["networks"].update(net={**NET, "gateway": "10.0.0.1"}), "is not kept away"),
    ("cluster address", lambda c: c["cluster"].update(master_ip="127.9.0.3"), "127.9.0.3 is used by node"),
    ("cluster uuid", lambda c: c["cluster"].update(uuid=INST0), "is used by instance inst0"),
    ("no address", lambda c: c["nodes"][NODE2].update(primary_ip="x"), "primary_ip 'x' is not an IP"),
    ("nic address", lambda c: nic(c, 0).update(ip="x"), "NIC 0: IP address 'x' is not"),
    ("same address", lambda c: [nic(c, 0).update(ip="10.1.0.1"), nic(c, 1).update(ip="10.1.0.1")], "IP address 10.1.0.1 is used by inst"),
    ("same by default", lambda c: [nic(c, 0).update(ip="10.1.0.1"), nic(c, 1).update(ip="10.1.0.1", nicparams={"link": "xen-br0"})], "IP address 10.1.0.1 is used by instance inst1"),
    ("two nics, one address", lambda c: [nic(c, 0).update(ip="10.1.0.1"), inst(c)["nics"].append({**nic(c, 0), "mac": mac_of(77), "uuid": "n"})], "10.1.0.1 is used by two"),
    ("two nics, one uuid", lambda c: inst(c)["nics"].append({**nic(c, 0), "mac": mac_of(77)}), "UUID"),
    ("nic mode", lambda c: nic(c, 0).update(nicparams={"mode": "x"}), "'x' is not one of bridged"),
    ("memory", lambda c: inst(c).update(beparams={"minmem": 99999}), "minmem (99999 MiB) must not be larger"),
    ("drbd node", lambda c: [drbd(c), c["disks"][DISK0]["logical_id"].__setitem__(1, "x")], "is on node x"),
    ("drbd nodes", lambda c: [drbd(c), c["disks"][DISK0]["logical_id"].__setitem__(1, NODE1)], "both sides are on"),
    ("drbd minor", lambda c: [drbd(c), c["disks"][DISK0]["logical_id"].__setitem__(3, -1)], "minor -1"),
    ("address", lambda c: [c["networks"].update(net=NET), inst(c)["nics"][0].update(network="net", ip="10.0.0.2")], "not reserved in network net"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("template", "place"), [("plain", ["xenvg", "data"]), ("file", ["loop", "/f"])]
)
def test_nodes_have_volumes_and_files_of_the_same_name(template: str, place: list[object]) -> None:
    config = large_config(20, 10, 3)
    on_same(template, place, NODE1, NODE2)(config)
    assert problems(config) == []


@pytest.mark.shows("2.0/candidate/too-few-told", "2.0/interaction/exclusive")
@pytest.mark.parametrize(
    ("change", "text"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_a_problem_is_found(change: Callable[[Config], object], text: str) -> None:
    config = large_config(2)
    config["cluster"]["highest_used_port"] = 11001
    change(config)
    found = problems(config)
    assert any(text in problem for problem in found), found


def test_instances_are_checked_without_parsing_a_map_again(monkeypatch: pytest.MonkeyPatch) -> None:
    config = large_config(3)
    used = "01110" + "0" * 251  # a map of no other test
    config["networks"]["big"] = {
        **NET, "name": "big", "network": "10.0.0.0/24", "uuid": "big", "reservations": used,
        "ext_reservations": None,
    }  # fmt: skip
    for number in range(3):
        nic(config, number).update(network="big", ip=f"10.0.0.{number + 1}")
    view = ConfigState(json.dumps(config).encode()).durable
    parsed: list[str] = []

    def parse(text: str) -> frozenbitarray:
        parsed.append(text)
        return frozenbitarray(text)

    monkeypatch.setattr(pool, "frozenbitarray", parse)
    for _ in range(2):
        for number in range(3):
            assert problems_of(view, (INSTANCES, uuid_of("instance", number))) == []
    assert parsed == [used]


def test_what_many_objects_share_is_told_in_few_words() -> None:
    config = large_config(300)
    for instance in config["instances"].values():
        for nic in instance["nics"]:
            nic["mac"] = "aa:00:00:00:00:01"
    findings = problems(config)
    assert len(findings) >= 300
    assert max(map(len, findings)) < 400
    assert any(" and 294 more as well" in text for text in findings), findings[0]

"""A plan makes a cluster what a file says, changes the least, and leaves nothing to a second one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.desired import document, living
from ganeti.desired.living import (
    Living,
    LivingDisk,
    LivingGroup,
    LivingInstance,
    LivingNetwork,
    LivingNic,
)
from ganeti.desired.plan import Phase, Plan, plan
from ganeti.desired.spec import Spec, read
from ganeti.objects.nic import parse_vlan
from ganeti.objects.parameters import apply_changes
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.registry import encode_opcode

NODES = frozenset({"node1.example.com", "node2.example.com", "node3.example.com"})
EMPTY = Living({"default": LivingGroup("default", "preferred", nodes=NODES)})


def spec_of(text: str) -> Spec:
    spec, problems = read(document.parse(text, "f").value)
    assert not problems
    return spec


def problems_of(text: str, cluster: Living = EMPTY, *, removes: bool = False) -> list[str]:
    found = document.parse(text, "f.yaml")
    spec, problems = read(found.value)
    problems += plan(spec, cluster, removes=removes).problems
    return [each.told(found, "f.yaml") for each in problems]


class Cluster:
    """A slow and obvious cluster that carries opcodes out on records."""

    def __init__(self, start: Living) -> None:
        self.groups = dict(start.groups)
        self.networks = dict(start.networks)
        self.instances = dict(start.instances)

    @property
    def now(self) -> Living:
        return Living(dict(self.groups), dict(self.networks), dict(self.instances))

    def carry_out(self, made: Plan) -> None:
        for step in made.steps:
            for opcode in step.opcodes:
                self.run(opcode)

    def run(self, opcode: OpCode) -> None:
        wire: dict[str, Any] = {
            key: value for key, value in encode_opcode(opcode).items() if value is not None
        }
        getattr(self, wire["OP_ID"].lower())(wire)

    def op_group_add(self, op: dict[str, Any]) -> None:
        name = op["group_name"]
        assert name not in self.groups
        self.groups[name] = LivingGroup(name, "preferred")
        self.op_group_set_params(op)

    def op_group_set_params(self, op: dict[str, Any]) -> None:
        group = self.groups[op["group_name"]]
        disk = {
            name: apply_changes(group.diskparams.get(name, {}), params)
            for name, params in op.get("diskparams", {}).items()
        }
        self.groups[group.name] = replace(
            group,
            alloc_policy=op.get("alloc_policy", group.alloc_policy),
            ndparams=apply_changes(group.ndparams, op.get("ndparams", {})),
            ipolicy=apply_changes(group.ipolicy, op.get("ipolicy", {})),
            diskparams={**group.diskparams, **disk},
        )

    def op_group_assign_nodes(self, op: dict[str, Any]) -> None:
        moved = frozenset(op["nodes"])
        for name, group in self.groups.items():
            nodes = group.nodes - moved
            self.groups[name] = replace(
                group, nodes=nodes | moved if name == op["group_name"] else nodes
            )

    def op_group_remove(self, op: dict[str, Any]) -> None:
        assert not any(op["group_name"] in network.groups for network in self.networks.values())
        assert not self.groups.pop(op["group_name"]).nodes

    def op_network_add(self, op: dict[str, Any]) -> None:
        assert op["network_name"] not in self.networks
        self.networks[op["network_name"]] = LivingNetwork(
            op["network_name"],
            op.get("network"),
            *(op.get(key) for key in ("gateway", "network6", "gateway6", "mac_prefix")),
            reserved=frozenset(op.get("add_reserved_ips", ())),
            tags=frozenset(op.get("tags", ())),
        )

    def op_network_set_params(self, op: dict[str, Any]) -> None:
        network = self.networks[op["network_name"]]
        reserved = network.reserved | set(op.get("add_reserved_ips", ()))
        own = {
            key: op[key] for key in ("gateway", "network6", "gateway6", "mac_prefix") if key in op
        }
        self.networks[network.name] = replace(
            network, reserved=reserved - set(op.get("remove_reserved_ips", ())), **own
        )

    def op_network_connect(self, op: dict[str, Any]) -> None:
        network = self.networks[op["network_name"]]
        assert op["group_name"] in self.groups
        assert op["group_name"] not in network.groups
        vlan = op["network_vlan"] and str(parse_vlan(op["network_vlan"]))
        row = (op["network_mode"], op["network_link"], vlan)
        self.networks[network.name] = replace(
            network, groups={**network.groups, op["group_name"]: row}
        )

    def op_network_disconnect(self, op: dict[str, Any]) -> None:
        network = self.networks[op["network_name"]]
        groups = dict(network.groups)
        del groups[op["group_name"]]
        self.networks[network.name] = replace(network, groups=groups)

    def op_network_remove(self, op: dict[str, Any]) -> None:
        assert not self.networks.pop(op["network_name"]).groups

    def op_instance_create(self, op: dict[str, Any]) -> None:
        assert op["instance_name"] not in self.instances
        assert not (op["start"] and op["no_install"])
        self.instances[op["instance_name"]] = LivingInstance(
            op["instance_name"],
            op.get("os_type", ""),
            op.get("hypervisor", "kvm"),
            op["disk_template"],
            "up" if op["start"] else "down",
            op.get("pnode", "node1.example.com"),
            op.get("snode"),
            apply_changes({}, op["beparams"]),
            apply_changes({}, op["hvparams"]),
            apply_changes({}, op["osparams"]),
            tuple(self._disk(each) for each in op["disks"]),
            tuple(self._nic(LivingNic(mac="aa:00:00:00:00:01"), each) for each in op["nics"]),
            frozenset(op["tags"]),
        )

    @staticmethod
    def _disk(given: Mapping[str, Any]) -> LivingDisk:
        return LivingDisk(given["size"], given.get("mode", "rw"), given.get("name"))

    def _nic(self, nic: LivingNic, given: Mapping[str, Any]) -> LivingNic:
        changed = {key: None if each == "none" else each for key, each in given.items()}
        if changed.get("network"):
            assert changed["network"] in self.networks
        if changed.get("ip") in POOLED:
            changed["ip"] = POOLED[changed["ip"]]
        if changed.get("mac") in ("auto", "generate"):
            changed["mac"] = "aa:00:00:00:00:02"
        if changed.get("vlan"):
            changed["vlan"] = str(parse_vlan(changed["vlan"]))
        changed = {
            key: "" if each is None and key in ("mode", "link", "vlan") else each
            for key, each in changed.items()
        }
        own = {key: each for key, each in changed.items() if key in ("mode", "link", "vlan")}
        return replace(nic, **changed, own={**nic.own, **own})

    def op_instance_set_params(self, op: dict[str, Any]) -> None:
        instance = self.instances[op["instance_name"]]
        if "offline" in op:
            assert instance.admin_state in ("down", "offline")
            state = "offline" if op["offline"] else "down"
            instance = replace(instance, admin_state=state)
        disks, nics = list(instance.disks), list(instance.nics)
        for action, index, asked in op.get("disks", ()):
            if action == "add":
                disks.append(self._disk(asked))
            elif action == "remove":
                del disks[index]
            else:
                name = asked.get("name", disks[index].name)
                mode = asked.get("mode", disks[index].mode)
                disks[index] = LivingDisk(disks[index].size, mode, None if name == "none" else name)
        for action, index, asked in op.get("nics", ()):
            if action == "add":
                nics.append(self._nic(LivingNic(mac="aa:00:00:00:00:03"), asked))
            elif action == "remove":
                del nics[index]
            else:
                nics[index] = self._nic(nics[index], asked)
        self.instances[instance.name] = replace(
            instance,
            os=op.get("os_name", instance.os),
            disks=tuple(disks),
            nics=tuple(nics),
            **{
                key: apply_changes(getattr(instance, key), op.get(key, {}))
                for key in ("beparams", "hvparams", "osparams")
            },
        )

    def op_instance_grow_disk(self, op: dict[str, Any]) -> None:
        instance = self.instances[op["instance_name"]]
        assert op["absolute"]
        disks = list(instance.disks)
        assert op["amount"] > disks[op["disk"]].size
        disks[op["disk"]] = replace(disks[op["disk"]], size=op["amount"])
        self.instances[instance.name] = replace(instance, disks=tuple(disks))

    def _set_state(self, op: dict[str, Any], before: Sequence[str], after: str) -> None:
        instance = self.instances[op["instance_name"]]
        assert instance.admin_state in before
        self.instances[instance.name] = replace(instance, admin_state=after)

    def op_instance_startup(self, op: dict[str, Any]) -> None:
        self._set_state(op, ["down"], "up")

    def op_instance_shutdown(self, op: dict[str, Any]) -> None:
        self._set_state(op, ["up"], "down")

    def op_instance_remove(self, op: dict[str, Any]) -> None:
        del self.instances[op["instance_name"]]

    def _tags(self, op: dict[str, Any], added: Sequence[str], gone: Sequence[str]) -> None:
        kinds = {"instance": self.instances, "network": self.networks, "nodegroup": self.groups}
        objects: dict[str, Any] = kinds[op["kind"]]
        had = objects[op["name"]]
        objects[op["name"]] = replace(had, tags=(had.tags | {*added}) - {*gone})

    def op_tags_set(self, op: dict[str, Any]) -> None:
        self._tags(op, op["tags"], [])

    def op_tags_del(self, op: dict[str, Any]) -> None:
        self._tags(op, [], op["tags"])


def maybe(keys: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=dict(keys))


TAGS = st.lists(st.sampled_from(["a", "b", "c:d"]), unique=True)
ADDRESSES = [f"192.0.2.{number}" for number in range(2, 8)]
GROUPS = maybe(
    {
        "alloc_policy": st.sampled_from(["preferred", "last_resort", "unallocable"]),
        "ndparams": maybe({"spindle_count": st.sampled_from([1, 4, "default"])}),
        "diskparams": maybe({"plain": maybe({"stripes": st.sampled_from([1, 2, "default"])})}),
        "ipolicy": maybe({"vcpu-ratio": st.sampled_from([2.0, 4.0])}),
        "tags": TAGS,
    }
)
CONNECTION = st.fixed_dictionaries(
    {"mode": st.sampled_from(["bridged", "routed"]), "link": st.sampled_from(["br0", "br1"])},
    optional={"vlan": st.sampled_from([7, ".7", "", ":3:4"])},
)
NETWORKS = st.fixed_dictionaries(
    {"network": st.just("192.0.2.0/24"), "gateway": st.just("192.0.2.1")},
    optional={
        "mac_prefix": st.sampled_from(["aa:bb:cc", "AA:bb:dd"]),
        "reserved": st.lists(st.sampled_from(ADDRESSES), unique=True),
        "groups": maybe({"default": CONNECTION, "rack2": CONNECTION}),
        "tags": TAGS,
    },
)
NICS = maybe(
    {
        "mac": st.sampled_from(["auto", "AA:00:00:11:22:33"]),
        "ip": st.sampled_from([None, "192.0.2.9", "198.51.100.1"]),
        "network": st.sampled_from([None, "none", "net1"]),
        "link": st.sampled_from(["br0", "br7"]),
        "vlan": st.sampled_from([12, ".12"]),
        "name": st.sampled_from([None, "lan"]),
    }
)
DISKS = st.fixed_dictionaries(
    {"size": st.just("1g")},
    optional={"mode": st.sampled_from(["rw", "ro"]), "name": st.sampled_from([None, "root"])},
)
INSTANCES = st.fixed_dictionaries(
    {"os": st.sampled_from(["a", "b"]), "disk_template": st.just("plain")},
    optional={
        "hypervisor": st.just("kvm"),
        "beparams": maybe({"memory": st.sampled_from(["1g", 512]), "vcpus": st.just("2")}),
        "hvparams": maybe(
            {"acpi": st.booleans(), "boot_order": st.sampled_from(["cdrom", "default"])}
        ),
        "osparams": maybe({"size": st.sampled_from([3, "x"])}),
        "nics": st.lists(NICS, max_size=3),
        "install": st.booleans(),
        "state": st.sampled_from(["up", "down", "offline"]),
        "tags": TAGS,
    },
)
DOCUMENTS = st.builds(
    lambda groups, networks, instances, sizes: {
        "groups": {"default": {"nodes": sorted(NODES)}, **groups},
        "networks": {"net1": networks["net1"], **networks},
        "instances": {name: {**each, "disks": sizes} for name, each in instances.items()},
    },
    maybe({"rack2": GROUPS}).map(lambda each: {"rack2": {}, **each}),
    st.fixed_dictionaries({"net1": NETWORKS}, optional={"net2": NETWORKS}),
    maybe({"web1.example.com": INSTANCES, "db1.example.com": INSTANCES}),
    st.lists(DISKS, min_size=1, max_size=3),
)


def as_spec(value: object) -> Spec:
    return spec_of(json.dumps(value))  # JSON is YAML


@settings(max_examples=25, deadline=None)
@given(DOCUMENTS, DOCUMENTS)
def test_applied_once_there_is_nothing_left_to_do(first: object, second: object) -> None:
    cluster = Cluster(EMPTY)
    for value in (first, second):
        spec = as_spec(value)
        made = plan(spec, cluster.now, removes=True)
        assert not made.problems
        cluster.carry_out(made)
        again = plan(spec, cluster.now, removes=True)
        assert (again.steps, again.held, again.problems) == ([], [], [])


@settings(max_examples=20, deadline=None)
@given(DOCUMENTS, DOCUMENTS)
def test_nothing_is_removed_unasked(first: object, second: object) -> None:
    cluster = Cluster(EMPTY)
    cluster.carry_out(plan(as_spec(first), cluster.now))
    before = cluster.now
    made = plan(as_spec(second), before)
    assert not any(step.removes for step in made.steps)
    cluster.carry_out(made)
    assert set(before.instances) <= set(cluster.instances)
    assert set(before.networks) <= set(cluster.networks)
    for name, instance in before.instances.items():
        assert len(cluster.instances[name].disks) >= len(instance.disks)
        assert len(cluster.instances[name].nics) >= len(instance.nics)
    again = plan(as_spec(second), cluster.now)
    assert not again.steps
    assert again.held == made.held


@settings(max_examples=20, deadline=None)
@given(DOCUMENTS, st.integers(0, 8))
def test_a_plan_that_was_cut_off_is_completed_by_the_next(value: object, cut: int) -> None:
    spec = as_spec(value)
    cluster, whole = Cluster(EMPTY), Cluster(EMPTY)
    made = plan(spec, EMPTY)
    whole.carry_out(made)
    cluster.carry_out(Plan(made.steps[:cut]))
    cluster.carry_out(plan(spec, cluster.now))
    assert cluster.now == whole.now


@settings(max_examples=20, deadline=None)
@given(DOCUMENTS)
def test_the_file_of_a_cluster_leaves_nothing_to_do(value: object) -> None:
    cluster = Cluster(EMPTY)
    cluster.carry_out(plan(as_spec(value), cluster.now))
    text = document.write(living.export(cluster.now))
    made = plan(spec_of(text), cluster.now, removes=True)
    assert (made.steps, made.held, made.problems) == ([], [], [])


POOLED = {"pool": "192.0.2.77", "pool6": "2001:db8::77"}
WEB = """
instances:
  web1.example.com:
    os: debian
    disk_template: plain
    beparams: {memory: 512}
    disks: [{size: 1g}]
    nics: [{network: none, link: br0}]
    state: up
"""


def applied(text: str) -> Cluster:
    cluster = Cluster(EMPTY)
    cluster.carry_out(plan(spec_of(text), cluster.now))
    return cluster


@pytest.mark.parametrize(
    ("old", "new", "opcodes"),
    [
        ("memory: 512", "memory: 768", ["OP_INSTANCE_SET_PARAMS"]),
        ("size: 1g", "size: 2g", ["OP_INSTANCE_GROW_DISK"]),
        ("state: up", "state: down", ["OP_INSTANCE_SHUTDOWN"]),
        ("state: up", "state: offline", ["OP_INSTANCE_SHUTDOWN", "OP_INSTANCE_SET_PARAMS"]),
        ("state: up", "tags: [x]", ["OP_TAGS_SET"]),
        ("link: br0", "link: br1", ["OP_INSTANCE_SET_PARAMS"]),
        ("web1.example.com:", "web1:", []),
    ],
)
def test_a_changed_file_gives_the_least_jobs(old: str, new: str, opcodes: list[str]) -> None:
    text = WEB.replace(old, new)
    made = plan(spec_of(text), applied(WEB).now)
    assert [encode_opcode(op)["OP_ID"] for step in made.steps for op in step.opcodes] == opcodes
    if "memory" in new:
        [step] = made.steps
        changed = encode_opcode(step.opcodes[0])["beparams"]
        assert changed == {"maxmem": 768, "minmem": 768}
        assert step.texts == ("set maxmem 768 (was 512), minmem 768 (was 512)",)


V6 = """
networks:
  lan: {network6: "2001:db8::/64", reserved: ["2001:db8::10-2001:db8::1f"]}
instances:
  web1.example.com:
    os: debian
    disk_template: plain
    disks: [{size: 1g}]
    nics: [{network: lan, ip: pool6}]
"""


@pytest.mark.parametrize(
    ("old", "new", "texts"),
    [
        ("", "", []),
        ('::10-2001:db8::1f"', '::10-2001:db8::17", "2001:db8::18-2001:db8::1f"', []),
        (
            '::10-2001:db8::1f"',
            '::10-2001:db8::2f"',
            ["set add_reserved_ips ['2001:db8::20-2001:db8::2f']"],
        ),
        ("/64", "/48", ["set network6 2001:db8::/48"]),
        ("ip: pool6", 'ip: "2001:db8::77"', []),
        ("ip: pool6", "ip: pool", []),
    ],
)
def test_addresses_of_ipv6_come_from_a_file(old: str, new: str, texts: list[str]) -> None:
    cluster = applied(V6)
    assert cluster.instances["web1.example.com"].nics[0].ip == POOLED["pool6"]
    made = plan(spec_of(V6.replace(old, new)), cluster.now)
    assert [text for step in made.steps for text in step.texts] == texts


def test_sections_that_a_file_does_not_have_are_left_alone() -> None:
    made = plan(spec_of("groups: {default: {}}"), applied(WEB).now, removes=True)
    assert made.steps == []
    made = plan(spec_of("instances: {}"), applied(WEB).now, removes=True)
    assert [(step.phase, step.name) for step in made.steps] == [
        (Phase.REMOVE_INSTANCES, "web1.example.com")
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- a", "f.yaml:1: expected a mapping with the keys groups, networks, instances"),
        ("nodes: {}", "f.yaml:1: nodes: is unknown; known are: groups, networks, instances"),
        ("groups:\n  a:\n    colour: red", "f.yaml:3: groups.a.colour: is unknown"),
        ("groups: {a: {nodes: [node9]}}", "f.yaml:1: groups.a.nodes.0.: node 'node9' is not known"),
        (
            "groups:\n  a: {nodes: [node1]}\n  b:\n    nodes: [node1.example.com]",
            "f.yaml:4: groups.b.nodes.0.: node 'node1.example.com' is in group a too",
        ),
        ("networks:\n  n: {}", "f.yaml:2: networks.n: network is missing"),
        ("networks: {n: {network: 192.0.2.0}}", "f.yaml:1: networks.n: .*IPv4 network"),
        (
            "networks: {n: {network: 192.0.2.0/24, groups: {x: {mode: bridged, link: b}}}}",
            "f.yaml:1: networks.n.groups.x: node group 'x' is not known",
        ),
        (WEB.replace("512", "lots"), "f.yaml:6: instances.web1.example.com.beparams: .*'lots'"),
        (WEB.replace("1g", "1q"), r"f.yaml:7: instances.web1.example.com.disks\[0\].size: .*1q"),
        (
            WEB.replace("network: none", "network: lan"),
            r"f.yaml:8: instances.web1.example.com.nics\[0\].network: network 'lan' is not known",
        ),
        (
            WEB.replace("os: debian", "tags: []"),
            "f.yaml:3: instances.web1.example.com: os is missing",
        ),
        (WEB.replace("state: up", "state: on"), r"f.yaml:9: .*\.state: .*'on'"),
        (WEB.replace("state: up", "iallocator: hail\n    node: n"), "either nodes or an allocator"),
        (WEB.replace("state: up", "secondary: n"), "needs a primary node"),
        (
            WEB.replace("state: up", "osparams: {release: 24.10}"),
            r"f.yaml:9: .*osparams.release: parameter 'release': expected text, got 24.1; put it",
        ),
        (WEB.replace("state: up", "osparams: {user: , a: b}"), "'user': expected text, got None"),
        (WEB.replace("size: 1g", "name: x"), r"disks\[0\]: size is missing"),
        (WEB.replace("size: 1g", "size: 1g, mode: wo"), r"disks\[0\].mode: expected one of"),
    ],
)
def test_mistakes_are_told_with_line_and_place(text: str, told: str) -> None:
    found = problems_of(text)
    assert len(found) == 1
    assert re.search(told, found[0]), found


OF_NODE = "ganeti:communication:web1.example.com"


@pytest.mark.parametrize(
    ("nics", "removes", "told"),
    [
        ("[{network: lan}, {mac: auto}]", True, []),
        ("[{network: lan}, {mac: auto}, {mac: auto}]", True, ["nic add mac=auto"]),
        ("[]", True, ["nic 2 remove, nic 0 remove"]),
        ("[{network: lan}, {name: other}]", False, ["nic 2 name=other"]),
        (f"[{{network: lan}}, {{name: '{OF_NODE}'}}, {{}}]", False, []),
        (f"[{{}}, {{name: '{OF_NODE}', ip: none}}, {{}}]", False, ["nic 1 ip=none"]),
    ],
)
def test_the_interface_to_the_node_is_not_the_files_unless_it_is_named(
    nics: str, removes: bool, told: list[str]
) -> None:
    """A second interface of a file was made of it, and --remove took it away."""
    lan = LivingNic(mac="aa:00:00:00:00:01", network="lan")
    node = LivingNic(mac="52:54:00:00:00:01", network="talk", ip="169.254.0.1", name=OF_NODE)
    web = LivingInstance(
        *("web1.example.com", "debian", "kvm", "diskless", "up", "node1.example.com"),
        nics=(lan, node, replace(lan, network=None)),
    )
    cluster = replace(
        EMPTY,
        networks={"lan": LivingNetwork("lan"), "talk": LivingNetwork("talk")},
        instances={web.name: web},
    )
    made = plan(
        spec_of(f"instances: {{web1.example.com: {{nics: {nics}}}}}"), cluster, removes=removes
    )
    assert [text for step in made.steps for text in step.texts] == [f"set {each}" for each in told]
    assert made.held == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("size: 1g", "size: 512", "disks do not shrink"),
        ("plain", "drbd", "'gnt-instance modify -t' changes it"),
        ("os: debian", "hypervisor: fake", "is kvm, and cannot be changed"),
    ],
)
def test_what_cannot_be_changed_is_told(old: str, new: str, told: str) -> None:
    [found] = problems_of(WEB.replace(old, new), applied(WEB).now)
    assert told in found


def test_names_that_mean_the_same_object_are_refused() -> None:
    text = WEB + WEB.replace("\ninstances:\n", "").replace("web1.example.com", "web1")
    [found] = problems_of(text, applied(WEB).now)
    assert "'web1.example.com' is the same object" in found


def test_only_instances_and_nodes_have_short_names() -> None:
    """As everywhere: a network that begins like another one is not that one."""
    before = "\nnetworks:\n  lan.old: {network: 192.0.2.0/28}\n"
    both = before + "  lan: {network: 198.51.100.0/28}\n"
    cluster = applied(before)
    found = plan(spec_of(both), cluster.now, removes=False)
    assert (found.problems, [step.name for step in found.steps]) == ([], ["lan"])
    lan = "\nnetworks:\n  lan.old:\n    groups: {DEFAULT: {mode: bridged, link: br0}}\n"
    [told] = problems_of(lan, cluster.now)
    assert "node group 'DEFAULT' is not known" in told

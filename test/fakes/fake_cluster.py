"""A cluster in memory: configuration and nodes with the same signatures as the real clients.

`FakeConfig` answers what WConfD answers and refuses a change whose owner does not hold the lock that
the table of methods asks for.  `FakeRpc` plays all node daemons: it keeps disks, directories and
running instances per node, records every call, and fails where a test tells it to.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ganeti.base.errors import (
    AddressPoolError,
    ErrorCode,
    GenericError,
    JobCanceled,
    OpPrereqError,
    ReservationError,
)
from ganeti.base.paths import Paths
from ganeti.base.text import match_name_component
from ganeti.base.versions import PROTOCOL_VERSION
from ganeti.clients.node_rpc import RpcResult, Target, encode_values
from ganeti.clients.wconfd_stub import WConfStub
from ganeti.clients.wconfd_values import InstanceContext
from ganeti.config.address_pool import AddressPool
from ganeti.config.reservations import Reservations
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.processor import execute_opcode
from ganeti.objects.cluster import Cluster
from ganeti.objects.disk import Disk
from ganeti.objects.instance import Instance
from ganeti.objects.network import Network
from ganeti.objects.node import Node
from ganeti.objects.nodegroup import NodeGroup
from ganeti.opcodes.registry import decode_opcode
from ganeti.protocol.node_rpc import NODE_RPC
from ganeti.protocol.wconfd import WCONFD_METHODS, ClientId, Need

NODE_MEMORY_MIB = 4096
GROUP = "5a6e89c9-26b7-4042-9bf3-000000000000"


def uuid_of(name: str) -> str:
    """Return the same made-up UUID for the same name."""
    return f"00000000-0000-4000-8000-{int.from_bytes(name.encode()[-5:]):012x}"


def make_cluster(**changes: object) -> dict[str, Any]:
    """Return a cluster object; any field can be changed."""
    minmax = {
        "min": dict.fromkeys(_ISPECS, 0) | {"memory-size": 16, "cpu-count": 1},
        "max": dict.fromkeys(_ISPECS, 16) | {"memory-size": 32768, "disk-size": 1048576},
    }
    return {
        "rsahostkeypub": "",
        "highest_used_port": 10999,
        "tcpudp_port_pool": [],
        "mac_prefix": "aa:00:00",
        "reserved_lvs": [],
        "master_node": uuid_of("node1"),
        "master_ip": "192.0.2.100",
        "master_netdev": "lo",
        "master_netmask": 32,
        "use_external_mip_script": False,
        "cluster_name": "cluster.example.com",
        "file_storage_dir": "/srv/ganeti/file-storage",
        "shared_file_storage_dir": "/srv/ganeti/shared-file-storage",
        "gluster_storage_dir": "/var/run/ganeti/gluster",
        "enabled_hypervisors": ["fake", "kvm"],
        "hvparams": {"fake": {"migration_mode": "live"}, "kvm": {}},
        "os_hvp": {},
        "beparams": {"default": {"minmem": 128, "maxmem": 128, "vcpus": 1}},
        "osparams": {},
        "osparams_private_cluster": {},
        "nicparams": {"default": {"mode": "bridged", "link": "br0", "vlan": ""}},
        "ndparams": {},
        "diskparams": {},
        "candidate_pool_size": 10,
        "modify_etc_hosts": False,
        "modify_ssh_setup": False,
        "maintain_node_health": False,
        "uid_pool": [],
        "default_iallocator": "hail",
        "default_iallocator_params": {},
        "hidden_os": [],
        "blacklisted_os": [],
        "primary_ip_family": 2,
        "prealloc_wipe_disks": False,
        "ipolicy": {"minmax": [minmax]},
        "enabled_disk_templates": ["sharedfile", "file", "diskless", "ext"],
        "candidate_certs": {uuid_of("node1"): "AA:BB"},
        "max_running_jobs": 20,
        "max_tracked_jobs": 25,
        "install_image": "",
        "instance_communication_network": "",
        "zeroing_image": "",
        "compression_tools": ["gzip"],
        "enabled_user_shutdown": False,
        "data_collectors": {},
        "ssh_key_type": "rsa",
        "ssh_key_bits": 2048,
        "uuid": uuid_of("cluster"),
        "serial_no": 1,
        "tags": [],
        **changes,
    }


_ISPECS = (
    "memory-size",
    "disk-size",
    "disk-count",
    "cpu-count",
    "nic-count",
    "spindle-use",
)


def make_node(number: int, **changes: object) -> dict[str, Any]:
    """Return the object of node ``node<number>.example.com``; any field can be changed."""
    return {
        "name": f"node{number}.example.com",
        "primary_ip": f"192.0.2.{number}",
        "secondary_ip": f"192.0.2.{number}",
        "master_candidate": True,
        "offline": False,
        "drained": False,
        "group": GROUP,
        "master_capable": True,
        "vm_capable": True,
        "ndparams": {},
        "powered": True,
        "uuid": uuid_of(f"node{number}"),
        "serial_no": 1,
        "tags": [],
        **changes,
    }


def make_group(name: str = "default", uuid: str = GROUP, **changes: object) -> dict[str, Any]:
    """Return a node group; any field can be changed."""
    return {
        "name": name,
        "members": [],
        "ndparams": {},
        "alloc_policy": "preferred",
        "ipolicy": {},
        "diskparams": {},
        "networks": {},
        "uuid": uuid,
        "serial_no": 1,
        "tags": [],
        **changes,
    }


_TABLES = {
    "node": "nodes",
    "nodegroup": "nodegroups",
    "instance": "instances",
    "disk": "disks",
    "network": "networks",
}
_NEEDED_LEVEL = {
    Need.NODE: "node",
    Need.GROUP: "nodegroup",
    Need.INSTANCE: "instance",
    Need.NETWORK: "network",
}


class FakeConfig(WConfStub):
    """The configuration, locks and reservations of a cluster, in memory."""

    def __init__(self, nodes: int = 3, **cluster: object) -> None:
        self.owner = ClientId(7, "/livelock", 1)
        self.cluster = make_cluster(**cluster)
        made = [make_node(number) for number in range(1, nodes + 1)]
        self.nodes = {node["uuid"]: node for node in made}
        self.nodegroups = {GROUP: make_group()}
        self.instances: dict[str, dict[str, Any]] = {}
        self.disks: dict[str, dict[str, Any]] = {}
        self.networks: dict[str, dict[str, Any]] = {}
        self.held: dict[str, str] = {}
        self.lock_history: list[list[tuple[str, str]]] = []
        self.macs: set[str] = set()
        self.ips: set[tuple[str, str]] = set()  # network, address
        self.released: set[tuple[str, str]] = set()
        self.reserved = Reservations()
        self.calls: list[str] = []
        self.failing: dict[str, GenericError] = {}
        self.replication: list[dict[str, Any]] = []
        self.before_grant: list[Callable[[], None]] = []
        self.wait_answers: list[tuple[str, list[ClientId]]] = []
        self.serial = 1

    # The one entrance.

    def _invoke(self, method: str, args: Sequence[object]) -> Any:
        self.calls.append(method)
        if method in self.failing:
            raise self.failing[method]
        row = WCONFD_METHODS[method]
        index = row.client_index
        rest = [arg for number, arg in enumerate(args) if number != index]
        self._check_lock(method, row.needs, rest)
        handler = getattr(self, "do_" + re.sub("([A-Z]+)", r"_\1", method).lower())
        result = handler(*copy.deepcopy(rest))
        if row.result == "serial":
            self.serial += 1
            return (self.serial, 1000.0)
        return result

    def _check_lock(self, method: str, need: Need, args: Sequence[Any]) -> None:
        if need is Need.NONE or self.held.get("cluster/BGL") == "exclusive":
            return
        assert "cluster/BGL" in self.held, f"{method} without the cluster lock"
        if need is Need.BGL:
            return
        if need is Need.DISK:
            names = self._locks_of("disk", args[0])
        elif need is Need.KIND:
            names = self._locks_of(args[0], args[1])
        elif need is Need.OBJECTS:
            names = [name for kind, key, _ in args[0] for name in self._locks_of(kind, key)]
        else:
            level = _NEEDED_LEVEL[need]
            key = args[0]["name"] if isinstance(args[0], dict) else args[0]
            if level == "instance" and key in self.instances:
                key = self.instances[key]["name"]
            names = [f"{level}/{key}"]
        for name in names:
            lockset = name.partition("/")[0] + "/[lockset]"
            modes = (self.held.get(name), self.held.get(lockset))
            assert "exclusive" in modes, f"{method} needs {name} exclusively, held: {self.held}"

    def _locks_of(self, kind: str, key: str) -> list[str]:
        if kind == "cluster":
            return []
        if kind == "disk":
            owners = [i for i in self.instances.values() if key in i["disks"]]
            return [f"instance/{owner['name']}" for owner in owners]
        thing = getattr(self, _TABLES[kind])[key]
        return [f"{kind}/{thing['name'] if kind == 'instance' else key}"]

    # Reads.

    def do_redistribute_config(self) -> None:
        return None

    def do_get_replication_status(self) -> list[dict[str, Any]]:
        return self.replication

    def do_get_cluster(self) -> Cluster:
        return Cluster.from_wire(self.cluster)

    def _many(self, table: Mapping[str, Any], kind: Any, keys: Sequence[str] | None) -> list[Any]:
        if keys is None:
            return [kind.from_wire(wire) for wire in table.values()]
        by_name = {wire.get("name"): wire for wire in table.values()}
        found = [table.get(key) or by_name.get(key) for key in keys]
        return [None if wire is None else kind.from_wire(wire) for wire in found]

    def do_get_nodes(self, keys: Sequence[str] | None) -> list[Any]:
        return self._many(self.nodes, Node, keys)

    def do_get_node_groups(self, keys: Sequence[str] | None) -> list[Any]:
        return self._many(self.nodegroups, NodeGroup, keys)

    def do_get_instances(self, keys: Sequence[str] | None) -> list[Any]:
        return self._many(self.instances, Instance, keys)

    def do_get_disks(self, keys: Sequence[str] | None) -> list[Any]:
        return self._many(self.disks, Disk, keys)

    def do_get_networks(self, keys: Sequence[str] | None) -> list[Any]:
        return self._many(self.networks, Network, keys)

    def do_expand_names(self, kind: str, names: Sequence[str]) -> list[Any]:
        table = getattr(self, _TABLES[kind])
        by_name = {wire["name"]: wire for wire in table.values()}
        found: list[Any] = []
        for name in names:
            full = match_name_component(name, by_name)
            wire = table.get(name) or (by_name[full] if full else None)
            found.append(None if wire is None else (wire["uuid"], wire["name"]))
        return found

    def do_get_instance_context(self, key: str) -> InstanceContext:
        (instance,) = self.do_get_instances([key])
        if instance is None:
            raise OpPrereqError(f"instance {key!r} not found", ErrorCode.NOENT)
        disks = self.do_get_disks(instance.disks)
        uuids = list(dict.fromkeys([instance.primary_node, *(n for d in disks for n in d.nodes)]))
        nodes = self.do_get_nodes(uuids)
        groups = self.do_get_node_groups(list(dict.fromkeys(node.group for node in nodes)))
        networks = self.do_get_networks([nic.network for nic in instance.nics if nic.network])
        return InstanceContext(self.do_get_cluster(), instance, disks, nodes, groups, networks)

    def do_get_node_instances(self, keys: Sequence[str] | None) -> list[Any]:
        return [
            (
                [i["uuid"] for i in self.instances.values() if i["primary_node"] == key],
                [
                    i["uuid"]
                    for i in self.instances.values()
                    if i["primary_node"] != key
                    and any(key in self.disks[d]["nodes"] for d in i["disks"])
                ],
            )
            for key in (self.nodes if keys is None else keys)
        ]

    def do_get_group_members(self, keys: Sequence[str] | None) -> list[Any]:
        answers = []
        for key in self.nodegroups if keys is None else keys:
            members = [uuid for uuid, node in self.nodes.items() if node["group"] == key]
            inside = [u for u, i in self.instances.items() if i["primary_node"] in members]
            answers.append((members, inside))
        return answers

    def do_verify_config(self) -> None:
        return None

    def do_flush_config(self) -> None:
        return None

    def do_get_serial(self) -> tuple[int, float]:
        return (self.serial, 1000.0)

    # Changes.

    def _modify(
        self, table: dict[str, dict[str, Any]], uuid: str, changes: Mapping[str, Any]
    ) -> None:
        thing = table[uuid]
        for name, value in changes.items():
            if value is None:
                thing.pop(name, None)
            else:
                thing[name] = value
        thing["serial_no"] += 1

    def do_modify_cluster(self, changes: Mapping[str, Any]) -> None:
        self._modify({"": self.cluster}, "", changes)

    def do_create_node(self, node: dict[str, Any]) -> None:
        if any(other["name"] == node["name"] for other in self.nodes.values()):
            raise OpPrereqError(f"node {node['name']!r} exists", ErrorCode.EXISTS)
        self.nodes[node["uuid"]] = node

    def do_modify_node(self, uuid: str, changes: Mapping[str, Any]) -> None:
        self._modify(self.nodes, uuid, changes)

    def do_delete_node(self, uuid: str) -> None:
        del self.nodes[uuid]

    def do_create_node_group(self, group: dict[str, Any]) -> None:
        self.nodegroups[group["uuid"]] = group

    def do_modify_node_group(self, uuid: str, changes: Mapping[str, Any]) -> None:
        self._modify(self.nodegroups, uuid, changes)

    def do_delete_node_group(self, uuid: str) -> None:
        del self.nodegroups[uuid]

    def do_create_network(self, network: dict[str, Any]) -> None:
        self.networks[network["uuid"]] = network

    def do_modify_network(self, uuid: str, changes: Mapping[str, Any]) -> None:
        self._modify(self.networks, uuid, changes)

    def do_delete_network(self, uuid: str) -> None:
        del self.networks[uuid]

    def do_create_instance(self, instance: dict[str, Any], disks: list[dict[str, Any]]) -> None:
        if any(other["name"] == instance["name"] for other in self.instances.values()):
            raise OpPrereqError(f"instance {instance['name']!r} exists", ErrorCode.EXISTS)
        self.instances[instance["uuid"]] = instance
        self.disks |= {disk["uuid"]: disk for disk in disks}

    def do_modify_instance(self, uuid: str, changes: Mapping[str, Any]) -> None:
        self._modify(self.instances, uuid, changes)

    def do_put_instance(
        self, uuid: str, instance: dict[str, Any], disks: list[dict[str, Any]]
    ) -> None:
        for disk in self.instances[uuid]["disks"]:
            del self.disks[disk]
        self.instances[uuid] = instance
        self.disks |= {disk["uuid"]: disk for disk in disks}

    def do_delete_instance(self, uuid: str) -> None:
        gone = self.instances.pop(uuid)
        for disk in gone["disks"]:
            del self.disks[disk]
        if gone.get("network_port"):
            self.cluster["tcpudp_port_pool"].append(gone["network_port"])

    def do_modify_disk(self, uuid: str, changes: Mapping[str, Any]) -> None:
        self._modify(self.disks, uuid, changes)

    def do_add_disk(self, instance: str, disk: dict[str, Any], index: int | None) -> None:
        self.disks[disk["uuid"]] = disk
        self.do_attach_disk(instance, disk["uuid"], index)

    def do_attach_disk(self, instance: str, disk: str, index: int | None) -> None:
        disks = self.instances[instance]["disks"]
        disks.insert(len(disks) if index is None else index, disk)
        self._name_disks(disks)

    def do_detach_disk(self, instance: str, disk: str) -> None:
        disks = self.instances[instance]["disks"]
        disks.remove(disk)
        self._name_disks(disks)

    def _name_disks(self, disks: list[str]) -> None:
        for index, disk in enumerate(disks):
            self.disks[disk]["iv_name"] = f"disk/{index}"

    def do_remove_disk(self, instance: str, disk: str) -> None:
        self.do_detach_disk(instance, disk)
        del self.disks[disk]

    def do_modify_objects(self, changes: Sequence[Any]) -> None:
        for kind, uuid, values in changes:
            self._modify(getattr(self, _TABLES[kind]), uuid, values)

    def _tagged(self, kind: str, uuid: str) -> dict[str, Any]:
        found: dict[str, Any] = (
            self.cluster if kind == "cluster" else getattr(self, _TABLES[kind])[uuid]
        )
        return found

    def do_add_tags(self, kind: str, uuid: str, tags: Sequence[str]) -> None:
        thing = self._tagged(kind, uuid)
        thing["tags"] = list(dict.fromkeys([*thing["tags"], *tags]))

    def do_remove_tags(self, kind: str, uuid: str, tags: Sequence[str]) -> None:
        thing = self._tagged(kind, uuid)
        thing["tags"] = [tag for tag in thing["tags"] if tag not in tags]

    def do_set_candidate_cert(self, node_uuid: str, digest: str | None) -> None:
        self.cluster["candidate_certs"].pop(node_uuid, None)
        if digest is not None:
            self.cluster["candidate_certs"][node_uuid] = digest

    def do_maintain_candidate_pool(self, exempt: Sequence[str]) -> dict[str, list[str]]:
        candidates = [u for u, n in self.nodes.items() if n["master_candidate"] and u not in exempt]
        room = self.cluster["candidate_pool_size"] - len(candidates)
        promoted = []
        for uuid, node in self.nodes.items():
            able = node["master_capable"] and not (node["offline"] or node["drained"])
            if room > 0 and able and not node["master_candidate"] and uuid not in exempt:
                node["master_candidate"] = True
                promoted.append(uuid)
                room -= 1
        return {"promoted": promoted, "demoted": []}

    def do_replace_cluster(self, wire: dict[str, Any]) -> tuple[int, float]:
        self.cluster.clear()
        self.cluster.update(wire)
        self.cluster["serial_no"] += 1
        return self.cluster["serial_no"], 1000.0

    def do_prepare_cluster_destruction(self) -> None:
        self.cluster["master_node"] = ""

    # Reservations.

    def _ips_in(self, network: str) -> frozenset[str]:
        """Return the addresses of a network that instances use or jobs hold."""
        used = {
            nic["ip"]
            for instance in self.instances.values()
            for nic in instance["nics"]
            if nic.get("network") == network and nic.get("ip")
        }
        held = {address for where, address in self.ips if where == network}
        return frozenset((used | held) - {a for w, a in self.released if w == network})

    def do_generate_ip(self, network: str) -> str:
        pool = AddressPool(Network.from_wire(self.networks[network]))
        try:
            address = pool.first_free(self._ips_in(network))
        except AddressPoolError as err:
            raise ReservationError(err.message) from err
        self.ips.add((network, address))
        return address

    def do_reserve_ip(self, network: str, address: str, check_external: bool) -> None:
        pool = AddressPool(Network.from_wire(self.networks[network]))
        if address in self._ips_in(network):
            raise ReservationError(f"address {address} is already in use in network {pool.name}")
        if check_external and pool.is_external(address):
            raise ReservationError(f"address {address} is externally reserved")
        self.ips.add((network, address))

    def do_release_ip(self, network: str, address: str) -> None:
        self.released.add((network, address))

    def do_generate_mac(self, network: str | None) -> str:
        prefix = self.networks[network].get("mac_prefix") if network else None
        mac = f"{prefix or 'aa:00:00'}:00:00:{len(self.macs) + 1:02x}"
        self.macs.add(mac)
        return mac

    def do_reserve_mac(self, mac: str) -> None:
        used = {nic["mac"] for instance in self.instances.values() for nic in instance["nics"]}
        if mac in self.macs | used:
            raise ReservationError(f"MAC address {mac} is in use")
        self.macs.add(mac)

    def do_drop_all_reservations(self) -> None:
        self.macs.clear()
        self.ips.clear()
        self.released.clear()
        self.reserved.remove_owner(self.owner)

    @property
    def resources(self) -> list[Any]:
        """What this job has reserved on nodes."""
        mine = self.reserved.amounts.get(self.owner, {})
        return [[node, *amounts] for node, amounts in mine.items()]

    def do_reserve_node_resources(self, wanted: Any, free: Any) -> None:
        self.reserved.reserve_amounts(
            self.owner,
            {node: (memory, disk) for node, memory, disk in wanted},
            {node: (memory, disk) for node, memory, disk in free},
        )

    def do_release_node_resources(self) -> None:
        self.reserved.reserve_amounts(self.owner, {}, {})

    def do_list_node_reservations(self) -> list[Any]:
        return [[owner.to_wire(), *rest] for owner, *rest in self.reserved.listed_amounts()]

    def do_read_config(self) -> dict[str, Any]:
        return {
            "cluster": self.cluster,
            "nodes": self.nodes,
            "nodegroups": self.nodegroups,
            "instances": self.instances,
            "disks": self.disks,
        }

    def do_allocate_instance_port(self) -> int:
        pool = self.cluster["tcpudp_port_pool"]
        if pool:
            return int(pool.pop())
        self.cluster["highest_used_port"] += 1
        return int(self.cluster["highest_used_port"])

    def do_release_instance_port(self, port: int) -> None:
        assert port not in self.cluster["tcpudp_port_pool"]
        self.cluster["tcpudp_port_pool"].append(port)

    # Locks.

    def do_wait_locks(
        self, _priority: int, request: list[tuple[str, str]], _timeout_s: float
    ) -> tuple[str, list[ClientId]]:
        if self.wait_answers:
            return self.wait_answers.pop(0)
        if self.before_grant:
            self.before_grant.pop(0)()
        self.lock_history.append(request)
        self.held |= dict(request)
        return "granted", []

    def do_free_locks(self) -> None:
        self.held.clear()

    def do_free_locks_level(self, level: str) -> None:
        self.held = {n: m for n, m in self.held.items() if not n.startswith(level + "/")}

    def do_list_all_locks_owners(self) -> list[Any]:
        return []

    # What tests look at.

    def instance(self, name: str) -> dict[str, Any]:
        """Return the instance of that name."""
        (found,) = (i for i in self.instances.values() if i["name"] == name)
        return found

    def node(self, number: int) -> dict[str, Any]:
        """Return a node's object."""
        return self.nodes[uuid_of(f"node{number}")]


class FakeNode:
    """What is on one node."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.disks: set[str] = set()
        self.data: dict[str, str] = {}  # disk -> what is in it, "" when it is new
        self.directories: set[str] = set()
        self.running: dict[str, int] = {}  # instance -> state, 0 running, 1 stopped
        self.receiving: set[str] = set()
        self.memory: dict[str, int] = {}  # of those whose memory was changed
        self.plugged: dict[str, list[tuple[str, str, str]]] = {}  # instance -> changes while up
        self.snapshots: dict[str, dict[str, str]] = {}  # instance -> disk's UUID -> its path
        self.files: dict[str, object] = {}
        self.has_left = False


Failure = Callable[[str, str, Sequence[Any]], str | None]


class FakeRpc:
    """All node daemons of a cluster."""

    def __init__(self) -> None:
        self.nodes: dict[str, FakeNode] = {}
        self.calls: list[tuple[str, str, list[Any]]] = []  # node, call, arguments
        self.failure: Failure = lambda _node, _call, _args: None
        self.lost_answer: Failure = lambda _node, _call, _args: None
        self.hook_results: dict[str, list[Any]] = {}
        self.migration_states: list[dict[str, Any]] = []
        self.transfers: dict[str, tuple[FakeNode, str]] = {}  # name -> disk of a node
        self.transfer_error: str | None = None
        self.providers: list[Any] = []
        self.devices: dict[str, int] = {}
        self.shared: set[str] = set()  # disks on storage that all nodes see
        self.os_list: dict[str, list[Any]] = {}
        self.version: object = PROTOCOL_VERSION
        self.verify_answers: dict[str, Any] = {}
        self.has_ip = True
        self.answers: dict[str, Any] = {}  # of calls that nothing here plays
        # allocators by name: question and options to what is printed
        self.allocators: dict[str, Callable[[dict[str, Any], dict[str, Any]], str]] = {}

    def node(self, name: str) -> FakeNode:
        """Return a node, making it when it is asked for the first time."""
        if "." not in name:
            name += ".example.com"
        return self.nodes.setdefault(name, FakeNode(name))

    def fail(self, call: str, node: str | None = None, text: str = "it broke") -> None:
        """Let every such call fail."""
        self.failure = lambda where, name, _args: (
            text if name == call and node in (None, where, where.partition(".")[0]) else None
        )

    # The client's two methods.

    def call(self, name: str, targets: Mapping[Target, Sequence[object]]) -> dict[str, RpcResult]:
        """Make one call on many nodes."""
        return {
            target.name: self._one(name, target, list(args)) for target, args in targets.items()
        }

    def single(self, name: str, target: Target, *args: object) -> RpcResult:
        """Make one call on one node."""
        return self._one(name, target, list(args))

    def _one(self, call: str, target: Target, args: list[Any]) -> RpcResult:
        if target.offline and call not in ("version", "node_powercycle"):
            return RpcResult(target.name, error="node is marked offline", offline=True)
        args = json.loads(json.dumps(encode_values(NODE_RPC[call], args)))
        assert len(args) == len(NODE_RPC[call].arguments), call
        self.calls.append((target.name, call, args))
        refused = self.failure(target.name, call, args)
        if refused is not None:
            return RpcResult(target.name, error=refused)
        try:
            payload = self._play(call, self.node(target.name), copy.deepcopy(args))
        except GenericError as err:
            return RpcResult(target.name, error=err.message)
        lost = self.lost_answer(target.name, call, args)
        return RpcResult(target.name, None if lost else payload, lost)

    def _play(self, call: str, node: FakeNode, args: list[Any]) -> Any:
        played = getattr(self, "do_" + call, None)
        return self.answers.get(call) if played is None else played(node, *args)

    def called(self, call: str) -> list[tuple[str, list[Any]]]:
        """Return (short node name, arguments) of each such call."""
        return [(n.partition(".")[0], args) for n, name, args in self.calls if name == call]

    def names(self) -> list[str]:
        """Return the names of all calls in order."""
        return [name for _, name, _ in self.calls]

    # What the node daemons do.

    def do_version(self, _node: FakeNode) -> object:
        return self.version

    def do_test_delay(self, _node: FakeNode, _duration: float) -> None:
        return None

    def do_hooks_runner(self, node: FakeNode, path: str, phase: str, _env: Any) -> list[Any]:
        return self.hook_results.get(f"{node.name.partition('.')[0]}:{path}-{phase}", [])

    def do_node_info(self, node: FakeNode, _units: Any, hypervisors: list[Any]) -> list[Any]:
        used = 128 * len(node.running)
        return [
            "boot",
            [],
            [{"memory_total": NODE_MEMORY_MIB, "memory_free": NODE_MEMORY_MIB - used}]
            * len(hypervisors),
        ]

    def do_iallocator_runner(
        self, _node: FakeNode, name: str, question: str, options: dict[str, Any]
    ) -> str:
        if name not in self.allocators:
            raise GenericError(f"iallocator {name!r} is not in /usr/lib/ganeti/iallocators")
        return self.allocators[name](json.loads(question), options)

    def do_node_verify(self, node: FakeNode, checks: Any, _name: str, _params: Any) -> Any:
        number = node.name.partition(".")[0].removeprefix("node")
        return {
            "version": [PROTOCOL_VERSION, "3.0.2"],
            "time": [1000, 0],
            "client-cert": [None, f"D{number}"],
            "filelist": {},
            "hypervisor": {},
            **self.verify_answers,
        }

    def do_node_crypto_tokens(self, node: FakeNode, request: list[Any]) -> list[Any]:
        return [["ssl", f"DIGEST:{node.name}"] for _ in request]

    def do_node_has_ip_address(self, _node: FakeNode, _address: str) -> bool:
        return self.has_ip

    def do_node_leave_cluster(self, node: FakeNode, _ssh: bool) -> None:
        node.has_left = True

    def do_node_demote_from_mc(self, _node: FakeNode) -> None:
        return None

    def do_node_deactivate_master_ip(self, _node: FakeNode, _params: Any, _script: bool) -> None:
        return None

    def do_node_activate_master_ip(self, _node: FakeNode, _params: Any, _script: bool) -> None:
        return None

    def do_etc_hosts_modify(self, _node: FakeNode, _mode: str, _name: str, _ip: Any) -> bool:
        return True

    def do_upload_file(self, node: FakeNode, details: Any) -> None:
        node.files[details[0]] = details

    def do_hypervisor_validate_params(self, _node: FakeNode, _name: str, _params: Any) -> None:
        return None

    def do_os_validate(self, _node: FakeNode, *_args: Any) -> bool:
        return True

    def do_os_diagnose(self, node: FakeNode) -> list[Any]:
        return self.os_list.get(node.name.partition(".")[0], [])

    def do_bridges_exist(self, _node: FakeNode, _bridges: list[str]) -> None:
        return None

    def do_file_storage_dir_create(self, node: FakeNode, path: str) -> None:
        node.directories.add(path)

    def do_file_storage_dir_remove(self, node: FakeNode, path: str) -> None:
        node.directories.discard(path)

    def do_file_storage_dir_rename(self, node: FakeNode, old: str, new: str) -> None:
        node.directories.discard(old)
        node.directories.add(new)
        for place in (node.disks, self.shared):
            for path in [path for path in place if path.startswith(f"{old}/")]:
                place.remove(path)
                place.add(new + path.removeprefix(old))
                node.data[new + path.removeprefix(old)] = node.data.pop(path, "")

    def _place(self, node: FakeNode, disk: Mapping[str, Any]) -> set[str]:
        return node.disks if disk["dev_type"] == "file" else self.shared

    def do_blockdev_create(self, node: FakeNode, disk: Any, *_args: Any) -> None:
        if disk["logical_id"][1] in self._place(node, disk):
            raise GenericError(f"disk {disk['logical_id'][1]} exists")
        self._place(node, disk).add(disk["logical_id"][1])
        node.data[disk["logical_id"][1]] = ""

    def do_blockdev_remove(self, node: FakeNode, disk: Any) -> None:
        self._place(node, disk).discard(disk["logical_id"][1])
        node.data.pop(disk["logical_id"][1], None)

    def do_blockdev_grow(self, node: FakeNode, disk: Any, *_args: Any) -> None:
        self._must_have(node, disk)

    def do_extstorage_diagnose(self, _node: FakeNode) -> list[Any]:
        return self.providers

    def do_bdev_sizes(self, _node: FakeNode, paths: list[str]) -> dict[str, int]:
        return {path: self.devices[path] for path in paths if path in self.devices}

    def do_import_start(
        self, node: FakeNode, _opts: Any, _instance: Any, _component: str, dest: Any
    ) -> str:
        name = f"import-{len(self.transfers)}"
        self.transfers[name] = (node, self._end(node, dest))
        return name

    def _end(self, node: FakeNode, io: Any) -> str:
        """Return the path of what one end of a transfer is."""
        kind, args = io
        if kind == "file":
            return str(args[0])
        if kind == "snapshot":
            found = {uuid: path for kept in node.snapshots.values() for uuid, path in kept.items()}
            return found[args[0]]
        self._must_have(node, args[0])
        return str(args[0]["logical_id"][1])

    def do_export_start(self, node: FakeNode, *args: Any) -> str:
        _opts, _host, port, _instance, _component, source = args
        name = f"export-{len(self.transfers)}"
        path = self._end(node, source)
        self.transfers[name] = (node, path)
        if self.transfer_error is None:
            into, into_path = self.transfers[f"import-{port}"]
            into.data[into_path] = node.data.get(path, "")
        return name

    def do_impexp_status(self, _node: FakeNode, names: list[str]) -> list[Any]:
        return [
            {
                "exit_status": 0 if self.transfer_error is None else 1,
                "error_message": self.transfer_error,
                "listen_port": int(name.rpartition("-")[2]),
                "progress_percent": 100.0,
            }
            for name in names
        ]

    def do_impexp_cleanup(self, _node: FakeNode, name: str) -> None:
        del self.transfers[name]

    def do_blockdev_rename(self, node: FakeNode, pairs: list[Any]) -> None:
        for disk, new_id in pairs:
            self.do_blockdev_remove(node, disk)
            self._place(node, disk).add(new_id[1])

    def do_blockdev_assemble(
        self, node: FakeNode, disk: Any, _instance: Any, _primary: bool, _index: int
    ) -> list[Any]:
        self._must_have(node, disk)
        return [disk["logical_id"][1], None, None]

    def _must_have(self, node: FakeNode, disk: Any) -> None:
        if disk["logical_id"][1] not in self._place(node, disk):
            raise GenericError(f"disk {disk['logical_id'][1]} is not there")

    def do_blockdev_shutdown(self, _node: FakeNode, _disk: Any) -> None:
        return None

    def do_blockdev_wipe(self, _node: FakeNode, _disk: Any, _offset: int, _size: int) -> None:
        return None

    def do_blockdev_find(self, node: FakeNode, disk: Any) -> Any:
        there = disk["logical_id"][1] in self._place(node, disk)
        return {"dev_path": disk["logical_id"][1], "ldisk_status": 1} if there else None

    def do_blockdev_getmirrorstatus_multi(self, node: FakeNode, disks: list[Any]) -> list[Any]:
        found = [self.do_blockdev_find(node, disk) for disk in disks]
        return [[False, "it is not there"] if one is None else [True, one] for one in found]

    def do_storage_list(self, node: FakeNode, *args: Any) -> list[list[Any]]:
        _kind, directories, name, fields = args
        values = {"allocatable": True, "free": 7, "size": 9, "used": 2}
        return [
            [(values | {"name": path})[field] for field in fields]
            for path in directories[0]
            if name in (None, path)
        ]

    def do_blockdev_getdimensions(self, _node: FakeNode, disks: list[Any]) -> list[Any]:
        return [[disk["size"] << 20, None] for disk in disks]

    def do_instance_os_add(self, node: FakeNode, instance: Any, _again: bool, _debug: int) -> None:
        for disk in instance["disks_info"]:
            self._must_have(node, disk)

    def do_instance_run_rename(self, *_args: Any) -> None:
        return None

    def do_instance_info(self, node: FakeNode, name: str, _hv: str, _params: Any) -> Any:
        if name not in node.running:
            return {}
        memory_mib = node.memory.get(name, 128)
        return {"memory": memory_mib, "vcpus": 1, "state": node.running[name], "time": 1.0}

    def do_all_instances_info(self, node: FakeNode, _names: Any, _params: Any) -> Any:
        return {name: self.do_instance_info(node, name, "", {}) for name in node.running}

    def do_instance_list(self, node: FakeNode, _names: Any, _params: Any) -> list[str]:
        return sorted(node.running)

    def do_instance_start(self, node: FakeNode, instance: Any, _paused: bool, _reason: Any) -> None:
        for disk in instance["disks_info"]:
            self._must_have(node, disk)
        node.running[instance["name"]] = 0

    def do_instance_shutdown(self, node: FakeNode, instance: Any, _timeout: int, _why: Any) -> None:
        node.running.pop(instance["name"], None)

    def do_instance_balloon_memory(self, node: FakeNode, instance: Any, memory: int) -> None:
        if instance["name"] not in node.running:
            raise GenericError("it does not run here")
        node.memory[instance["name"]] = memory

    def do_hotplug_supported(self, node: FakeNode, instance: Any) -> None:
        if node.running.get(instance["name"]) != 0:
            raise GenericError("it does not run here")

    def do_instance_snapshot_supported(self, node: FakeNode, instance: Any) -> None:
        self.do_hotplug_supported(node, instance)

    def do_instance_snapshot(self, node: FakeNode, instance: Any) -> None:
        self.do_hotplug_supported(node, instance)
        paths = {disk["uuid"]: disk["logical_id"][1] for disk in instance["disks_info"]}
        node.snapshots[instance["name"]] = paths

    def do_instance_snapshot_drop(self, node: FakeNode, instance: Any) -> None:
        node.snapshots.pop(instance["name"], None)

    def do_hotplug_device(self, node: FakeNode, instance: Any, *change: Any) -> str:
        action, kind, device, _extra, _seq = change
        self.do_hotplug_supported(node, instance)
        plugged = node.plugged.setdefault(instance["name"], [])
        plugged.append((action, kind, device["uuid"]))
        return "pci.0/0xc"

    def do_instance_reboot(self, node: FakeNode, instance: Any, *_args: Any) -> None:
        if instance["name"] not in node.running:
            raise GenericError("it does not run")

    def do_instance_console_info(self, _node: FakeNode, instances: Mapping[str, Any]) -> Any:
        return {name: {"instance": name, "kind": "msg", "message": "hello"} for name in instances}

    def do_instance_migratable(self, node: FakeNode, instance: Any) -> None:
        if node.running.get(instance["name"]) != 0:
            raise GenericError("it does not run here")

    def do_migration_info(self, _node: FakeNode, instance: Any) -> str:
        return f"info of {instance['name']}"

    def do_accept_instance(self, node: FakeNode, instance: Any, _info: str, target: str) -> str:
        node.receiving.add(instance["name"])
        return f"{target}:8102"

    def do_instance_migrate(
        self, node: FakeNode, _cluster: str, instance: Any, _target: str, _live: bool
    ) -> None:
        if node.running.get(instance["name"]) != 0:
            raise GenericError("it does not run here")

    def do_instance_get_migration_status(self, node: FakeNode, instance: Any) -> Any:
        state = self.migration_states.pop(0) if self.migration_states else {"status": "completed"}
        if state["status"] == "completed":
            node.running[instance["name"]] = 1
        return state

    def do_instance_finalize_migration_dst(
        self, node: FakeNode, instance: Any, _info: str, success: bool
    ) -> None:
        if instance["name"] in node.receiving and success:
            node.running[instance["name"]] = 0
        node.receiving.discard(instance["name"])

    def do_instance_finalize_migration_src(
        self, node: FakeNode, instance: Any, success: bool, _live: bool
    ) -> None:
        if success:
            node.running.pop(instance["name"], None)
        elif instance["name"] in node.running:
            node.running[instance["name"]] = 0


class FakeCluster:
    """Configuration, nodes and a job to work with."""

    def __init__(self, root: str, nodes: int = 3, **cluster: object) -> None:
        self.config = FakeConfig(nodes, **cluster)
        self.rpc = FakeRpc()
        self.messages: list[str] = []
        self.waits: list[float] = []
        self.clock = 1000.0
        self.cancel_after: int | None = None  # number of checks and waits until canceled
        self.jobs: list[Any] = []
        self._uuids = 0
        self.context = self._context(root)

    def _context(self, root: str) -> JobContext:
        return JobContext(
            paths=Paths(root),
            job_id=7,
            config=self.config,
            rpc=self.rpc,  # type: ignore[arg-type]  # plays the same part
            feedback=lambda message, kind="message": self.messages.append(str(message)),
            check_canceled=self._check_canceled,
            wait=self._wait,
            submit_jobs=self._submit,
            interruptible=self._interruptible,
            now=lambda: self.clock,
            monotonic=lambda: self.clock,
            new_uuid=self._new_uuid,
        )

    def _check_canceled(self) -> None:
        if self.cancel_after is not None:
            self.cancel_after -= 1
            if self.cancel_after < 0:
                raise JobCanceled("Job canceled by request")

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """The request to cancel may come before a call, or while it is waited for."""
        self._check_canceled()
        yield
        self._check_canceled()

    def _wait(self, seconds: float) -> None:
        self._check_canceled()
        self.waits.append(seconds)
        self.clock += seconds

    def _submit(self, jobs: Sequence[Sequence[Any]]) -> list[int]:
        self.jobs.extend(jobs)
        return list(range(100, 100 + len(jobs)))

    def _new_uuid(self) -> str:
        self._uuids += 1
        return f"10000000-0000-4000-8000-{self._uuids:012x}"

    def execute(self, op_id: str, **params: object) -> Any:
        """Carry out one opcode."""
        return execute_opcode(self.context, decode_opcode({"OP_ID": op_id, **params}))

    def add_instance(self, name: str = "web1.example.com", **params: object) -> dict[str, Any]:
        """Make an instance and return its object; forget what was said and called for it."""
        values: dict[str, object] = {
            "instance_name": name,
            "mode": "create",
            "disk_template": "sharedfile",
            "disks": [{"size": 1024}],
            "nics": [{}],
            "os_type": "debian",
            "pnode": "node1",
            "name_check": False,
            "ip_check": False,
        }
        wanted = {name: value for name, value in {**values, **params}.items() if value is not None}
        self.execute("OP_INSTANCE_CREATE", **wanted)
        self.rpc.calls.clear()
        self.config.calls.clear()
        self.config.lock_history.clear()
        self.messages.clear()
        return self.config.instance(name)

    def said(self, part: str) -> bool:
        """Tell whether the job's log has a message with that text in it."""
        return any(part in message for message in self.messages)

    def leftovers(self) -> list[str]:
        """Return everything that is in the configuration or on a node besides the nodes."""
        left: list[str] = [*self.config.instances, *self.config.disks, *self.rpc.shared]
        for node in self.rpc.nodes.values():
            parts: Iterable[str] = (*node.disks, *node.directories, *node.running, *node.receiving)
            left += [f"{node.name}: {part}" for part in parts]
        left += [*self.config.macs, *self.config.held, *map(str, self.config.resources)]
        return left

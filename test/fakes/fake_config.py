"""The configuration in memory: answers what WConfD answers.

It refuses a change whose owner does not hold the lock that the table of methods asks for.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fakes.fake_records import GROUP, make_cluster, make_group, make_node, uuid_of

from ganeti.base.errors import (
    AddressPoolError,
    ErrorCode,
    GenericError,
    OpPrereqError,
    ReservationError,
)
from ganeti.base.text import match_name_component
from ganeti.clients.wconfd_stub import WConfStub
from ganeti.clients.wconfd_values import InstanceContext
from ganeti.config.address_pool import AddressPool
from ganeti.config.reservations import Reservations
from ganeti.objects.cluster import Cluster
from ganeti.objects.disk import Disk
from ganeti.objects.instance import Instance
from ganeti.objects.network import Network
from ganeti.objects.node import Node
from ganeti.objects.nodegroup import NodeGroup
from ganeti.protocol.wconfd import WCONFD_METHODS, ClientId, Need

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

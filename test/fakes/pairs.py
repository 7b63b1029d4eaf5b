"""Clusters whose instances have their disks on two nodes."""

from __future__ import annotations

from typing import Any

from fakes.fake_cluster import FakeCluster
from msgspec.structs import force_setattr

from ganeti.objects.disk_templates import DiskTemplate
from ganeti.storage.interface import Link

NAME = "web1.example.com"
VG = "xenvg"
TEMPLATES = ("drbd", "plain", "file", "sharedfile", "diskless")


def pair_cluster(root: str, nodes: int = 4) -> FakeCluster:
    """Return a cluster with volume groups, and a network for copies of its own."""
    for template in (DiskTemplate.PLAIN, DiskTemplate.DRBD):
        if template.traits.driver is None:
            force_setattr(template.traits, "driver", "played:in_memory")
    cluster = FakeCluster(root, nodes, enabled_disk_templates=list(TEMPLATES), volume_group_name=VG)
    for number in range(1, nodes + 1):
        cluster.config.node(number)["secondary_ip"] = f"198.51.100.{number}"
    return cluster


def add_pair(cluster: FakeCluster, **params: Any) -> dict[str, Any]:
    """Make an instance on node1 whose disk has a copy on node2."""
    values = {"disk_template": "drbd", "pnode": "node1", "snode": "node2"}
    return cluster.add_instance(**{**values, **params})


def nodes_of(cluster: FakeCluster, name: str = NAME) -> list[str]:
    """Return the short names of the nodes in the configuration, the primary first."""
    instance = cluster.config.instance(name)
    uuids = [instance["primary_node"]]
    for disk in instance["disks"]:
        uuids += [uuid for uuid in cluster.config.disks[disk]["nodes"] if uuid not in uuids]
    return [cluster.config.nodes[uuid]["name"].partition(".")[0] for uuid in uuids]


def volumes(cluster: FakeCluster) -> dict[str, list[str]]:
    """Return {short name of a node: its volumes} of the nodes that have any."""
    return {
        name.partition(".")[0]: sorted(node.disks)
        for name, node in sorted(cluster.rpc.nodes.items())
        if node.disks
    }


def sides(cluster: FakeCluster) -> dict[str, list[str]]:
    """Return {short name of a node: its sides of mirrors in words} of the nodes that have any."""
    return {
        name.partition(".")[0]: [
            f"{'Primary' if side.is_primary else 'Secondary'} {side.link}"
            f" {'complete' if side.is_complete else 'incomplete'}"
            + (" dual" if side.is_dual else "")
            for _minor, side in sorted(node.sides.items())
        ]
        for name, node in sorted(cluster.rpc.nodes.items())
        if node.sides
    }


UP = {"node1": ["Primary connected complete"], "node2": ["Secondary connected complete"]}


def guests(cluster: FakeCluster) -> list[str]:
    """Return the short names of the nodes where the guest runs."""
    return [
        name.partition(".")[0]
        for name, node in cluster.rpc.nodes.items()
        if node.running.get(NAME) == 0
    ]


def data_on(cluster: FakeCluster, node: str) -> str:
    """Return what the volume of the first disk on a node has."""
    found = cluster.rpc.node(node)
    [name] = [name for name in found.disks if name.endswith("_data")]
    return found.data[name]


def lose(cluster: FakeCluster, number: int, *, offline: bool = True) -> None:
    """Cut the power of a node, which is marked offline; another one is the master then."""
    cluster.rpc.node(f"node{number}").cut_power()
    cluster.config.node(number)["offline"] = offline
    cluster.config.cluster["master_node"] = cluster.config.node(4)["uuid"]


def cut_link(cluster: FakeCluster) -> None:
    """Let no side reach its other one any more; the nodes answer."""
    cluster.rpc.is_link_cut = True
    for node in cluster.rpc.nodes.values():
        for side in node.sides.values():
            if side.peer is not None:
                side.part(Link.WAITING)

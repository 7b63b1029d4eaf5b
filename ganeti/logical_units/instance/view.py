"""An instance with all that it refers to, in the form that nodes get it and hooks are told it.

Source: hooks_os_ext.json, "instance_env".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from msgspec import structs

from ganeti.base.ids import NodeUuid
from ganeti.objects.disk_templates import DiskTemplate, Traits, traits_of_all
from ganeti.objects.fill import cluster_hvparams, fill_beparams, fill_hvparams, fill_nicparams
from ganeti.objects.model import (
    Cluster,
    Disk,
    Instance,
    Network,
    Node,
    NodeGroup,
    network_variables,
)
from ganeti.objects.nic import NIC, NicMode
from ganeti.objects.record import PrivateParams
from ganeti.objects.rpc_instance import (
    RpcDisk,
    RpcInstance,
    build_rpc_disk,
    build_rpc_instance,
    disk_template,
)
from ganeti.protocol.wconfd import InstanceContext


def is_planned(instance: Instance, disks: Sequence[Disk]) -> bool:
    """Tell whether an instance is only planned, so that no node has anything of it yet."""
    return instance.forthcoming and all(disk.forthcoming for disk in disks)


def changed_fields(before: Instance | Disk, after: Instance | Disk) -> dict[str, object]:
    """Return the fields of an object that change, in their form on the wire."""
    old, new = before.to_wire(), after.to_wire()
    names = sorted(old.keys() | new.keys())
    return {name: new.get(name) for name in names if old.get(name) != new.get(name)}


@dataclass(frozen=True, slots=True)
class InstanceView:
    """An instance with all that it refers to, as of one instant, in the form that nodes get it.

    Attributes:
        nodes: the primary node, then the secondary ones.
    """

    cluster: Cluster
    instance: Instance
    disks: list[Disk]
    nodes: list[Node]
    groups: list[NodeGroup]
    networks: Mapping[str, Network]

    @classmethod
    def of(cls, found: InstanceContext) -> Self:
        """Make it from WConfD's answer."""
        networks = {str(network.uuid): network for network in found.networks}
        return cls(found.cluster, found.instance, found.disks, found.nodes, found.groups, networks)

    def with_instance(self, instance: Instance, disks: list[Disk] | None = None) -> Self:
        """Return the same with the instance, and perhaps its disks, changed."""
        changed = replace(self, instance=instance)
        return changed if disks is None else replace(changed, disks=disks)

    def with_nodes(self, *nodes: Node) -> Self:
        """Return the same with more nodes that get its disks, after those that it has."""
        known = {node.uuid for node in self.nodes}
        return replace(self, nodes=[*self.nodes, *(n for n in nodes if n.uuid not in known)])

    def moved_to(self, node: Node, group: NodeGroup) -> Self:
        """Return the same as it is on another primary node: disks as that one's group has them."""
        others = (each for each in self.nodes if each.uuid != node.uuid)
        return replace(self, nodes=[node, *others], groups=[group, *self.groups])

    @property
    def name(self) -> str:
        """The name of the instance."""
        return self.instance.name

    @property
    def primary(self) -> Node:
        """The primary node."""
        return self.nodes[0]

    @property
    def group(self) -> NodeGroup:
        """The group of the primary node."""
        return next(group for group in self.groups if group.uuid == self.primary.group)

    @property
    def template(self) -> str:
        """The disk template, "mixed" if its disks are of several."""
        return disk_template(self.disks)

    @property
    def templates(self) -> list[str]:
        """The disk templates, each once."""
        return list(dict.fromkeys(disk.dev_type for disk in self.disks))

    @property
    def traits(self) -> Traits:
        """The traits of the disk template; of several templates those of the weakest."""
        return traits_of_all(disk.dev_type for disk in self.disks)

    @property
    def needs_own_nodes(self) -> bool:
        """Whether it can run on its own nodes only: a disk has its copy on one of them."""
        return any(disk.traits.mirrored for disk in self.disks)

    def described(self) -> dict[str, object]:
        """Return the argument of the calls about its console and its guest."""
        return {
            "instance": self.instance.to_wire(),
            "node": self.primary.to_wire(),
            "group": self.group.to_wire(),
            "hvParams": fill_hvparams(self.cluster, self.instance),
            "beParams": {**fill_beparams(self.cluster, self.instance)},
        }

    @property
    def own_hvparams(self) -> dict[str, object]:
        """The cluster's filled parameters of the instance's hypervisor."""
        return cluster_hvparams(self.cluster).get(self.instance.hypervisor, {})

    @property
    def is_planned(self) -> bool:
        """Whether no node has anything of it yet."""
        return is_planned(self.instance, self.disks)

    @property
    def secondary_ips(self) -> dict[NodeUuid, str]:
        """The addresses that its nodes replicate disks over."""
        return {node.uuid: node.secondary_ip for node in self.nodes}

    def wire(
        self,
        node: Node,
        *,
        primary_node: NodeUuid | None = None,
        hvp: Mapping[str, object] | None = None,
        bep: Mapping[str, object] | None = None,
        osp: PrivateParams | Mapping[str, object] | None = None,
    ) -> RpcInstance:
        """Return the instance as a node gets it, perhaps as if it had another primary node.

        Args:
            node: the node that gets it; a disk with a copy looks different from each side.
        """
        instance = self.instance
        if primary_node is not None:
            instance = structs.replace(instance, primary_node=primary_node)
        return build_rpc_instance(
            self.cluster,
            self.group,
            instance,
            self.disks,
            networks=self.networks,
            secondary_ips=self.secondary_ips,
            node_uuid=node.uuid,
            hvp=hvp,
            bep=bep,
            osp=osp,
        )

    def disk_wire(self, disk: Disk, node: Node) -> RpcDisk:
        """Return a disk as a node gets it."""
        return build_rpc_disk(
            self.cluster, self.group, disk, node_uuid=node.uuid, secondary_ips=self.secondary_ips
        )

    def env(self) -> dict[str, object]:
        """Return the values that hooks are told about every instance."""
        cluster, instance, disks = self.cluster, self.instance, self.disks
        beparams = fill_beparams(cluster, instance)
        env: dict[str, object] = {
            "OP_TARGET": instance.name,
            "INSTANCE_NAME": instance.name,
            "INSTANCE_PRIMARY": self.primary.name,
            "INSTANCE_SECONDARIES": " ".join(node.name for node in self.nodes[1:]),
            "INSTANCE_OS_TYPE": instance.os,
            "INSTANCE_STATUS": instance.admin_state.value,
            "INSTANCE_MINMEM": beparams["minmem"],
            "INSTANCE_MAXMEM": beparams["maxmem"],
            "INSTANCE_MEMORY": beparams["maxmem"],
            "INSTANCE_VCPUS": beparams["vcpus"],
            "INSTANCE_DISK_TEMPLATE": self.template,
            "INSTANCE_HYPERVISOR": instance.hypervisor,
            "INSTANCE_TAGS": " ".join(instance.tags),
            "INSTANCE_NIC_COUNT": len(instance.nics),
            "INSTANCE_DISK_COUNT": len(disks),
        }
        env |= {f"INSTANCE_BE_{name}": value for name, value in beparams.items()}
        hvparams = fill_hvparams(cluster, instance)
        env |= {f"INSTANCE_HV_{name}": value for name, value in hvparams.items()}
        for index, nic in enumerate(instance.nics):
            env |= {
                f"INSTANCE_NIC{index}_{name}": value
                for name, value in _nic(cluster, nic, self.networks)
            }
        for index, disk in enumerate(disks):
            env |= {f"INSTANCE_DISK{index}_{name}": value for name, value in _disk(disk)}
        return env


Values = Iterator[tuple[str, object]]


def _nic(cluster: Cluster, nic: NIC, networks: Mapping[str, Network]) -> Values:
    params = fill_nicparams(cluster, nic)
    yield "NAME", nic.name or ""
    yield "UUID", nic.uuid
    yield "IP", nic.ip or ""
    yield "MAC", nic.mac
    yield "MODE", params["mode"]
    yield "LINK", params["link"]
    yield "VLAN", params["vlan"]
    if params["mode"] == NicMode.BRIDGED:
        yield "BRIDGE", params["link"]
    network = networks.get(nic.network or "")
    if network is not None:
        yield from network_variables(network).items()


def _disk(disk: Disk) -> Values:
    yield "NAME", disk.name or ""
    yield "UUID", disk.uuid
    yield "SIZE", disk.size
    yield "MODE", disk.mode.value
    yield "DEV_TYPE", disk.dev_type
    if disk.dev_type == DiskTemplate.DRBD:
        yield from _drbd(disk)
    elif len(disk.logical_id) == 2:
        first, name = disk.logical_id
        yield next(iter(disk.traits.logical_id)).upper(), first
        yield "ID", name


def _drbd(disk: Disk) -> Values:
    names = ("PNODE", "SNODE", "PORT", "PMINOR", "SMINOR")
    yield from zip(names, disk.logical_id, strict=False)
    for prefix, child in zip(("DATA", "META"), disk.children, strict=False):
        group, volume = child.logical_id
        yield f"{prefix}_VG", group
        yield f"{prefix}_ID", volume

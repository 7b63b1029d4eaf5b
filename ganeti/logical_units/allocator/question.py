"""The question for an allocator: the whole cluster as plain values, and the request.

Pure: the configuration comes as one snapshot, the reports of nodes as their answers to
``node_info`` and ``all_instances_info``.

Source: iallocator.json, "request", "nodegroup", "node", "instance".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import UNSET

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.json import JsonValue
from ganeti.config.tables import Tables
from ganeti.logical_units import lookup
from ganeti.logical_units.instance.changes.nics import named_networks, own_nicparams
from ganeti.logical_units.instance.guest import space_on_node_mib
from ganeti.logical_units.instance.parameters import (
    check_beparams,
    check_filled_beparams,
    without_defaults,
)
from ganeti.logical_units.instance.storage import planning
from ganeti.objects import fill
from ganeti.objects.disk_templates import (
    DiskMode,
    StorageType,
    binding_template,
    disk_space_mib,
    traits_of,
    traits_of_all,
)
from ganeti.objects.model import AdminState, Cluster, Disk, Instance, Network, Node, NodeGroup
from ganeti.objects.nic import NIC, NicMode
from ganeti.objects.rpc_instance import secondary_nodes
from ganeti.opcodes.instance import OpInstanceCreate
from ganeti.protocol import iallocator
from ganeti.protocol.wconfd import WConfCalls
from ganeti.query.view import InstanceLive, NodeLive


class Snapshot(Tables):
    """The configuration that allocators are told about, as of one instant."""

    def instance(self, name: str) -> Instance:
        """Return an instance that is somewhere.

        Raises:
            OpPrereqError: there is none of that name, or where it is to be is not decided.
        """
        for uuid in self.instances.named(name):
            instance = self.instances[uuid]
            if instance.name == name and instance.primary_node in self.nodes:
                return instance
        raise OpPrereqError(f"instance {name!r} is on no node", ErrorCode.NOENT)

    def nodes_of(self, instance: Instance) -> list[Node]:
        """Return the nodes of an instance, the primary first; none while that is undecided."""
        if instance.primary_node not in self.nodes:
            return []
        uuids = [instance.primary_node, *secondary_nodes(instance, self.disks_of(instance))]
        return [self.nodes[uuid] for uuid in uuids if uuid in self.nodes]

    def disk_space_of(self, instance: Instance) -> int:
        """Return how much space (MiB) the disks of an instance take on a node."""
        disks = self.disks_of(instance)
        return _space_total([(disk.dev_type, disk.size) for disk in disks])


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts of a node that are not in the configuration.

    Attributes:
        running: the instances that it holds, by name.
        reserved_memory_mib, reserved_disk_mib: for instances that other jobs are about to put
        there.
    """

    info: NodeLive
    running: Mapping[str, InstanceLive] = field(default_factory=dict)
    reserved_memory_mib: int = 0
    reserved_disk_mib: int = 0


def is_asked(node: Node) -> bool:
    """Tell whether a node has anything to say that an allocator wants to know."""
    return node.vm_capable and not node.offline


def build_question(
    snapshot: Snapshot, facts: Mapping[str, NodeFacts], wanted: iallocator.Wanted
) -> iallocator.AllocatorRequest:
    """Return the whole question.

    Args:
        facts: by node UUID.  A node that should have been able to answer and did not is told as
            offline: nothing can be put there now.
    """
    cluster = snapshot.cluster
    # An instance that is asked about as if it were new is nowhere: one that is planned, or whose
    # disks are lost.
    new = _new_names(wanted)
    instances = [each for each in snapshot.instances.values() if each.name not in new]
    by_primary: dict[str, list[Instance]] = {}
    planned: dict[str, list[Disk]] = {}
    for instance in instances:
        by_primary.setdefault(instance.primary_node, []).append(instance)
        disks = [disk for disk in snapshot.disks_of(instance) if disk.forthcoming]
        for node in snapshot.nodes_of(instance) if disks else ():
            planned.setdefault(node.uuid, []).extend(disks)
    return iallocator.AllocatorRequest(
        cluster_name=cluster.cluster_name,
        cluster_tags=list(cluster.tags),
        enabled_hypervisors=[str(name) for name in cluster.enabled_hypervisors],
        ipolicy=fill.fill_cluster_ipolicy(cluster),
        nodegroups={uuid: _group(cluster, group) for uuid, group in snapshot.groups.items()},
        nodes={
            node.name: _node(
                snapshot, node, facts.get(uuid), by_primary.get(uuid, []), planned.get(uuid, [])
            )
            for uuid, node in snapshot.nodes.items()
        },
        instances={
            instance.name: _instance(snapshot, instance)
            for instance in instances
            if snapshot.nodes_of(instance)
        },
        request=wanted,
    )


def _new_names(wanted: iallocator.Wanted) -> set[str]:
    """Return the names of the instances that are to get a place as new ones."""
    if isinstance(wanted, iallocator.MultiAllocate):
        return {each.name for each in wanted.instances}
    return {wanted.name} if isinstance(wanted, iallocator.Allocate) else set()


def _group(cluster: Cluster, group: NodeGroup) -> iallocator.AllocatorGroup:
    return iallocator.AllocatorGroup(
        name=group.name,
        alloc_policy=group.alloc_policy.value,
        networks=sorted(group.networks),
        ipolicy=fill.fill_ipolicy(cluster, group),
        tags=list(group.tags),
    )


def _node(
    snapshot: Snapshot,
    node: Node,
    facts: NodeFacts | None,
    primaries: Sequence[Instance],
    planned: Sequence[Disk],
) -> iallocator.AllocatorNode:
    cluster, asked = snapshot.cluster, is_asked(node)
    numbers = _numbers(cluster, facts, primaries, planned) if facts and asked else {}
    return iallocator.AllocatorNode(
        tags=list(node.tags),
        primary_ip=node.primary_ip,
        secondary_ip=node.secondary_ip,
        offline=node.offline or (asked and facts is None),
        drained=node.drained,
        master_candidate=node.master_candidate,
        group=node.group,
        master_capable=node.master_capable,
        vm_capable=node.vm_capable,
        ndparams={**fill.fill_ndparams(cluster, snapshot.groups[node.group], node)},
        **numbers,
    )


def _numbers(
    cluster: Cluster, facts: NodeFacts, primaries: Sequence[Instance], planned: Sequence[Disk]
) -> dict[str, int]:
    """Return the resources of a node, and the free ones; planned disks count as made.

    Args:
        planned: disks that the node does not know of yet.
    """
    seen = facts.info.hypervisors[0] if facts.info.hypervisors else None
    maxima_mib = {each.name: fill.fill_beparams(cluster, each)["maxmem"] for each in primaries}
    used_mib = {name: live.memory for name, live in facts.running.items()}
    up = [each for each in primaries if each.admin_state is AdminState.UP]
    # The memory of one that is only being made is reserved by the job that makes it.
    still_mib = sum(
        max(0, maxima_mib[each.name] - used_mib.get(each.name, 0))
        for each in up
        if not each.forthcoming
    )
    free_mib = ((seen and seen.memory_free) or 0) - still_mib - facts.reserved_memory_mib
    space, spindles = (_storage(facts.info, is_spindles=each) for each in (False, True))
    planned_mib = space_on_node_mib((disk.dev_type, disk.size) for disk in planned)
    planned_spindles = sum(disk.spindles or 0 for disk in planned)
    return {
        "total_memory": (seen and seen.memory_total) or 0,
        "reserved_memory": (seen and seen.memory_dom0) or 0,
        "free_memory": max(0, free_mib),
        "total_disk": space[0],
        "free_disk": max(0, space[1] - facts.reserved_disk_mib - planned_mib),
        "total_spindles": spindles[0],
        "free_spindles": max(0, spindles[1] - planned_spindles),
        "total_cpus": (seen and seen.cpu_total) or 0,
        "reserved_cpus": (seen and seen.cpu_dom0) or 0,
        "i_pri_memory": sum(maxima_mib.values()),
        "i_pri_up_memory": sum(maxima_mib[each.name] for each in up),
    }


def _storage(info: NodeLive, *, is_spindles: bool) -> tuple[int, int]:
    """Return (total, free) of the storage of the first disk template that has any, or of spindles.

    Only nodes with exclusive storage tell their spindles.
    """
    for unit in info.storage:
        if (unit.type == StorageType.LVM_PV) is is_spindles and unit.storage_size is not None:
            return unit.storage_size, unit.storage_free or 0
    return 0, 0


def _instance(snapshot: Snapshot, instance: Instance) -> iallocator.AllocatorInstance:
    beparams = fill.fill_beparams(snapshot.cluster, instance)
    disks = snapshot.disks_of(instance)
    return iallocator.AllocatorInstance(
        tags=list(instance.tags),
        admin_state=instance.admin_state.value,
        vcpus=beparams["vcpus"],
        memory=beparams["maxmem"],
        spindle_use=beparams["spindle_use"],
        os=instance.os,
        nodes=[node.name for node in snapshot.nodes_of(instance)],
        nics=[_nic(snapshot.cluster, nic) for nic in instance.nics],
        disks=[
            iallocator.AllocatorDisk(
                dev_type=disk.dev_type, size=disk.size, mode=disk.mode.value, spindles=disk.spindles
            )
            for disk in disks
        ],
        disk_template=binding_template(disk.dev_type for disk in disks),
        disks_active=instance.disks_active,
        hypervisor=instance.hypervisor,
        disk_space_total=snapshot.disk_space_of(instance),
    )


def _space_total(sizes: Sequence[tuple[str, int]]) -> int:
    """Return the MiB that disks take on each of their nodes.

    Those outside count only where all are: beside others they take none of their nodes' space.

    Args:
        sizes: template and size (MiB) of each.
    """
    is_outside = traits_of_all(template for template, _size in sizes).shared
    return disk_space_mib(sizes) if is_outside else space_on_node_mib(sizes)


def _nic(cluster: Cluster, nic: NIC) -> iallocator.AllocatorNic:
    params = fill.fill_nicparams(cluster, nic)
    mode, link = params["mode"], params["link"]
    bridge = link if mode == NicMode.BRIDGED else UNSET
    return iallocator.AllocatorNic(mac=nic.mac, ip=nic.ip, mode=mode, link=link, bridge=bridge)


def like_existing(
    snapshot: Snapshot, instance: Instance, disks: Sequence[Disk] | None = None
) -> iallocator.NewInstance:
    """Return the request for a place for an instance that is there, as if it were new.

    Args:
        disks: the disks that it is to have, instead of its own.
    """
    known = _instance(snapshot, instance)
    disks = snapshot.disks_of(instance) if disks is None else disks
    templates = [disk.dev_type for disk in disks]
    return iallocator.NewInstance(
        name=instance.name,
        memory=known.memory,
        vcpus=known.vcpus,
        spindle_use=known.spindle_use,
        disks=[_told(disk.size, disk.mode, disk.dev_type, disk.spindles) for disk in disks],
        disk_space_total=_space_total([(disk.dev_type, disk.size) for disk in disks]),
        disk_template=known.disk_template,
        os=known.os,
        tags=known.tags,
        nics=[
            {"mac": nic.mac, "ip": nic.ip, **_place_of_nic(snapshot.cluster, nic)}
            for nic in instance.nics
        ],
        required_nodes=max((traits_of(each).node_count for each in templates), default=1),
        hypervisor=known.hypervisor,
    )


def _place_of_nic(cluster: Cluster, nic: NIC) -> dict[str, str]:
    if nic.network:
        return {"network": nic.network}
    params = fill.fill_nicparams(cluster, nic)
    return {"mode": params["mode"], "link": params["link"]}


def _told(
    size_mib: int, mode: DiskMode, template: str, spindles: int | None
) -> dict[str, JsonValue]:
    """Return a disk as it stands in the request for a new instance; spindles if it needs any."""
    disk: dict[str, JsonValue] = {"size": size_mib, "mode": mode.value, "dev_type": str(template)}
    return disk if spindles is None else {**disk, "spindles": spindles}


def request_for_new(
    config: WConfCalls, cluster: Cluster, op: OpInstanceCreate, name: str
) -> iallocator.NewInstance:
    """Return the request for a place for an instance to be made.

    Raises:
        OpPrereqError: a setting cannot be, or no allocator can place such an instance.
    """
    what = f"instance {name!r}"
    usual = planning.choose_template(cluster, op.disk_template)
    planned = planning.plan_disks(cluster, usual, op.disks)
    templates = planning.templates_of(cluster, op.disk_template, op.disks)
    if any(disk.adopt for disk in planned):
        raise OpPrereqError(
            f"{what}: a disk that is adopted is where it is; give the node with -n NODE"
        )
    beparams = fill.fill_beparams_with(cluster, without_defaults(check_beparams(op.beparams)), what)
    check_filled_beparams(beparams)
    group = None if op.group_name is None else lookup.require_group(config, op.group_name).name
    return iallocator.NewInstance(
        name=name,
        memory=beparams["maxmem"],
        vcpus=beparams["vcpus"],
        spindle_use=beparams["spindle_use"],
        disks=[
            {**settings, **_told(disk.size_mib, disk.mode, disk.template, disk.spindles)}
            for settings, disk in zip(op.disks, planned, strict=True)
        ],
        disk_space_total=_space_total([(disk.template, disk.size_mib) for disk in planned]),
        disk_template=binding_template(templates),
        group_name=group,
        os=op.os_type or "",
        tags=list(op.tags),
        nics=[_new_nic(cluster, named_networks(config, op.nics), nic) for nic in op.nics],
        required_nodes=max(each.traits.node_count for each in templates),
        hypervisor=str(op.hypervisor or cluster.enabled_hypervisors[0]),
    )


def _new_nic(
    cluster: Cluster, networks: Mapping[str, Network], given: Mapping[str, str | None]
) -> dict[str, JsonValue]:
    """Return a network interface as it is told: with its network, else with mode and link."""
    told: dict[str, JsonValue] = {"mac": given.get("mac") or "auto", "ip": given.get("ip")}
    network = networks.get(given.get("network") or "")
    if network is not None:  # it decides about mode and link in each group
        return {**told, "network": network.uuid}
    own = own_nicparams("a NIC", {name: value for name, value in given.items() if value})
    params = fill.fill_nicparams(cluster, without_defaults(own))
    link = params["link"]
    told |= {"mode": params["mode"], "link": link}
    return {**told, "bridge": link} if params["mode"] == NicMode.BRIDGED else told

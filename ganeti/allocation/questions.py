"""From a question to an allocator to a snapshot of the cluster, and to the instance asked about.

Source: iallocator.json; manual page hbal(1), "Offline instances".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ganeti.allocation.load import Free
from ganeti.allocation.model import (
    STANDARD_LOAD,
    Group,
    Instance,
    InstanceStatus,
    Node,
    Utilisation,
)
from ganeti.allocation.snapshot import (
    RESOURCE_NAMES,
    Resources,
    Snapshot,
    make_group,
    make_instance,
    make_node,
    make_snapshot,
)
from ganeti.allocation.state import ClusterState, make_state
from ganeti.allocation.tags import TagMeanings, meanings_of
from ganeti.base.errors import GenericError
from ganeti.objects.disk_templates import DiskTemplate, disk_space_mib
from ganeti.objects.model import AdminState
from ganeti.protocol.iallocator import (
    VERSION,
    AllocatorGroup,
    AllocatorInstance,
    AllocatorNode,
    AllocatorRequest,
    NewInstance,
)

_KVM: Final = "kvm"
_STATUS: Final[Mapping[str, InstanceStatus]] = {
    AdminState.UP: InstanceStatus.RUNNING,
    AdminState.DOWN: InstanceStatus.ADMIN_DOWN,
    AdminState.OFFLINE: InstanceStatus.ADMIN_OFFLINE,
}


def snapshot_of(
    request: AllocatorRequest, *, kvm_node_memory: int = 0, more_exclusion: Iterable[str] = ()
) -> Snapshot:
    """Return the cluster that a question describes.

    Args:
        kvm_node_memory: memory (MiB) that a KVM node uses itself, instead of its report, if not 0.
        more_exclusion: beginnings of exclusion tags besides those of the cluster.

    Raises:
        GenericError: the question contradicts itself; the text names the object.
    """
    if request.version != VERSION:
        raise GenericError(
            f"the request has version {request.version}; this allocator knows version {VERSION}"
        )
    meanings = meanings_of(request.cluster_tags, more_exclusion)
    groups = {uuid: group_of(uuid, group) for uuid, group in request.nodegroups.items()}
    static_memory = kvm_node_memory if _KVM in request.enabled_hypervisors else 0
    nodes = {
        name: node_of(name, node, groups, meanings, static_memory)
        for name, node in request.nodes.items()
    }
    instances = {
        name: existing_instance(name, each, meanings)
        for name, each in request.instances.items()
        if each.nodes  # one that is only planned may have none yet
    }
    return make_snapshot(
        groups, nodes, instances, tags=request.cluster_tags, ipolicy=request.ipolicy
    )


def state_of(request: AllocatorRequest) -> ClusterState:
    """Return the state of the cluster that a question describes.

    Raises:
        GenericError: the question contradicts itself; the text names the object.
    """
    return make_state(snapshot_of(request))


def group_of(uuid: str, group: AllocatorGroup) -> Group:
    """Return a node group.

    Raises:
        GenericError: its policies are not understood.
    """
    named = group.name, group.alloc_policy, group.ipolicy
    return make_group(uuid, *named, group.networks, group.tags)


def node_of(
    name: str,
    node: AllocatorNode,
    groups: Mapping[str, Group],
    meanings: TagMeanings,
    static_memory: int = 0,
) -> tuple[Node, Free]:
    """Return a node and its free resources.

    Raises:
        GenericError: its group is unknown, or a value is missing or negative.
    """
    is_known = not node.offline and node.vm_capable
    has = Resources(*[getattr(node, name) for name in RESOURCE_NAMES])
    if static_memory and isinstance(node.total_memory, int):
        used = node.i_pri_up_memory if isinstance(node.i_pri_up_memory, int) else 0
        has = has._replace(
            own_memory=static_memory, free_memory=node.total_memory - static_memory - used
        )
    params = node.ndparams
    return make_node(
        name,
        groups.get(node.group),
        has,
        meanings,
        is_usable=is_known and not node.drained,
        is_offline=node.offline,
        is_known=is_known,
        group_uuid=node.group,
        tags=node.tags,
        cpu_speed=params.get("cpu_speed"),
        spindle_count=params.get("spindle_count"),
        exclusive_storage=params.get("exclusive_storage") is True,
        address=node.primary_ip,
    )


def existing_instance(name: str, each: AllocatorInstance, meanings: TagMeanings) -> Instance:
    """Return an instance of the cluster.

    Raises:
        GenericError: a value of it cannot be.
    """
    return make_instance(
        name,
        meanings,
        memory=each.memory,
        vcpus=each.vcpus,
        disk=each.disk_space_total,
        spindle_use=each.spindle_use,
        disk_template=each.disk_template,
        nodes=each.nodes,
        status=_STATUS.get(each.admin_state, InstanceStatus.RUNNING),
        tags=each.tags,
        disk_sizes=tuple([disk.size for disk in each.disks]),
        spindles=_sum_of([disk.spindles for disk in each.disks]),
        nic_count=len(each.nics),
    )


def _sum_of(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def new_instance(
    wanted: NewInstance, meanings: TagMeanings, load: Utilisation = STANDARD_LOAD
) -> Instance:
    """Return an instance that is to be made.

    Raises:
        GenericError: a value of it cannot be.
    """
    networks = [nic.get("network") for nic in wanted.nics]
    return make_instance(
        wanted.name,
        meanings,
        memory=wanted.memory,
        vcpus=wanted.vcpus,
        disk=wanted.disk_space_total,
        spindle_use=wanted.spindle_use,
        disk_template=wanted.disk_template,
        tags=wanted.tags,
        disk_sizes=tuple(_size(wanted.name, disk, "size") for disk in wanted.disks),
        spindles=_spindles(wanted),
        nic_count=len(wanted.nics),
        networks=frozenset(str(network) for network in networks if network),
        load=load,
    )


def _spindles(wanted: NewInstance) -> int | None:
    """Return how many spindles all disks need; None if one does not tell."""
    if any(disk.get("spindles") is None for disk in wanted.disks):
        return None
    return sum(_size(wanted.name, disk, "spindles") for disk in wanted.disks)


def _size(name: str, disk: Mapping[str, object], key: str) -> int:
    value = disk.get(key)
    if not isinstance(value, int) or value < 0:
        raise GenericError(f"instance {name!r}: {key} of a disk is {value!r}, which cannot be")
    return value


def mirrored_size(instance: Instance) -> int:
    """Return the room (MiB) that the disks of an instance take on each node once mirrored."""
    return disk_space_mib((DiskTemplate.DRBD, size) for size in instance.spec.disk_sizes_mib)

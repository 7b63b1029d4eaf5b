"""From a question to an allocator to the model that searches work on.

Tags of the cluster define the meaning of tags of nodes and instances (`TagMeanings`).

Source: iallocator.json; manual page hbal(1), "Exclusion tags", "Migration tags", "Location tags",
"Desired location tags" and "Offline instances".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, UnsetType
from msgspec.structs import replace

from ganeti.allocation.load import Free
from ganeti.allocation.model import Group, Instance, Node
from ganeti.allocation.state import ClusterState, make_state
from ganeti.base.errors import GenericError
from ganeti.objects.disk_templates import DiskTemplate, disk_space_mib
from ganeti.objects.instance_policy import InstanceSpec
from ganeti.objects.model import AdminState, AllocPolicy
from ganeti.protocol.iallocator import (
    VERSION,
    AllocatorGroup,
    AllocatorInstance,
    AllocatorNode,
    AllocatorRequest,
    NewInstance,
)

EXCLUSION: Final = "htools:iextags:"
LOCATION: Final = "htools:nlocation:"
DESIRED_LOCATION: Final = "htools:desiredlocation:"
MIGRATION: Final = "htools:migration:"
ALLOW_MIGRATION: Final = "htools:allowmigration:"
_FROM_TO: Final = "::"


class TagMeanings(Struct, frozen=True):
    """The meanings of the beginnings of tags, and the migrations that are allowed besides.

    ``allowed_sources`` are, by a tag of the target, the tags that a source may have.
    """

    exclusion: tuple[str, ...] = ()
    location: tuple[str, ...] = ()
    desired_location: tuple[str, ...] = ()
    migration: tuple[str, ...] = ()
    allowed_sources: Mapping[str, frozenset[str]] = {}

    def accepted(self, tags: frozenset[str]) -> frozenset[str]:
        """Return the migration tags that sources for a node with these tags may have."""
        found = tags
        for tag in tags:
            found |= self.allowed_sources.get(tag, frozenset())
        return found


def meanings_of(cluster_tags: Iterable[str]) -> TagMeanings:
    """Read the tags of the cluster."""
    tags = sorted(cluster_tags)
    allowed: dict[str, frozenset[str]] = {}
    for pair in _after(ALLOW_MIGRATION, tags):
        source, separator, target = pair.partition(_FROM_TO)
        if separator and source and target:
            allowed[target] = allowed.get(target, frozenset()) | {source}
    return TagMeanings(
        _prefixes(EXCLUSION, tags),
        _prefixes(LOCATION, tags),
        _prefixes(DESIRED_LOCATION, tags),
        _prefixes(MIGRATION, tags),
        allowed,
    )


def _after(kind: str, tags: Iterable[str]) -> list[str]:
    return [tag.removeprefix(kind) for tag in tags if tag.startswith(kind) and tag != kind]


def _prefixes(kind: str, tags: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{name}:" for name in _after(kind, tags))


def select(prefixes: tuple[str, ...], tags: Iterable[str]) -> frozenset[str]:
    """Return the tags that begin with one of these."""
    return frozenset([tag for tag in tags if tag.startswith(prefixes)] if prefixes else ())


_NODE_SIZES: Final = (
    "total_memory",
    "total_disk",
    "free_disk",
    "total_spindles",
    "free_spindles",
    "total_cpus",
    "reserved_cpus",
)
_INSTANCE_SIZES: Final = ("memory", "vcpus", "spindle_use", "disk_space_total")
_KVM: Final = "kvm"


def state_of(
    request: AllocatorRequest, *, counts_load: bool = True, kvm_node_memory: int = 0
) -> ClusterState:
    """Return the state of the cluster that a question describes.

    Args:
        kvm_node_memory: memory (MiB) that a KVM node uses itself, instead of its report, if not 0.

    Raises:
        GenericError: the question contradicts itself; the text names the object.
    """
    if request.version != VERSION:
        raise GenericError(
            f"the request has version {request.version}; this allocator knows version {VERSION}"
        )
    meanings = meanings_of(request.cluster_tags)
    groups = {uuid: group_of(uuid, group) for uuid, group in request.nodegroups.items()}
    nodes = {name: node_of(name, node, groups, meanings) for name, node in request.nodes.items()}
    instances = {
        name: existing_instance(name, each, meanings)
        for name, each in request.instances.items()
        if each.nodes  # one that is only planned may have none yet
    }
    static_memory = kvm_node_memory if _KVM in request.enabled_hypervisors else 0
    down = _memory_of_down_instances(request.instances.values())
    free = {
        name: _free(node, down.get(name, 0), static_memory) for name, node in request.nodes.items()
    }
    return make_state(groups.values(), nodes, free, instances, counts_load=counts_load)


def group_of(uuid: str, group: AllocatorGroup) -> Group:
    """Return a node group.

    Raises:
        GenericError: its policies are not understood.
    """
    try:
        policy = AllocPolicy(group.alloc_policy)
    except ValueError as err:
        raise GenericError(
            f"node group {group.name!r} has the unknown allocation policy {group.alloc_policy!r}"
        ) from err
    return Group(
        uuid,
        group.name,
        policy,
        frozenset(group.networks),
        group.ipolicy,
        _ratio(group, "vcpu-ratio"),
        _ratio(group, "spindle-ratio"),
    )


def _ratio(group: AllocatorGroup, name: str) -> float:
    value = group.ipolicy.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise GenericError(
            f"node group {group.name!r}: {name} of its instance policy is {value!r}, not a ratio"
        )
    return float(value)


def node_of(
    name: str, node: AllocatorNode, groups: Mapping[str, Group], meanings: TagMeanings
) -> Node:
    """Return a node.

    Raises:
        GenericError: its group is unknown, or a value is missing or negative.
    """
    group = groups.get(node.group)
    if group is None:
        raise GenericError(f"node {name!r} is in the unknown node group {node.group!r}")
    is_known = not node.offline and node.vm_capable
    if is_known:
        _check_sizes("node", name, node, _NODE_SIZES)
        if not isinstance(node.free_memory, int):  # it may be negative
            raise GenericError(f"node {name!r}: free_memory is missing")
    cpus = _known(node.total_cpus)
    migration_tags = select(meanings.migration, node.tags)
    return Node(
        name,
        group.uuid,
        is_usable=is_known and not node.drained,
        total_memory=_known(node.total_memory),
        total_disk=_known(node.total_disk),
        own_cpus=_known(node.reserved_cpus),
        cpu_power=cpus * _positive(node.ndparams.get("cpu_speed")),
        vcpus_max=cpus * group.vcpu_ratio,
        spindles_max=_positive(node.ndparams.get("spindle_count")) * group.spindle_ratio,
        exclusive_storage=node.ndparams.get("exclusive_storage") is True,
        locations=select(meanings.location, node.tags),
        migration_tags=migration_tags,
        accepts=meanings.accepted(migration_tags),
        is_offline=node.offline,
    )


def _known(value: int | UnsetType) -> int:
    return value if isinstance(value, int) else 0


def _positive(value: object) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else 1.0


def _check_sizes(what: str, name: str, record: object, keys: tuple[str, ...]) -> None:
    """Refuse a record with missing or negative sizes.

    Raises:
        GenericError: naming the object and the value.
    """
    for key in keys:
        value = getattr(record, key)
        if not isinstance(value, int):
            raise GenericError(f"{what} {name!r}: {key} is missing")
        if value < 0:
            raise GenericError(f"{what} {name!r}: {key} is {value}, which cannot be")


def _free(node: AllocatorNode, down_memory: int, static_memory: int) -> Free:
    memory = _known(node.free_memory)
    if static_memory:
        memory = _known(node.total_memory) - static_memory - _known(node.i_pri_up_memory)
    return Free(memory - down_memory, _known(node.free_disk), _known(node.free_spindles))


def _memory_of_down_instances(instances: Iterable[AllocatorInstance]) -> dict[str, int]:
    """Return by node the memory that its stopped instances would take if they were started."""
    found: dict[str, int] = {}
    for each in instances:
        if each.admin_state == AdminState.DOWN and each.nodes:
            found[each.nodes[0]] = found.get(each.nodes[0], 0) + each.memory
    return found


def existing_instance(name: str, each: AllocatorInstance, meanings: TagMeanings) -> Instance:
    """Return an instance of the cluster.

    Raises:
        GenericError: a value of it cannot be.
    """
    sizes = tuple([disk.size for disk in each.disks])
    spindles = sum([disk.spindles or 0 for disk in each.disks])
    made = _instance(name, each, meanings, sizes, spindles, each.admin_state)
    return replace(made, nodes=tuple(each.nodes))


def new_instance(wanted: NewInstance, meanings: TagMeanings) -> Instance:
    """Return an instance that is to be made.

    Raises:
        GenericError: a value of it cannot be.
    """
    sizes = tuple(_size(wanted.name, disk, "size") for disk in wanted.disks)
    spindles = sum(_size(wanted.name, disk, "spindles") for disk in wanted.disks)
    networks = [nic.get("network") for nic in wanted.nics]
    made = _instance(wanted.name, wanted, meanings, sizes, spindles, AdminState.UP)
    return replace(made, networks=frozenset(str(network) for network in networks if network))


def _instance(
    name: str,
    each: AllocatorInstance | NewInstance,
    meanings: TagMeanings,
    disk_sizes: tuple[int, ...],
    spindles: int,
    admin_state: str,
) -> Instance:
    _check_sizes("instance", name, each, _INSTANCE_SIZES)
    try:
        template = DiskTemplate(each.disk_template)
    except ValueError as err:
        raise GenericError(
            f"instance {name!r} has the unknown disk template {each.disk_template!r}"
        ) from err
    memory, vcpus, use = each.memory, each.vcpus, each.spindle_use
    is_local = not template.traits.shared
    is_offline = admin_state == AdminState.OFFLINE
    return Instance(
        name=name,
        template=template,
        memory=0 if is_offline else memory,
        running_memory=memory if admin_state == AdminState.UP else 0,
        vcpus=0 if is_offline else vcpus,
        disk=each.disk_space_total if is_local else 0,
        spindle_use=use if is_local else 0,
        spindles=spindles,
        spec=InstanceSpec(memory, vcpus, len(each.nics), use, disk_sizes, template),
        exclusion_tags=select(meanings.exclusion, each.tags),
        wishes=select(meanings.desired_location, each.tags),
    )


def _size(name: str, disk: Mapping[str, object], key: str) -> int:
    value = disk.get(key)
    if value is None and key != "size":
        return 0
    if not isinstance(value, int) or value < 0:
        raise GenericError(f"instance {name!r}: {key} of a disk is {value!r}, which cannot be")
    return value


def mirrored_size(instance: Instance) -> int:
    """Return the room (MiB) that the disks of an instance take on each node once mirrored."""
    return disk_space_mib(DiskTemplate.DRBD, instance.spec.disk_sizes_mib)

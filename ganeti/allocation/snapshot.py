"""A snapshot of a cluster, wherever it comes from, and the makers of its parts.

Each source of data has a parser of its own: questions to an allocator (`questions`), and those in
`ganeti.allocation.sources`.  All call the same makers, which check the values and give tags their
meaning, so that every source gives the same snapshot.
`ganeti.allocation.state` makes of it the state that scores and searches work on.

Source: iallocator.json; manual pages htools(1) and hbal(1), "Offline instances".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct, UnsetType

from ganeti.allocation.load import Free
from ganeti.allocation.model import (
    IDLE,
    NO_TAGS,
    STANDARD_LOAD,
    Group,
    Instance,
    InstanceStatus,
    Node,
    Utilisation,
)
from ganeti.allocation.tags import TagMeanings, select
from ganeti.base.errors import GenericError
from ganeti.objects.disk_templates import MIXED, DiskTemplate
from ganeti.objects.instance_policy import InstanceSpec
from ganeti.objects.model import AllocPolicy


class Snapshot(Struct, frozen=True):
    """A cluster at one time: groups by UUID, nodes and instances by name.

    Attributes:
        free: the free resources that each node reports.
        ipolicy: that of the cluster, filled.
    """

    tags: tuple[str, ...]
    ipolicy: Mapping[str, Any]
    groups: Mapping[str, Group]
    nodes: Mapping[str, Node]
    free: Mapping[str, Free]
    instances: Mapping[str, Instance]


Size = int | UnsetType | None


class Resources(NamedTuple):
    """The resources of a node as some source tells them; None or unset is not known."""

    total_memory: Size
    own_memory: Size
    free_memory: Size
    total_disk: Size
    free_disk: Size
    cpus: Size
    own_cpus: Size
    spindles: Size
    free_spindles: Size


RESOURCE_NAMES: Final = (
    *("total_memory", "reserved_memory", "free_memory", "total_disk", "free_disk"),
    *("total_cpus", "reserved_cpus", "total_spindles", "free_spindles"),
)
_NEEDED: Final = ("total_memory", "total_disk", "free_disk", "cpus", "own_cpus", "free_spindles")


def make_snapshot(
    groups: Mapping[str, Group],
    nodes: Mapping[str, tuple[Node, Free]],
    instances: Mapping[str, Instance],
    *,
    tags: Iterable[str],
    ipolicy: Mapping[str, Any],
) -> Snapshot:
    """Return the snapshot of these parts.

    Raises:
        GenericError: an instance is on no node, on one that there is not, or on one twice.
    """
    for instance in instances.values():
        on = instance.nodes
        if not on:
            raise GenericError(f"instance {instance.name!r} is on no node")
        for name in on:
            if name not in nodes:
                raise GenericError(f"instance {instance.name!r} is on unknown node {name!r}")
        if len(on) > 1 and on[0] in on[1:]:
            raise GenericError(
                f"instance {instance.name!r}: node {on[0]!r} is both primary and secondary node"
            )
    return Snapshot(
        tuple(tags),
        ipolicy,
        groups,
        {name: node for name, (node, _) in nodes.items()},
        {name: free for name, (_, free) in nodes.items()},
        instances,
    )


def make_group(
    uuid: str,
    name: str,
    alloc_policy: str,
    ipolicy: Mapping[str, Any],
    networks: Iterable[str] = (),
    tags: Iterable[str] = (),
) -> Group:
    """Return a node group; ``ipolicy`` is filled.

    Raises:
        GenericError: its policies are not understood.
    """
    try:
        policy = AllocPolicy(alloc_policy)
    except ValueError as err:
        raise GenericError(
            f"node group {name!r} has the unknown allocation policy {alloc_policy!r}"
        ) from err
    ratios = _ratio(name, ipolicy, "vcpu-ratio"), _ratio(name, ipolicy, "spindle-ratio")
    return Group(uuid, name, policy, frozenset(networks), ipolicy, *ratios, tags=tuple(tags))


def _ratio(group: str, ipolicy: Mapping[str, Any], name: str) -> float:
    value = ipolicy.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise GenericError(
            f"node group {group!r}: {name} of its instance policy is {value!r}, not a ratio"
        )
    return float(value)


def make_node(
    name: str,
    group: Group | None,
    has: Resources,
    meanings: TagMeanings,
    *,
    is_usable: bool,
    is_offline: bool,
    is_known: bool,
    group_uuid: str = "",
    tags: Sequence[str] = (),
    cpu_speed: object = 1.0,
    spindle_count: object = 1,
    exclusive_storage: bool = False,
    is_master: bool = False,
    address: str = "",
) -> tuple[Node, Free]:
    """Return a node and its free resources.

    Args:
        is_known: it can be asked, so that all its resources must be told.

    Raises:
        GenericError: its group is unknown, or a value is missing or negative.
    """
    if group is None:
        raise GenericError(f"node {name!r} is in the unknown node group {group_uuid!r}")
    if is_known:
        _check_resources(name, has)
    cpus, speed = _known(has.cpus), _positive(cpu_speed)
    count = _positive(spindle_count)
    migration_tags = select(meanings.migration, tags)
    node = Node(
        name,
        group.uuid,
        is_usable=is_usable,
        total_memory=_known(has.total_memory),
        total_disk=_known(has.total_disk),
        own_cpus=_known(has.own_cpus),
        cpu_power=cpus * speed,
        vcpus_max=cpus * group.vcpu_ratio,
        spindles_max=count * group.spindle_ratio,
        exclusive_storage=exclusive_storage,
        locations=select(meanings.location, tags),
        migration_tags=migration_tags,
        accepts=meanings.accepted(migration_tags),
        is_offline=is_offline,
        own_memory=_known(has.own_memory),
        cpus=cpus,
        cpu_speed=speed,
        spindle_count=_known(has.spindles) if exclusive_storage else int(count),
        is_master=is_master,
        address=address,
        tags=tuple(tags),
    )
    return node, Free(_known(has.free_memory), _known(has.free_disk), _known(has.free_spindles))


def _check_resources(name: str, has: Resources) -> None:
    for field, value, word in zip(Resources._fields, has, RESOURCE_NAMES, strict=True):
        if not isinstance(value, int):
            if field in _NEEDED or field == "free_memory":
                raise GenericError(f"node {name!r}: {word} is missing")
        elif value < 0 and field != "free_memory":  # that may be: memory can be lent
            raise GenericError(f"node {name!r}: {word} is {value}, which cannot be")


def _known(value: Size) -> int:
    return value if isinstance(value, int) else 0


def _positive(value: object) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else 1.0


_INSTANCE_SIZES: Final = ("memory", "vcpus", "spindle_use", "disk_space_total")
_TEMPLATES: Final[Mapping[str, DiskTemplate]] = {
    **{template.value: template for template in DiskTemplate},
    MIXED: DiskTemplate.PLAIN,  # whatever its disks are, taken as one that stays where it is
}


def make_instance(
    name: str,
    meanings: TagMeanings,
    *,
    memory: int,
    vcpus: int,
    disk: int,
    spindle_use: int,
    disk_template: str,
    nodes: Iterable[str] = (),
    status: InstanceStatus = InstanceStatus.RUNNING,
    tags: Sequence[str] = (),
    disk_sizes: tuple[int, ...] = (),
    spindles: int | None = 0,
    nic_count: int | None = 0,
    networks: frozenset[str] = frozenset(),
    is_forthcoming: bool = False,
    is_auto_balanced: bool = True,
    load: Utilisation = STANDARD_LOAD,
) -> Instance:
    """Return an instance.

    Args:
        disk: room on each of its nodes, with metadata.
        spindles: dedicated ones on each of its nodes; None is not known.

    Raises:
        GenericError: a value of it cannot be.
    """
    for value in (memory, vcpus, spindle_use, disk):
        if not isinstance(value, int) or value < 0:
            _refuse_sizes(name, memory, vcpus, spindle_use, disk)
    template = _TEMPLATES.get(disk_template)
    if template is None:
        raise GenericError(f"instance {name!r} has the unknown disk template {disk_template!r}")
    traits = template.traits
    is_lvm = traits.is_lvm
    is_offline = status is InstanceStatus.ADMIN_OFFLINE
    is_present = not (is_forthcoming or status in IDLE)
    return Instance(
        name=name,
        template=template,
        memory=memory,
        running_memory=memory if is_present else 0,
        vcpus=0 if is_offline else vcpus,
        disk=disk if is_lvm else 0,
        spindle_use=spindle_use if is_lvm else 0,
        spindles=spindles or 0,
        has_unknown_spindles=spindles is None,
        spec=InstanceSpec(memory, vcpus, nic_count, spindle_use, disk_sizes, (template,)),
        nodes=tuple(nodes),
        exclusion_tags=select(meanings.exclusion, tags) if tags else NO_TAGS,
        wishes=select(meanings.desired_location, tags) if tags else NO_TAGS,
        networks=networks,
        kept_memory=memory if is_auto_balanced and not is_offline else 0,
        file_disk=0 if is_lvm or traits.shared else disk,
        load=load,
        status=status,
        is_forthcoming=is_forthcoming,
        is_auto_balanced=is_auto_balanced,
        tags=tuple(tags),
    )


def _refuse_sizes(name: str, *sizes: object) -> None:
    for key, value in zip(_INSTANCE_SIZES, sizes, strict=True):
        if not isinstance(value, int):
            raise GenericError(f"instance {name!r}: {key} is missing")
        if value < 0:
            raise GenericError(f"instance {name!r}: {key} is {value}, which cannot be")

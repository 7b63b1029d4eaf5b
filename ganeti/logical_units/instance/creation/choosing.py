"""Which nodes an instance goes to when the operator leaves that to an allocator."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, UnsetType, structs

from ganeti.base.errors import OpPrereqError
from ganeti.locking.names import BGL
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.asking import choose_allocator
from ganeti.logical_units.allocator.placing import lock_free_nodes, place, relocation
from ganeti.logical_units.allocator.question import Snapshot, like_existing, request_for_new
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.guest import reserve_memory, space_on_node_mib
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.locks import LockLevel, exclusive, take_locks
from ganeti.objects.allocation_modes import IAllocatorMode
from ganeti.objects.disk_templates import DiskTemplate, disk_space_mib, traits_of
from ganeti.objects.fill import cluster_hvparams, fill_beparams
from ganeti.objects.model import AdminState, Cluster, Disk, Node
from ganeti.opcodes.instance import OpInstanceCreate
from ganeti.protocol.iallocator import EXPLAIN, Allocate, NewInstance
from ganeti.protocol.wconfd import LockMode


def check_one_way(what: str, *, node: str | None, iallocator: str | None) -> None:
    """Refuse both a node and an allocator.

    Raises:
        OpPrereqError: both are given (wrong_input).
    """
    if node is not None and iallocator is not None:
        raise OpPrereqError(
            f"{what}: node {node!r} and allocator {iallocator!r} were given; give one of them"
        )


def choose_for_new(
    context: JobContext,
    cluster: Cluster,
    op: OpInstanceCreate,
    name: str,
    *,
    start: bool,
    source: Sequence[Node] = (),
) -> list[Node]:
    """Return the nodes for a new instance; their memory and disk space are reserved.

    With opportunistic locking the instance's name and these nodes are locked as well.

    Args:
        source: the node that has its data, if it is imported.

    Raises:
        OpPrereqError: there is no allocator, or it finds no place.
    """
    what = f"instance {name!r}"
    allocator = choose_allocator(cluster, op.iallocator, what, IAllocatorMode.ALLOCATE)
    if op.explain:
        allocator = allocator.with_option(EXPLAIN)
    first = request_for_new(context.config, cluster, op, name)

    sizes = [(str(disk["dev_type"]), int(str(disk["size"]))) for disk in first.disks]
    disk_mib = space_on_node_mib(sizes)
    memory_mib = first.memory if start else 0

    def take_room(nodes: list[Node]) -> None:
        _reserve(context, cluster, nodes, what, first.hypervisor, memory_mib, disk_mib)

    def choose(names: list[str] | UnsetType) -> list[Node]:
        wanted = _as_request(structs.replace(first, restrict_to_nodes=names))
        return place(
            context, allocator, lambda _snapshot: wanted, take_room, hypervisor=first.hypervisor
        )

    if not op.opportunistic_locking:
        return choose(UNSET)
    # The name comes first in the order of locks, and everything goes on from here to the end.
    take_locks(context, {BGL: LockMode.SHARED} | exclusive(LockLevel.INSTANCE, [name]))
    group = first.group_name and lookup.require_group(context.config, first.group_name).uuid
    makes_disks = traits_of(first.disk_template).has_disks and not op.forthcoming
    free = lock_free_nodes(
        context,
        what,
        resources=LockMode.EXCLUSIVE if makes_disks else None,
        count=first.required_nodes,
        group=group,
        besides=source,
    )
    with free.explained():
        nodes = choose(free.names)
    free.keep(nodes)
    return nodes


def choose_target(context: JobContext, view: InstanceView, iallocator: str | None) -> Node:
    """Return another node for an instance whose disks every node can reach; memory is reserved.

    Raises:
        OpPrereqError: there is no allocator, or it finds no place.
    """
    cluster, instance = view.cluster, view.instance
    what = f"instance {instance.name!r}"
    allocator = choose_allocator(cluster, iallocator, what, IAllocatorMode.RELOCATE)
    is_up = instance.admin_state is AdminState.UP
    memory_mib = fill_beparams(cluster, instance)["minmem"] if is_up else 0

    def take_room(nodes: list[Node]) -> None:
        _reserve(context, cluster, nodes, what, instance.hypervisor, memory_mib, 0)

    request, hypervisor = relocation(instance.name), instance.hypervisor
    return place(context, allocator, request, take_room, hypervisor=hypervisor)[0]


def choose_for_disks(
    context: JobContext, view: InstanceView, disks: Sequence[Disk], iallocator: str
) -> list[Node]:
    """Return nodes for the disks of an instance that has lost them; their space is reserved.

    Args:
        disks: as they are to be.

    Raises:
        OpPrereqError: there is no such allocator, or it finds no place.
    """
    cluster, instance = view.cluster, view.instance
    what = f"instance {instance.name!r}"
    allocator = choose_allocator(cluster, iallocator, what, IAllocatorMode.ALLOCATE)

    def request(snapshot: Snapshot) -> Allocate:
        return _as_request(like_existing(snapshot, snapshot.instance(instance.name), disks))

    def take_room(nodes: list[Node]) -> None:
        disk_mib = space_on_node_mib((disk.dev_type, disk.size) for disk in disks)
        context.config.reserve_node_resources([(node.uuid, 0, disk_mib) for node in nodes], [])

    return place(context, allocator, request, take_room, hypervisor=instance.hypervisor)


def choose_secondary(context: JobContext, view: InstanceView, iallocator: str) -> Node:
    """Return a node for copies of all disks of an instance that has none yet; space is reserved.

    Allocators have no question of this kind.  They are asked for a place for an instance with the
    same memory and disks, metadata with them, on one node of the group other than its own.

    Raises:
        OpPrereqError: there is no such allocator, or it finds no place.
    """
    cluster, instance, copy = view.cluster, view.instance, str(DiskTemplate.DRBD)
    what = f"instance {instance.name!r}"
    allocator = choose_allocator(cluster, iallocator, what, IAllocatorMode.ALLOCATE)
    sizes = {disk.uuid: disk_space_mib([(copy, disk.size)]) for disk in view.disks}
    plain = [
        structs.replace(disk, dev_type=str(DiskTemplate.PLAIN), size=sizes[disk.uuid])
        for disk in view.disks
    ]

    def request(snapshot: Snapshot) -> Allocate:
        like = like_existing(snapshot, snapshot.instance(instance.name), plain)
        others = [
            node.name
            for node in snapshot.nodes.values()
            if node.group == view.primary.group and node.uuid != view.primary.uuid
        ]
        return _as_request(structs.replace(like, restrict_to_nodes=sorted(others)))

    def take_room(nodes: list[Node]) -> None:
        space = [(node.uuid, 0, sum(sizes.values())) for node in nodes]
        context.config.reserve_node_resources(space, [])

    return place(context, allocator, request, take_room, hypervisor=instance.hypervisor)[0]


def _as_request(wanted: NewInstance) -> Allocate:
    return Allocate(**{name: getattr(wanted, name) for name in NewInstance.__struct_fields__})


def _reserve(
    context: JobContext,
    cluster: Cluster,
    nodes: Sequence[Node],
    what: str,
    hypervisor: str,
    memory_mib: int,
    disk_mib: int,
) -> None:
    """Reserve memory on the first node, if it is needed at all, and disk space on all."""
    if memory_mib == 0:
        context.config.reserve_node_resources([(node.uuid, 0, disk_mib) for node in nodes], [])
        return
    params = cluster_hvparams(cluster).get(hypervisor, {})
    reserve_memory(context, nodes, what, memory_mib, hypervisor, params, disk_mib=disk_mib)

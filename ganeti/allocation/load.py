"""The load of each node, and how placing or removing an instance changes it.

A `NodeLoad` is never changed: placing makes a new one, so a search can look at thousands of
possibilities and forget them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ganeti.allocation.model import NO_LOAD, Instance, Node, Utilisation
from ganeti.objects.disk_templates import Mirroring


class Free(Struct, frozen=True):
    """The free resources that a node reports."""

    memory: int
    disk: int
    spindles: int = 0


class Promised(Struct, frozen=True):
    """The resources of a node that forthcoming instances will take; memory is in `NodeLoad`.

    ``unmeasured`` is how many of these instances do not say how many spindles they need.
    """

    disk: int = 0
    vcpus: int = 0
    spindle_use: int = 0
    spindles: int = 0
    unmeasured: int = 0

    def with_more(self, node: Node, instance: Instance, sign: int, *, is_primary: bool) -> Promised:
        """Return the sum with one instance more (1) or less (-1)."""
        return Promised(
            self.disk + sign * instance.disk,
            self.vcpus + sign * instance.vcpus * is_primary,
            self.spindle_use + sign * instance.spindle_use,
            self.spindles + sign * dedicated_spindles(node, instance),
            self.unmeasured + sign * instance.has_unknown_spindles,
        )


NOTHING_PROMISED: Final = Promised()


class NodeLoad(Struct, frozen=True):
    """The free resources of a node, and its instances in numbers.

    What instances take includes those that are down and those that are forthcoming; of other
    numbers the latter are in ``exclusion`` only.

    Attributes:
        vcpus: virtual CPUs of its primary instances, and CPUs that the node uses itself.
        idle_memory: memory of primary instances that do not run now, less the memory that the node
            reports as free though its instances that run should have it.
        load: sum of the utilisation of primary instances, and of secondary ones for the disk.
        promised: the part of the resources taken that forthcoming instances will take.
        surplus: memory that the node reports as free though its running instances should have it;
            counts for N+1 until an instance comes or goes.
        file_disk: room taken by disks that are files, which scores leave out.
        guarded: memory (MiB) of its secondary instances, by their primary node.
        reserved: memory that the failure of one other node would need here: the largest of these.
        partners: memory of running mirrored primary instances, by secondary node.
        movable: memory of its running primary instances that any other node could restart.
        exclusion: how many primary instances have each exclusion tag.
        in_one_domain: failure domains that the node shares with the secondary node, for each
            primary instance.
        unmet_wishes: places that primary instances would like and that this node is not.
    """

    node: Node
    free_memory: int
    free_disk: int
    free_spindles: int
    vcpus: int
    spindle_use: int
    primaries: int = 0
    secondaries: int = 0
    guarded: Mapping[str, int] = {}
    reserved: int = 0
    partners: Mapping[str, int] = {}
    movable: tuple[int, ...] = ()
    exclusion: Mapping[str, int] = {}
    in_one_domain: int = 0
    unmet_wishes: int = 0
    idle_memory: int = 0
    load: Utilisation = NO_LOAD
    promised: Promised = NOTHING_PROMISED
    surplus: int = 0
    file_disk: int = 0

    @property
    def present_free_memory(self) -> int:
        """Memory (MiB) that is free now, while some instances are down."""
        return self.free_memory + self.idle_memory

    @property
    def fails_n1(self) -> bool:
        """Whether it is usable and lacks memory to take over from the worst other node."""
        reserved = self.reserved
        lacks = reserved > 0 and reserved > self.free_memory + self.idle_memory + self.surplus
        return lacks and self.node.is_usable

    @property
    def deficit(self) -> int:
        """Memory missing to take over from the worst other node, and not be full to the brim."""
        reserved = self.reserved
        return max(0, reserved - self.free_memory - self.idle_memory + 1) if reserved else 0

    @property
    def conflicts(self) -> int:
        """How many exclusion tags too many there are."""
        return sum([count - 1 for count in self.exclusion.values()]) if self.exclusion else 0

    def with_primary(self, instance: Instance, secondary: Node | None, sign: int = 1) -> NodeLoad:
        """Return the load with (1) or without (-1) an instance that has it as primary node."""
        if instance.is_forthcoming:
            return self._with_forthcoming(instance, sign, is_primary=True)
        partners, movable = self.partners, self.movable
        if secondary is not None:
            partners = _added(partners, secondary.name, sign * instance.running_memory)
        elif instance.mirroring is Mirroring.EXTERNAL:
            movable = _with_or_without(movable, instance.running_memory, sign)
        exclusion = self.exclusion
        for tag in instance.exclusion_tags:
            exclusion = _added(exclusion, tag, sign)
        cpu, memory, disk, network = self.load
        own = instance.load
        return NodeLoad(
            self.node,
            self.free_memory - sign * instance.memory,
            self.free_disk - sign * instance.disk,
            self.free_spindles - sign * dedicated_spindles(self.node, instance),
            self.vcpus + sign * instance.vcpus,
            self.spindle_use + sign * instance.spindle_use,
            self.primaries + sign,
            self.secondaries,
            self.guarded,
            self.reserved,
            partners,
            movable,
            exclusion,
            self.in_one_domain + sign * shared_domains(self.node, secondary),
            self.unmet_wishes + sign * unmet(self.node, instance),
            self.idle_memory + sign * instance.idle_memory,
            Utilisation(
                cpu + sign * own.cpu,
                memory + sign * own.memory,
                disk + sign * own.disk,
                network + sign * own.network,
            ),
            self.promised,
            0,
            self.file_disk + sign * instance.file_disk,
        )

    def with_secondary(self, instance: Instance, primary: str, sign: int = 1) -> NodeLoad:
        """Return the load with (1) or without (-1) the instance's mirror."""
        if instance.is_forthcoming:
            return self._with_forthcoming(instance, sign, is_primary=False)
        guarded = _added(self.guarded, primary, sign * instance.kept_memory)
        if sign > 0:
            reserved = max(self.reserved, guarded.get(primary, 0))
        else:
            reserved = max(guarded.values(), default=0)
        return replace(
            self,
            free_disk=self.free_disk - sign * instance.disk,
            free_spindles=self.free_spindles - sign * dedicated_spindles(self.node, instance),
            spindle_use=self.spindle_use + sign * instance.spindle_use,
            secondaries=self.secondaries + sign,
            guarded=guarded,
            reserved=reserved,
            load=self.load._replace(disk=self.load.disk + sign * instance.load.disk),
            surplus=0,
        )

    def _with_forthcoming(self, instance: Instance, sign: int, *, is_primary: bool) -> NodeLoad:
        memory = sign * instance.memory * is_primary
        exclusion = self.exclusion
        for tag in instance.exclusion_tags if is_primary else ():
            exclusion = _added(exclusion, tag, sign)
        return replace(
            self,
            free_memory=self.free_memory - memory,
            idle_memory=self.idle_memory + memory,
            free_disk=self.free_disk - sign * instance.disk,
            free_spindles=self.free_spindles - sign * dedicated_spindles(self.node, instance),
            vcpus=self.vcpus + sign * instance.vcpus * is_primary,
            spindle_use=self.spindle_use + sign * instance.spindle_use,
            exclusion=exclusion,
            promised=self.promised.with_more(self.node, instance, sign, is_primary=is_primary),
            file_disk=self.file_disk + sign * instance.file_disk * is_primary,
        )


def dedicated_spindles(node: Node, instance: Instance) -> int:
    """Return how many spindles of a node an instance has for itself."""
    return instance.spindles if node.exclusive_storage else 0


def shared_domains(node: Node, other: Node | None) -> int:
    """Return how many causes of failure two nodes have in common."""
    if other is None or not node.locations:
        return 0
    return len(node.locations & other.locations)


def unmet(node: Node, instance: Instance) -> int:
    """Return how many of the places that an instance would like this node is not."""
    return len(instance.wishes - node.locations)


def _added(counts: Mapping[str, int], key: str, amount: int) -> Mapping[str, int]:
    if not amount:
        return counts
    value = counts.get(key, 0) + amount
    if value:
        return {**counts, key: value}
    return {name: count for name, count in counts.items() if name != key}


def _with_or_without(values: tuple[int, ...], value: int, sign: int) -> tuple[int, ...]:
    if sign > 0:
        return (*values, value)
    where = values.index(value)
    return values[:where] + values[where + 1 :]


def load_of(
    node: Node,
    free: Free,
    primaries: Iterable[Instance],
    secondaries: Iterable[Instance],
    nodes: Mapping[str, Node],
) -> NodeLoad:
    """Return the load of a node that has these instances already.

    ``free`` is what it reports: instances that are down do not take their memory, forthcoming ones
    take nothing yet.
    """
    promised = NOTHING_PROMISED
    vcpus, idle_memory, spindle_use, file_disk = node.own_cpus, 0, 0, 0
    running_memory = count = in_one_domain = unmet_wishes = 0
    cpu_load = memory_load = disk_load = network_load = 0.0
    partners: dict[str, int] = {}
    movable: list[int] = []
    exclusion: dict[str, int] = {}
    for each in primaries:
        vcpus += each.vcpus
        idle_memory += each.memory - each.running_memory
        spindle_use += each.spindle_use
        for tag in each.exclusion_tags:
            exclusion[tag] = exclusion.get(tag, 0) + 1
        if each.is_forthcoming:
            promised = promised.with_more(node, each, 1, is_primary=True)
            file_disk += each.file_disk
            continue
        count += 1
        memory = each.running_memory
        running_memory += memory
        cpu, for_memory, disk, network = each.load
        cpu_load += cpu
        memory_load += for_memory
        disk_load += disk
        network_load += network
        if len(each.nodes) > 1:
            other = each.nodes[1]
            if memory:
                partners[other] = partners.get(other, 0) + memory
            if node.locations:
                in_one_domain += shared_domains(node, nodes.get(other))
        elif each.mirroring is Mirroring.EXTERNAL:
            movable.append(memory)
        if each.wishes:
            unmet_wishes += unmet(node, each)
    guarded: dict[str, int] = {}
    mirrors = 0
    for each in secondaries:
        spindle_use += each.spindle_use
        if each.is_forthcoming:
            promised = promised.with_more(node, each, 1, is_primary=False)
            continue
        mirrors += 1
        disk_load += each.load.disk
        if each.kept_memory:
            other = each.nodes[0]
            guarded[other] = guarded.get(other, 0) + each.kept_memory
    surplus = max(0, free.memory + running_memory + node.own_memory - node.total_memory)
    return NodeLoad(
        node=node,
        free_memory=free.memory - idle_memory,
        free_disk=free.disk - promised.disk,
        free_spindles=free.spindles - promised.spindles,
        vcpus=vcpus,
        spindle_use=spindle_use,
        primaries=count,
        secondaries=mirrors,
        guarded=guarded,
        reserved=max(guarded.values(), default=0),
        partners=partners,
        movable=tuple(movable),
        exclusion=exclusion,
        in_one_domain=in_one_domain,
        unmet_wishes=unmet_wishes,
        idle_memory=idle_memory - surplus,
        surplus=surplus,
        file_disk=file_disk,
        load=Utilisation(node.own_cpu_load + cpu_load, memory_load, disk_load, network_load),
        promised=promised,
    )

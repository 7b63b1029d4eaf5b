"""Operations on the disks of an existing instance: make ready, close, grow, make anew.

A running guest sees the new size of a disk at once where its hypervisor can.  Lost disks are made
anew, empty, where they were or on other nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from ganeti.base.errors import GenericError, OpExecError, OpPrereqError, wrong_state
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.placing import still_usable
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance import guest
from ganeti.logical_units.instance.base import (
    AnyInstanceUnit,
    InstanceUnit,
    OnInstance,
    check_online,
    check_pair,
    check_primary_online,
)
from ganeti.logical_units.instance.changes.device_changes import DISKS, find_device
from ganeti.logical_units.instance.creation.choosing import check_one_way, choose_for_disks
from ganeti.logical_units.instance.moving.target import check_target
from ganeti.logical_units.instance.parameters import check_policy
from ganeti.logical_units.instance.storage import disks, planning
from ganeti.logical_units.instance.storage.disks import make_directory, make_disk, wipe
from ganeti.logical_units.instance.storage.files import directories
from ganeti.logical_units.instance.storage.lvm_disks import has_exclusive_storage
from ganeti.logical_units.instance.storage.planner import SIZE_MIB_MAX, disk_size, resized
from ganeti.logical_units.instance.storage.remains import remove_remains
from ganeti.logical_units.instance.storage.syncing import tell_degraded, wait_for_sync
from ganeti.logical_units.instance.view import InstanceView, changed_fields
from ganeti.logical_units.undo import Undo
from ganeti.objects.disk_templates import DiskFormat
from ganeti.objects.model import Disk, Node
from ganeti.opcodes.instance import (
    OpInstanceActivateDisks,
    OpInstanceDeactivateDisks,
    OpInstanceGrowDisk,
    OpInstanceRecreateDisks,
)
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.wconfd import Change, LockMode, ObjectKind


class LUInstanceActivateDisks(InstanceUnit[OpInstanceActivateDisks, OnInstance]):
    """Make the disks ready; the result is [node, name in the instance, device] of each."""

    def plan(self, found: OnInstance) -> OnInstance:
        """Refuse when the node is offline."""
        check_primary_online(found.view)
        return found

    def execute(self, plan: OnInstance) -> list[disks.Ready]:
        """Make them ready, and record that they are."""
        guest.record(self.context, plan.view.instance, disks_active=True)
        view, op = plan.view, self.op
        ready = disks.activate(self.context, view, view.primary, ignore_size=op.ignore_size)
        if op.wait_for_sync:
            wait_for_sync(self.context, view)
        else:
            tell_degraded(self.context, view)
        return ready


class LUInstanceDeactivateDisks(InstanceUnit[OpInstanceDeactivateDisks, OnInstance]):
    """Close the disks of an instance that does not run."""

    def plan(self, found: OnInstance) -> OnInstance:
        """Refuse while the instance runs, unless forced."""
        if not self.op.force:
            check_primary_online(found.view)
            hint = "shut it down first, or use --force"
            guest.check_not_running(self.context, found.view, hint)
        return found

    def execute(self, plan: OnInstance) -> None:
        """Close them, and record that they are."""
        view, instance = plan.view, plan.view.instance
        if not disks.deactivate(self.context, view, view.primary):
            raise OpExecError(
                f"not all disks of instance {instance.name!r} could be deactivated on node"
                f" {view.primary.name!r}"
            )
        guest.record(self.context, instance, disks_active=False)


def grown_size(what: str, size_mib: int, amount_mib: int, *, absolute: bool) -> int:
    """Return the new size of a disk, which is larger than the old one.

    Raises:
        OpPrereqError: it is not, or larger than a disk can be.
    """
    new_mib = amount_mib if absolute else size_mib + amount_mib
    if new_mib < size_mib:
        raise OpPrereqError(f"{what} has {size_mib} MiB; disks cannot be made smaller")
    if new_mib == size_mib:
        raise OpPrereqError(f"{what} has {size_mib} MiB already: nothing to grow")
    if new_mib > SIZE_MIB_MAX:
        raise OpPrereqError(
            f"{what} cannot have more than {SIZE_MIB_MAX} MiB, {new_mib} were asked"
        )
    return new_mib


@dataclass(frozen=True, slots=True)
class Growth(OnInstance):
    """A disk that grows, as it is and as it is to be."""

    index: int
    disk: Disk
    size_mib: int
    guest_runs: bool = False

    @property
    def what(self) -> str:
        """The disk, as errors name it."""
        return f"disk {self.index} of instance {self.view.name!r}"

    @property
    def grown(self) -> Disk:
        """The disk as it is to be."""
        return resized(self.disk, self.size_mib)

    @property
    def holders(self) -> list[Node]:
        """The nodes on which it grows."""
        return disks.holders(self.view, self.disk, self.view.primary)

    @property
    def is_image(self) -> bool:
        """Whether its file has a format of its own; nobody but QEMU changes it while it runs."""
        return self.disk.format is not DiskFormat.RAW


class LUInstanceGrowDisk(InstanceUnit[OpInstanceGrowDisk, Growth]):
    """Grow one disk."""

    hooks = HookPoint("disk-grow", ObjectType.INSTANCE)
    resources = LockMode.EXCLUSIVE
    told = ("disk", "amount", "absolute")

    def plan(self, found: OnInstance) -> Growth:
        """Refuse a disk that cannot grow, and let the node check that it can be done there."""
        view = found.view
        check_primary_online(view)
        index = find_device(DISKS, view.disks, self.op.disk)
        disk = view.disks[index]
        plan = Growth(view, index, disk, disk.size)
        if not disk.traits.can_grow:
            raise OpPrereqError(
                f"{plan.what}: disks of template {disk.dev_type!r} cannot be resized by Ganeti"
            )
        size_mib = grown_size(plan.what, disk.size, self.op.amount, absolute=self.op.absolute)
        plan = replace(plan, size_mib=size_mib)
        after = [plan.grown if each is disk else each for each in view.disks]
        ignore, group = self.op.ignore_ipolicy, view.group
        check_policy(self.context, view.cluster, group, view.instance, after, ignore=ignore)
        for node in plan.holders[1:]:
            check_online(node, f"grow {plan.what} on")
        self._grow(plan, dry_run=True)
        return replace(plan, guest_runs=guest.runs_here(self.context, view))

    def _grow(self, plan: Growth, *, dry_run: bool) -> None:
        """Let the nodes grow the disk, or check only that they could.

        What grew in an earlier try is not grown again: a volume below a disk with a copy, and with
        --absolute any disk.
        """
        nodes, doing = self.context.nodes, f"grow {plan.what}"
        for node in plan.holders:
            calls = (nodes.check if dry_run else nodes.on)(node, doing)
            wire = plan.view.disk_wire(plan.disk, node)
            amount_mib = plan.size_mib - plan.disk.size
            if wire.children or self.op.absolute:
                [volume, *_] = wire.children or [wire]
                has_mib = disks.device_bytes(calls, volume) >> 20
                amount_mib = min(amount_mib, plan.size_mib - has_mib)
            if amount_mib > 0:
                calls.blockdev_grow(
                    # A provider of storage is told the sum of both as the new size.
                    structs.replace(wire, size=plan.size_mib - amount_mib),
                    amount_mib,
                    dryrun=dry_run,
                    backingstore=True,
                    exclusive_storage=has_exclusive_storage(self.context, node),
                )

    def _resize(self, plan: Growth) -> None:
        """Let both sides of a disk with a copy use their larger volumes."""
        primary, amount_mib = plan.view.primary, plan.size_mib - plan.disk.size
        wire = plan.view.disk_wire(plan.disk, primary)
        self.context.nodes.on(primary, f"grow {plan.what}").blockdev_grow(
            wire, amount_mib, dryrun=False, backingstore=False, exclusive_storage=False
        )

    def execute(self, plan: Growth) -> None:
        """Grow it on the node, record the size, tell the guest."""
        view, added_mib, new_mib = plan.view, plan.size_mib - plan.disk.size, plan.size_mib
        self.context.feedback(
            f"Growing disk {plan.index} of instance '{view.name}' by {added_mib} MiB to"
            f" {new_mib} MiB"
        )
        wiped_mib = None
        if plan.guest_runs and plan.is_image:
            self._let_guest_grow(plan)
        elif plan.disk.traits.mirrored:
            wiped_mib = self._grow_pair(plan)
        else:
            wiped_mib = self._wiped_from(plan)
            self._grow(plan, dry_run=False)
        fields = changed_fields(plan.disk, plan.grown)
        self.config.modify(ObjectKind.DISK, plan.disk.uuid, fields)
        if wiped_mib is not None:
            self._wipe(plan, wiped_mib)
        if plan.guest_runs and not plan.is_image:
            self._tell_guest(plan)
        if plan.disk.traits.mirrored:
            self._end_pair(plan)

    def _wiped_from(self, plan: Growth) -> int | None:
        """Return where a disk that is to grow is to be wiped from, None if it is not wiped.

        That is the end of its device, which the guest uses, however much of it is recorded: it may
        have started since an earlier try was broken off before it could wipe.
        """
        view = plan.view
        if plan.is_image or not view.cluster.prealloc_wipe_disks:
            return None
        calls = self.context.nodes.on(view.primary, f"grow {plan.what}")
        end_mib = -(-disks.device_bytes(calls, view.disk_wire(plan.disk, view.primary)) >> 20)
        if end_mib > plan.disk.size:
            self.context.warn(
                f"{plan.what} has {end_mib} MiB, {plan.disk.size} are written down: what is between"
                " is not wiped, as the guest may use it; if an earlier growth was broken off, it"
                " may show old data of others"
            )
        return end_mib

    def _wipe(self, plan: Growth, start_mib: int) -> None:
        """Wipe what is new: it cannot be taken away again, and must not show old data of others."""
        view, disk = plan.view, plan.grown
        try:
            wipe(self.context, view, view.primary, plan.index, disk, start_mib, can_stop=False)
        except GenericError as err:
            raise OpExecError(
                f"{err}; the disk has its new size of {disk.size} MiB, and what is not wiped may"
                " show old data of others: overwrite it in the guest before it is used"
            ) from err

    def _grow_pair(self, plan: Growth) -> int | None:
        """Grow the volumes on both nodes, then the disk; returns where to wipe it from."""
        try:
            disks.activate(self.context, plan.view, plan.view.primary)
            wiped_mib = self._wiped_from(plan)
            self._grow(plan, dry_run=False)
            self._resize(plan)
        except GenericError as err:
            raise OpExecError(
                f"{err}; the disk has its old size, volumes that have grown stay so: try again with"
                f" 'gnt-instance grow-disk --absolute {plan.view.name} {plan.index}"
                f" {plan.size_mib}m'"
            ) from err
        return wiped_mib

    def _end_pair(self, plan: Growth) -> None:
        """Wait for the copy of the new part; close the disks again if they were closed."""
        now = plan.view.with_instance(
            plan.view.instance,
            [plan.grown if each is plan.disk else each for each in plan.view.disks],
        )
        if self.op.wait_for_sync:
            wait_for_sync(self.context, now, [plan.grown])
            if not plan.view.instance.disks_active:
                disks.deactivate(self.context, now, now.primary)
        else:
            self.context.info("the new part is copied by and by")

    def _let_guest_grow(self, plan: Growth) -> None:
        """Let the hypervisor grow a disk that it alone may change now; the guest sees it."""
        view, device = plan.view, plan.view.disk_wire(plan.grown, plan.view.primary).to_wire()
        nodes = self.context.nodes.on(view.primary, f"grow {plan.what}")
        wire = view.wire(view.primary)
        nodes.hotplug_device(wire, "hotmod", "disk", device, None, plan.index)

    def _tell_guest(self, plan: Growth) -> None:
        """Let the running guest see the size; a failure is told."""
        view, call = plan.view, NodeCalls.hotplug_device
        device = view.disk_wire(plan.grown, view.primary).to_wire()
        result = self.context.nodes.call_one(
            call, view.primary, view.wire(view.primary), "hotmod", "disk", device, None, plan.index
        )
        if result.error is not None:
            self.context.warn(
                f"the running instance does not see the new size yet ({result.error}); restart it"
            )


CHANGEABLE: Final = ("mode", "size")


def plan_recreation(
    disks: Sequence[Disk], asked: Sequence[int | tuple[int, Mapping[str, object]]]
) -> dict[int, Disk]:
    """Return {index: disk as it is to be} of the disks to be made; all of them if none is named.

    Raises:
        OpPrereqError: no such disk, named twice, or a setting that cannot be changed.
    """
    given = [(one, {}) if isinstance(one, int) else one for one in asked]
    wanted: dict[int, Disk] = {}
    for index, settings in given or [(index, {}) for index in range(len(disks))]:
        if index >= len(disks):
            raise OpPrereqError(f"disk {index} not found: the instance has {len(disks)} disk(s)")
        if index in wanted:
            raise OpPrereqError(f"disk {index} is named twice")
        disk, what = disks[index], f"disk/{index}"
        planner = planning.planner_of(disk.dev_type)
        planning.check_changeable(what, settings, (*CHANGEABLE, *planner.own))
        wanted[index] = structs.replace(
            resized(disk, disk_size(what, settings.get("size", disk.size))),
            params=planner.own_params(what, settings, disk.params),
            mode=planning.disk_mode(what, settings.get("mode", disk.mode.value)),
        )
    return wanted


@dataclass(frozen=True, slots=True)
class WithPlace(OnInstance):
    """An instance and the nodes where its disks are to be.

    Attributes:
        chosen: the primary one, then the secondary one; none until an allocator has chosen them.
    """

    chosen: Sequence[Node]

    @property
    def nodes(self) -> list[Node]:
        """The nodes of the instance, and those chosen."""
        return [*self.view.nodes, *self.chosen]


@dataclass(frozen=True, slots=True)
class Recreation(WithPlace):
    """The disks to be made anew, as they are to be, by index."""

    wanted: Mapping[int, Disk]

    @property
    def goal(self) -> Node:
        """The node that is to be the primary one."""
        return self.chosen[0]

    @property
    def goes_elsewhere(self) -> bool:
        """Whether the instance gets other nodes."""
        return [node.uuid for node in self.chosen] != [node.uuid for node in _own_nodes(self.view)]


def _is_new_on(plan: Recreation, disk: Disk, node: Node) -> bool:
    """Tell whether the disk was never meant to be on a node, so that it has at most remains."""
    own = {*(each.uuid for each in plan.view.nodes), *disk.nodes}
    return node.uuid not in own and not disk.traits.shared


def _own_nodes(view: InstanceView) -> list[Node]:
    return view.nodes[: _node_count(view)]


def _node_count(view: InstanceView) -> int:
    return 2 if view.needs_own_nodes else 1


class LUInstanceRecreateDisks(AnyInstanceUnit[OpInstanceRecreateDisks, WithPlace, Recreation]):
    """Make the disks of a stopped instance anew."""

    hooks = HookPoint("instance-recreate-disks", ObjectType.INSTANCE)
    resources = LockMode.EXCLUSIVE

    def resolve(self) -> WithPlace:
        """Read the instance, and look up the nodes where its disks are to be."""
        view, names = self.read_instance(), self.op.node_uuids or self.op.nodes
        what, count = f"instance {view.name!r}", _node_count(view)
        if len(names) not in (0, count):
            many = "one node" if count == 1 else f"{count} nodes"
            raise OpPrereqError(
                f"{what}: disk template {view.template!r} has its disks on {many}, {len(names)}"
                " were given"
            )
        named = [lookup.require_node(self.config, name) for name in names]
        if self.op.iallocator is None:
            return WithPlace(view, named or _own_nodes(view))
        node_name = named[0].name if named else None
        check_one_way(what, node=node_name, iallocator=self.op.iallocator)
        return WithPlace(view, [])

    def place(self, found: WithPlace, earlier: WithPlace | None) -> WithPlace:
        """Have an allocator choose the nodes, if one is given; space there is reserved."""
        if found.chosen:
            return found
        view = found.view
        wanted = plan_recreation(view.disks, self.op.disks)
        _check_template(view, wanted)
        made = [wanted.get(index, disk) for index, disk in enumerate(view.disks)]
        chosen = still_usable(self.config, earlier.chosen) if earlier else []
        if not chosen:
            chosen = choose_for_disks(self.context, view, made, str(self.op.iallocator))
        return WithPlace(view, chosen)

    def plan(self, found: WithPlace) -> Recreation:
        """Refuse while the instance runs, and where disks are still there."""
        view, name = found.view, found.view.name
        plan = Recreation(view, found.chosen, plan_recreation(view.disks, self.op.disks))
        _check_template(view, plan.wanted)
        left = [disk for index, disk in enumerate(view.disks) if index not in plan.wanted]
        if plan.goes_elsewhere and not all(disk.traits.shared for disk in left):
            raise OpPrereqError(
                f"instance {name!r}: on other nodes all disks must be made anew, not some"
            )
        if not view.primary.offline:
            guest.check_not_running(self.context, view)
        elif not plan.goes_elsewhere:
            check_primary_online(view)
        if plan.goes_elsewhere:
            check_target(self.context, view, plan.goal, ignore_ipolicy=False)
            check_pair(self.context, f"instance {name!r}", plan.chosen, view.templates)
        self._check_lost(plan)
        planning.check_on_nodes(self.context, plan.chosen, list(plan.wanted.values()))
        return plan

    def _check_lost(self, plan: Recreation) -> None:
        """Refuse disks that are still there: their data would be lost."""
        view = plan.view.with_nodes(*plan.chosen)
        for node in plan.chosen:
            own = [disk for disk in plan.wanted.values() if not _is_new_on(plan, disk, node)]
            there = disks.indexes_on(self.context, view, node, own, there=True)
            if there:
                disk = view.disks[there[0]]
                hint = self._ways_on(plan, disk) if disk.traits.mirrored else ""
                raise wrong_state(
                    f"disk {there[0]} of instance {view.name!r} exists on node {node.name!r}; name"
                    f" only the disks that are lost (--disk N){hint}"
                )
        if plan.goes_elsewhere:
            self._check_gone(plan)

    def _check_gone(self, plan: Recreation) -> None:
        """Refuse to leave disks behind that are where the configuration says."""
        view = plan.view
        wanted = [disk for disk in plan.wanted.values() if not disk.traits.shared]
        for node in _own_nodes(view):
            if node.offline or node in plan.chosen:
                continue
            there = disks.indexes_on(self.context, view, node, wanted, there=True)
            if there:
                goal = plan.goal.name
                way = (
                    f"'gnt-instance failover {view.name}' and 'gnt-instance replace-disks"
                    f" --new-secondary=... {view.name}' go on with it"
                    if view.needs_own_nodes
                    else f"'gnt-instance move -n {goal} {view.name}' takes it along"
                )
                raise wrong_state(
                    f"disk {there[0]} of instance {view.name!r} exists on node {node.name!r}, and"
                    f" is not lost: {way}; if the node itself is lost, mark it with 'gnt-node"
                    f" modify --offline=yes {node.name}'"
                )

    def _ways_on(self, plan: Recreation, disk: Disk) -> str:
        """Return what to do about volumes that are there, when others may be lost."""
        name, places = plan.view.name, []
        view = plan.view.with_nodes(*plan.chosen)
        for node in plan.chosen:
            calls = self.context.nodes.check(node, f"look for the volumes of instance {name!r}")
            parts = [] if _is_new_on(plan, disk, node) else view.disk_wire(disk, node).children
            left = ["/".join(map(str, p.logical_id)) for p in parts if calls.blockdev_find(p)]
            if left:
                places.append(f"'lvremove {' '.join(left)}' on node {node.name}")
        return (
            f", or make one side anew with 'gnt-instance replace-disks {name}'; if an earlier"
            " recreation was cut off, and nothing on it is needed, begin anew with 'gnt-instance"
            f" deactivate-disks {name}', then {', '.join(places)}"
        )

    def hook_nodes(self, plan: Recreation) -> Sequence[Node]:
        return [self.master, *plan.view.nodes]

    def execute(self, plan: Recreation) -> None:
        """Make the disks, then record the changes."""
        node = plan.goal
        group = lookup.require_group(self.config, node.group)
        view = plan.view.moved_to(node, group).with_nodes(*plan.chosen)
        with Undo(self.context) as undo:
            for directory in directories(list(plan.wanted.values())):
                make_directory(self.context, node, directory, undo)
            made = {}
            for index, disk in plan.wanted.items():
                self.context.check_canceled()
                self.context.feedback(f"* creating disk {index}...")
                planned = planning.settle(self.context, planning.on_nodes(disk, plan.chosen))
                for each in plan.chosen:
                    if _is_new_on(plan, disk, each):
                        remove_remains(self.context, view, each, index, planned)
                made[index] = make_disk(self.context, view, node, index, planned, undo)
            self._record(plan, made)
            undo.forget()
        after = InstanceView.of(self.config.get_instance_context(view.instance.uuid))
        wait_for_sync(self.context, after)
        if not after.instance.disks_active:
            disks.deactivate(self.context, after, after.primary)

    def _record(self, plan: Recreation, made: Mapping[int, Disk]) -> None:
        changes: list[Change] = []
        if plan.goal.uuid != plan.view.primary.uuid:
            primary = {"primary_node": plan.goal.uuid}
            changes.append((ObjectKind.INSTANCE, plan.view.instance.uuid, primary))
        for index, disk in made.items():
            fields = changed_fields(plan.view.disks[index], disk)
            if fields:
                changes.append((ObjectKind.DISK, disk.uuid, fields))
        if changes:
            self.config.modify_objects(changes)


def _check_template(view: InstanceView, wanted: Mapping[int, Disk]) -> None:
    adopted = [disk.dev_type for disk in wanted.values() if disk.traits.must_adopt]
    for template in adopted or ([] if view.disks else [view.template]):
        raise OpPrereqError(
            f"instance {view.name!r}: disks of template {template!r} cannot be made anew"
        )

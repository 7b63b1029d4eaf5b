"""Make a disk of an instance larger; a running guest sees it at once where its hypervisor can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from msgspec import structs

from ganeti.base.errors import OpPrereqError
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.base import InstanceUnit, OnInstance, check_node_online
from ganeti.logical_units.instance.changes.device_changes import DISKS, find_device
from ganeti.logical_units.instance.life.power import is_running, running_info
from ganeti.logical_units.instance.policy import check_policy, spec_of
from ganeti.logical_units.instance.storage.disks import wipe
from ganeti.logical_units.instance.storage.planner import SIZE_MIB_MAX
from ganeti.objects.model import Disk
from ganeti.opcodes.instance import OpInstanceGrowDisk
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.wconfd import ObjectKind


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
    guest_runs: bool

    @property
    def grown(self) -> Disk:
        """The disk as it is to be."""
        return structs.replace(self.disk, size=self.size_mib)


class LUInstanceGrowDisk(InstanceUnit[OpInstanceGrowDisk, Growth]):
    """Grow one disk."""

    hooks = HookPoint("disk-grow", ObjectType.INSTANCE)

    def plan(self, found: OnInstance) -> Growth:
        """Refuse a disk that cannot grow, and let the node check that it can be done there."""
        view, name = found.view, found.view.instance.name
        check_node_online(view.primary, f"primary node of instance {name!r}:")
        index = find_device(DISKS, view.disks, self.op.disk)
        disk = view.disks[index]
        if not disk.traits.can_grow:
            raise OpPrereqError(
                f"disk {index} of instance {name!r}: disks of template"
                f" {disk.dev_type!r} cannot be resized by Ganeti"
            )
        what = f"disk {index} of instance {name!r}"
        size_mib = grown_size(what, disk.size, self.op.amount, absolute=self.op.absolute)
        plan = Growth(view, index, disk, size_mib, guest_runs=False)
        self._check_policy(plan)
        self._grow(plan, dry_run=True)
        runs = is_running(running_info(self.context, view, view.primary))
        return replace(plan, guest_runs=runs)

    def _check_policy(self, plan: Growth) -> None:
        view = plan.view
        disks = list(view.disks)
        disks[plan.index] = plan.grown
        ignored = check_policy(
            view.cluster,
            view.group,
            view.instance.name,
            spec_of(view.cluster, view.instance, disks),
            ignore=self.op.ignore_ipolicy,
        )
        if ignored:
            self.context.warn(f"{ignored}; ignoring")

    def _grow(self, plan: Growth, *, dry_run: bool) -> None:
        """Let the node grow the disk, or check only that it could."""
        nodes, primary = self.context.nodes, plan.view.primary
        doing = f"grow disk {plan.index} of instance {plan.view.instance.name!r}"
        (nodes.check if dry_run else nodes.on)(primary, doing).blockdev_grow(
            plan.view.disk_wire(plan.disk),
            plan.size_mib - plan.disk.size,
            dryrun=dry_run,
            backingstore=True,
            exclusive_storage=False,
        )

    def own_values(self, plan: Growth) -> Mapping[str, object]:
        return {"DISK": self.op.disk, "AMOUNT": self.op.amount, "ABSOLUTE": self.op.absolute}

    def execute(self, plan: Growth) -> None:
        """Grow it on the node, record the size, tell the guest."""
        view, old_mib, new_mib = plan.view, plan.disk.size, plan.size_mib
        self.context.feedback(
            f"Growing disk {plan.index} of instance '{view.instance.name}' by"
            f" {new_mib - old_mib} MiB to {new_mib} MiB"
        )
        self._grow(plan, dry_run=False)
        self.config.modify(ObjectKind.DISK, plan.disk.uuid, {"size": new_mib})
        if view.cluster.prealloc_wipe_disks:
            # It cannot be made smaller again, and must not show what others have left on it.
            wipe(self.context, view, view.primary, plan.index, plan.grown, old_mib, can_stop=False)
        if plan.guest_runs:
            self._tell_guest(plan)

    def _tell_guest(self, plan: Growth) -> None:
        """Let the running guest see the size; a failure is told."""
        result = self.context.nodes.call_one(
            NodeCalls.hotplug_device,
            plan.view.primary,
            plan.view.wire(),
            "hotmod",
            "disk",
            plan.view.disk_wire(plan.grown).to_wire(),
            None,
            plan.index,
        )
        if result.error is not None:
            self.context.warn(
                f"the running instance does not see the new size yet ({result.error}); restart it"
            )

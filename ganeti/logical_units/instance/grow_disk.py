"""Make a disk of an instance larger; a running guest sees it at once where its hypervisor can."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units.instance.device_changes import DISKS, find_device
from ganeti.logical_units.instance.making_disks import wipe
from ganeti.logical_units.instance.new_disks import SIZE_MIB_MAX
from ganeti.logical_units.instance.policy import check_policy, spec_of
from ganeti.logical_units.instance.power import is_running, running_info
from ganeti.logical_units.instance.subject import InstanceUnit, check_node_online
from ganeti.logical_units.node_calls import ask, call_node, order
from ganeti.objects.disk_templates import GROWABLE
from ganeti.opcodes.instance import OpInstanceGrowDisk


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


class LUInstanceGrowDisk(InstanceUnit[OpInstanceGrowDisk]):
    """Grow one disk."""

    def check_prereq(self) -> None:
        """Refuse what cannot grow, and let the node check that it can be done there."""
        subject, name = self.subject, self.instance.name
        primary = subject.primary
        check_node_online(primary, f"primary node of instance {name!r}:")
        self.index = find_device(DISKS, subject.disks, self.op.disk)
        self.disk = subject.disks[self.index]
        if self.disk.dev_type not in GROWABLE:
            raise OpPrereqError(
                f"disk {self.index} of instance {name!r}: disks of template"
                f" {self.disk.dev_type!r} cannot be resized by Ganeti",
                ErrorCode.INVAL,
            )
        what = f"disk {self.index} of instance {name!r}"
        size_mib = grown_size(what, self.disk.size, self.op.amount, absolute=self.op.absolute)
        self.new_disk = replace(self.disk, size=size_mib)
        self._check_policy()
        self._ask(dry_run=True)
        self.guest_runs = is_running(running_info(self.context, subject, primary))

    def _check_policy(self) -> None:
        subject = self.subject
        disks = list(subject.disks)
        disks[self.index] = self.new_disk
        ignored = check_policy(
            self.cluster,
            subject.group,
            self.instance.name,
            spec_of(self.cluster, self.instance, disks),
            ignore=self.op.ignore_ipolicy,
        )
        if ignored:
            self.context.warn(f"{ignored}; ignoring")

    def _ask(self, *, dry_run: bool) -> None:
        """Let the node grow the disk, or check only that it could."""
        (ask if dry_run else order)(
            self.context,
            self.subject.primary,
            f"grow disk {self.index} of instance {self.instance.name!r}",
            "blockdev_grow",
            self.subject.disk_wire(self.disk),
            self.new_disk.size - self.disk.size,
            dry_run,
            True,
            False,
        )

    def own_env(self) -> Mapping[str, object]:
        """Tell which disk, and how much."""
        return {"DISK": self.op.disk, "AMOUNT": self.op.amount, "ABSOLUTE": self.op.absolute}

    def exec(self) -> None:
        """Grow it on the node, write the size down, tell the guest."""
        old_mib, new_mib = self.disk.size, self.new_disk.size
        self.context.feedback(
            f"Growing disk {self.index} of instance '{self.instance.name}' by"
            f" {new_mib - old_mib} MiB to {new_mib} MiB"
        )
        self._ask(dry_run=False)
        self.config.modify_disk(self.disk.uuid, {"size": new_mib})
        if self.cluster.prealloc_wipe_disks:
            primary = self.subject.primary
            disk, index = self.new_disk, self.index
            # It cannot be made smaller again, and must not show what others have left on it.
            wipe(self.context, self.subject, primary, index, disk, old_mib, can_stop=False)
        if self.guest_runs:
            self._tell_guest()

    def _tell_guest(self) -> None:
        """Let the running guest see the size; a failure is told."""
        result = call_node(
            self.context,
            self.subject.primary,
            "hotplug_device",
            self.subject.wire(),
            "hotmod",
            "disk",
            self.subject.disk_wire(self.new_disk),
            None,
            self.index,
        )
        if result.error is not None:
            self.context.warn(
                f"the running instance does not see the new size yet ({result.error}); restart it"
            )

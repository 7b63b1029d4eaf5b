"""Snapshots for people: the contents of all disks of an instance at one instant, kept under a name.

They are read from the disks themselves, which keep them: the configuration has no word of them, so
that nothing can differ from it, and 3.0 reads it as before.  A disk that came later, or came from
elsewhere, has others than the rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ganeti.base.errors import ErrorCode, OpExecError, OpPrereqError, wrong_state
from ganeti.base.text import shown
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance import guest
from ganeti.logical_units.instance.base import InstanceUnit, OnInstance, check_primary_online
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.locks import LockLevel, LockNeed, shared
from ganeti.logical_units.undo import Undo
from ganeti.objects.disk_templates import keeps_snapshots
from ganeti.opcodes.instance import OpInstanceListSnapshots, OpInstanceSnapshot, SnapshotAction

# Begins with a letter: to QEMU's tools a number would be that of another snapshot.
NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._+-]{0,62}")
SNAPSHOTS_MAX: Final = 64  # each costs tables in every image, and time when the guest writes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot; its time in seconds since 1970, and the indexes of the disks that have it."""

    name: str
    ctime: float
    disks: list[int]


def read_snapshots(context: JobContext, view: InstanceView) -> list[Snapshot]:
    """Return the snapshots of an instance, the oldest first; asks nobody if it cannot have any.

    Raises:
        OpPrereqError: its node does not answer.
    """
    if not any(keeps_snapshots(disk.dev_type, disk.format) for disk in view.disks):
        return []
    nodes = context.nodes.check(view.primary, f"look for snapshots of instance {view.name!r}")
    found: dict[str, Snapshot] = {}
    for index, of_disk in enumerate(nodes.kept_snapshots(view.wire(view.primary))):
        for name, ctime in of_disk:
            found.setdefault(name, Snapshot(name, ctime, [])).disks.append(index)
    return sorted(found.values(), key=lambda each: each.ctime)


def check_without_snapshots(context: JobContext, view: InstanceView, doing: str) -> None:
    """Refuse work that makes other disks of an instance, without the snapshots of the old ones.

    Args:
        doing: the work, as it reads after "cannot".

    Raises:
        OpPrereqError: there are snapshots (wrong_state).
    """
    found = read_snapshots(context, view)
    if found:
        names = shown([each.name for each in found])
        raise wrong_state(
            f"cannot {doing}: its snapshots ({names}) would be lost; remove them first with"
            f" 'gnt-instance snapshot remove {view.name} NAME'"
        )


def require_snapshot(view: InstanceView, found: Sequence[Snapshot], name: str) -> Snapshot:
    """Return a snapshot by its name.

    Raises:
        OpPrereqError: there is none of that name.
    """
    for each in found:
        if each.name == name:
            return each
    known = shown([each.name for each in found]) or "none"
    raise OpPrereqError(
        f"instance {view.name!r} has no snapshot {name!r}; it has: {known}", ErrorCode.NOENT
    )


def require_whole(view: InstanceView, found: Sequence[Snapshot], name: str) -> Snapshot:
    """Return a snapshot that all disks have; errors as `require_snapshot`."""
    snapshot = require_snapshot(view, found, name)
    missing = [index for index in range(len(view.disks)) if index not in snapshot.disks]
    if missing:
        raise wrong_state(
            f"instance {view.name!r}: disk {missing[0]} has no snapshot {name!r}, as it came later;"
            " detach it first (gnt-instance modify --disk N:detach)"
        )
    return snapshot


def check_can_keep(view: InstanceView) -> None:
    """Refuse an instance of which a disk cannot keep snapshots.

    Raises:
        OpPrereqError: names the disk, and the conversion that helps.
    """
    if not view.disks:
        raise OpPrereqError(f"instance {view.name!r} has no disks")
    for index, disk in enumerate(view.disks):
        if not keeps_snapshots(disk.dev_type, disk.format):
            kind = f"file of format {disk.format.value!r}" if disk.traits.is_file else "disk"
            template = disk.dev_type if disk.traits.is_file else "file"
            raise OpPrereqError(
                f"disk {index} of instance {view.name!r} is a {kind} of template {disk.dev_type!r},"
                " which cannot keep snapshots; convert the stopped instance with 'gnt-instance"
                f" modify -t {template} -e format=qcow2 {view.name}'"
            )


class LUInstanceListSnapshots(InstanceUnit[OpInstanceListSnapshots, OnInstance]):
    """List the snapshots of an instance."""

    def locks(self, found: OnInstance) -> LockNeed:
        """Lock the instance and its nodes shared: nothing is done to them."""
        return super().locks(found) | shared(LockLevel.INSTANCE, [found.view.name])

    def plan(self, found: OnInstance) -> OnInstance:
        """Refuse when the node is offline."""
        check_primary_online(found.view)
        return found

    def execute(self, plan: OnInstance) -> list[tuple[str, float, list[int]]]:
        """Ask the node."""
        found = read_snapshots(self.context, plan.view)
        return [(each.name, each.ctime, each.disks) for each in found]


class LUInstanceSnapshot(InstanceUnit[OpInstanceSnapshot, OnInstance]):
    """Take, restore or remove a snapshot."""

    hooks = HookPoint("instance-snapshot", ObjectType.INSTANCE)
    told = ("action", "snapshot_name")

    def plan(self, found: OnInstance) -> OnInstance:
        """Refuse what cannot be done as things stand."""
        op, view, name = self.op, found.view, self.op.snapshot_name
        check_primary_online(view)
        if not NAME.fullmatch(name):
            raise OpPrereqError(
                f"{name!r} cannot be the name of a snapshot: use a letter, then up to 62 letters,"
                " digits and . _ + -"
            )
        if op.action is not SnapshotAction.REMOVE:
            check_can_keep(view)
        known = read_snapshots(self.context, view)
        match op.action:
            case SnapshotAction.CREATE:
                self._check_new(view, known)
            case SnapshotAction.RESTORE:
                require_whole(view, known, name)
                guest.check_not_running(self.context, view)
            case SnapshotAction.REMOVE:
                require_snapshot(view, known, name)
        return found

    def _check_new(self, view: InstanceView, known: Sequence[Snapshot]) -> None:
        name = self.op.snapshot_name
        if any(each.name == name for each in known):
            raise OpPrereqError(
                f"instance {view.name!r} has a snapshot {name!r} already", ErrorCode.EXISTS
            )
        if len(known) >= SNAPSHOTS_MAX:
            raise OpPrereqError(
                f"instance {view.name!r} has {len(known)} snapshots; remove some", ErrorCode.NORES
            )
        if self.op.quiesce and not guest.runs(self.context, view):
            raise wrong_state(
                f"instance {view.name!r} does not run, so there is nothing to quiesce"
            )

    def own_values(self, plan: OnInstance) -> Mapping[str, object]:
        return {**super().own_values(plan), "ACTION": self.op.action.value}

    def execute(self, plan: OnInstance) -> None:
        """Let the node do it."""
        view, name, action = plan.view, self.op.snapshot_name, self.op.action
        doing = f"{action.value} snapshot {name!r} of instance {view.name!r}"
        nodes, wire = self.context.nodes.on(view.primary, doing), view.wire(view.primary)
        match action:
            case SnapshotAction.CREATE:
                self._create(plan)
            case SnapshotAction.REMOVE:
                nodes.kept_snapshot_remove(wire, name)
            case SnapshotAction.RESTORE:
                try:
                    nodes.kept_snapshot_restore(wire, name)
                except OpExecError as err:
                    raise OpExecError(
                        f"{err.message}; some disks may be as they were and some restored: try"
                        " again before the instance is started"
                    ) from err

    def _create(self, plan: OnInstance) -> None:
        view, name = plan.view, self.op.snapshot_name
        wire, nodes = view.wire(view.primary), self.context.nodes
        take = f"take snapshot {name!r} of instance {view.name!r}"
        back = f"remove snapshot {name!r}"
        with Undo(self.context) as undo:
            # Pushed first: the answer may be lost when the snapshot is taken.
            undo.push(back, partial(nodes.on(view.primary, back).kept_snapshot_remove, wire, name))
            is_still = nodes.on(view.primary, take).kept_snapshot_take(
                wire, name, quiesce=self.op.quiesce
            )
            undo.forget()
        if is_still:
            self.context.info("the guest held its file systems still meanwhile")

"""The repair of one instance: disks broken on its primary node are made anew from their copies.

Source: design-2.1, "Instance disk status", "Repair instance".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ganeti.base.errors import OpPrereqError, wrong_state
from ganeti.base.ids import NodeUuid
from ganeti.logical_units.disk_states import DiskStates, ask_disks, holders
from ganeti.logical_units.instance.base import InstanceUnit, OnInstance, check_primary_online
from ganeti.logical_units.instance.storage.disks import mirrored
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.disk_templates import LocalDiskStatus
from ganeti.objects.model import Disk
from ganeti.opcodes.instance import OpInstanceRepair, OpInstanceReplaceDisks, ReplaceDisksMode


class Condition(StrEnum):
    """The condition of a disk on a node."""

    GOOD = "good"
    SYNCING = "syncing"
    BROKEN = "broken"
    UNKNOWN = "unknown"  # the node did not answer


@dataclass(frozen=True, slots=True)
class Side:
    """A disk of an instance on one of its nodes.

    Attributes:
        said: what the node says of it, where it is not good.
    """

    index: int
    node: NodeUuid
    condition: Condition
    said: str = ""


def sides(view: InstanceView, states: DiskStates) -> list[Side]:
    """Return the condition of each disk with a copy on each of its nodes, the primary one first."""
    return [
        Side(index, node, *_condition(disk, node, states))
        for index, disk in enumerate(view.disks)
        if disk.traits.mirrored
        for node in sorted(
            holders(view.instance, disk), key=lambda uuid: uuid != view.instance.primary_node
        )
    ]


def _condition(disk: Disk, node: NodeUuid, states: DiskStates) -> tuple[Condition, str]:
    state = states.get((node, disk.uuid))
    if state is None:
        return Condition.UNKNOWN, "no answer"
    for part in _parts(disk):
        found = states.get((node, part.uuid))
        if found is not None and found.error:
            return Condition.BROKEN, found.error
    match state.status:
        case None:
            return Condition.BROKEN, state.error
        case [*_, LocalDiskStatus.OKAY]:
            return Condition.GOOD, ""
        case [*_, LocalDiskStatus.SYNC]:
            return Condition.SYNCING, "not all data is there yet"
        case _:
            return Condition.BROKEN, "it has no good data"


def _parts(disk: Disk) -> Iterator[Disk]:
    for child in disk.children:
        yield child
        yield from _parts(child)


def to_replace(view: InstanceView, found: Sequence[Side]) -> list[int]:
    """Return the disks that are broken on the primary node.

    Raises:
        OpPrereqError: one of them is not good on any other node.
    """
    primary = view.instance.primary_node
    broken = [side for side in found if side.node == primary and side.condition is Condition.BROKEN]
    good = {side.index for side in found if side.condition is Condition.GOOD}
    for side in broken:
        if side.index not in good:
            raise wrong_state(
                f"instance {view.name!r}: disk {side.index} is broken on its primary node"
                f" ({side.said}), and no other node has good data of it; restore it from an export"
                " ('gnt-backup list')"
            )
    return [side.index for side in broken]


class LUInstanceRepair(InstanceUnit[OpInstanceRepair, OnInstance]):
    """Have the disks replaced that are broken on the primary node."""

    def plan(self, found: OnInstance) -> OnInstance:
        """Refuse an instance without copies, and one whose primary node is away."""
        view = found.view
        if not view.needs_own_nodes:
            raise OpPrereqError(
                f"instance {view.name!r}: disk template {view.template!r} keeps no copies to repair"
                " from; see 'gnt-instance recreate-disks'"
            )
        check_primary_online(view)
        if not view.instance.disks_active:
            raise wrong_state(
                f"instance {view.name!r}: its disks are not active, so their state is not known;"
                f" activate them first ('gnt-instance activate-disks {view.name}')"
            )
        return found

    def execute(self, plan: OnInstance) -> dict[str, object]:
        """Ask the nodes, and submit the replacement as a job.

        Returns:
            [index, node, condition, what the node says] of each side, and the jobs submitted.
        """
        view, names = plan.view, {node.uuid: node.name for node in plan.view.nodes}
        nodes = {node.uuid: node for node in view.nodes}
        groups = {str(group.uuid): group for group in view.groups}
        disks = [(view.instance, disk) for disk in mirrored(view)]
        found = sides(view, ask_disks(self.context, view.cluster, nodes, groups, disks))
        for side in found:
            if side.condition is not Condition.GOOD:
                self.context.warn(
                    f"disk {side.index} on node {names[side.node]} is {side.condition}: {side.said}"
                )
                if side.node != view.primary.uuid and side.condition is Condition.BROKEN:
                    self.context.info(
                        "secondary disks can be put on another node: 'gnt-instance replace-disks"
                        f" -n NODE {view.name}'"
                    )
        indexes = to_replace(view, found)
        jobs: list[tuple[bool, int]] = []
        if indexes:
            op = OpInstanceReplaceDisks(
                instance_name=view.name,
                mode=ReplaceDisksMode.ON_PRIMARY,
                disks=indexes,
                reason=self.op.reason,
            )
            jobs = [(True, job_id) for job_id in self.context.submit_jobs([[op]])]
        rows = [(side.index, names[side.node], side.condition.value, side.said) for side in found]
        return {"disks": rows, "jobs": jobs}

"""Move an instance to another node by copying its disks: for disks that only one node can reach.

    source  the instance is shut down
    target  disks are made and filled                       until here every failure leads back:
            the configuration names the target              the copies go, the instance is started
    source  the old disks are removed                       again where it was
    target  the instance is started, if it is meant to run

The instance runs on the source before the first step only, and on the target after the last one
only, so two copies never run; and the configuration always names the node that has its disks
complete.  Disks that a dead job has left on a target are removed when the move is tried again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.base.errors import GenericError, OpExecError, wrong_state
from ganeti.logical_units import lookup
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance import guest
from ganeti.logical_units.instance.base import AnyInstanceUnit, WithTarget, check_primary_online
from ganeti.logical_units.instance.moving.failover import check_failover
from ganeti.logical_units.instance.moving.target import check_other_node
from ganeti.logical_units.instance.storage import disks, planning
from ganeti.logical_units.instance.storage.copying import check_compression, copy_disk, whole_disk
from ganeti.logical_units.instance.storage.disks import make_directory, make_disk
from ganeti.logical_units.instance.storage.files import directories
from ganeti.logical_units.instance.storage.remains import remove_remains
from ganeti.logical_units.instance.storage.snapshots import check_without_snapshots
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.undo import Undo
from ganeti.objects.model import AdminState, Disk, Instance, Node
from ganeti.opcodes.instance import OpInstanceMove
from ganeti.protocol.wconfd import Change, LockMode, ObjectKind


@dataclass(frozen=True, slots=True)
class CopyPlan(WithTarget):
    """A move by copying the disks."""

    was_running: bool


class LUInstanceMove(AnyInstanceUnit[OpInstanceMove, WithTarget, CopyPlan]):
    """Copy the disks of an instance to another node, and let it live there."""

    hooks = HookPoint("instance-move", ObjectType.INSTANCE)
    told = ("shutdown_timeout",)
    resources = LockMode.EXCLUSIVE

    def resolve(self) -> WithTarget:
        view, name = self.read_instance(), self.op.target_node_uuid or self.op.target_node
        return WithTarget(view, lookup.require_node(self.config, name))

    def plan(self, found: WithTarget) -> CopyPlan:
        """Refuse an instance that cannot be moved, or not there."""
        view, name = found.view, found.view.name
        if view.needs_own_nodes or not _copied(view):
            raise wrong_state(
                f"cannot move instance {name!r} of disk template {view.template!r}:"
                f" {_other_way(view)}"
            )
        check_compression(self.op.compress)
        check_other_node(view, found.goal)
        check_primary_online(view, f"move instance {name!r}")
        check_failover(self.context, view, found.goal, ignore_ipolicy=self.op.ignore_ipolicy)
        check_without_snapshots(self.context, view, f"move instance {name!r}")
        was_running = guest.runs(self.context, view)
        lost = disks.indexes_on(self.context, view, view.primary, view.disks, there=False)
        if lost:
            raise wrong_state(
                f"disk {lost[0]} of instance {name!r} does not exist on node"
                f" {view.primary.name!r}; see 'gnt-instance recreate-disks'"
            )
        planning.check_on_nodes(self.context, [found.goal], view.disks)
        return CopyPlan(view, found.target, was_running)

    def own_values(self, plan: CopyPlan) -> Mapping[str, object]:
        return {**super().own_values(plan), "TARGET_NODE": plan.goal.name}

    def execute(self, plan: CopyPlan) -> None:
        _Copy(self.context, self.op, plan, plan.view, plan.goal).run()


def _other_way(view: InstanceView) -> str:
    """Return the way to another node, for an instance whose disks need not be copied there."""
    if not view.disks:
        return "it has no disks, so use 'gnt-instance failover'"
    bound = [index for index, disk in enumerate(view.disks) if disk.traits.alone]
    if view.needs_own_nodes and bound:
        return (
            f"disk {bound[0]} is on node {view.primary.name} alone, while others have copies on"
            f" {view.nodes[1].name}; bring them to one template first, with 'gnt-instance modify -t"
            f" plain {view.name}'"
        )
    if view.needs_own_nodes:
        return (
            f"node {view.nodes[1].name} has copies of its disks, so use 'gnt-instance migrate' or"
            " 'failover'; to come to a third node 'gnt-instance failover -n NODE', or to bring the"
            " copies there before 'gnt-instance replace-disks -n NODE'"
        )
    return "other nodes reach its disks, so use 'gnt-instance migrate' or 'failover'"


def _copied(view: InstanceView) -> list[Disk]:
    """Return the disks that only a copy brings to another node; all nodes reach the others."""
    return [disk for disk in view.disks if disk.traits.can_copy]


@dataclass(frozen=True, slots=True)
class _Copy:
    """The work of one move."""

    context: JobContext
    op: OpInstanceMove
    plan: CopyPlan
    view: InstanceView
    target: Node

    @property
    def instance(self) -> Instance:
        """The instance as it was before the move."""
        return self.view.instance

    def run(self) -> None:
        """Move it; until the configuration names the target, every failure leads back."""
        with Undo(self.context) as undo:
            self._stop(undo)
            made = self._make_copies(undo)
            self._record(made, undo)
            undo.forget()
        self.context.info(
            f"the disks of instance {self.instance.name} are on node {self.target.name} now"
        )
        self._remove_old()
        self._start()

    def _stop(self, undo: Undo) -> None:
        """Shut the instance down; the undo step starts it again if it ran."""
        source, name = self.view.primary, self.instance.name
        self.context.feedback(f"Shutting down instance {name} on source node {source.name}")
        if self.plan.was_running:
            undo.push(f"start instance {name!r} again where it was", self._start_again)
        timeout_s, reason = self.op.shutdown_timeout, self.op.reason or []
        failure = guest.why_not_stopped(self.context, self.view, timeout_s, reason)
        if failure and not self.op.ignore_consistency:
            raise OpExecError(f"{failure}; nothing was changed")
        if failure:
            self.context.warn(f"{failure}; ignoring, make sure that it does not run there")

    def _start_again(self) -> None:
        if guest.start_again(self.context, self.view, self.op.reason or []):
            name, node = self.instance.name, self.view.primary.name
            self.context.info(f"instance {name} runs on node {node} again")

    def _make_copies(self, undo: Undo) -> list[Disk]:
        """Make the disks on the target and fill them; returns them as they are there."""
        view, target = self.view, self.target
        there = view.moved_to(target, lookup.require_group(self.context.config, target.group))
        made = []
        for directory in directories(_copied(view)):
            make_directory(self.context, target, directory, undo)
        for index, disk in enumerate(view.disks):
            self.context.check_canceled()
            if not disk.traits.can_copy:
                continue
            planned = replace(disk, nodes=[target.uuid])
            remove_remains(self.context, there, target, index, planned)
            made.append(make_disk(self.context, there, target, index, planned, undo))
            copy_disk(
                self.context,
                view,
                index,
                source=whole_disk(view, view.primary, disk),
                target=whole_disk(there, target, made[-1]),
                compress=self.op.compress,
            )
        return made

    def _record(self, made: Sequence[Disk], undo: Undo) -> None:
        """Write down, in one step, that instance and disks are on the target.

        When the answer is lost the configuration is asked: nothing may be undone that is recorded.
        """
        uuid = self.target.uuid
        changes: list[Change] = [(ObjectKind.INSTANCE, self.instance.uuid, {"primary_node": uuid})]
        for disk in made:
            fields = {"nodes": [uuid], "logical_id": disk.logical_id}
            changes.append((ObjectKind.DISK, disk.uuid, fields))
        try:
            self.context.config.modify_objects(changes)
        except GenericError as err:
            if not self._is_recorded(undo, err):
                raise

    def _is_recorded(self, undo: Undo, error: GenericError) -> bool:
        try:
            [now] = lookup.present(self.context.config.get_instances([self.instance.uuid]))
        except GenericError as err:
            undo.forget()
            raise OpExecError(
                f"nobody knows whether the move of instance {self.instance.name!r} was recorded:"
                f" {error}; its disks are complete on both nodes and it is down: see 'gnt-instance"
                " info', then move it again or start it"
            ) from err
        return now.primary_node == self.target.uuid

    def _remove_old(self) -> None:
        source = self.view.primary
        self.context.feedback(f"Removing the disks on the original node {source.name}")
        if disks.remove(self.context, self.view.with_instance(self.instance, _copied(self.view))):
            self.context.warn(
                f"old disks of instance {self.instance.name} are left on node {source.name}: remove"
                f" them by hand; the instance uses those on {self.target.name}"
            )

    def _start(self) -> None:
        name, target = self.instance.name, self.target
        if self.instance.admin_state is not AdminState.UP:
            disks.deactivate(self.context, self.view, target)
            return
        self.context.feedback(f"Starting instance {name} on node {target.name}")
        try:
            guest.start_on(self.context, self.view, target, self.op.reason or [])
        except GenericError as err:
            raise OpExecError(
                f"{err}; the instance and its disks are on node {target.name} now, and it is down:"
                f" start it with 'gnt-instance startup {name}' once that is mended"
            ) from err

"""Replace one side of disks with copies: its volumes on the same node, or the secondary node.

On the same node, for one disk after the other, new volumes get the names of the old ones, and the
data of the other side (see `swapping`).  With a new secondary node:

    make      both volumes and a side on the new node, which waits
    close     the old side, and the connection on the primary node
    record    the configuration names the new node from now on
    connect   the new side gets the data of the primary node

Until the last step of a disk, or the record, every failure leads back.  The old volumes go when
the copy is complete, or before that with ``--early-release``.  The remains of a try that was cut
off are cleared by the next one.  Nothing is begun unless the other side has all data: sides
that are not connected are compared, since one that was left behind calls itself up to date.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ganeti.base.errors import GenericError, OpExecError, OpPrereqError, wrong_state
from ganeti.clients.node_rpc import target_of
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.placing import still_usable
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.base import AnyInstanceUnit, WithTarget, check_online, check_pair
from ganeti.logical_units.instance.creation.choosing import check_one_way, choose_target
from ganeti.logical_units.instance.moving.mirrors import only_looking
from ganeti.logical_units.instance.parameters import check_policy
from ganeti.logical_units.instance.storage import disks as node_disks
from ganeti.logical_units.instance.storage.drbd_disks import with_new_node
from ganeti.logical_units.instance.storage.generations import (
    Age,
    Ask,
    risky_age,
    sides_on,
    sides_or_none,
    sides_when_met,
)
from ganeti.logical_units.instance.storage.lvm_disks import check_room
from ganeti.logical_units.instance.storage.remains import remove_remains
from ganeti.logical_units.instance.storage.swapping import Swap
from ganeti.logical_units.instance.storage.syncing import sync_states, wait_for_sync
from ganeti.logical_units.instance.view import InstanceView, changed_fields
from ganeti.logical_units.undo import Undo
from ganeti.objects.disk_templates import LocalDiskStatus
from ganeti.objects.model import Disk, Node
from ganeti.opcodes.instance import OpInstanceReplaceDisks, ReplaceDisksMode
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import CopySide
from ganeti.protocol.wconfd import Change, LockMode, ObjectKind


@dataclass(frozen=True, slots=True)
class Replacement(WithTarget):
    """The sides of disks that are replaced.

    Attributes:
        target: the node that gets new volumes; the new secondary node in that mode.
        mode: never AUTO: by then it is known which side is broken.
        indexes: the disks; none where nothing is broken.
    """

    mode: ReplaceDisksMode
    indexes: Sequence[int]

    @property
    def chosen(self) -> list[Disk]:
        """The disks that are worked on."""
        return [self.view.disks[index] for index in self.indexes]

    @property
    def source(self) -> Node:
        """The node whose side must have all data."""
        [other] = [node for node in self.view.nodes[:2] if node.uuid != self.given_up.uuid]
        return other

    @property
    def given_up(self) -> Node:
        """The node whose side is replaced."""
        is_new = self.mode is ReplaceDisksMode.NEW_SECONDARY
        return self.view.nodes[1] if is_new else self.goal


class LUInstanceReplaceDisks(AnyInstanceUnit[OpInstanceReplaceDisks, WithTarget, Replacement]):
    """Replace one side of the disks of an instance."""

    hooks = HookPoint("mirrors-replace", ObjectType.INSTANCE)
    resources = LockMode.EXCLUSIVE

    def resolve(self) -> WithTarget:
        """Read the instance, and the new secondary node, if one is named."""
        op, view = self.op, self.read_instance()
        what, name = f"instance {view.name!r}", op.remote_node_uuid or op.remote_node
        _check_mirrored(view)
        check_one_way(what, node=op.remote_node or name, iallocator=op.iallocator)
        goes_elsewhere = op.mode is ReplaceDisksMode.NEW_SECONDARY
        if goes_elsewhere != bool(name or op.iallocator):
            raise OpPrereqError(
                f"{what}: a node (-n NODE) or an allocator (-I) is for a new secondary node, and"
                " only for that"
            )
        return WithTarget(view, lookup.require_node(self.config, name) if name else None)

    def place(self, found: WithTarget, earlier: WithTarget | None) -> WithTarget:
        """Have an allocator choose the new secondary node, if one is given."""
        if found.target is not None or self.op.iallocator is None:
            return found
        kept = still_usable(self.config, [earlier.goal]) if earlier else []
        target = kept[0] if kept else choose_target(self.context, found.view, self.op.iallocator)
        return WithTarget(found.view, target)

    def plan(self, found: WithTarget) -> Replacement:
        """Decide which volumes are replaced, and refuse if that cannot be."""
        view = found.view
        plan = Replacement(view, found.target, self.op.mode, self._indexes(view))
        if plan.mode is ReplaceDisksMode.AUTO:
            plan = self._find_faulty(plan)
        elif plan.mode is not ReplaceDisksMode.NEW_SECONDARY:
            is_primary = plan.mode is ReplaceDisksMode.ON_PRIMARY
            plan = replace(plan, target=view.nodes[0 if is_primary else 1])
        if not plan.indexes:
            return plan
        check_online(plan.source, f"copy the disks of instance {view.name!r} from")
        if plan.mode is ReplaceDisksMode.NEW_SECONDARY:
            self._check_new(plan)
        else:
            check_online(plan.goal, f"replace disks of instance {view.name!r} on")
        check_room(self.context, plan.goal, [c for disk in plan.chosen for c in disk.children])
        return plan

    def _indexes(self, view: InstanceView) -> list[int]:
        op = self.op
        everything = [i for i, disk in enumerate(view.disks) if disk.traits.mirrored]
        if op.disks and op.mode is ReplaceDisksMode.NEW_SECONDARY:
            raise OpPrereqError(
                f"instance {view.name!r}: with a new secondary node all disks are replaced; leave"
                " --disks out"
            )
        for index in op.disks:
            if index not in everything:
                raise OpPrereqError(f"instance {view.name!r} has no disk {index} with a copy")
        return sorted(set(op.disks)) or everything

    def _find_faulty(self, plan: Replacement) -> Replacement:
        """Find the side whose storage is broken."""
        view, name = plan.view, plan.view.name
        faulty: dict[int, list[int]] = {}
        for side, node in enumerate(view.nodes[:2]):
            check_online(node, f"look at the disks of instance {name!r} on")
            states = sync_states(
                self.context, view, node, plan.chosen, f"look at the disks of instance {name!r}"
            )
            broken = [
                index
                for index, state in zip(plan.indexes, states, strict=True)
                if state.local == LocalDiskStatus.FAULTY
            ]
            if broken:
                faulty[side] = broken
        if len(faulty) > 1:
            raise wrong_state(
                f"instance {name!r} has broken disks on both of its nodes; replace those of one"
                " side with -p or -s --disks=N first"
            )
        if not faulty:
            self.context.info(f"instance {name} has no broken disks, nothing to replace")
            return replace(
                plan, mode=ReplaceDisksMode.ON_SECONDARY, target=view.primary, indexes=[]
            )
        [(side, indexes)] = faulty.items()
        mode = ReplaceDisksMode.ON_SECONDARY if side else ReplaceDisksMode.ON_PRIMARY
        return replace(plan, mode=mode, target=view.nodes[side], indexes=indexes)

    def _check_new(self, plan: Replacement) -> None:
        view, new = plan.view, plan.goal
        if new.uuid == view.nodes[1].uuid:
            raise wrong_state(
                f"node {new.name!r} is the secondary node of instance {view.name!r} already; its"
                " volumes are replaced with -s"
            )
        check_pair(self.context, f"instance {view.name!r}", [view.primary, new], view.templates)
        if new.group != view.primary.group:
            group = lookup.require_group(self.config, new.group)
            ignore, disks = self.op.ignore_ipolicy, view.disks
            check_policy(self.context, view.cluster, group, view.instance, disks, ignore=ignore)

    def own_values(self, plan: Replacement) -> Mapping[str, object]:
        is_new = plan.mode is ReplaceDisksMode.NEW_SECONDARY
        new = plan.goal.name if is_new else ""
        return {
            "MODE": self.op.mode,
            "NEW_SECONDARY": new,
            "OLD_SECONDARY": plan.view.nodes[1].name,
        }

    def execute(self, plan: Replacement) -> None:
        """Replace them, and wait until the copies are complete."""
        if not plan.indexes:
            return
        view = plan.view
        with only_looking(self.context, view, plan.source):
            _check_source(self.context, plan)
        kind = NewNode if plan.mode is ReplaceDisksMode.NEW_SECONDARY else _SameNode
        kind(self.context, plan, self.op.early_release).run()
        if not view.instance.disks_active:
            now = InstanceView.of(self.config.get_instance_context(view.instance.uuid))
            node_disks.deactivate(self.context, now, now.primary)


def _check_mirrored(view: InstanceView) -> None:
    if not view.needs_own_nodes:
        raise OpPrereqError(
            f"instance {view.name!r}: disk template {view.template!r} has no mirrored disks to"
            " replace; for lost disks see 'gnt-instance recreate-disks', to go to another node"
            " 'gnt-instance move' or 'migrate'"
        )


def _is_closed(context: JobContext, plan: Replacement) -> bool:
    """Tell whether the side that is replaced is closed, as after a restart of its node."""
    node = plan.given_up
    return not node.offline and None in _ask(plan)(context, plan.view, node, plan.chosen)


def _ask(plan: Replacement) -> Ask:
    """Return the way to ask for sides; the old one of a new secondary node may be gone."""
    return sides_or_none if plan.mode is ReplaceDisksMode.NEW_SECONDARY else sides_on


def _check_source(context: JobContext, plan: Replacement) -> None:
    """Refuse to touch a side while the other one does not have all data, or may lack some.

    Raises:
        OpExecError: names the disk and the next command; nothing was changed.
    """
    view, node, disks = plan.view, plan.source, plan.chosen
    if view.instance.disks_active and _is_closed(context, plan):
        node_disks.assemble_copies(context, view, node, ignore_secondaries=True)
    pairs = sides_when_met(context, view, disks, node, plan.given_up, ask=_ask(plan))
    states = sync_states(context, view, node, disks, f"look at the disks of {view.name!r}")
    for index, state, pair in zip(plan.indexes, states, pairs, strict=True):
        problem = _why_not(plan, *pair) if state.is_whole else state.words()
        if problem is not None:
            raise OpExecError(
                f"cannot replace disk {index} of instance {view.name!r} on node"
                f" {plan.goal.name!r}: on node {node.name!r}, which is to give the data,"
                f" {problem}; nothing was changed: wait for the copy with 'gnt-instance"
                f" activate-disks --wait-for-sync {view.name}'"
            )


def _why_not(plan: Replacement, source: CopySide | None, other: CopySide | None) -> str | None:
    """Return the reason why a side must not be replaced from another that has complete data.

    Of sides that were both written alone, that of the primary node is kept: by this command the
    operator decides so.  A failover makes the other node the primary one before that.
    """
    age = risky_age(source, other)
    is_decided = age is Age.APART and plan.source.uuid == plan.view.primary.uuid
    if age is None or is_decided:
        return None
    return f"the data is up to date only as far as it knows: it {age} node {plan.given_up.name!r}"


@dataclass(frozen=True, slots=True)
class _Work:
    """One replacement."""

    context: JobContext
    plan: Replacement
    early_release: bool

    def finish_or_tell(self, view: InstanceView, disks: Sequence[Disk]) -> None:
        """As `finish`; old volumes that stay because the wait was ended are told."""
        try:
            self.finish(view, disks)
        except GenericError:
            if not self.early_release:
                self.context.warn(f"{self.old_left()}, once the new copies are complete")
            raise

    def finish(self, view: InstanceView, disks: Sequence[Disk]) -> None:
        """Wait for the copies, and remove the old volumes, in the order that was asked for."""
        if self.early_release:
            self.remove_old()
        wait_for_sync(self.context, view, disks)
        if not self.early_release:
            self.remove_old()

    def remove_old(self) -> None:
        """Remove the volumes that nobody uses any more; failures are told."""
        raise NotImplementedError

    def old_volumes(self) -> tuple[Node, list[str]]:
        """Return the node that has them, and their paths."""
        raise NotImplementedError

    def old_left(self) -> str:
        """Return the hint for the volumes that are left."""
        node, paths = self.old_volumes()
        return f"the old volumes are left on node {node.name}: 'lvremove {' '.join(paths)}' there"


@dataclass(frozen=True, slots=True)
class _SameNode(_Work):
    """New volumes on the same node."""

    def _swap(self, index: int) -> Swap:
        return Swap(self.context, self.plan.view, self.plan.goal, index)

    def run(self) -> None:
        """Replace the volumes of one disk after the other."""
        context, view = self.context, self.plan.view
        for index in self.plan.indexes:
            context.check_canceled()
            context.feedback(f"* replacing disk {index} on node {self.plan.goal.name}")
            swap = self._swap(index)
            swap.clear()
            swap.replace()
        now = InstanceView.of(context.config.get_instance_context(view.instance.uuid))
        node_disks.assemble_copies(context, now, now.primary)  # a split brain has parted them
        self.finish_or_tell(now, self.plan.chosen)

    def remove_old(self) -> None:
        for index in self.plan.indexes:
            self._swap(index).remove_old()

    def old_volumes(self) -> tuple[Node, list[str]]:
        swaps = map(self._swap, self.plan.indexes)
        return self.plan.goal, [path for swap in swaps for path in swap.old_paths]


@dataclass(frozen=True, slots=True)
class NewNode(_Work):
    """A new secondary node."""

    def run(self) -> None:
        """Make the new side, record it, connect it."""
        now, disks = self.switch([])
        self._connect(now, disks)
        self.finish_or_tell(now, disks)

    def switch(self, more: Sequence[Change]) -> tuple[InstanceView, list[Disk]]:
        """Make the new side and record it; returns the instance and its disks as they are then.

        Args:
            more: recorded in the same step.
        """
        context, new, primary = self.context, self.plan.goal, self.plan.view.primary
        old = self.plan.view.nodes[1]
        context.feedback(f"* making copies on node {new.name} instead of {old.name}")
        disks = [self._moved(disk) for disk in self.plan.chosen]
        view = self.plan.view.with_nodes(new)
        with Undo(context) as undo:
            for index, disk in zip(self.plan.indexes, disks, strict=True):
                context.check_canceled()
                self._make(view, index, disk, undo)
            undo.push(
                f"connect the disks with node {old.name!r} again",
                partial(
                    node_disks.assemble_copies,
                    context,
                    self.plan.view,
                    primary,
                    ignore_secondaries=True,
                ),
            )
            self._leave_old()
            self._record(disks, more, undo)
            undo.forget()
        return InstanceView.of(context.config.get_instance_context(view.instance.uuid)), disks

    def _moved(self, disk: Disk) -> Disk:
        new, old = self.plan.goal.uuid, self.plan.view.nodes[1].uuid
        [minor] = self.context.config.reserve_drbd_minors(disk.uuid, [new])
        return with_new_node(disk, old, new, minor)

    def _make(self, view: InstanceView, index: int, disk: Disk, undo: Undo) -> None:
        """Make a side after the remains of an earlier try are gone.

        It waits: the side with the data expects another node until it is connected anew.
        """
        context, new = self.context, self.plan.goal
        remove_remains(context, view, new, index, disk)
        node_disks.make_on(context, view, new, index, disk, undo, on_primary=False)

    def _leave_old(self) -> None:
        context, view = self.context, self.plan.view
        old, primary = view.nodes[1], view.primary
        if not old.offline:
            for disk in self.plan.chosen:
                node_disks.close(context, view, disk, old)
        doing = f"disconnect the disks of instance {view.name!r}"
        wires = [view.disk_wire(disk, primary) for disk in self.plan.chosen]
        context.nodes.on(primary, doing).drbd_disconnect_net(wires)

    def _record(self, disks: Sequence[Disk], more: Sequence[Change], undo: Undo) -> None:
        """Name the new node in the configuration; when the answer is lost, that is looked up."""
        config = self.context.config
        changes: list[Change] = [
            (ObjectKind.DISK, disk.uuid, changed_fields(before, disk))
            for before, disk in zip(self.plan.chosen, disks, strict=True)
        ]
        changes += more
        try:
            config.modify_objects(changes)
        except GenericError as err:
            name = self.plan.view.name
            try:
                now = lookup.present(config.get_disks([disk.uuid for disk in disks]))
            except GenericError:
                undo.forget()
                raise OpExecError(
                    f"nobody knows whether the new secondary node of instance {name!r} was"
                    f" recorded: {err}; see 'gnt-instance info {name}', then connect its disks with"
                    f" 'gnt-instance activate-disks {name}'"
                ) from err
            if [disk.nodes for disk in now] != [disk.nodes for disk in disks]:
                raise

    def _connect(self, view: InstanceView, disks: Sequence[Disk]) -> None:
        name, primary, new = view.name, view.primary, self.plan.goal
        results = self.context.nodes.call_each(
            NodeCalls.drbd_attach_net,
            {
                target_of(node): ([view.disk_wire(disk, node) for disk in disks], False)
                for node in (primary, new)
            },
        )
        doing = f"connect the disks of instance {name!r} with node {new.name!r}"
        failures = [each.explain(doing) for each in results.values() if each.error is not None]
        if failures:
            raise OpExecError(
                f"{'; '.join(failures)}; node {new.name} is the secondary node now: connect the"
                f" disks with 'gnt-instance activate-disks {name}'; {self.old_left()}"
            )

    def old_volumes(self) -> tuple[Node, list[str]]:
        volumes = [child for disk in self.plan.chosen for child in disk.children]
        paths = [f"{each.part('vg')}/{each.part('volume')}" for each in volumes]
        return self.plan.view.nodes[1], paths

    def remove_old(self) -> None:
        view, old = self.plan.view, self.plan.view.nodes[1]
        for index, disk in zip(self.plan.indexes, self.plan.chosen, strict=True):
            doing = f"remove disk {index} of instance {view.name!r}"
            node_disks.why_left(self.context, view, disk, old, doing)

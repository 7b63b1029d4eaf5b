"""Conversion between a volume on one node and a disk with a copy on another, without moving data.

The volume of template plain stays where it is, and becomes the data volume of the disk with a
copy, or the other way round.  To a copy: the secondary node gets both volumes, the primary one the
metadata; then both sides are connected, and the secondary one gets the data.  From a copy: the
primary node must have all data; both sides are closed, the configuration names the data volume
alone, then the rest is removed.  The data volume of the primary node is never removed, whatever
fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from msgspec import structs

from ganeti.base.errors import OpExecError, OpPrereqError
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.base import check_online, check_pair
from ganeti.logical_units.instance.changes.modify_parts import ModifyPart, Work
from ganeti.logical_units.instance.moving.mirrors import only_looking
from ganeti.logical_units.instance.storage import disks as node_disks
from ganeti.logical_units.instance.storage import planning
from ganeti.logical_units.instance.storage.generations import doubt, sides_when_met
from ganeti.logical_units.instance.storage.lvm_disks import check_room
from ganeti.logical_units.instance.storage.remains import remove_metadata, remove_remains
from ganeti.logical_units.instance.storage.syncing import sync_states, wait_for_sync
from ganeti.logical_units.instance.view import InstanceView, changed_fields
from ganeti.logical_units.undo import Undo
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.model import Disk, Node
from ganeti.objects.rpc_instance import RpcDisk
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.wconfd import ObjectKind

_KEPT = ("uuid", "serial_no", "ctime", "mtime", "iv_name")


@dataclass(frozen=True, slots=True)
class PairPart(ModifyPart):
    """The conversion of disks; their data volumes on the primary node stay.

    Attributes:
        view: the instance with both nodes.
        disks: the disks as they will be; those that are not converted are the same as before.
    """

    view: InstanceView
    disks: Sequence[Disk]

    @property
    def converted(self) -> list[tuple[int, Disk, Disk]]:
        """Index of each disk that is converted, the disk as it was, and as it will be."""
        pairs = zip(self.work.view.disks, self.disks, strict=True)
        return [(index, old, new) for index, (old, new) in enumerate(pairs) if old is not new]

    @property
    def _primary(self) -> Node:
        return self.view.primary

    def _change(self, pairs: Iterable[tuple[Disk, Disk]]) -> None:
        changes = [
            (
                ObjectKind.DISK,
                old.uuid,
                {k: v for k, v in changed_fields(old, new).items() if k not in _KEPT},
            )
            for old, new in pairs
        ]
        self.work.context.config.modify_objects(changes)

    def store(self, undo: Undo) -> None:
        """Name the disks as they are now, all in one step."""
        back = partial(self._change, [(new, old) for _index, old, new in self.converted])
        undo.push("name the old disks in the configuration", back)
        self._change((old, new) for _index, old, new in self.converted)

    def _shut(self, node: Node, wire: RpcDisk, index: int) -> None:
        doing = f"deactivate disk {index} of instance {self.view.name!r}"
        self.work.context.nodes.on(node, doing).blockdev_shutdown(wire)


class ToCopies(PairPart):
    """Volumes that get copies."""

    def before_store(self, undo: Undo) -> Self:
        """Make the other side, then the primary one over the volume that is there."""
        context, view, secondary = self.work.context, self.view, self.view.nodes[1]
        for index, _old, disk in self.converted:
            context.check_canceled()
            context.feedback(f"* making a copy of disk {index} on node {secondary.name}")
            remove_remains(context, view, secondary, index, disk)
            remove_metadata(context, view, self._primary, index, disk)
            node_disks.make_on(context, view, secondary, index, disk, undo, on_primary=False)
            self._make_here(index, disk, undo)
        return self

    def _make_here(self, index: int, disk: Disk, undo: Undo) -> None:
        context, name, node = self.work.context, self.view.name, self._primary
        wire = self.view.disk_wire(disk, node)
        _data, meta = wire.children
        doing = f"make disk {index} of instance {name!r} over its volume"
        calls = context.nodes.on(node, doing)
        undo.push(f"remove the metadata of disk {index}", partial(calls.blockdev_remove, meta))
        undo.push(f"close disk {index}", partial(self._shut, node, wire, index))
        for part in (meta, wire):
            calls.blockdev_create(
                part,
                part.size,
                name,
                on_primary=part is wire,
                info=node_disks.DISK_INFO + name,
                exclusive_storage=False,
            )

    def finish(self) -> None:
        """Wait for the copies, then close the disks if they were closed."""
        context, view = self.work.context, self.view
        now = InstanceView.of(context.config.get_instance_context(view.instance.uuid))
        if not self.work.op.wait_for_sync:
            context.info("the copies are made while the disks are active")
            context.config.modify(ObjectKind.INSTANCE, view.instance.uuid, {"disks_active": True})
            return
        try:
            wait_for_sync(context, now)
        except OpExecError as err:
            context.warn(str(err))
        if not view.instance.disks_active:
            node_disks.deactivate(context, now, now.primary)


class FromCopies(PairPart):
    """Disks that give their copies up."""

    def before_store(self, undo: Undo) -> Self:
        """Close both sides; that of a node that is offline is left."""
        _check_kept(self.work.context, self.view, [old for _index, old, _new in self.converted])
        for index, disk, _new in self.converted:
            for node in self.view.nodes[:2]:
                if not node.offline:
                    self._shut(node, self.view.disk_wire(disk, node), index)
        return self

    def finish(self) -> None:
        """Remove the copies, and the metadata on the primary node; failures are told."""
        context, secondary = self.work.context, self.view.nodes[1]
        for index, disk, _new in self.converted:
            doing = f"remove the copy of disk {index} of instance {self.view.name!r}"
            node_disks.why_left(context, self.view, disk, secondary, doing)
            meta = self.view.disk_wire(disk, self._primary).children[1]
            path = "/".join(map(str, meta.logical_id))
            failure = context.failure(
                f"remove the metadata of disk {index}",
                NodeCalls.blockdev_remove,
                self._primary,
                meta,
            )
            if failure is not None:
                context.warn(
                    f"{failure}; remove it by hand on node {self._primary.name}: 'lvremove {path}'"
                )


def _check_kept(context: JobContext, view: InstanceView, disks: Sequence[Disk]) -> None:
    """Refuse disks of which the primary node may lack data: only its half is kept.

    Raises:
        OpExecError: names the disk and the next command; nothing was changed.
    """
    (primary, secondary), name = view.nodes[:2], view.name
    with only_looking(context, view, primary):
        sides = sides_when_met(context, view, disks, primary, secondary)
        states = sync_states(context, view, primary, disks, f"look at the disks of {name!r}")
        for disk, (mine, other), state in zip(disks, sides, states, strict=True):
            problem = doubt(primary, mine, secondary, other) if state.is_whole else state.words()
            if problem is not None:
                raise OpExecError(
                    f"cannot give up the copy of disk {view.disks.index(disk)} of instance"
                    f" {name!r}: on node {primary.name!r}, which is to keep the data, {problem};"
                    " nothing was changed: wait for the data with 'gnt-instance activate-disks"
                    f" --wait-for-sync {name}', or let node {secondary.name!r} keep it, with"
                    f" 'gnt-instance failover {name}' first"
                )


def plan_alone(work: Work) -> PairPart:
    """Decide on the disks as they will be without their copies."""
    view = work.view
    alone = [_alone(disk, view.primary) if disk.traits.mirrored else disk for disk in view.disks]
    return FromCopies(work, view, alone)


def plan_pair(work: Work, secondary: Node | None, there: Sequence[Disk]) -> PairPart:
    """Refuse nodes that cannot hold the copies; decide on the disks as they will be.

    Args:
        secondary: the node for the copies; the one that others are on if there are such.
        there: the volumes that exist already; others are made before.
    """
    context, view = work.context, work.view
    if view.needs_own_nodes:
        has = view.nodes[1]
        if secondary is not None and secondary.uuid != has.uuid:
            raise OpPrereqError(
                f"instance {view.name!r}: other disks have their copies on node {has.name!r} and"
                f" not on {secondary.name!r}; go there afterwards, with 'gnt-instance"
                " replace-disks -n NODE'"
            )
        secondary = has
    nodes = [view.primary, *([secondary] if secondary else [])]
    check_pair(context, f"instance {view.name!r}", nodes, [DiskTemplate.DRBD])
    both = view.with_nodes(*nodes)
    for node in nodes:
        check_online(node, f"convert the disks of instance {view.name!r} on")
    lost = node_disks.indexes_on(context, view, view.primary, there, there=False)
    if lost:
        raise OpPrereqError(
            f"disk {lost[0]} of instance {view.name!r} does not exist on node"
            f" {view.primary.name!r}; see 'gnt-instance recreate-disks'"
        )
    _check_recorded(context, view, there)
    planned = {
        index: planning.settle(context, _with_copy(work, index, disk, nodes))
        for index, disk in enumerate(view.disks)
        if not disk.traits.mirrored
    }
    check_room(context, view.primary, [disk.children[1] for disk in planned.values()])
    check_room(context, nodes[1], [child for disk in planned.values() for child in disk.children])
    return ToCopies(work, both, [planned.get(i, disk) for i, disk in enumerate(view.disks)])


def _check_recorded(context: JobContext, view: InstanceView, there: Sequence[Disk]) -> None:
    """Refuse volumes that are larger than recorded: a copy, and so its guest, has that size only.

    Raises:
        OpPrereqError: names the disk, and the command that records its real size.
    """
    calls = context.nodes.check(view.primary, f"look at the disks of instance {view.name!r}")
    for disk in there:
        real = node_disks.device_bytes(calls, view.disk_wire(disk, view.primary))
        if real <= disk.size << 20:
            continue
        hint = f"'gnt-cluster repair-disk-sizes {view.name}'"
        if real % (1 << 20):  # which records whole MiB
            volume = "/".join(map(str, disk.logical_id))
            hint = f"'lvextend --size={(real >> 20) + 1}m {volume}' on its node, then {hint}"
        raise OpPrereqError(
            f"disk {view.disks.index(disk)} of instance {view.name!r} has {real / (1 << 20):.10g}"
            f" MiB, all of which its guest uses, and {disk.size} MiB are recorded, which is all"
            f" that it would have with a copy; record the real size first: {hint}"
        )


def _with_copy(work: Work, index: int, old: Disk, nodes: Sequence[Node]) -> Disk:
    settings = {"size": old.size, "mode": old.mode.value, "vg": old.part("vg")}
    view, new_uuid, template = work.view, work.context.new_uuid, DiskTemplate.DRBD
    new = planning.plan_disk(view.cluster, template, f"disk/{index}", settings, view.group)
    made = planning.describe_disk(new, index, None, nodes, new_uuid, uuid=old.uuid)
    data, meta = made.children
    vg, _name = meta.logical_id
    data = structs.replace(data, logical_id=old.logical_id)
    meta = structs.replace(meta, logical_id=[vg, f"{old.part('volume')}_meta"])
    return structs.replace(
        made, children=[data, meta], name=old.name, ctime=old.ctime, serial_no=old.serial_no
    )


def _alone(disk: Disk, node: Node) -> Disk:
    data = disk.children[0]
    return structs.replace(
        disk,
        dev_type=DiskTemplate.PLAIN.value,
        logical_id=data.logical_id,
        children=[],
        nodes=[node.uuid],
        params=dict(data.params or {}),
    )

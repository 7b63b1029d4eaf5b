"""New volumes for one side of a disk with copies, under the names of the old ones.

    make      NAME_new, for data and metadata
    detach    the disk goes on with the other side alone
    rename    the old volumes to NAME_old, then the new ones to NAME
    attach    the new volumes get the data of the other side
    remove    NAME_old

Whatever is under the two names counts as one side: a new data volume beside the old metadata, which
say "complete", would be read as if it had the data.  So both old volumes are away before a new one
takes a name, and both new ones before an old one gets its name back.  A job may die anywhere
between; the next one finds by the names how far it came.

The side that is replaced is not needed: the caller has looked whether the other one has all data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage import disks as node_disks
from ganeti.logical_units.instance.storage.lvm_disks import has_exclusive_storage
from ganeti.logical_units.instance.storage.syncing import sync_states
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.undo import Undo
from ganeti.objects.model import Node
from ganeti.objects.rpc_instance import RpcDisk
from ganeti.protocol.node_calls import NodeCalls

NEW: Final = "_new"
OLD: Final = "_old"
_HERE: Final = ""
_DATA, _META = KINDS = (0, 1)  # places among the children of a disk

Name = tuple[int, str]  # kind, suffix
Rename = tuple[int, str, str]

_SWITCH: Final = (
    (_META, _HERE, OLD),
    (_DATA, _HERE, OLD),
    (_DATA, NEW, _HERE),
    (_META, NEW, _HERE),
)


def way_there(there: frozenset[Name]) -> list[Rename]:
    """Return the renames by which the new volumes get the names of the old; those may be lost."""
    return [(kind, now, then) for kind, now, then in _SWITCH if now == NEW or (kind, now) in there]


def way_back(there: frozenset[Name]) -> list[Rename]:
    """Return the renames that bring the old volumes back; none if they are not certainly there.

    An old volume has its own name still only if the new one did not take it.
    """
    moved = [kind for kind in KINDS if (kind, OLD) in there]
    stayed = [kind for kind in KINDS if {(kind, _HERE), (kind, NEW)} <= there]
    if not moved or {*moved, *stayed} != set(KINDS):
        return []
    away = [(kind, _HERE, NEW) for kind in moved if (kind, _HERE) in there]
    return away + [(kind, OLD, _HERE) for kind in moved]


@dataclass(frozen=True, slots=True)
class Swap:
    """The side of one disk on one node.

    Attributes:
        node: the node that gets new volumes.
        index: of the disk.
    """

    context: JobContext
    view: InstanceView
    node: Node
    index: int

    @property
    def _wire(self) -> RpcDisk:
        return self.view.disk_wire(self.view.disks[self.index], self.node)

    def _on(self, doing: str) -> NodeCalls:
        return self.context.nodes.on(self.node, doing)

    @property
    def _calls(self) -> NodeCalls:
        return self._on(f"replace disk {self.index} of instance {self.view.name!r}")

    def _there(self, *suffixes: str) -> frozenset[Name]:
        doing = f"look for the volumes of disk {self.index} of instance {self.view.name!r}"
        calls = self._on(doing)
        return frozenset(
            (kind, suffix)
            for kind, volume in enumerate(self._wire.children)
            for suffix in suffixes
            if calls.blockdev_find(_named(volume, suffix)) is not None
        )

    def clear(self) -> None:
        """Remove what an earlier try has left, after the old volumes are back in their places."""
        there = self._there(_HERE, OLD, NEW)
        if all(suffix == _HERE for _kind, suffix in there):
            return
        back = way_back(there)
        if back and (any(suffix == NEW for _kind, suffix in there) or not self._is_in_use()):
            self._go_back(back)
        self._remove(OLD)
        self._remove(NEW)

    def _is_in_use(self) -> bool:
        """Tell whether the disk has a half on this node that is complete, or becomes so."""
        disk, doing = self.view.disks[self.index], f"look at the disks of {self.view.name!r}"
        [state] = sync_states(self.context, self.view, self.node, [disk], doing)
        return state.is_whole or state.is_syncing

    def replace(self) -> None:
        """Make the new volumes, and put them in place of the old; a failure leads back."""
        what = f"attach the old volumes of disk {self.index} again"
        with Undo(self.context) as undo:
            undo.push(what, self._attach_again)
            undo.push(f"bring the old volumes of disk {self.index} back", self._take_back)
            self._make()
            self._calls.blockdev_removechildren(self._wire, self._wire.children)
            self._rename(way_there(self._there(_HERE)))
            self._calls.blockdev_addchildren(self._wire, self._wire.children)
            undo.forget()

    def _make(self) -> None:
        name = self.view.name
        doing = f"create a volume for disk {self.index} of instance {name!r}"
        for volume in self._wire.children:
            new = _named(volume, NEW)
            self._on(doing).blockdev_create(
                new,
                new.size,
                name,
                on_primary=False,
                info=node_disks.DISK_INFO + name,
                exclusive_storage=has_exclusive_storage(self.context, self.node),
            )

    def _take_back(self) -> None:
        back = way_back(self._there(_HERE, OLD, NEW))
        if back:
            self._go_back(back)
        self._remove(NEW)

    def _go_back(self, back: Sequence[Rename]) -> None:
        """Rename volumes, which the disk may have been given meanwhile."""
        self._calls.blockdev_removechildren(self._wire, self._wire.children)
        self._rename(back)

    def _attach_again(self) -> None:
        wire = self.view.wire(self.node)
        self._calls.blockdev_assemble(self._wire, wire, on_primary=False, idx=self.index)

    def _rename(self, renames: Sequence[Rename]) -> None:
        for kind, now, then in renames:
            volume = self._wire.children[kind]
            before, after = _named(volume, now), _named(volume, then)
            calls = self._on(f"rename volume {before.logical_id[1]}")
            calls.blockdev_rename([(before, list(after.logical_id))])

    def _remove(self, suffix: str) -> None:
        """Remove volumes, data last: there is never old metadata whose data is gone."""
        for volume in reversed(self._wire.children):
            named = _named(volume, suffix)
            calls = self._on(f"remove volume {_path(named)}")
            if calls.blockdev_find(named) is not None:
                calls.blockdev_remove(named)

    @property
    def old_paths(self) -> list[str]:
        """The volumes that nobody uses any more, as LVM calls them."""
        return [_path(_named(volume, OLD)) for volume in self._wire.children]

    def remove_old(self) -> None:
        """Remove the volumes that nobody uses any more, data last; failures are told."""
        for volume in reversed(self._wire.children):
            old, call = _named(volume, OLD), NodeCalls.blockdev_remove
            path, node = _path(old), self.node
            failure = self.context.failure(f"remove old volume {path}", call, node, old)
            if failure is not None:
                hint = f"remove it by hand on node {node.name}: 'lvremove {path}'"
                self.context.warn(f"{failure}; {hint}")


def _named(volume: RpcDisk, suffix: str) -> RpcDisk:
    vg, name = volume.logical_id
    return structs.replace(volume, logical_id=[vg, f"{name}{suffix}"])


def _path(volume: RpcDisk) -> str:
    return "/".join(map(str, volume.logical_id))

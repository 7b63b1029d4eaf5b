"""Give a stopped instance another name; its files and its inner configuration follow.

The directory of its files is renamed first.  Killed after that, the configuration has the old name
and the files are in the directory of the new one, which ``verify`` tells.  The same rename
completes it, and a rename to the name that the instance has puts the directory back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from msgspec import structs

from ganeti.base.errors import GenericError, NodeNotReachedError, wrong_state
from ganeti.logical_units import lookup
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.base import AnyInstanceUnit, OnInstance, check_primary_online
from ganeti.logical_units.instance.guest import (
    check_not_running,
    check_os_scripts,
    stop,
    why_os_not_renamed,
)
from ganeti.logical_units.instance.names import check_ip_free, check_name_free, new_name
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.storage.files import (
    directories,
    file_of,
    own_directories,
    renamed_directories,
)
from ganeti.logical_units.instance.view import InstanceView, changed_fields
from ganeti.logical_units.locks import LockLevel, LockNeed, exclusive
from ganeti.logical_units.undo import Undo
from ganeti.objects.model import Disk, listed_directories
from ganeti.objects.nic import leads_to_node, name_to_node
from ganeti.opcodes.instance import OpInstanceRename
from ganeti.protocol.node_rpc_values import STORED_DISKS_CHECK
from ganeti.protocol.wconfd import ObjectKind


@dataclass(frozen=True, slots=True)
class NewName(OnInstance):
    """An instance and its new name, with the address where the name was resolved."""

    name: str
    address: str | None


@dataclass(frozen=True, slots=True)
class Renaming(OnInstance):
    """How an instance is renamed.

    Attributes:
        put_back: {directory of the configuration: where an interrupted rename has left it}; then
            nothing else is done.
    """

    name: str
    put_back: Mapping[str, str]


class LUInstanceRename(AnyInstanceUnit[OpInstanceRename, NewName, Renaming]):
    """Rename an instance; the result is the new name."""

    hooks = HookPoint("instance-rename", ObjectType.INSTANCE)

    def resolve(self) -> NewName:
        op = self.op
        return NewName(self.read_instance(), *new_name(self.context, op, op.new_name))

    def locks(self, found: NewName) -> LockNeed:
        """Lock both names exclusively, the nodes shared."""
        return super().locks(found) | exclusive(LockLevel.INSTANCE, [found.name])

    def plan(self, found: NewName) -> Renaming:
        """Refuse a name that is taken, and an instance that runs."""
        view = found.view
        check_primary_online(view)
        check_not_running(self.context, view)
        if found.name == view.name:
            return Renaming(view, found.name, self._find_directories(view))
        check_name_free(self.context, found.name)
        self._check_directories(view)
        if self.op.ip_check:
            check_ip_free(found.name, found.address)
        if view.instance.os and view.disks:
            check_os_scripts(self.context, view.primary, view.instance.os, "rename")
        return Renaming(view, found.name, {})

    def _find_directories(self, view: InstanceView) -> dict[str, str]:
        """Return where the directories are that a rename has left behind, and should be.

        Raises:
            OpPrereqError: disks of another instance are there, too (wrong_state).
        """
        what = {STORED_DISKS_CHECK: [*listed_directories(view.cluster).values()]}
        doing = f"look for the files of instance {view.name!r}"
        nodes = self.context.nodes.on(view.primary, doing)
        answer = nodes.node_verify(what, view.cluster.cluster_name, {})
        stored = answer.get(STORED_DISKS_CHECK) if isinstance(answer, dict) else None
        others = {file_of(disk) for disk in self._other_disks(view)}
        strays = set(map(str, stored if isinstance(stored, list) else ())) - others
        found = renamed_directories(view.disks, strays)
        if not found:
            self.context.info(f"the instance is called {view.name} already, nothing to change")
        for place in found.values():
            if any(path.startswith(f"{place}/") for path in others if path is not None):
                raise wrong_state(
                    f"directory {place} cannot be renamed: disks of another instance are in it as"
                    " well; move the files by hand"
                )
        return found

    def _other_disks(self, view: InstanceView) -> list[Disk]:
        """Return the disks that are not the instance's."""
        every = lookup.present(self.config.get_disks(None))
        return [disk for disk in every if disk.uuid not in view.instance.disks]

    def _check_directories(self, view: InstanceView) -> None:
        """Refuse to rename a directory in which a disk lies that is not the instance's.

        Raises:
            OpPrereqError: there is one (wrong_state).
        """
        own = set(own_directories(view))
        for disk in self._other_disks(view) if own else ():
            if own & set(directories([disk])):
                raise wrong_state(
                    f"instance {view.name!r} cannot be renamed: disk {disk.uuid}, which"
                    " does not belong to it any more, lies in its directory; attach it again first"
                )

    def own_values(self, plan: Renaming) -> Mapping[str, object]:
        return {"INSTANCE_NEW_NAME": plan.name}

    def execute(self, plan: Renaming) -> str:
        """Rename files and configuration together, then tell the operating system."""
        if plan.name == plan.view.name:
            self._put_back(plan)
        else:
            # What is left of a guest that has switched itself off is known by the old name alone.
            stop(self.context, plan.view, 0, self.op.reason or [])
            renamed = self._rename(plan)
            disks.note_owner(self.context, renamed)
            self._tell_os(renamed, plan.view.name)
        return plan.name

    def _put_back(self, plan: Renaming) -> None:
        for own, place in plan.put_back.items():
            self.context.info(f"renaming directory {place} back to {own}")
            self._back(plan.view, place, own)

    def _rename(self, plan: Renaming) -> InstanceView:
        """Rename files and configuration; returns the instance as it is then."""
        view, instance = plan.view, plan.view.instance
        new = structs.replace(
            instance,
            name=plan.name,
            nics=[
                structs.replace(nic, name=name_to_node(plan.name))
                if leads_to_node(nic.name)
                else nic
                for nic in instance.nics
            ],
        )
        with Undo(self.context) as undo:
            renamed = self._rename_directories(plan, undo)
            changes = [
                (ObjectKind.DISK, disk.uuid, {"logical_id": disk.logical_id}) for disk in renamed
            ]
            fields = changed_fields(instance, new)
            self.config.modify_objects([(ObjectKind.INSTANCE, instance.uuid, fields), *changes])
            undo.forget()
        by_uuid = {disk.uuid: disk for disk in renamed}
        disks_now = [by_uuid.get(disk.uuid, disk) for disk in view.disks]
        return view.with_instance(new, disks_now)

    def _rename_directories(self, plan: Renaming, undo: Undo) -> list[Disk]:
        """Rename the directories of the files; returns the disks that have new places."""
        view = plan.view
        renamed: list[Disk] = []
        for old in own_directories(view):
            new = f"{old.rpartition('/')[0]}/{plan.name}"
            what = f"rename directory {old} to {new}"
            back = f"rename directory {new} back to {old}", partial(self._back, view, new, old)
            try:
                self.context.nodes.on(view.primary, what).file_storage_dir_rename(old, new)
            except NodeNotReachedError:  # it may have been done all the same
                undo.push(*back)
                raise
            undo.push(*back)
            for disk in view.disks:
                if not disk.traits.has_own_directory:
                    continue
                driver, path = disk.logical_id
                directory, _slash, file_name = str(path).rpartition("/")
                if directory == old:
                    renamed.append(structs.replace(disk, logical_id=[driver, f"{new}/{file_name}"]))
        return renamed

    def _back(self, view: InstanceView, new: str, old: str) -> None:
        what = f"rename directory {new} back to {old}"
        self.context.nodes.on(view.primary, what).file_storage_dir_rename(new, old)

    def _tell_os(self, view: InstanceView, old_name: str) -> None:
        """Run the rename script of the operating system; a failure is told."""
        if not view.instance.os or not view.disks:
            return
        try:
            disks.open_for_script(self.context, view)
            error = why_os_not_renamed(self.context, view, old_name, self.op.debug_level)
        except GenericError as err:  # a request to cancel, too: the name has changed by now
            error = f"cannot run the rename script of instance {view.name!r}: {err}"
        if error is not None:
            self.context.warn(f"{error}; the instance has been renamed in Ganeti all the same")
        disks.deactivate(self.context, view, view.primary)

"""Give a stopped instance another name; its files and its inner configuration follow.

The directory of its files is renamed first.  Killed after that, the configuration has the old name
and the files are in the directory of the new one, which ``verify`` tells.  The same rename
completes it, and a rename to the name that the instance has puts the directory back.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, GenericError, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.cluster.verify_checks import storage_directories
from ganeti.logical_units.host_names import normal_name, resolve
from ganeti.logical_units.instance import disks
from ganeti.logical_units.instance.create import PING_TIMEOUT_S
from ganeti.logical_units.instance.disks import OWN_DIRECTORY
from ganeti.logical_units.instance.misplaced import file_of, misplaced
from ganeti.logical_units.instance.os_scripts import RENAME, run_script
from ganeti.logical_units.instance.power import is_running, running_info
from ganeti.logical_units.instance.subject import InstanceUnit, check_node_online
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, exclusive
from ganeti.logical_units.node_calls import failure_text, order
from ganeti.logical_units.undo import Undo
from ganeti.opcodes.instance import OpInstanceRename
from ganeti.protocol.node_rpc import DEFAULT_PORT
from ganeti.protocol.node_rpc_values import STORED_DISKS_CHECK
from ganeti.system.reachable import answers

if TYPE_CHECKING:
    from ganeti.objects.disk import Disk


class LUInstanceRename(InstanceUnit[OpInstanceRename]):
    """Rename an instance; the result is the new name."""

    def expand_names(self) -> None:
        """Read the instance and decide the new name."""
        super().expand_names()
        self.address: str | None = None
        self.elsewhere: dict[str, str] = {}
        if self.op.name_check:
            self.new_name, self.address = resolve(
                "instance",
                self.op.new_name,
                self.context.paths,
                "; use --no-name-check if the name need not resolve",
            )
        elif self.op.ip_check:
            raise OpPrereqError(
                "the IP address cannot be checked without the name; use --no-ip-check together"
                " with --no-name-check"
            )
        else:
            self.new_name = normal_name("instance", self.op.new_name)

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock both names exclusively, the nodes shared."""
        if level is LockLevel.INSTANCE:
            return exclusive(level, [self.instance.name, self.new_name])
        return super().declare_locks(level)

    def check_prereq(self) -> None:
        """Refuse a name that is taken, and an instance that runs."""
        primary, name = self.subject.primary, self.instance.name
        check_node_online(primary, f"primary node of instance {name!r}:")
        if is_running(running_info(self.context, self.subject, primary)):
            raise OpPrereqError(
                f"instance {name!r} is running on node {primary.name!r}; shut it down first",
                ErrorCode.STATE,
            )
        if self.new_name == name:
            self.elsewhere = self._find_directories()
            return
        if lookup.present(self.config.get_instances([self.new_name])):
            raise OpPrereqError(
                f"instance {self.new_name!r} is already in the cluster", ErrorCode.EXISTS
            )
        self._check_directories()
        self._check_ip_free()

    def _find_directories(self) -> dict[str, str]:
        """Return where the directories are that a rename has left behind, and should be.

        Raises:
            OpPrereqError: there are none, so there is nothing to do.
        """
        context, primary = self.context, self.subject.primary
        what = [*storage_directories(self.cluster).values()]
        doing = f"look for the files of instance {self.instance.name!r}"
        answer = order(
            context,
            primary,
            doing,
            "node_verify",
            {STORED_DISKS_CHECK: what},
            self.cluster.cluster_name,
            {},
        )
        stored = answer.get(STORED_DISKS_CHECK) if isinstance(answer, dict) else None
        others = {
            file_of(disk)
            for disk in lookup.present(self.config.get_disks(None))
            if disk.uuid not in self.instance.disks
        }
        strays = [path for path in map(str, stored or ()) if path not in others]
        found = misplaced(self.subject.disks, strays)
        if not found:
            raise OpPrereqError(
                f"the instance is called {self.instance.name!r} already, and no directory of its"
                " disks is to be put back",
                ErrorCode.INVAL,
            )
        for place in found.values():
            if any(path is not None and path.startswith(f"{place}/") for path in others):
                raise OpPrereqError(
                    f"directory {place} cannot be renamed: disks of another instance are in it as"
                    " well; move the files by hand",
                    ErrorCode.STATE,
                )
        return found

    def _check_ip_free(self) -> None:
        if not self.op.ip_check or self.address is None:
            return
        if ipaddress.ip_address(self.address).is_loopback:
            return
        if answers(self.address, DEFAULT_PORT, PING_TIMEOUT_S):
            raise OpPrereqError(
                f"the IP address {self.address} of instance {self.new_name!r} is already in use",
                ErrorCode.NOTUNIQUE,
            )

    def own_env(self) -> Mapping[str, object]:
        """Tell the new name."""
        return {"INSTANCE_NEW_NAME": self.new_name}

    def exec(self) -> str:
        """Rename files and configuration together, then tell the operating system."""
        if self.elsewhere:
            return self._put_back()
        with Undo(self.context) as undo:
            renamed = self._rename_directory(undo)
            changes = [("disk", disk.uuid, {"logical_id": disk.logical_id}) for disk in renamed]
            self.config.modify_objects(
                [("instance", self.instance.uuid, {"name": self.new_name}), *changes]
            )
            undo.forget()
        old_name = self.instance.name
        self.subject.instance = replace(self.instance, name=self.new_name)
        by_uuid = {disk.uuid: disk for disk in renamed}
        self.subject.disks = [by_uuid.get(disk.uuid, disk) for disk in self.subject.disks]
        self._tell_os(old_name)
        return self.new_name

    def _put_back(self) -> str:
        for own, place in self.elsewhere.items():
            self.context.info(f"renaming directory {place} back to {own}")
            self._back(place, own)
        return self.new_name

    def _check_directories(self) -> None:
        """Refuse to rename a directory in which a disk lies that is not the instance's.

        Raises:
            OpPrereqError: there is one (wrong_state).
        """
        own = set(disks.own_directories(self.subject))
        if not own:
            return
        for disk in lookup.present(self.config.get_disks(None)):
            if disk.uuid not in self.instance.disks and own & set(disks.directories([disk])):
                raise OpPrereqError(
                    f"instance {self.instance.name!r} cannot be renamed: disk {disk.uuid}, which"
                    " does not belong to it any more, lies in its directory; attach it again first",
                    ErrorCode.STATE,
                )

    def _rename_directory(self, undo: Undo) -> list[Disk]:
        """Rename the directories of the files; returns the disks that have new places."""
        subject = self.subject
        call = "file_storage_dir_rename"
        renamed: list[Disk] = []
        for old in disks.own_directories(subject):
            new = f"{old.rpartition('/')[0]}/{self.new_name}"
            what = f"rename directory {old} to {new}"
            order(self.context, subject.primary, what, call, old, new)
            undo.push(f"rename directory {new} back to {old}", partial(self._back, new, old))
            for disk in subject.disks:
                driver, path = disk.logical_id
                directory, _slash, file_name = str(path).rpartition("/")
                if disk.dev_type in OWN_DIRECTORY and directory == old:
                    renamed.append(replace(disk, logical_id=[driver, f"{new}/{file_name}"]))
        return renamed

    def _back(self, new: str, old: str) -> None:
        what = f"rename directory {new} back to {old}"
        order(self.context, self.subject.primary, what, "file_storage_dir_rename", new, old)

    def _tell_os(self, old_name: str) -> None:
        """Run the rename script of the operating system; a failure is told."""
        subject = self.subject
        if not subject.instance.os or not subject.disks:
            return
        wire, debug_level = subject.wire(), self.op.debug_level or 0
        doing = f"run the OS rename script for instance {subject.instance.name!r}"
        try:
            result = run_script(self.context, subject, RENAME, wire, old_name, debug_level)
            error = result.error and failure_text(doing, subject.primary, RENAME, result)
        except GenericError as err:  # a request to cancel, too: the name has changed by now
            error = f"cannot {doing}: {err}"
        if error is not None:
            self.context.warn(f"{error}; the instance has been renamed in Ganeti all the same")
        disks.deactivate(self.context, subject, subject.primary)

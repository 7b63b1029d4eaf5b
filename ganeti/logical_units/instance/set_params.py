"""Change settings of an instance: hypervisor, backend and OS parameters, OS name, offline flag.

Changes of parameters are stored and take effect at the next start; those of devices and of the
memory of the running guest at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, NotSupportedError, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.instance.memory import free_memory_mib
from ganeti.logical_units.instance.modify_disks import DiskPart
from ganeti.logical_units.instance.modify_nics import NicPart, networks_in
from ganeti.logical_units.instance.modify_parts import Hotplug, ModifyPart, Results
from ganeti.logical_units.instance.modify_place import MemoryPart, PrimaryPart
from ganeti.logical_units.instance.modify_template import TemplatePart
from ganeti.logical_units.instance.nic_addresses import network_locks
from ganeti.logical_units.instance.parameters import (
    check_beparams,
    check_cpu_mask,
    check_filled_beparams,
    check_hvparams,
)
from ganeti.logical_units.instance.policy import check_policy, spec_of
from ganeti.logical_units.instance.power import is_running, own_hvparams, running_info
from ganeti.logical_units.instance.subject import InstanceUnit
from ganeti.logical_units.instance.target import locks_for_move
from ganeti.logical_units.lock_plan import LockLevel, LockNeed
from ganeti.logical_units.node_calls import ask
from ganeti.logical_units.undo import Undo
from ganeti.objects.admin_state import AdminState
from ganeti.objects.fill import (
    fill_beparams,
    fill_hvparams,
    fill_ipolicy,
    fill_osparams_all,
)
from ganeti.objects.instance_policy import violations
from ganeti.objects.parameters import apply_changes
from ganeti.opcodes.instance import OpInstanceSetParams

if TYPE_CHECKING:
    from ganeti.objects.instance import Instance

_NOT_YET: Final = (
    "instance_communication",
    "remote_node",
    "iallocator",
)
# Settings that only say how disks are made that come with this change.
_FOR_NEW_DISKS: Final = ("ext_params", "file_driver", "file_storage_dir")


class LUInstanceSetParams(InstanceUnit[OpInstanceSetParams]):
    """Change settings of an instance; the result lists what was changed."""

    def expand_names(self) -> None:
        """Read the instance, and the networks that its NICs are to join."""
        super().expand_names()
        self.networks = networks_in(self.context, self.op)
        key = self.op.pnode_uuid or self.op.pnode
        self.new_primary = None if key is None else lookup.require_node(self.config, key)

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the instance exclusively, nodes and networks shared."""
        if level is LockLevel.NETWORK:
            return network_locks(level, self.networks.values())
        return locks_for_move(level, self.subject, self.new_primary)

    def check_prereq(self) -> None:
        """Refuse wrong parameters, and changes that the instance's state does not allow."""
        name = self.instance.name
        for parameter in _NOT_YET:
            if getattr(self.op, parameter):
                raise NotSupportedError(
                    f"instance {name!r}: changing {parameter!r} is not supported yet"
                )
        self.result: Results = []
        self.new = self._with_parameters(self.instance)
        self.new = self._with_os(self.new)
        self.new = self._with_offline(self.new)
        self._check_parts()
        before, after = self.instance.to_wire(), self.new.to_wire()
        self.changes = {key: value for key, value in after.items() if before.get(key) != value}
        if not self._asks_for_anything():
            raise OpPrereqError("please give at least one change", ErrorCode.INVAL)
        if self.changes or self.parts:
            self._check_new()

    def _check_parts(self) -> None:
        """Let each kind of devices check its own changes."""
        hotplug = Hotplug(self.context, self.subject, self.op)
        given = (self.context, self.subject, self.op, hotplug)
        self.disk_part = TemplatePart(*given) if self.op.disk_template else DiskPart(*given)
        parts: tuple[ModifyPart, ...] = (
            self.disk_part,
            NicPart(*given),
            MemoryPart(*given),
            PrimaryPart(*given[:3], self.new_primary),
        )
        self.parts = [part for part in parts if part.is_asked]
        for name in _FOR_NEW_DISKS:
            if getattr(self.op, name) and not self.disk_part.is_asked:
                raise OpPrereqError(f"{name!r} is for disks that are made: give -t, or --disk add")
        if self.parts:
            hotplug.decide()
        for part in self.parts:
            self.new = part.check(self.new)

    def _asks_for_anything(self) -> bool:
        op = self.op
        given = (op.hvparams, op.beparams, op.osparams, op.osparams_private, op.os_name)
        return any(given) or op.offline is not None or bool(self.parts)

    def _with_parameters(self, instance: Instance) -> Instance:
        hvparams = check_hvparams(instance.hypervisor, self.op.hvparams)
        beparams = check_beparams(self.op.beparams)
        self.result += [(f"hv/{name}", value) for name, value in hvparams.items()]
        self.result += [(f"be/{name}", value) for name, value in beparams.items()]
        return replace(
            instance,
            hvparams=apply_changes(instance.hvparams, hvparams),
            beparams=apply_changes(instance.beparams, beparams),
        )

    def _with_os(self, instance: Instance) -> Instance:
        op = self.op
        if op.os_name:
            self.result.append(("os", op.os_name))
        self.result += [(f"os/{name}", value) for name, value in op.osparams.items()]
        private = instance.osparams_private
        if op.osparams_private is not None:
            self.result += [(f"os_private/{name}", "***") for name in op.osparams_private]
            changed = apply_changes(private.reveal(), op.osparams_private.reveal())
            private = type(private)(changed)
        return replace(
            instance,
            os=op.os_name or instance.os,
            osparams=apply_changes(instance.osparams, op.osparams),
            osparams_private=private,
        )

    def _with_offline(self, instance: Instance) -> Instance:
        if self.op.offline is None:
            return instance
        name = instance.name
        if self.op.offline:
            if instance.admin_state is AdminState.UP:
                raise OpPrereqError(
                    f"instance {name!r} is meant to run; shut it down before marking it offline",
                    ErrorCode.STATE,
                )
            self.result.append(("admin_state", AdminState.OFFLINE.value))
            return replace(instance, admin_state=AdminState.OFFLINE)
        if instance.admin_state is not AdminState.OFFLINE:
            raise OpPrereqError(f"instance {name!r} is not marked offline", ErrorCode.STATE)
        self.result.append(("admin_state", AdminState.DOWN.value))
        return replace(instance, admin_state=AdminState.DOWN)

    def _check_new(self) -> None:
        filled = fill_beparams(self.cluster, self.new)
        check_filled_beparams(filled)
        if self.changes.keys() & {"hvparams", "beparams", "os"}:
            check_cpu_mask(fill_hvparams(self.cluster, self.new), filled["vcpus"])
        self._check_policy()
        if self.subject.primary.offline or self.op.force:
            return
        if "hvparams" in self.changes or "os" in self.changes:
            ask(
                self.context,
                self.subject.primary,
                "use these hypervisor parameters",
                "hypervisor_validate_params",
                self.new.hypervisor,
                fill_hvparams(self.cluster, self.new),
                ecode=ErrorCode.INVAL,
            )
        if self.changes.keys() & {"os", "osparams", "osparams_private"}:
            self._check_os()
        if "beparams" in self.changes:
            self._check_memory()

    def _check_policy(self) -> None:
        """Refuse violations of the policy that are new."""
        subject = self.subject
        policy = fill_ipolicy(self.cluster, subject.group)
        new_spec = spec_of(self.cluster, self.new, self.disk_part.plan.devices)
        old = violations(policy, spec_of(self.cluster, self.instance, subject.disks))
        if set(violations(policy, new_spec)) <= set(old):
            return
        ignored = check_policy(
            self.cluster,
            subject.group,
            self.new.name,
            new_spec,
            ignore=self.op.ignore_ipolicy,
        )
        if ignored:
            self.context.warn(f"{ignored}; ignoring")

    def _check_os(self) -> None:
        filled = fill_osparams_all(
            self.cluster, self.new.os, self.new.osparams, self.new.osparams_private
        )
        ask(
            self.context,
            self.subject.primary,
            f"use operating system {self.new.os!r}",
            "os_validate",
            not self.op.force,
            self.new.os,
            ["parameters"],
            filled.reveal(),
            self.op.force_variant,
            ecode=ErrorCode.INVAL,
        )

    def _check_memory(self) -> None:
        """Refuse more memory than the node could give at the next start."""
        primary, name = self.subject.primary, self.instance.name
        minmem = fill_beparams(self.cluster, self.new)["minmem"]
        if minmem <= fill_beparams(self.cluster, self.instance)["minmem"]:
            return
        info = running_info(self.context, self.subject, primary)
        has_mib = info.get("memory") if is_running(info) else 0
        assert isinstance(has_mib, int)
        free_mib = free_memory_mib(
            self.context, primary, self.instance.hypervisor, own_hvparams(self.subject)
        )
        if minmem > free_mib + has_mib:
            raise OpPrereqError(
                f"instance {name!r} could not start any more: node {primary.name!r} has"
                f" {free_mib + has_mib} MiB for it, {minmem} MiB would be needed (use --force to"
                " store it all the same)",
                ErrorCode.NORES,
            )

    def own_env(self) -> Mapping[str, object]:
        """Tell the new disk template, and the memory at run time."""
        return {
            "NEW_DISK_TEMPLATE": self.op.disk_template or "",
            "RUNTIME_MEMORY": self.op.runtime_mem or "",
        }

    def exec(self) -> list[tuple[str, object]]:
        """Store the changes, and carry out those of devices; returns what was changed."""
        with Undo(self.context) as undo:
            for part in self.parts:
                part.before_store(undo)
            self._store(undo)
            for part in self.parts:
                part.after_store(undo)
            undo.forget()
        self.disk_part.finish()
        return self.result + [row for part in self.parts for row in part.results]

    def _store(self, undo: Undo) -> None:
        """Change the configuration."""
        self.disk_part.store(undo)
        if not self.changes:
            return
        uuid, before = self.instance.uuid, self.instance.to_wire()
        old = {name: before.get(name) for name in self.changes}
        self.config.modify_instance(uuid, self.changes)
        undo.push(
            "undo the change of the instance in the configuration",
            lambda: self.config.modify_instance(uuid, old),
        )

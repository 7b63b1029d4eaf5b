"""Change settings of an instance: hypervisor, backend and OS parameters, OS name, offline flag.

Changes of parameters are stored and take effect at the next start; those of devices and of the
memory of the running guest at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, NotSupportedError, OpPrereqError, wrong_state
from ganeti.logical_units import lookup
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.base import AnyInstanceUnit, OnInstance
from ganeti.logical_units.instance.changes.modify_disks import DiskPart
from ganeti.logical_units.instance.changes.modify_nics import NicPart, networks_in
from ganeti.logical_units.instance.changes.modify_parts import Hotplug, ModifyPart, Results
from ganeti.logical_units.instance.changes.modify_place import MemoryPart, PrimaryPart
from ganeti.logical_units.instance.changes.modify_template import TemplatePart
from ganeti.logical_units.instance.changes.nic_addresses import network_locks
from ganeti.logical_units.instance.life.power import is_running, own_hvparams, running_info
from ganeti.logical_units.instance.memory import free_memory_mib
from ganeti.logical_units.instance.moving.target import Move, locks_of_move
from ganeti.logical_units.instance.parameters import (
    check_beparams,
    check_cpu_mask,
    check_filled_beparams,
    check_hvparams,
)
from ganeti.logical_units.instance.policy import check_policy, spec_of
from ganeti.logical_units.locks import LockNeed
from ganeti.logical_units.undo import Undo
from ganeti.objects.fill import fill_beparams, fill_hvparams, fill_ipolicy, fill_osparams_all
from ganeti.objects.instance_policy import violations
from ganeti.objects.model import AdminState, Instance, Network
from ganeti.objects.parameters import apply_changes
from ganeti.opcodes.instance import OpInstanceSetParams
from ganeti.protocol.wconfd import ObjectKind

_NOT_YET: Final = ("instance_communication", "remote_node", "iallocator")
# Settings that only say how disks are made that come with this change.
_FOR_NEW_DISKS: Final = ("ext_params", "file_driver", "file_storage_dir")


@dataclass(frozen=True, slots=True)
class WithNetworks(Move):
    """An instance, its new primary node if there is one, and networks that its NICs are to join."""

    networks: Mapping[str, Network]


@dataclass(frozen=True, slots=True)
class Modification(OnInstance):
    """How an instance is changed.

    Attributes:
        new: the instance as it is to be.
        fields: the fields of the instance that change.
        disk_part: the changes of disks; it is among the parts if there are any.
        results: the changes of settings, as the opcode answers them.
    """

    new: Instance
    fields: Mapping[str, object]
    disk_part: DiskPart | TemplatePart
    parts: Sequence[ModifyPart]
    results: Sequence[tuple[str, object]]


class LUInstanceSetParams(AnyInstanceUnit[OpInstanceSetParams, WithNetworks, Modification]):
    """Change settings of an instance; the result lists the changes."""

    hooks = HookPoint("instance-modify", ObjectType.INSTANCE)

    def resolve(self) -> WithNetworks:
        """Read the instance, its new primary node, and the networks that its NICs are to join."""
        view = self.read_instance()
        networks = networks_in(self.context, self.op)
        key = self.op.pnode_uuid or self.op.pnode
        target = None if key is None else lookup.require_node(self.config, key)
        return WithNetworks(view, target, networks)

    def locks(self, found: WithNetworks) -> LockNeed:
        """Lock the instance exclusively, nodes and networks shared."""
        return locks_of_move(found) | network_locks(found.networks.values())

    def plan(self, found: WithNetworks) -> Modification:
        """Refuse wrong parameters, and changes that the instance's state does not allow."""
        view, name = found.view, found.view.instance.name
        for parameter in _NOT_YET:
            if getattr(self.op, parameter):
                raise NotSupportedError(
                    f"instance {name!r}: changing {parameter!r} is not supported yet"
                )
        results: Results = []
        new = self._with_parameters(view.instance, results)
        new = self._with_os(new, results)
        new = self._with_offline(new, results)
        disk_part, parts = self._parts(found)
        for part in parts:
            new = part.check(new)
        before, after = view.instance.to_wire(), new.to_wire()
        fields = {key: value for key, value in after.items() if before.get(key) != value}
        if not (parts or self._asks_for_settings()):
            raise OpPrereqError("please give at least one change")
        plan = Modification(view, new, fields, disk_part, parts, results)
        if fields or parts:
            self._check_new(plan)
        return plan

    def _parts(self, found: WithNetworks) -> tuple[DiskPart | TemplatePart, list[ModifyPart]]:
        """Return the changes of disks, and all changes besides settings that are asked for."""
        hotplug = Hotplug(self.context, found.view, self.op)
        given = (self.context, found.view, self.op, hotplug)
        disk_part = TemplatePart(*given) if self.op.disk_template else DiskPart(*given)
        every: tuple[ModifyPart, ...] = (
            disk_part,
            NicPart(*given),
            MemoryPart(*given),
            PrimaryPart(*given[:3], found.target),
        )
        for name in _FOR_NEW_DISKS:
            if getattr(self.op, name) and not disk_part.is_asked:
                raise OpPrereqError(f"{name!r} is for disks that are made: give -t, or --disk add")
        parts = [part for part in every if part.is_asked]
        if parts:
            hotplug.decide()
        return disk_part, parts

    def _asks_for_settings(self) -> bool:
        op = self.op
        given = (op.hvparams, op.beparams, op.osparams, op.osparams_private, op.os_name)
        return any(given) or op.offline is not None

    def _with_parameters(self, instance: Instance, results: Results) -> Instance:
        hvparams = check_hvparams(instance.hypervisor, self.op.hvparams)
        beparams = check_beparams(self.op.beparams)
        results += [(f"hv/{name}", value) for name, value in hvparams.items()]
        results += [(f"be/{name}", value) for name, value in beparams.items()]
        return replace(
            instance,
            hvparams=apply_changes(instance.hvparams, hvparams),
            beparams=apply_changes(instance.beparams, beparams),
        )

    def _with_os(self, instance: Instance, results: Results) -> Instance:
        op = self.op
        if op.os_name:
            results.append(("os", op.os_name))
        results += [(f"os/{name}", value) for name, value in op.osparams.items()]
        private = instance.osparams_private
        if op.osparams_private is not None:
            results += [(f"os_private/{name}", "***") for name in op.osparams_private]
            changed = apply_changes(private.reveal(), op.osparams_private.reveal())
            private = type(private)(changed)
        return replace(
            instance,
            os=op.os_name or instance.os,
            osparams=apply_changes(instance.osparams, op.osparams),
            osparams_private=private,
        )

    def _with_offline(self, instance: Instance, results: Results) -> Instance:
        if self.op.offline is None:
            return instance
        name = instance.name
        if self.op.offline:
            if instance.admin_state is AdminState.UP:
                raise wrong_state(
                    f"instance {name!r} is meant to run; shut it down before marking it offline"
                )
            results.append(("admin_state", AdminState.OFFLINE.value))
            return replace(instance, admin_state=AdminState.OFFLINE)
        if instance.admin_state is not AdminState.OFFLINE:
            raise wrong_state(f"instance {name!r} is not marked offline")
        results.append(("admin_state", AdminState.DOWN.value))
        return replace(instance, admin_state=AdminState.DOWN)

    def _check_new(self, plan: Modification) -> None:
        filled = fill_beparams(plan.view.cluster, plan.new)
        check_filled_beparams(filled)
        if plan.fields.keys() & {"hvparams", "beparams", "os"}:
            check_cpu_mask(fill_hvparams(plan.view.cluster, plan.new), filled["vcpus"])
        self._check_policy(plan)
        if plan.view.primary.offline or self.op.force:
            return
        if "hvparams" in plan.fields or "os" in plan.fields:
            self.context.nodes.check(
                plan.view.primary, "use these hypervisor parameters"
            ).hypervisor_validate_params(
                plan.new.hypervisor, fill_hvparams(plan.view.cluster, plan.new)
            )
        if plan.fields.keys() & {"os", "osparams", "osparams_private"}:
            self._check_os(plan)
        if "beparams" in plan.fields:
            self._check_memory(plan)

    def _check_policy(self, plan: Modification) -> None:
        """Refuse violations of the policy that are new."""
        view = plan.view
        policy = fill_ipolicy(plan.view.cluster, view.group)
        new_spec = spec_of(plan.view.cluster, plan.new, plan.disk_part.plan.devices)
        old = violations(policy, spec_of(plan.view.cluster, plan.view.instance, view.disks))
        if set(violations(policy, new_spec)) <= set(old):
            return
        ignored = check_policy(
            plan.view.cluster, view.group, plan.new.name, new_spec, ignore=self.op.ignore_ipolicy
        )
        if ignored:
            self.context.warn(f"{ignored}; ignoring")

    def _check_os(self, plan: Modification) -> None:
        filled = fill_osparams_all(
            plan.view.cluster, plan.new.os, plan.new.osparams, plan.new.osparams_private
        )
        self.context.nodes.check(
            plan.view.primary, f"use operating system {plan.new.os!r}"
        ).os_validate(
            not self.op.force, plan.new.os, ["parameters"], filled.reveal(), self.op.force_variant
        )

    def _check_memory(self, plan: Modification) -> None:
        """Refuse more memory than the node could give at the next start."""
        primary, name = plan.view.primary, plan.view.instance.name
        minmem = fill_beparams(plan.view.cluster, plan.new)["minmem"]
        if minmem <= fill_beparams(plan.view.cluster, plan.view.instance)["minmem"]:
            return
        info = running_info(self.context, plan.view, primary)
        has_mib = info.get("memory") if is_running(info) else 0
        assert isinstance(has_mib, int)
        free_mib = free_memory_mib(
            self.context, primary, plan.view.instance.hypervisor, own_hvparams(plan.view)
        )
        if minmem > free_mib + has_mib:
            raise OpPrereqError(
                f"instance {name!r} could not start any more: node {primary.name!r} has"
                f" {free_mib + has_mib} MiB for it, {minmem} MiB would be needed (use --force to"
                " store it all the same)",
                ErrorCode.NORES,
            )

    def own_values(self, plan: Modification) -> Mapping[str, object]:
        return {
            "NEW_DISK_TEMPLATE": self.op.disk_template or "",
            "RUNTIME_MEMORY": self.op.runtime_mem or "",
        }

    def execute(self, plan: Modification) -> list[tuple[str, object]]:
        """Store the changes, and carry out those of devices; returns all changes."""
        with Undo(self.context) as undo:
            for part in plan.parts:
                part.before_store(undo)
            self._store(plan, undo)
            for part in plan.parts:
                part.after_store(undo)
            undo.forget()
        plan.disk_part.finish()
        return [*plan.results, *(row for part in plan.parts for row in part.results)]

    def _store(self, plan: Modification, undo: Undo) -> None:
        """Change the configuration."""
        plan.disk_part.store(undo)
        if not plan.fields:
            return
        uuid, before = plan.view.instance.uuid, plan.view.instance.to_wire()
        old = {name: before.get(name) for name in plan.fields}
        self.config.modify(ObjectKind.INSTANCE, uuid, plan.fields)
        undo.push(
            "undo the change of the instance in the configuration",
            lambda: self.config.modify(ObjectKind.INSTANCE, uuid, old),
        )

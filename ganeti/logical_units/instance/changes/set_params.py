"""Change an instance: its parameters, OS, offline flag, devices, memory and primary node.

Changes of parameters are stored and take effect at the next start; those of devices and of the
memory of the running guest at once.

Source: manual page gnt-instance(8), modify.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, GenericError, OpExecError, OpPrereqError, wrong_state
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.placing import still_usable
from ganeti.logical_units.cluster import communication
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance import guest, metadata
from ganeti.logical_units.instance.base import AnyInstanceUnit, OnInstance, WithTarget
from ganeti.logical_units.instance.changes.convert_pair import PairPart
from ganeti.logical_units.instance.changes.modify_disks import (
    DiskPart,
    TemplatePart,
    plan_conversion,
    plan_disk_changes,
)
from ganeti.logical_units.instance.changes.modify_nics import NicPart, networks_in, plan_nic_changes
from ganeti.logical_units.instance.changes.modify_parts import ModifyPart, Results, Work, begin
from ganeti.logical_units.instance.changes.nics import network_locks
from ganeti.logical_units.instance.creation.choosing import check_one_way, choose_secondary
from ganeti.logical_units.instance.moving.target import check_other_node, check_target, record_move
from ganeti.logical_units.instance.parameters import (
    check_beparams,
    check_filled_beparams,
    check_hvparams,
    check_policy,
    check_processors,
    spec_of,
)
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.view import InstanceView, changed_fields
from ganeti.logical_units.locks import LockLevel, LockNeed, exclusive
from ganeti.logical_units.undo import Undo
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.fill import fill_beparams, fill_hvparams, fill_ipolicy, fill_osparams_all
from ganeti.objects.instance_policy import violations
from ganeti.objects.model import AdminState, Disk, Instance, Network, Node
from ganeti.objects.nic import communicates_by
from ganeti.objects.parameters import apply_changes
from ganeti.opcodes.instance import OpInstanceSetParams
from ganeti.protocol.wconfd import ObjectKind

# Settings that only say how disks are made that come with this change.
_FOR_NEW_DISKS: Final = ("ext_params", "file_driver", "file_storage_dir")


@dataclass(frozen=True, slots=True)
class MemoryPart(ModifyPart):
    """The memory that a running guest has just now, within the limits that it has at any time."""

    wanted_mib: int

    @property
    def results(self) -> Results:
        return [("runtime_memory", self.wanted_mib)]

    def after_store(self, undo: Undo) -> None:
        """Give the guest its memory, or take it."""
        view = self.work.view
        doing = f"change the memory of instance {view.name!r}"
        nodes = self.work.context.nodes.on(view.primary, doing)
        nodes.instance_balloon_memory(view.wire(view.primary), self.wanted_mib)


@dataclass(frozen=True, slots=True)
class SizePart(ModifyPart):
    """Processors and memory that a running guest gets beyond those of its start."""

    vcpus: int
    memory_mib: int

    def before_store(self, undo: Undo) -> Self:
        """Give the guest its new size; it keeps that if a later step fails."""
        size: dict[str, object] = {"vcpus": self.vcpus, "memory": self.memory_mib}
        what = f"{self.vcpus} processors and {self.memory_mib} MiB of memory"
        try:
            self.work.hotplug(f"hotplug: give the instance {what}", "hotmod", "size", size, 0)
        except OpExecError as err:
            if not self.work.op.hotplug_if_possible:
                raise
            self.work.context.warn(f"{err}; the instance gets them when it is restarted")
        else:
            self.work.context.info(f"the running instance has {what} now")
        return self


_MEMORY: Final = frozenset({"memory", "maxmem"})
_SIZE: Final = _MEMORY | {"vcpus"}


def plan_size(work: Work, new: Instance) -> list[ModifyPart]:
    """Reserve the memory on the node that the running guest gets more, if it is to be changed.

    It may have less than is set: what was set before may have been left to wait for its next start.
    """
    if not work.hotplugs:
        return []
    view = work.view
    filled = fill_beparams(view.cluster, new)
    has_mib = fill_beparams(view.cluster, view.instance)["maxmem"]
    if not _MEMORY.isdisjoint(work.op.beparams):
        has_mib = min(has_mib, guest.memory_of(guest.running_info(work.context, view)))
    more_mib = filled["maxmem"] - has_mib
    if more_mib > 0:
        guest.reserve_for(work.context, view, view.primary, more_mib)
    return [SizePart(work, vcpus=filled["vcpus"], memory_mib=filled["maxmem"])]


def plan_memory(work: Work, instance: Instance, wanted_mib: int) -> MemoryPart:
    """Refuse a guest that does not run, and memory that it may not or cannot have."""
    view, name = work.view, instance.name
    info = guest.running_info(work.context, view)
    if not guest.is_running(info):
        raise wrong_state(
            f"instance {name!r} does not run, so it has no memory to change; its limits are"
            " changed with -B minmem=...,maxmem=..."
        )
    filled = fill_beparams(view.cluster, instance)
    if not filled["minmem"] <= wanted_mib <= filled["maxmem"]:
        raise OpPrereqError(
            f"instance {name!r} must have from {filled['minmem']} to {filled['maxmem']} MiB of"
            f" memory (minmem and maxmem), got {wanted_mib} MiB"
        )
    more_mib = wanted_mib - guest.memory_of(info)
    if more_mib > 0:
        guest.reserve_for(work.context, view, view.primary, more_mib)
    return MemoryPart(work, wanted_mib)


@dataclass(frozen=True, slots=True)
class PrimaryPart(ModifyPart):
    """Another primary node, to which somebody has brought the disks already."""

    target: Node

    @property
    def results(self) -> Results:
        return [("pnode", self.target.name)]

    def after_store(self, undo: Undo) -> None:
        """Write the node down, for the instance and its disks, as the last step."""
        record_move(self.work.context, self.work.view, self.target)


def plan_primary(work: Work, target: Node) -> PrimaryPart:
    """Refuse an instance that runs, and a node that does not have its disks."""
    context, view, op, name = work.context, work.view, work.op, work.view.name
    check_other_node(view, target)
    if op.disks or op.disk_template:
        raise OpPrereqError(
            f"instance {name!r}: change its disks before or after its primary node, not at once"
        )
    check_target(context, view, target, ignore_ipolicy=op.ignore_ipolicy)
    if op.force:
        return PrimaryPart(work, target)
    hint = "shut it down first, or use 'gnt-instance migrate' or 'failover'"
    guest.check_not_running(context, view, hint)
    there = view.moved_to(target, lookup.require_group(context.config, target.group))
    lost = disks.indexes_on(context, there, target, view.disks, there=False)
    if lost:
        raise wrong_state(
            f"node {target.name!r} does not have disk {lost[0]} of instance {name!r}; use"
            " 'gnt-instance move' to copy the disks, or --force if they are to come"
        )
    return PrimaryPart(work, target)


@dataclass(frozen=True, slots=True)
class WithNetworks(WithTarget):
    """An instance, nodes that it gets, and networks that its NICs are to join.

    Attributes:
        target: its new primary node, if there is one.
        secondary: the node for copies of its disks, if there is one.
    """

    networks: Mapping[str, Network]
    secondary: Node | None

    @property
    def nodes(self) -> list[Node]:
        """All nodes that are worked on."""
        new = (self.target, self.secondary)
        return [*self.view.nodes, *(node for node in new if node)]


@dataclass(frozen=True, slots=True)
class Modification(OnInstance):
    """How an instance is changed.

    Attributes:
        new: the instance as it is to be.
        fields: the fields of the instance that change.
        disks: the disks as they are to be.
        parts: the changes besides settings.
        results: the changes of settings, as the opcode answers them.
    """

    new: Instance
    fields: Mapping[str, object]
    disks: Sequence[Disk]
    parts: Sequence[ModifyPart]
    results: Sequence[tuple[str, object]]


class LUInstanceSetParams(AnyInstanceUnit[OpInstanceSetParams, WithNetworks, Modification]):
    """Change settings of an instance; the result lists the changes."""

    hooks = HookPoint("instance-modify", ObjectType.INSTANCE)

    def resolve(self) -> WithNetworks:
        """Read the instance, its new primary node, and the networks that its NICs are to join."""
        view = self.read_instance()
        self.op = communication.with_change(view.cluster, view.instance, self.op)
        networks = networks_in(self.context, self.op)
        key = self.op.pnode_uuid or self.op.pnode
        target = None if key is None else lookup.require_node(self.config, key)
        key, allocator = self.op.remote_node_uuid or self.op.remote_node, self.op.iallocator
        what = f"instance {view.name!r}"
        check_one_way(what, node=self.op.remote_node or key, iallocator=allocator)
        if (key or allocator) and self.op.disk_template != DiskTemplate.DRBD:
            raise OpPrereqError(
                f"{what}: a secondary node, or an allocator, is given for a conversion to disk"
                " template 'drbd'; another one for copies that are there: 'gnt-instance"
                f" replace-disks -n NODE {view.name}'"
            )
        secondary = None if key is None else lookup.require_node(self.config, key)
        return WithNetworks(view, target, networks, secondary)

    def place(self, found: WithNetworks, earlier: WithNetworks | None) -> WithNetworks:
        """Have an allocator choose the secondary node, if one is given; space there is reserved."""
        view, allocator = found.view, self.op.iallocator
        if allocator is None or found.secondary is not None or view.needs_own_nodes:
            return found
        before = [earlier.secondary] if earlier and earlier.secondary else []
        kept = still_usable(self.config, before)
        secondary = kept[0] if kept else choose_secondary(self.context, view, allocator)
        return WithNetworks(view, found.target, found.networks, secondary)

    def locks(self, found: WithNetworks) -> LockNeed:
        """Lock the instance exclusively, nodes and networks shared.

        A NIC can also draw an address from the network that it is in already.
        """
        has = found.view.networks.values() if self.op.nics else ()
        return super().locks(found) | network_locks([*found.networks.values(), *has])

    def resource_locks(self, found: WithNetworks, uuids: Sequence[str]) -> LockNeed:
        """Return the locks of what the nodes have, where disks are converted."""
        return exclusive(LockLevel.NODE_RES, uuids) if self.op.disk_template else {}

    def plan(self, found: WithNetworks) -> Modification:
        """Refuse wrong parameters, and changes that the instance's state does not allow."""
        view = found.view
        results: Results = []
        new = self._with_parameters(view.instance, results)
        new = self._with_os(new, results)
        new = self._with_offline(view, new, results)
        parts = self._parts(found, new)
        if self.op.disk_template:
            results.append(("disk_template", str(self.op.disk_template)))
        for part in parts:
            if isinstance(part, NicPart):
                new = replace(new, nics=list(part.after))
        if not (parts or self._asks_for_settings()):
            raise OpPrereqError("please give at least one change")
        of_disks = [
            part.disks for part in parts if isinstance(part, DiskPart | TemplatePart | PairPart)
        ]
        fields = changed_fields(view.instance, new)
        plan = Modification(view, new, fields, [view.disks, *of_disks][-1], parts, results)
        if fields or parts:
            self._check_new(plan)
        return plan

    def _parts(self, found: WithNetworks, new: Instance) -> list[ModifyPart]:
        """Return the changes besides settings that are asked for."""
        op = self.op
        for name in _FOR_NEW_DISKS:
            if getattr(op, name) and not (op.disks or op.disk_template):
                raise OpPrereqError(f"{name!r} is for disks that are made: give -t, or --disk add")
        memory_mib, target = op.runtime_mem, found.target
        resizes = (op.hotplug or op.hotplug_if_possible) and not _SIZE.isdisjoint(op.beparams)
        changes = (op.disks, op.disk_template, op.nics, target, resizes)
        if not any(changes) and memory_mib is None:
            return []
        work = begin(self.context, found.view, op)
        parts: list[ModifyPart] = []
        if op.disk_template:
            parts += plan_conversion(work, found.secondary)
        elif op.disks:
            parts.append(plan_disk_changes(work))
        if op.nics:
            parts.append(plan_nic_changes(work))
        if resizes:
            parts += plan_size(work, new)
        if memory_mib is not None:
            parts.append(plan_memory(work, new, memory_mib))
        if target is not None:
            parts.append(plan_primary(work, target))
        return parts

    def _asks_for_settings(self) -> bool:
        op = self.op
        given = (op.hvparams, op.beparams, op.osparams, op.osparams_private, op.os_name)
        return any(given) or op.offline is not None or op.instance_communication is not None

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

    def _with_offline(self, view: InstanceView, instance: Instance, results: Results) -> Instance:
        if self.op.offline is None:
            return instance
        name, hint = instance.name, "shut it down before marking it offline"
        state = AdminState.OFFLINE if self.op.offline else AdminState.DOWN
        if self.op.offline and instance.admin_state is AdminState.UP:
            raise wrong_state(f"instance {name!r} is meant to run; {hint}")
        if self.op.offline and not view.primary.offline:
            guest.check_not_running(self.context, view, hint)
        if not self.op.offline and instance.admin_state is not AdminState.OFFLINE:
            self.context.info(f"instance {name} is not marked offline, nothing to change")
            return instance
        results.append(("admin_state", state.value))
        return replace(instance, admin_state=state)

    def _check_new(self, plan: Modification) -> None:
        context, view, new, changed = self.context, plan.view, plan.new, plan.fields.keys()
        filled, hvparams = fill_beparams(view.cluster, new), fill_hvparams(view.cluster, new)
        check_filled_beparams(filled)
        if changed & {"hvparams", "beparams", "os"}:
            check_processors(hvparams, filled["vcpus"])
        self._check_policy(plan)
        if view.primary.offline or self.op.force:
            return
        if changed & {"hvparams", "os"}:
            guest.check_hvparams_on(context, view.nodes, new.hypervisor, hvparams)
        if new.os and changed & {"os", "osparams", "osparams_private"}:
            osparams = fill_osparams_all(view.cluster, new.os, new.osparams, new.osparams_private)
            variant = self.op.force_variant
            guest.check_os(context, view.primary, new.os, osparams, force_variant=variant)
        if "beparams" in changed:
            self._check_memory(plan)

    def _check_policy(self, plan: Modification) -> None:
        """Refuse violations of the policy that are new."""
        view, new, cluster = plan.view, plan.new, plan.view.cluster
        policy = fill_ipolicy(cluster, view.group)
        old = violations(policy, spec_of(cluster, view.instance, view.disks))
        if set(violations(policy, spec_of(cluster, new, plan.disks))) - set(old):
            ignore = self.op.ignore_ipolicy
            check_policy(self.context, cluster, view.group, new, plan.disks, ignore=ignore)

    def _check_memory(self, plan: Modification) -> None:
        """Refuse more memory than the node could give at the next start."""
        primary, name = plan.view.primary, plan.view.name
        minmem = fill_beparams(plan.view.cluster, plan.new)["minmem"]
        if minmem <= fill_beparams(plan.view.cluster, plan.view.instance)["minmem"]:
            return
        info, hypervisor = guest.running_info(self.context, plan.view), plan.new.hypervisor
        has_mib = guest.memory_of(info) if guest.is_running(info) else 0
        free_mib = guest.free_memory_mib(self.context, primary, hypervisor, plan.view.own_hvparams)
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
            parts = [part.before_store(undo) for part in plan.parts]
            for part in parts:
                part.store(undo)
            self._store(plan, undo)
            for part in parts:
                part.after_store(undo)
            undo.forget()
        for part in parts:
            part.finish()
        self._tell_guest(plan)
        return [*plan.results, *(row for part in parts for row in part.results)]

    def _tell_guest(self, plan: Modification) -> None:
        """Bring changed metadata to the node of a guest that runs."""
        if communicates_by(plan.new.nics) is None or not (plan.fields or plan.parts):
            return
        view = self.read_instance()
        if view.primary.offline:
            return
        try:
            if guest.runs(self.context, view):
                metadata.bring(self.context, view, view.primary)
        except GenericError as err:
            text = f"{err}; the changes are made, and a running guest learns them at its next start"
            self.context.warn(text)

    def _store(self, plan: Modification, undo: Undo) -> None:
        """Change the instance in the configuration."""
        if not plan.fields:
            return
        modify = partial(self.config.modify, ObjectKind.INSTANCE, plan.view.instance.uuid)
        old = changed_fields(plan.new, plan.view.instance)
        # Pushed first: the answer may be lost when the change is made.
        undo.push("undo the change of the instance in the configuration", partial(modify, old))
        modify(plan.fields)

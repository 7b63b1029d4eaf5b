"""Changes of the network interfaces of an instance: add, remove, modify.

The steps are found by comparing the list before with the list after, so several changes of one
interface are one.  A running guest gets an interface that changes anew: taken away and given back,
with the same UUID.

Source: opcodes.json, OP_INSTANCE_SET_PARAMS; design-2.1, "Non bridged instances support".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from msgspec.structs import replace

from ganeti.base.errors import NodeNotReachedError, OpExecError
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.changes.device_changes import (
    NICS,
    DeviceStep,
    Settings,
    plan_changes,
)
from ganeti.logical_units.instance.changes.modify_parts import ModifyPart, Results, Work
from ganeti.logical_units.instance.changes.nics import (
    Connections,
    bridges_of,
    changed_nic,
    check_bridges,
    check_places,
    named_networks,
    plan_nic,
    read_connections,
    settle_addresses,
)
from ganeti.logical_units.undo import Undo
from ganeti.objects.disk_templates import DeviceAction
from ganeti.objects.fill import fill_nicparams
from ganeti.objects.model import Network
from ganeti.objects.nic import NIC
from ganeti.objects.rpc_instance import build_rpc_nic
from ganeti.opcodes.instance import OpInstanceSetParams

_NIC = "nic"


class NicMakers:
    """How new and changed NICs of one instance come about."""

    def __init__(self, context: JobContext, around: Connections) -> None:
        self._context = context
        self._around = around

    def add(self, what: str, index: int, settings: Settings) -> NIC:
        """Return a NIC to be made, its addresses still to be drawn."""
        return plan_nic(self._around, what, settings, self._context.new_uuid())

    def attach(self, what: str, index: int, settings: Settings) -> NIC:
        """Refuse: there are no NICs without an instance; the table of actions says so too."""
        raise AssertionError(f"{what}: NICs cannot be attached")

    def modify(self, what: str, index: int, device: NIC, settings: Settings) -> NIC:
        """Return the NIC with some settings changed."""
        return changed_nic(self._around, what, device, settings)


def networks_in(context: JobContext, op: OpInstanceSetParams) -> dict[str, Network]:
    """Return the networks that an opcode's changes of NICs name."""
    return named_networks(context.config, [change.settings for change in op.nics])


@dataclass(frozen=True, slots=True)
class NicPart(ModifyPart):
    """Network interfaces that are added, removed and modified.

    Attributes:
        after: the interfaces as they will be, with their addresses.
        steps: the changes that lead there.
        networks: the networks of old and new interfaces, by UUID.
    """

    after: Sequence[NIC]
    steps: Sequence[DeviceStep[NIC]]
    networks: Mapping[str, Network]

    @property
    def results(self) -> Results:
        settled = {nic.uuid: nic for nic in self.after}
        return [
            row
            for step in self.steps
            for row in self._told(step, settled.get(step.device.uuid, step.device))
        ]

    def _told(self, step: DeviceStep[NIC], nic: NIC) -> Iterator[tuple[str, object]]:
        """Give the changes of one step, as the opcode answers them."""
        values: dict[str, object] = {
            "mac": nic.mac,
            "ip": nic.ip,
            **fill_nicparams(self.work.view.cluster, nic),
            "name": nic.name,
            "network": self.networks[nic.network].name if nic.network else None,
        }
        match step.action:
            case DeviceAction.ADD:
                text = ",".join(f"{name}={values[name]}" for name in ("mac", "ip", "mode", "link"))
                yield f"{_NIC}/{step.index}", f"add:{text},network={values['network']}"
            case DeviceAction.REMOVE:
                yield f"{_NIC}/{step.index}", "remove"
            case _:
                for name in step.settings:
                    known = "link" if name == "bridge" else name
                    yield f"{_NIC}.{known}/{step.index}", values[known]

    def _wire(self, nic: NIC) -> dict[str, object]:
        return build_rpc_nic(self.work.view.cluster, nic, self.networks).to_wire()

    def before_store(self, undo: Undo) -> Self:
        """Take the NICs that go from the running guest."""
        kept, work = {nic.uuid for nic in self.after}, self.work
        for index, nic in enumerate(work.view.instance.nics if work.hotplugs else ()):
            if nic.uuid not in kept:
                back = f"give NIC {index} back to the running instance"
                give = partial(work.hotplug, back, "hotadd", _NIC, self._wire(nic), index)
                try:
                    work.unplug("NIC", _NIC, self._wire(nic), index)
                except NodeNotReachedError:  # it may have been taken
                    undo.push(back, give)
                    raise
                except OpExecError as err:
                    if not work.op.hotplug_if_possible:
                        raise
                    work.context.warn(f"{err}; the instance has NIC {index} until it is restarted")
                else:
                    undo.push(back, give)
        return self

    def after_store(self, undo: Undo) -> None:
        """Give the running guest the NICs that came or changed, in the place of the old ones.

        The node leaves all as it was if that fails.
        """
        work = self.work
        before = {nic.uuid: nic for nic in work.view.instance.nics}
        for index, nic in enumerate(self.after if work.hotplugs else ()):
            was = before.get(nic.uuid)
            if was is not None and replace(was, name=nic.name) == nic:
                continue
            action, back = ("hotadd", "hotremove") if was is None else ("hotmod", "hotmod")
            undone, old = f"undo the hotplug of NIC {index}", self._wire(was or nic)
            undoes = partial(work.hotplug, undone, back, _NIC, old, index)
            try:
                is_done = work.plug("NIC", action, _NIC, self._wire(nic), index)
            except NodeNotReachedError:  # it may have been done
                undo.push(undone, undoes)
                raise
            if is_done:
                undo.push(undone, undoes)


def plan_nic_changes(work: Work) -> NicPart:
    """Refuse changes that are not possible; draw and reserve addresses."""
    context, view, op = work.context, work.view, work.op
    before = view.instance.nics
    around = read_connections(
        context.config,
        view.cluster,
        view.group,
        networks_in(context, op),
        used=before,
        conflicts_check=op.conflicts_check,
    )
    plan = plan_changes(NICS, before, op.nics, NicMakers(context, around))
    check_places(context.config, view.cluster, before, plan.devices)
    if not op.force and not view.primary.offline:
        had = set(bridges_of(view.cluster, before))
        bridges = [name for name in bridges_of(view.cluster, plan.devices) if name not in had]
        check_bridges(context, view.primary, bridges)
    after = settle_addresses(
        context.config, before, plan.devices, conflicts_check=op.conflicts_check
    )
    return NicPart(work, after, plan.steps, {**view.networks, **around.networks})

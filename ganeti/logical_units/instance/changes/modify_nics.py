"""Changes of the network interfaces of an instance: add, remove, modify.

What is done is found by comparing the list before with the list after, so several changes of one
interface are one.  A running guest gets an interface that changes anew: taken away and given back,
with the same UUID.

Source: opcodes.json, OP_INSTANCE_SET_PARAMS; design-2.1, "Non bridged instances support".
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from ganeti.base.errors import OpExecError
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.changes.device_changes import (
    NICS,
    DeviceStep,
    Settings,
    plan_changes,
)
from ganeti.logical_units.instance.changes.modify_parts import Hotplug, Results
from ganeti.logical_units.instance.changes.new_nics import Connections, changed_nic, plan_nic
from ganeti.logical_units.instance.changes.nic_addresses import (
    bridges_of,
    check_places,
    named_networks,
    read_connections,
    settle_addresses,
)
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.undo import Undo
from ganeti.objects.disk_templates import DeviceAction
from ganeti.objects.fill import fill_nicparams
from ganeti.objects.model import Instance, Network
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


class NicPart:
    """Add, remove and modify network interfaces."""

    def __init__(
        self, context: JobContext, view: InstanceView, op: OpInstanceSetParams, hotplug: Hotplug
    ) -> None:
        self._context = context
        self._view = view
        self._op = op
        self._hotplug = hotplug
        self._before = list(view.instance.nics)
        self._after: list[NIC] = []
        self._networks = dict(view.networks)
        self.results: Results = []

    @property
    def is_asked(self) -> bool:
        """Whether the opcode names NICs."""
        return bool(self._op.nics)

    def check(self, instance: Instance) -> Instance:
        """Refuse changes that are not possible; draw and reserve addresses."""
        view, op = self._view, self._op
        around = read_connections(
            self._context.config,
            view.cluster,
            view.group,
            networks_in(self._context, op),
            used=self._before,
            conflicts_check=op.conflicts_check,
        )
        self._networks |= around.networks
        makers = NicMakers(self._context, around)
        plan = plan_changes(NICS, self._before, op.nics, makers)
        check_places(self._context.config, view.cluster, self._before, plan.devices)
        self._check_bridges(list(plan.devices))
        self._after = settle_addresses(
            self._context.config, self._before, plan.devices, conflicts_check=op.conflicts_check
        )
        settled = {nic.uuid: nic for nic in self._after}
        for step in plan.steps:
            self.results += self._told(step, settled.get(step.device.uuid, step.device))
        return replace(instance, nics=self._after)

    def _check_bridges(self, wanted: list[NIC]) -> None:
        """Ask the node for bridges that new or changed NICs need."""
        had = set(bridges_of(self._view.cluster, self._before))
        bridges = [name for name in bridges_of(self._view.cluster, wanted) if name not in had]
        if bridges and not self._op.force and not self._view.primary.offline:
            what = "use the bridges of the NICs"
            self._context.nodes.check(self._view.primary, what).bridges_exist(bridges)

    def _told(self, step: DeviceStep[NIC], nic: NIC) -> Iterator[tuple[str, object]]:
        """Give the changes of one step, as the opcode answers them."""
        values: dict[str, object] = {
            "mac": nic.mac,
            "ip": nic.ip,
            **fill_nicparams(self._view.cluster, nic),
            "name": nic.name,
            "network": self._networks[nic.network].name if nic.network else None,
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

    # The running guest.

    def _wire(self, nic: NIC) -> dict[str, object]:
        return build_rpc_nic(self._view.cluster, nic, self._networks).to_wire()

    def before_store(self, undo: Undo) -> None:
        """Take the NICs that go from the running guest."""
        if not self._hotplug.is_on:
            return
        kept = {nic.uuid for nic in self._after}
        for index, nic in enumerate(self._before):
            if nic.uuid not in kept:
                self._unplug(nic, index, undo)

    def _unplug(self, nic: NIC, index: int, undo: Undo) -> None:
        wire = self._wire(nic)
        doing = f"hotplug: take NIC {index} from the running instance"
        self._hotplug.device(doing, "hotremove", _NIC, wire, seq=index)
        back = f"give NIC {index} back to the running instance"
        undo.push(back, lambda: self._hotplug.device(back, "hotadd", _NIC, wire, seq=index))
        self._context.info(f"NIC {index} was taken from the running instance")

    def after_store(self, undo: Undo) -> None:
        """Give the running guest the NICs that came or changed."""
        if not self._hotplug.is_on:
            return
        before = {nic.uuid: nic for nic in self._before}
        for index, nic in enumerate(self._after):
            was = before.get(nic.uuid)
            if was is None or replace(was, name=nic.name) != nic:
                self._plug(nic, was, index, undo)

    def _plug(self, nic: NIC, was: NIC | None, index: int, undo: Undo) -> None:
        """Plug a NIC, in the place of what it was; the node leaves all as it was if it fails."""
        action, back = ("hotadd", "hotremove") if was is None else ("hotmod", "hotmod")
        wire, old = self._wire(nic), self._wire(was or nic)
        doing = f"hotplug: give NIC {index} to the running instance"
        try:
            place = self._hotplug.device(doing, action, _NIC, wire, seq=index)
        except OpExecError as err:
            if not self._op.hotplug_if_possible:
                raise
            self._context.warn(f"{err}; the instance sees the NIC when it is restarted")
            return
        undone = f"undo the hotplug of NIC {index}"
        undo.push(undone, lambda: self._hotplug.device(undone, back, _NIC, old, seq=index))
        where = f" at {place}" if place else ""
        self._context.info(f"NIC {index} was given to the running instance{where}")

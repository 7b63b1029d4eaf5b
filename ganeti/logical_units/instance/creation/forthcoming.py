"""Forthcoming instances: planned and recorded, but not made yet.

``gnt-instance add --forthcoming`` records an instance with everything that the configuration can
keep for it (name, node, MAC and IP addresses) and asks no node for more than an opinion;
``gnt-instance add --commit`` makes it.  What the commit leaves out is as it was planned.  A job
that dies while it fills the disks of a new instance leaves a forthcoming one as well, with disks
that are there already: committing it begins anew.

Source: opcodes.json, OP_INSTANCE_CREATE "forthcoming", "commit"; config.json, "Instance", "Disk".
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import OpPrereqError, wrong_state
from ganeti.logical_units import lookup
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.storage.files import directories
from ganeti.logical_units.instance.storage.planner import FilePlace
from ganeti.logical_units.instance.storage.planning import nodes_of, planner_of
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.disk_templates import DiskTemplate, FileDriver
from ganeti.objects.hypervisors import Hypervisor
from ganeti.objects.model import AdminState, Disk, Node
from ganeti.objects.nic import NIC
from ganeti.objects.record import PrivateParams
from ganeti.opcodes.instance import InstanceCreateMode, OpInstanceCreate

_OWN_PARAMS: Final = ("mode", "link", "vlan")


def check_options(op: OpInstanceCreate) -> None:
    """Refuse options that contradict each other.

    Raises:
        OpPrereqError: names them.
    """
    name = op.instance_name
    if op.forthcoming and op.commit:
        raise OpPrereqError(
            f"instance {name!r}: --forthcoming plans and --commit makes it; give one of them"
        )
    if (op.forthcoming or op.commit) and op.mode is not InstanceCreateMode.CREATE:
        raise OpPrereqError(
            f"instance {name!r}: only new instances can be forthcoming, not imported ones"
        )


def find_planned(context: JobContext, name: str, uuid: str | None = None) -> InstanceView:
    """Return the forthcoming instance that is to be made.

    Raises:
        OpPrereqError: there is no such instance, or it is a real one already.
    """
    planned = InstanceView.of(lookup.require_instance_context(context.config, name, uuid))
    if not planned.instance.forthcoming:
        raise wrong_state(
            f"instance {name!r} is not forthcoming, so it cannot be committed: it was made already"
        )
    return planned


def still_planned(context: JobContext, planned: InstanceView) -> InstanceView:
    """Return the forthcoming instance again, as it is now that it is locked.

    Raises:
        OpPrereqError: it was made, or changed, since it was read.
    """
    now = find_planned(context, planned.instance.name, planned.instance.uuid)
    if now.instance.serial_no != planned.instance.serial_no:
        raise wrong_state(f"instance {planned.instance.name!r} was changed meanwhile; try again")
    return now


def filled_from(op: OpInstanceCreate, planned: InstanceView) -> OpInstanceCreate:
    """Return the opcode; parameters that it leaves out come from the planned instance."""
    instance = planned.instance
    hypervisor = op.hypervisor or Hypervisor(instance.hypervisor)
    same_hypervisor = hypervisor == instance.hypervisor
    private = {
        **instance.osparams_private.reveal(),
        **(op.osparams_private.reveal() if op.osparams_private else {}),
    }
    limits = ("minmem", "maxmem") if "memory" in op.beparams else ()
    beparams = {name: value for name, value in instance.beparams.items() if name not in limits}
    own_place = op.pnode or op.pnode_uuid or op.iallocator
    return replace(
        op,
        pnode_uuid=op.pnode_uuid if own_place else instance.primary_node,
        hypervisor=hypervisor,
        hvparams={**(instance.hvparams if same_hypervisor else {}), **op.hvparams},
        beparams={**beparams, **op.beparams},
        os_type=op.os_type or instance.os or None,
        osparams={**instance.osparams, **op.osparams},
        osparams_private=PrivateParams(private),
        disk_template=op.disk_template or DiskTemplate(planned.template),
        nics=op.nics or [_nic_settings(nic) for nic in instance.nics],
        tags=op.tags or list(instance.tags),
    )


def with_planned_disks(op: OpInstanceCreate, planned: InstanceView | None) -> OpInstanceCreate:
    """Return the opcode as an allocator needs it: with the planned disks, if it keeps them."""
    if planned is None or op.disks or op.disk_template != planned.template:
        return op
    planner = planner_of(planned.template)
    return replace(op, disks=[planner.settings_of(disk) for disk in planned.disks])


def _nic_settings(nic: NIC) -> dict[str, str]:
    """Return the settings of a NIC as they are asked for; a network brings its own parameters."""
    own = {} if nic.network else {name: nic.nicparams.get(name) for name in _OWN_PARAMS}
    settings = {"mac": nic.mac, "ip": nic.ip, "network": nic.network, "name": nic.name, **own}
    return {name: str(value) for name, value in settings.items() if value}


def planned_disks(
    op: OpInstanceCreate, planned: InstanceView, node: Node
) -> tuple[list[Disk], FilePlace | None] | None:
    """Return the disks as planned and the place of their files; None if others are wanted."""
    if op.disks or op.disk_template != planned.template:
        return None
    nodes = nodes_of(DiskTemplate(planned.template), node.uuid)
    made = [replace(disk, forthcoming=False, nodes=nodes) for disk in planned.disks]
    places = directories(made)
    if not places:
        return made, None
    return made, FilePlace(places[0], FileDriver(str(made[0].logical_id[0])))


def plan_only(context: JobContext, view: InstanceView) -> None:
    """Record an instance that is not made yet."""
    name = view.instance.name
    context.feedback(f"adding forthcoming instance {name} to cluster config")
    instance = replace(
        view.instance, forthcoming=True, admin_state=AdminState.DOWN, disks_active=False
    )
    planned = [replace(disk, forthcoming=True) for disk in view.disks]
    context.config.create_instance(instance.to_wire(), [disk.to_wire() for disk in planned])


def clear_remains(context: JobContext, planned: InstanceView) -> None:
    """Remove disks that an earlier try made, so that making them begins anew."""
    if any(not disk.forthcoming for disk in planned.disks):
        context.info(f"removing the disks that an earlier try left of {planned.instance.name}")
        disks.remove(context, planned)


def plan_again(context: JobContext, planned: InstanceView) -> None:
    """Make an instance planned again, after its disks were removed."""
    instance = replace(planned.instance, network_port=None)
    as_planned = [replace(disk, forthcoming=True).to_wire() for disk in planned.disks]
    context.config.put_instance(instance.uuid, instance.to_wire(), as_planned)

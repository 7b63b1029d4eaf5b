"""Free space on the disks of an instance, filled with zeroes by a machine of its own.

The machine is started under the instance's name, so that nobody starts the instance meanwhile.
Its first disk is a copy of the cluster's zeroing image, which goes with it; the disks of the
instance come after that, and it has no network.  The system on the image knows what free space is.
It powers the machine off when its work is done.

A job that is killed leaves the copy behind.  Its name is made of the instance's identity, so the
next job that fills free space, or that removes the instance, finds it and removes it first.

Source: opcodes.json, OP_BACKUP_EXPORT "zero_free_space"; constants.json, HELPER_VM_STARTUP and
ZEROING_TIMEOUT_PER_MIB.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, NotSupportedError, OpExecError, OpPrereqError, wrong_state
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance import guest
from ganeti.logical_units.instance.storage import planning
from ganeti.logical_units.instance.storage.disks import make_directory, make_disk
from ganeti.logical_units.instance.storage.files import directories, file_place
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.undo import Undo
from ganeti.objects.disk_templates import Adoption, DiskTemplate
from ganeti.objects.hypervisors import HVPARAMS, Hypervisor
from ganeti.objects.model import Disk
from ganeti.opcodes.backup import OpBackupExport
from ganeti.protocol.node_calls import NodeCalls

TIMEOUT_FIXED_S: Final = 300
TIMEOUT_PER_MIB_S: Final = 0.05
_LOOK_S: Final = 1.0
_MIB: Final = 1 << 20
_INDEX: Final = 0  # it is the first disk of the machine
# It boots from its first disk, whatever the instance boots from.
_BOOTS: Final = {
    "boot_order": "disk",
    "kernel_path": "",
    "initrd_path": "",
    "cdrom_image_path": "",
    "cdrom2_image_path": "",
    "floppy_image_path": "",
}


def check_options(context: JobContext, view: InstanceView, op: OpBackupExport) -> None:
    """Refuse to fill free space where that cannot be, and options that are for it alone.

    Raises:
        NotSupportedError, OpPrereqError: why it cannot be.
    """
    if not op.zero_free_space:
        for name in ("zeroing_timeout_fixed", "zeroing_timeout_per_mib"):
            if getattr(op, name) is not None:
                raise OpPrereqError(f"--{name.replace('_', '-')} is for --zero-free-space only")
        return
    name, hypervisor = view.name, view.instance.hypervisor
    if not op.shutdown or op.snapshot is not None:
        raise OpPrereqError(
            "free space is filled while the instance is stopped; leave --noshutdown and --snapshot"
            " out"
        )
    if not Hypervisor(hypervisor).traits.boots_disks:
        raise NotSupportedError(
            f"instance {name!r}: hypervisor {hypervisor!r} starts no machine from a disk, so"
            " nothing can fill its free space with zeroes"
        )
    _image_mib(context, view)


def _image_mib(context: JobContext, view: InstanceView) -> int:
    """Return the size of the image, as the primary node reads it from a file or URL.

    Raises:
        OpPrereqError: there is none.
    """
    image, node = view.cluster.zeroing_image, view.primary
    if not image:
        raise wrong_state(
            "the cluster has no image that fills free space with zeroes; set one with 'gnt-cluster"
            " modify --zeroing-image=PATH'"
        )
    found = context.nodes.check(node, "look at the zeroing image").image_size(image)
    if not found:
        raise OpPrereqError(
            f"node {node.name!r} has no zeroing image {image}; copy it there, for example with"
            f" 'gnt-cluster copyfile {image}', or set the URL of one with 'gnt-cluster modify"
            " --zeroing-image=URL'",
            ErrorCode.NOENT,
        )
    return -(-found // _MIB)


def timeout_s(op: OpBackupExport, view: InstanceView) -> float:
    """Return how long the machine may work (seconds)."""
    fixed = TIMEOUT_FIXED_S if op.zeroing_timeout_fixed is None else op.zeroing_timeout_fixed
    per_mib = op.zeroing_timeout_per_mib
    return fixed + (TIMEOUT_PER_MIB_S if per_mib is None else per_mib) * sum(
        disk.size for disk in view.disks
    )


def fill(context: JobContext, view: InstanceView, op: OpBackupExport) -> None:
    """Fill the free space of a stopped instance's disks; nothing of the machine is left.

    Raises:
        OpExecError: the machine could not be started, or did not end in time.
        JobCanceled: canceled meanwhile.
    """
    reason = op.reason or []
    limit_s = timeout_s(op, view)
    context.feedback(f"Filling free space on the disks of {view.name} with zeroes")
    with Undo(context) as undo:
        helper = _with_image(context, view, _image_mib(context, view), undo)
        known = HVPARAMS[view.instance.hypervisor]
        hvp = {name: value for name, value in _BOOTS.items() if name in known}
        stop = f"stop the machine that fills free space of {view.name!r}"
        undo.push(stop, partial(guest.stop, context, helper, 0, reason))
        wire = helper.wire(helper.primary, hvp=hvp)
        guest.start_on(context, helper, helper.primary, reason, wire=wire)
        _wait_off(context, helper, limit_s)
        undo.carry_out()
    context.feedback(f"Free space on the disks of {view.name} is filled")


def _with_image(context: JobContext, view: InstanceView, size_mib: int, undo: Undo) -> InstanceView:
    """Return the instance with a copy of the image as its first disk, and without a network."""
    node = view.primary
    [disk] = planning.check_on_nodes(context, [node], [_image_disk(view, size_mib)])
    remove_left(context, view)
    for directory in directories([disk]):
        if directory not in directories(view.disks):
            make_directory(context, node, directory, undo)
    made = make_disk(context, view, node, _INDEX, disk, undo)
    doing = f"copy the zeroing image for instance {view.name!r}"
    image = view.cluster.zeroing_image
    wire = view.disk_wire(made, node)
    context.nodes.on(node, doing).blockdev_image(wire, image, size_mib)
    instance = replace(view.instance, disks=[made.uuid, *view.instance.disks], nics=[])
    return view.with_instance(instance, [made, *view.disks])


def remove_left(context: JobContext, view: InstanceView) -> None:
    """Remove the copy of the image that a killed job has left; a failure is told."""
    if not (view.cluster.zeroing_image and view.disks):
        return
    doing = f"remove the zeroing image that is left beside the disks of instance {view.name!r}"
    wire = view.disk_wire(_image_disk(view, 1), view.primary)
    found = context.nodes.call_one(NodeCalls.blockdev_find, view.primary, wire)
    if found.error is None and found.payload is not None:
        context.attempt(doing, NodeCalls.blockdev_remove, view.primary, wire)


def _image_disk(view: InstanceView, size_mib: int) -> Disk:
    """Return the disk for the image: of the instance's kind, or one that a node makes alone."""
    enabled = [DiskTemplate(each) for each in view.cluster.enabled_disk_templates]
    own = [DiskTemplate(each) for each in view.templates]
    template = next(
        (
            each
            for each in (*own, *enabled, DiskTemplate.PLAIN)
            if each.traits.has_disks
            and not (each.traits.mirrored or each.traits.has_provider)
            and each.traits.adoption is not Adoption.ALWAYS
        ),
        DiskTemplate.PLAIN,
    )
    settings: dict[str, str | int] = {"size": size_mib}
    if template.traits.is_file:
        settings["format"] = "raw"
    new = planning.plan_disk(view.cluster, template, "zeroing image", settings, view.group)
    place = file_place(view.cluster, view.group, template, view.name, None, None)
    return planning.describe_disk(
        new, _INDEX, place, [view.primary], lambda: f"{view.instance.uuid}-zeroing"
    )


def _wait_off(context: JobContext, helper: InstanceView, limit_s: float) -> None:
    deadline_s = context.monotonic() + limit_s
    while guest.runs(context, helper):
        context.check_canceled()
        if context.monotonic() >= deadline_s:
            raise OpExecError(
                f"the machine that fills free space of instance {helper.name!r} did not power"
                f" itself off within {limit_s:.0f} seconds; give it more time with"
                " --zeroing-timeout-fixed or --zeroing-timeout-per-mib"
            )
        context.wait(_LOOK_S)

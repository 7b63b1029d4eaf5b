"""Helper machines: an image of the cluster boots with the disks of a stopped instance.

The machine is started under the instance's name, so that nobody starts the instance meanwhile.
Its first disk is a copy of an image; the disks of the instance come after that.  The system on the
image knows what is to be done.  It powers the machine off when its work is done.

A job that is killed leaves the disks behind that it has made beside those of the instance.  Their
names are made of the instance's identity, so the next job that needs such a disk, or that removes
the instance, finds them and removes them first.

Source: constants.json, HELPER_VM_STARTUP and HELPER_VM_SHUTDOWN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError, wrong_state
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance import guest
from ganeti.logical_units.instance.storage import planning
from ganeti.logical_units.instance.storage.copying import ask_patiently
from ganeti.logical_units.instance.storage.disks import make_directory, make_disk
from ganeti.logical_units.instance.storage.files import directories, file_place
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.undo import Undo
from ganeti.objects.disk_templates import Adoption, DiskTemplate
from ganeti.objects.fill import fill_hvparams
from ganeti.objects.hypervisors import LENT
from ganeti.objects.model import Cluster, Disk, Node
from ganeti.objects.nic import communicates_by
from ganeti.protocol.node_calls import NodeCalls

LOOK_S: Final = 1.0
_MIB: Final = 1 << 20
# It boots from its first disk, whatever the instance boots from.
_BOOTS: Final = {
    **dict.fromkeys(LENT, ""),
    "boot_order": "disk",
    "kernel_path": "",
    "initrd_path": "",
    "cdrom_image_path": "",
    "cdrom2_image_path": "",
    "firmware": "",
    "tpm": False,
}


class Beside(StrEnum):
    """A disk beside those of an instance; the value is a part of its name."""

    ZEROING = "zeroing"  # the image that fills free space
    INSTALL = "install"  # the image that installs operating systems
    PACKAGE = "package"  # what it installs, and its answer


def image_of(cluster: Cluster, use: Beside) -> str:
    """Return the cluster's image for a use, "" without one."""
    return cluster.zeroing_image if use is Beside.ZEROING else cluster.install_image


def image_mib(context: JobContext, cluster: Cluster, node: Node, use: Beside) -> int:
    """Return the size of an image, as a node reads it from a file or URL.

    Raises:
        OpPrereqError: there is none.
    """
    image, option = image_of(cluster, use), f"--{use}-image"
    if not image:
        raise wrong_state(
            f"the cluster has no {_PURPOSES[use]}; set one with 'gnt-cluster modify {option}=PATH'"
        )
    found = context.nodes.check(node, f"look at the {use} image").image_size(image)
    if not found:
        raise OpPrereqError(
            f"node {node.name!r} has no {use} image {image}; copy it there, for example with"
            f" 'gnt-cluster copyfile {image}', or set the URL of one with 'gnt-cluster modify"
            f" {option}=URL'",
            ErrorCode.NOENT,
        )
    return -(-found // _MIB)


_PURPOSES: Final = {
    Beside.ZEROING: "image that fills free space with zeroes",
    Beside.INSTALL: "image that installs operating systems in a machine of its own",
}


def make_image(context: JobContext, view: InstanceView, use: Beside, undo: Undo) -> Disk:
    """Make a disk that is a copy of an image; errors as `image_mib` and `make_beside`."""
    size_mib = image_mib(context, view.cluster, view.primary, use)
    made = make_beside(context, view, use, size_mib, undo)
    doing = f"copy the {use} image for instance {view.name!r}"
    nodes, wire = context.nodes.on(view.primary, doing), view.disk_wire(made, view.primary)
    nodes.blockdev_image(wire, image_of(view.cluster, use), size_mib)
    return made


def make_beside(
    context: JobContext, view: InstanceView, use: Beside, size_mib: int, undo: Undo
) -> Disk:
    """Make a disk beside those of an instance, in the place of one that was left.

    Raises:
        OpExecError: it cannot be made.
    """
    node = view.primary
    [disk] = planning.check_on_nodes(context, [node], [_disk(view, use, size_mib)])
    _remove_one(context, view, use)
    for directory in directories([disk]):
        if directory not in directories(view.disks):
            make_directory(context, node, directory, undo)
    return make_disk(context, view, node, 0, disk, undo)


def machine(view: InstanceView, disks: Sequence[Disk]) -> InstanceView:
    """Return the instance as the machine has its place: with other disks, and its node to ask."""
    way = communicates_by(view.instance.nics)
    uuids, nics = [disk.uuid for disk in disks], [way] if way else []
    instance = replace(view.instance, disks=uuids, nics=nics)
    return view.with_instance(instance, list(disks))


def start(
    context: JobContext,
    helper: InstanceView,
    reason: guest.Reason,
    undo: Undo,
    secret: Mapping[str, object] | None = None,
) -> None:
    """Start the machine; errors as `guest.start_on`."""
    known = fill_hvparams(helper.cluster, helper.instance)
    hvp = {name: value for name, value in _BOOTS.items() if name in known}
    stop = f"stop the machine that works for instance {helper.name!r}"
    undo.push(stop, partial(guest.stop, context, helper, 0, reason))
    wire = helper.wire(helper.primary, hvp=hvp)
    guest.start_on(context, helper, helper.primary, reason, wire=wire, secret=secret)


def runs(context: JobContext, helper: InstanceView) -> bool:
    """Tell whether the machine runs, which goes on while its node daemon is restarted.

    Raises:
        OpExecError: the node does not answer.
    """
    doing, call = f"look at the machine of instance {helper.name!r}", NodeCalls.instance_info
    hypervisor, hvparams = helper.instance.hypervisor, helper.own_hvparams
    info = ask_patiently(context, doing, call, helper.primary, helper.name, hypervisor, hvparams)
    return guest.is_running(info)


def remove_left(context: JobContext, view: InstanceView) -> None:
    """Remove the disks that a killed job has left beside an instance's; a failure is told."""
    if not view.disks:
        return
    if view.cluster.zeroing_image:
        _remove_one(context, view, Beside.ZEROING)
    if view.cluster.install_image:
        _remove_one(context, view, Beside.INSTALL)
        _remove_one(context, view, Beside.PACKAGE)


def _remove_one(context: JobContext, view: InstanceView, use: Beside) -> None:
    doing = f"remove the {use} image that is left beside the disks of instance {view.name!r}"
    wire = view.disk_wire(_disk(view, use, 1), view.primary)
    found = context.nodes.call_one(NodeCalls.blockdev_find, view.primary, wire)
    if found.error is None and found.payload is not None:
        context.attempt(doing, NodeCalls.blockdev_remove, view.primary, wire)


def _disk(view: InstanceView, use: Beside, size_mib: int) -> Disk:
    """Return a disk for a use: of the instance's kind, or one that a node makes alone."""
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
    new = planning.plan_disk(view.cluster, template, f"{use} image", settings, view.group)
    place = file_place(view.cluster, view.group, template, view.name, None, None)
    return planning.describe_disk(
        new, 0, place, [view.primary], lambda: f"{view.instance.uuid}-{use}"
    )

"""``gnt-backup`` export, import and remove."""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.cli.command import (
    EXIT_FAILURE,
    EXIT_SUCCESS,
    ArgKind,
    Context,
    Options,
    command,
    confirm,
    job,
    opt,
)
from ganeti.cli.declaration.values import Float
from ganeti.cli.instance import devices
from ganeti.cli.run.binding import require, submit
from ganeti.opcodes.backup import OpBackupExport, OpBackupRemove
from ganeti.opcodes.instance import OpInstanceCreate


def export(context: Context, options: Options, args: list[str]) -> int:
    """Export an instance to a node."""
    [name] = args
    if options.target_node is None:
        raise OpPrereqError("name the node to export to, with -n NODE")
    if options.remove_instance and not options.force:
        require(context, ArgKind.INSTANCE, args)
        confirm(context, f"This removes instance {name} once it is exported.  Go on?")
    match submit(context, options, args):
        case None if options.dry_run:
            return EXIT_SUCCESS
        case [True, list(disks)] if all(disks):
            return EXIT_SUCCESS
        case [_, list(disks)]:
            failed = ", ".join(str(index) for index, good in enumerate(disks) if not good)
            context.terminal.error(f"The export of {name} is not complete; disks: {failed or '-'}")
    return EXIT_FAILURE


def import_(context: Context, options: Options, args: list[str]) -> None:
    """Create an instance from an export."""
    if options.os_size is not None and options.disks:
        raise OpPrereqError("give either -s or --disk, not both")
    given = devices.in_order("disk", options.disks) if options.disks else []
    disks = [devices.disk_settings(index, values) for index, values in given]
    if options.os_size is not None:
        disks = [{"size": options.os_size}]
    no_nics = bool(options.no_nics)
    nics = devices.nics_for_create(options.nics, no_nics=no_nics) if options.nics else []
    submit(context, options, args, **devices.settings_of_new(options), disks=disks, nics=nics)


COMMANDS: Final = (
    command(
        export,
        "<instance> --force --shutdown-timeout CHANGE",
        opt.flag("--ignore-remove-failures", "count it as done although removal failed"),
        opt.flag("--incremental", "export only what changed since the last such export"),
        opt.flag("--long-sleep", "keep the guest stopped during the whole export"),
        opt.with_help(opt.NODE, "node to export to", "target_node"),
        opt.unflag(
            "--noshutdown -> shutdown",
            "do not stop the guest; KVM keeps its disks' contents of one instant",
        ),
        opt.flag("--remove-instance", "remove the instance afterwards"),
        opt.flag("--quiesce", "with --noshutdown: fail unless the guest's agent holds it still"),
        opt.option("--snapshot=NAME", "export the disks as a snapshot keeps them"),
        opt.option(
            "--transport-compression=TRANSPORT_COMPRESSION -> compress",
            "compression of the data sent",
            default="none",
        ),
        opt.flag("--zero-free-space", "fill free space with zeroes first"),
        opt.number("--zeroing-timeout-fixed", "seconds that zeroing gets at least"),
        opt.option("--zeroing-timeout-per-mib", "seconds that zeroing gets for each MiB", Float),
        description="""The instance is stopped while its disks are read, and started again after
that. Where all of its disks can have snapshots (logical volumes, DRBD, images of Ceph, qcow2) it is
started as soon as these are taken, and they are read; --long-sleep reads the disks themselves.

With --noshutdown a running guest of KVM goes on: its disks' contents of one instant are exported,
as if the power had failed then.  Until the export ends that needs as much free room in the export
directory of its primary node as the disks are large.  An agent in the guest that answers
(hypervisor parameter use_guest_agent) holds its file systems still at that instant. An earlier
export of it is replaced once the new one is complete.

With --zero-free-space the cluster's zeroing image boots in a machine with the disks of the stopped
instance first, and fills their free space with zeroes. It has to power itself off within the time
of --zeroing-timeout-fixed (300 s) and --zeroing-timeout-per-mib (0.05 s).

With --snapshot the disks are exported as a snapshot keeps them (see 'gnt-instance snapshot'), and
the instance is left as it is.

With --incremental the export becomes the next point of a chain, which has only the blocks of 64 KiB
that changed since the point before. The first such export is a full one, and so is one that finds
nothing to build on; the log of the job says why. Disks are dumped as they are, never by the scripts
of the operating system. While KVM runs a guest, it records where its disks are written, and only
that is read; a disk without such a record, as after a restart, is read wholly and compared. An
export without --incremental replaces the whole chain.""",
        examples="""
gnt-backup export -n node3 web1  # to node3, below /var/lib/ganeti/export
gnt-backup export --noshutdown -n node3 web1  # while it runs
gnt-backup export --snapshot=before-upgrade -n node3 web1  # as it was
gnt-backup export --incremental --noshutdown -n node3 web1  # only what changed""",
        opcode=OpBackupExport,
        fixed={"mode": "local"},
    ),
    command(
        import_,
        "<instance>@export NEW_INSTANCE --compress",
        devices.DISK_KIND,
        opt.flag("--identify-defaults", "leave parameters unset that equal the defaults"),
        opt.with_help(opt.NODE_GROUP, "node group to put it in", "group_name"),
        opt.option("--src-dir=<dir> -> src_path", "directory of the export"),
        opt.option("--src-node=<node>", "node that has the export"),
        opt.number("--point=NUMBER -> src_point", "point of a chain; the newest if none is given"),
        description="""Settings without an option are as in the export, but that another instance
than the exported one does not get its policy of backups.  Without --src-node, the export is looked
for on all nodes.  The instance is not started.""",
        examples="""
gnt-backup import -n node1 web1  # bring web1 back
gnt-backup import --src-node node3 --src-dir web1.example.com -n node2 web2 \
 # a copy of web1 under another name, with new MAC addresses
gnt-backup import --point 3 -n node1 web1  # as web1 was at point 3 of its chain""",
        opcode=OpInstanceCreate,
        fixed={"mode": "import", "start": False},
    ),
    job(
        "remove: remove an export",
        OpBackupRemove,
        "<export>=instance_name@export CHANGE",
        opt.number("--before=NUMBER", "remove only the points of the chain before this one"),
        description="""Removes exports with all their points. With --before, the point of that
number becomes the first one of its chain, a whole export; later points stay as they are, and all
keep their numbers. That takes as much free room as the whole export until it is complete.""",
        examples="""
gnt-backup remove web1  # remove the exports of web1 from all nodes
gnt-backup remove --before 5 web1  # keep what was exported from point 5 on""",
    ),
)

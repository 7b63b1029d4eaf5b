"""``gnt-instance`` snapshot."""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.cli.command import ArgKind, Context, Options, command, confirm, opt
from ganeti.cli.run.binding import bound, require
from ganeti.cli.run.jobs import execute
from ganeti.cli.run.table import TableStyle, format_plain, format_time
from ganeti.opcodes.instance import OpInstanceListSnapshots, OpInstanceSnapshot

_QUESTIONS: Final = {
    "restore": "This overwrites the disks of instance {} with those of snapshot {!r}.  Go on?",
    "remove": "This removes a snapshot of instance {}: {!r}.  Go on?",
}


def snapshot(context: Context, options: Options, args: list[str]) -> None:
    """Keep, list, restore or remove the contents of an instance's disks at one instant."""
    action, instance, *names = args
    if action == "list":
        if names:
            raise OpPrereqError("'list' takes no name of a snapshot")
        [found] = execute(context, options, OpInstanceListSnapshots(instance_name=instance))
        _show(context, options, found)
        return
    if not names:
        raise OpPrereqError(f"give the name of the snapshot to {action}")
    if action in _QUESTIONS and not options.force:
        require(context, ArgKind.INSTANCE, [instance])
        confirm(context, _QUESTIONS[action].format(instance, names[0]))
    execute(context, options, bound(context.command, options, args))


def _show(context: Context, options: Options, found: object) -> None:
    rows = [
        (name, format_time(ctime), ",".join(map(str, disks)))
        for name, ctime, disks in (found if isinstance(found, list) else [])
    ]
    style = TableStyle(separator=options.separator, headers=not options.no_headers)
    for line in format_plain(["Name", "Time", "Disks"], rows, style):
        context.write(line)


COMMANDS: Final = (
    command(
        snapshot,
        "{create|list|remove|restore}=action <instance>",
        opt.Argument(ArgKind.TEXT, 0, 1, metavar="NAME", dest="snapshot_name"),
        "--force --no-headers --separator CHANGE",
        opt.flag("--quiesce", "fail unless the guest's agent holds its file systems still"),
        opcode=OpInstanceSnapshot,
        description="""The disks must be logical volumes (template plain), images of Ceph (rbd),
or files of format qcow2 (--disk 0:format=qcow2), which keep their snapshots themselves;
'gnt-instance modify -t file -e format=qcow2' converts others of a stopped instance.  A snapshot
of a logical volume needs as much room as its disk, unless that is in a thin pool, and a volume
with such snapshots does not grow; for volumes and images of Ceph the guest stands still for a
moment.  Only KVM has snapshots of running guests.  All disks are kept as of one instant, while
the guest runs or not.  If an agent in the guest answers (hypervisor parameter use_guest_agent),
it holds the file systems still meanwhile; otherwise they are as after a power failure.  Only a
stopped instance is restored; its disks keep their sizes, and all snapshots stay.  Snapshots go
with their instance.""",
        examples="""
gnt-instance snapshot create web1 before-upgrade  # while it runs
gnt-instance snapshot list web1  # with times, and the disks that have each
gnt-instance snapshot restore web1 before-upgrade  # it has to be stopped
gnt-instance snapshot -f remove web1 before-upgrade  # without being asked""",
    ),
)

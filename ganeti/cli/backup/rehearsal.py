"""``gnt-backup`` rehearse: does an instance come back from its export?"""

from __future__ import annotations

from typing import Final

from ganeti.cli.command import Context, Options, command, opt
from ganeti.cli.instance import devices
from ganeti.cli.run.binding import bound
from ganeti.cli.run.jobs import execute
from ganeti.opcodes.backup import OpBackupRehearse


def rehearse(context: Context, options: Options, args: list[str]) -> None:
    """Try whether an instance comes back from its export, beside the original."""
    op = bound(context.command, options, args, **devices.settings_of_new(options))
    execute(context, options, op)


COMMANDS: Final = (
    command(
        rehearse,
        "<instance>=instance_name@export --backend-parameters --iallocator SUBMISSION",
        devices.DISK_KIND,
        opt.HYPERVISOR_AND_PARAMETERS,
        opt.NODE_PAIR,
        opt.option("--src-node=<node>", "node that has the export"),
        opt.number("--point=NUMBER -> src_point", "point of a chain; the newest if none is given"),
        opt.number("--seconds=SECONDS", "how long it is looked at", default=60),
        opt.flag("--agent", "wait for its guest agent, and count it as failed without an answer"),
        description="""Makes an instance from the export under the name rehearsal.NAME, without
network interfaces, starts it, and looks at it: it has to go on running, or with --agent its guest
agent has to answer.  Then it is removed, whatever was seen.  The original is left as it is, and
need not exist any more.  The new instance takes as much memory and disk space; -B maxmem=... and
-t plain make that less.  All of it is one job, which fails if the instance does not come back.""",
        examples="""
gnt-backup rehearse -n node4 web1  # does web1 start from its newest export?
gnt-backup rehearse -n node4 -t plain --agent --seconds=300 --point=3 web1 \
 # and as it was at point 3, until its agent answers""",
        opcode=OpBackupRehearse,
    ),
)

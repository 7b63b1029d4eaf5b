"""``gnt-node`` modify and remove."""

from __future__ import annotations

from typing import Final

from ganeti.cli.command import Context, Options, command, job, opt
from ganeti.cli.run.binding import ask, bound, show_changes
from ganeti.cli.run.jobs import execute
from ganeti.opcodes.node import OpNodeRemove, OpNodeSetParams


def modify(context: Context, options: Options, args: list[str]) -> None:
    """Change flags and parameters of a node."""
    opcode = bound(context.command, options, args)
    if options.offline and context.terminal.is_interactive:
        question = f"The master will not talk to node {args[0]} any more.  Go on?"
        ask(context, context.command, options, args, question)
    [result] = execute(context, options, opcode)
    show_changes(context, opcode, result)


COMMANDS: Final = (
    job(
        "remove: take a node out of the cluster",
        OpNodeRemove,
        "<node> --dry-run --priority",
        description="""The node loses the files of the cluster, its keys and the users of the remote
API too. One that does not answer keeps them until 'node-cleanup' removes them there.""",
        examples="gnt-node remove node2  # node2 must have no instances left",
    ),
    command(
        modify,
        "<node> --auto-promote --disk-state --force --hypervisor-state --master-capable",
        "--node-parameters --secondary-ip --vm-capable CHANGE",
        opt.yes_no("-D --drained", "whether new instances are kept away from it"),
        opt.yes_no("-C --master-candidate", "whether it is a master candidate"),
        opt.yes_no("--node-powered -> powered", "whether it is powered, as recorded"),
        opt.yes_no("-O --offline", "whether it is left alone because it is broken"),
        description="""The secondary address changes only while no active disk has a copy on the
node: its instances are shut down first.""",
        examples="""
gnt-node modify --offline yes node3  # node3 is broken: do not talk to it
gnt-node modify -C no node2  # node2 is no longer a master candidate""",
        opcode=OpNodeSetParams,
        changes=True,
    ),
)

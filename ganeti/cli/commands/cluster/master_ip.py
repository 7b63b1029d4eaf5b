"""``gnt-cluster`` activate-master-ip and deactivate-master-ip."""

from __future__ import annotations

from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.confirm import confirm
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.cli.run.jobs import execute, make_opcode


def activate(context: Context, options: Options, _args: list[str]) -> int:
    """Bring the master address up."""
    execute(context, options, make_opcode("OP_CLUSTER_ACTIVATE_MASTER_IP"))
    return EXIT_SUCCESS


def deactivate(context: Context, options: Options, _args: list[str]) -> int:
    """Take the master address down."""
    if not options.confirm:
        confirm(context, "Clients will not find the master any more.  Go on?", option="--yes")
    execute(context, options, make_opcode("OP_CLUSTER_DEACTIVATE_MASTER_IP"))
    return EXIT_SUCCESS

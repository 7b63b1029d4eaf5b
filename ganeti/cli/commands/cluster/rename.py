"""``gnt-cluster rename``."""

from __future__ import annotations

from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.confirm import confirm
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.cli.run.jobs import execute, make_opcode


def rename(context: Context, options: Options, args: list[str]) -> int:
    """Give the cluster another name."""
    [name] = args
    opcode = make_opcode("OP_CLUSTER_RENAME", name=name)
    if not options.force:
        [old] = context.client.query_config_values(["cluster_name"])
        confirm(
            context,
            f"This renames the cluster {old} to {name}.  Who is connected to its address may be"
            " cut off, and clients have to be told the new name.  Go on?",
        )
    [new] = execute(context, options, opcode)
    if not options.dry_run:
        context.write(f"The cluster is called {new} now.")
    return EXIT_SUCCESS

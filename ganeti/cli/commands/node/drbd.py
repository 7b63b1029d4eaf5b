"""``gnt-node list-drbd``: asked of RConfD, which every master candidate runs."""

from __future__ import annotations

from typing import Final

from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.cli.run.listing import style_of
from ganeti.cli.run.nodes import rows_of_nodes
from ganeti.cli.run.table import Column, format_table
from ganeti.clients.confd import ConfdClient
from ganeti.protocol.confd_queries import QueryType

_COLUMNS: Final = (
    Column("Node"),
    Column("Minor", "number"),
    Column("Instance"),
    Column("Disk"),
    Column("Role"),
    Column("PeerNode"),
)


def list_drbd(context: Context, options: Options, args: list[str]) -> int:
    """List the DRBD devices of a node."""
    rows = rows_of_nodes(context, args, ["name"])
    with ConfdClient.of_node(context.paths) as client:
        found = client.value(QueryType.NODE_DRBD, str(rows[0][0]))
    cells = [[(0, value) for value in row] for row in found] if isinstance(found, list) else []
    context.terminal.write_lines(format_table(_COLUMNS, cells, style_of(context, options)))
    return EXIT_SUCCESS

"""``gnt-node list-drbd``: asked of RConfD, which every master candidate runs."""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import ConfdClientError
from ganeti.cli.command import Context, Options, command
from ganeti.cli.run.listing import rows_of_nodes, style_of
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


def devices_of(client: ConfdClient, node_name: str) -> list[list[object]]:
    """Return the DRBD devices of a node, however many.

    Raises:
        ConfdClientError: RConfD refuses to tell, or the configuration changes all the time.
        TransportError: nobody answers, as RConfDs of Ganeti 3.0 where they are many.
    """
    try:
        return _as_rows(client.value(QueryType.NODE_DRBD, node_name))
    except ConfdClientError:  # most likely too many; if not, the next question fails as well
        return _as_rows(client.read_list(QueryType.NODE_DRBD_PART, node_name).value)


def _as_rows(found: object) -> list[list[object]]:
    return [row for row in found if isinstance(row, list)] if isinstance(found, list) else []


def list_drbd(context: Context, options: Options, args: list[str]) -> None:
    """List the DRBD devices of a node."""
    rows = rows_of_nodes(context, args, ["name"])
    with ConfdClient.of_node(context.paths) as client:
        found = devices_of(client, str(rows[0][0]))
    cells = [[(0, value) for value in row] for row in found]
    context.terminal.write_lines(format_table(_COLUMNS, cells, style_of(context, options)))


COMMANDS: Final = (command(list_drbd, "<node> FIELDS"),)

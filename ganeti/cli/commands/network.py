"""``gnt-network info``."""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.cli.run.report import Facts, format_report

_FIELDS: Final = (
    "name",
    "uuid",
    "network",
    "gateway",
    "network6",
    "gateway6",
    "mac_prefix",
    "free_count",
    "reserved_count",
    "map",
    "external_reservations",
    "group_list",
    "inst_list",
)


def info(context: Context, _options: Options, args: list[str]) -> int:
    """Show networks."""
    rows = context.client.query_networks(args, _FIELDS)
    unknown = set(args) - {str(row[0]) for row in rows} - {str(row[1]) for row in rows}
    if unknown:
        raise OpPrereqError(f"no such network: {', '.join(sorted(unknown))}", ErrorCode.NOENT)
    facts = []
    for row in rows:
        network = dict(zip(_FIELDS, row, strict=True))
        facts.append(
            Facts(
                [
                    ("Network name", network["name"]),
                    ("UUID", network["uuid"]),
                    ("Subnet", network["network"]),
                    ("Gateway", network["gateway"]),
                    ("IPv6 Subnet", network["network6"]),
                    ("IPv6 Gateway", network["gateway6"]),
                    ("Mac Prefix", network["mac_prefix"]),
                    ("free addresses", network["free_count"]),
                    ("reserved addresses", network["reserved_count"]),
                    ("externally reserved IPs", network["external_reservations"]),
                    ("connected to node groups", network["group_list"] or []),
                    ("used by instances", network["inst_list"] or []),
                ]
            )
        )
    context.terminal.write_lines(format_report(facts))
    return EXIT_SUCCESS

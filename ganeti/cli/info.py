"""The info commands of filters, groups, networks and nodes: a table for each kind of object.

A row of a table is a title, the fields that it shows, and a function that makes one value of those;
a row whose function returns None is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.cli.command import Context, Options, command
from ganeti.cli.lists import as_list, format_action, format_json, format_trail
from ganeti.cli.run.listing import rows_of_nodes
from ganeti.cli.run.report import Facts, format_report

Row = tuple[str, str] | tuple[str, str, Callable[..., object]]
Table = Sequence[Row]


def fields_of(table: Table) -> list[str]:
    """Return the fields that a table shows."""
    return list(dict.fromkeys(field for row in table for field in row[1].split()))


def facts_of(table: Table, values: Sequence[object]) -> Facts:
    """Return the facts about one object, from the values of the table's fields."""
    by_field = dict(zip(fields_of(table), values, strict=True))
    facts = Facts()
    for title, fields, *made_by in table:
        found = [by_field[field] for field in fields.split()]
        value = made_by[0](*found) if made_by else found[0]
        if value is not None or not made_by:
            facts.append((title, value))
    return facts


def _show(context: Context, kind: str, table: Table, rows: Sequence[Any], args: list[str]) -> None:
    """Print the objects, whose names and UUIDs are among the first two values.

    Raises:
        OpPrereqError: one that was named is not among them.
    """
    unknown = set(args) - {str(value) for row in rows for value in row[:2]}
    if unknown:
        raise OpPrereqError(f"no such {kind}: {', '.join(sorted(unknown))}", ErrorCode.NOENT)
    context.terminal.write_lines(format_report([facts_of(table, row) for row in rows]))


def parameters(filled: object, own: object) -> Facts | None:
    """Return filled parameters; those that are not an own value are marked as defaults."""
    if not isinstance(filled, Mapping):
        return None
    own_values = own if isinstance(own, Mapping) else {}
    return Facts(
        (str(name), filled[name] if name in own_values else f"default ({filled[name]})")
        for name in sorted(filled)
    )


_FILTER: Final[Table] = (
    ("UUID", "uuid"),
    ("Watermark", "watermark"),
    ("Priority", "priority"),
    ("Predicates", "predicates", lambda value: [format_json(each) for each in as_list(value)]),
    ("Action", "action", format_action),
    ("Reason trail", "reason_trail", format_trail),
)


def filter_info(context: Context, _options: Options, args: list[str]) -> None:
    """Show filters."""
    rows = context.client.query_filters(args or None, fields_of(_FILTER))
    _show(context, "filter", _FILTER, rows, args)


_GROUP: Final[Table] = (
    ("Group name", "name"),
    ("UUID", "uuid"),
    ("allocation policy", "alloc_policy"),
    ("nodes", "node_list", as_list),
    ("primary instances", "pinst_cnt"),
    ("tags", "tags", as_list),
    ("node parameters", "ndparams custom_ndparams", parameters),
    ("disk parameters", "diskparams"),
    ("instance policy", "ipolicy"),
)


def group_info(context: Context, _options: Options, args: list[str]) -> None:
    """Show groups."""
    rows = context.client.query_groups(args, fields_of(_GROUP))
    _show(context, "group", _GROUP, rows, args)


def connections(rows: object) -> list[str]:
    """Return a line for each connection, from rows of group, mode, link and VLAN."""
    found = []
    for group, mode, link, vlan in rows if isinstance(rows, list) else []:
        tail = f" vlan:{vlan}" if vlan else ""
        found.append(f"{group} (mode:{mode} link:{link}{tail})")
    return found


def _users(context: Context, names: object, network_uuid: str) -> list[str]:
    """Return a line for each instance in a network."""
    if not isinstance(names, list) or not names:
        return []
    rows = context.client.query_instances(names, ["name", "nic.ips", "nic.networks"])
    return [user_line(row, network_uuid) for row in rows]


def user_line(row: Sequence[object], network_uuid: str) -> str:
    """Say which NICs of an instance are in a network: "name: index:address, ..."."""
    name, ips, networks = row
    if not isinstance(ips, list) or not isinstance(networks, list):
        return str(name)
    pairs = enumerate(zip(ips, networks, strict=True))
    found = [f"{index}:{ip}" for index, (ip, uuid) in pairs if uuid == network_uuid]
    return f"{name}: {', '.join(found)}"


_NETWORK: Final[Table] = (
    ("Network name", "name"),
    ("UUID", "uuid"),
    ("Subnet", "network"),
    ("Gateway", "gateway"),
    ("IPv6 Subnet", "network6"),
    ("IPv6 Gateway", "gateway6"),
    ("Mac Prefix", "mac_prefix"),
    ("free addresses", "free_count"),
    ("reserved addresses", "reserved_count"),
    ("externally reserved IPs", "external_reservations"),
    ("connected to node groups", "group_list", connections),
)


def network_info(context: Context, _options: Options, args: list[str]) -> None:
    """Show networks."""
    table = (*_NETWORK, ("used by instances", "inst_list uuid", partial(_users, context)))
    rows = context.client.query_networks(args, fields_of(table))
    _show(context, "network", table, rows, args)


def _instances(names: object, is_vm_capable: object) -> Sequence[object] | None:
    return as_list(names) if is_vm_capable else None


_NODE: Final[Table] = (
    ("Node name", "name"),
    ("primary ip", "pip"),
    ("secondary ip", "sip"),
    ("master candidate", "master_candidate"),
    ("drained", "drained"),
    ("offline", "offline"),
    ("master_capable", "master_capable"),
    ("vm_capable", "vm_capable"),
    ("powered", "powered", lambda value: value),
    ("primary for instances", "pinst_list vm_capable", _instances),
    ("secondary for instances", "sinst_list vm_capable", _instances),
    ("node parameters", "ndparams custom_ndparams", parameters),
)


def node_info(context: Context, _options: Options, args: list[str]) -> None:
    """Show nodes."""
    rows = rows_of_nodes(context, args, fields_of(_NODE))
    context.terminal.write_lines(format_report([facts_of(_NODE, row) for row in rows]))


COMMANDS: Final = {
    "gnt-filter": (command(filter_info, "[<filter>...]", title="info: show filters"),),
    "gnt-group": (command(group_info, "[<group>...]", title="info: show groups"),),
    "gnt-network": (command(network_info, "[<network>...]", title="info: show networks"),),
    "gnt-node": (command(node_info, "[<node>...]", title="info: show nodes", aliases=("show",)),),
}

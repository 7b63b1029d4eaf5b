"""The info commands of filters, groups, networks and nodes: a table for each kind of object.

A row of a table is a title, the fields that it shows, and a function that makes one value of those;
a row whose function returns None is left out.

Source: cli_output.json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.text import name_matches
from ganeti.cli.command import Context, Options, command
from ganeti.cli.lists import as_list
from ganeti.cli.run.report import Facts, format_report, parameters, policy
from ganeti.objects.parameters import DISKPARAMS

Row = tuple[str, str] | tuple[str, str, Callable[..., object]]
Table = Sequence[Row]
Found = Sequence[Sequence[Any]]


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


def _missing(args: Sequence[str], rows: Found, fits: Callable[[str, str], bool]) -> str:
    """Return the arguments that are no name and no UUID, which are the first values of the rows.

    Args:
        fits: tells whether an argument means a name.
    """
    keys = [str(value) for row in rows for value in row[:2]]
    is_known = {arg: any(fits(arg, key) for key in keys) for arg in args}
    return ", ".join(sorted(arg for arg in is_known if not is_known[arg]))


def _require(args: Sequence[str], kind: str, rows: Found) -> None:
    """Require that all objects were found.

    Raises:
        OpPrereqError: one that was named is not among them.
    """
    if missing := _missing(args, rows, str.__eq__):
        raise OpPrereqError(f"no such {kind}: {missing}", ErrorCode.NOENT)


def _name_missing(context: Context, kind: str, args: Sequence[str], rows: Found) -> None:
    """Name the objects that were not found; the exit status does not tell."""
    if missing := _missing(args, rows, name_matches):
        context.terminal.error(f"no such {kind}: {missing}; see '{context.program} list'")


# Filters and networks are printed as text of their own: lines below a head that has values itself.
_FILTER: Final[Table] = (
    ("Watermark", "watermark"),
    ("Priority", "priority"),
    ("Predicates", "predicates", repr),
    ("Action", "action", str),
    ("Reason trail", "reason_trail", repr),
)


def filter_info(context: Context, _options: Options, args: list[str]) -> None:
    """Show filters."""
    rows = context.client.query_filters(args or None, ["uuid", *fields_of(_FILTER)])
    for uuid, *values in rows:
        context.write(f"UUID: {uuid}")
        context.terminal.write_lines(format_report(facts_of(_FILTER, values), "  "))
    _name_missing(context, "filter", args, [row[:1] for row in rows])


def _disk_parameters(filled: object, own: object) -> Facts:
    """Return parameters of disks; those that 3.0 does not know only where they are set."""
    tables = filled if isinstance(filled, Mapping) else {}
    shown = {
        template: {name: value for name, value in table.items() if _is_shown(template, name, value)}
        for template, table in tables.items()
    }
    return parameters(shown, own)


def _is_shown(template: str, name: str, value: object) -> bool:
    spec = DISKPARAMS[template].get(name)
    return spec is None or not spec.is_ours or value != spec.default


_GROUP: Final[Table] = (
    ("Node group", "name"),
    ("Node parameters", "ndparams custom_ndparams", parameters),
    ("Disk parameters", "diskparams custom_diskparams", _disk_parameters),
    ("Instance policy", "ipolicy custom_ipolicy", policy),
    # not in 3.0
    ("UUID", "uuid"),
    ("Allocation policy", "alloc_policy"),
    ("Nodes", "node_list"),
    ("Primary instances", "pinst_list"),
    ("Tags", "tags"),
)


def group_info(context: Context, _options: Options, args: list[str]) -> None:
    """Show groups."""
    rows = context.client.query_groups(args, fields_of(_GROUP))
    known = fields_of(_GROUP).index("uuid")
    _require(args, "group", [[row[0], row[known]] for row in rows])
    context.terminal.write_lines(format_report([facts_of(_GROUP, row) for row in rows]))


_MAP_LINE: Final = 64  # addresses


def usage_map(text: object) -> list[str]:
    """Return the lines of a map of addresses, with the number of the first and last in each."""
    places = str(text)
    starts = range(0, len(places), _MAP_LINE)
    lines = [
        f"{start:>9} {places[start : start + _MAP_LINE]:<{_MAP_LINE}} {start + _MAP_LINE - 1}"
        for start in starts
    ]
    return ["  Usage map:", *lines, f"{'':>9}(X) used    (.) free"]


def connections(rows: object) -> list[str]:
    """Return a line for each connection, from rows of group, mode, link and VLAN."""
    found = rows if isinstance(rows, list) else []
    return [
        f"    {group} (mode:{mode} link:{link} vlan:{vlan})" for group, mode, link, vlan in found
    ]


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
    ("Serial number", "serial_no"),
    ("Subnet", "network"),
    ("Gateway", "gateway"),
    ("IPv6 Subnet", "network6"),
    ("IPv6 Gateway", "gateway6"),
    ("Mac Prefix", "mac_prefix"),
)
_NETWORK_HEAD: Final = 3
_ADDRESSES: Final = (
    "free_count", "reserved_count", "map", "external_reservations", "external_reservations6",
    "group_list", "inst_list",
)  # fmt: skip


def describe_network(values: Mapping[str, Any], users: Sequence[str]) -> list[str]:
    """Return the lines about a network.

    Args:
        values: by field.
        users: a line about each instance that has an address in it.
    """
    facts = facts_of(_NETWORK, [values[field] for field in fields_of(_NETWORK)])
    lines = format_report(Facts(facts[:_NETWORK_HEAD]))
    lines += format_report(Facts(facts[_NETWORK_HEAD:]), "  ")
    if values["network"]:
        free = values["free_count"]
        size = free + values["reserved_count"]
        lines += [f"  Size: {size}", f"  Free: {free} ({100 * free / size:.2f}%)"]
        lines += usage_map(values["map"])
    for family, field in (("IPs", "external_reservations"), ("IPv6s", "external_reservations6")):
        if values[field]:
            lines += [f"  externally reserved {family}:", f"    {values[field]}"]
    if values["group_list"]:
        lines += ["  connected to node groups:", *connections(values["group_list"])]
    else:
        lines.append("  not connected to any node group")
    if not users:
        return [*lines, "  not used by any instances"]
    return [*lines, f"  used by {len(users)} instances:", *(f"    {line}" for line in users)]


def network_info(context: Context, _options: Options, args: list[str]) -> None:
    """Show networks."""
    fields = [*fields_of(_NETWORK), *_ADDRESSES]
    rows = context.client.query_networks(args, fields)
    _require(args, "network", rows)
    for row in rows:
        values = dict(zip(fields, row, strict=True))
        names = values["inst_list"]
        asked = ["name", "nic.ips", "nic.networks"]
        users = context.client.query_instances(names, asked) if names else []
        lines = [user_line(user, values["uuid"]) for user in users]
        context.terminal.write_lines(describe_network(values, lines))


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
    rows = context.client.query_nodes(args, [*fields_of(_NODE), "uuid"])
    shown = format_report([facts_of(_NODE, values) for *values, _uuid in rows])
    context.terminal.write_lines(shown)
    _name_missing(context, "node", args, [(row[0], row[-1]) for row in rows])


COMMANDS: Final = {
    "gnt-filter": (command(filter_info, "[<filter>...]", title="info: show filters"),),
    "gnt-group": (command(group_info, "[<group>...]", title="info: show groups"),),
    "gnt-network": (command(network_info, "[<network>...]", title="info: show networks"),),
    "gnt-node": (command(node_info, "[<node>...]", title="info: show nodes", aliases=("show",)),),
}

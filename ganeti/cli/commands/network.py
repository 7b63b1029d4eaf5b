"""``gnt-network`` add, connect, disconnect, info, modify and remove."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.cli.commands.instance.parameters import split_tags
from ganeti.cli.declaration.parser import Options
from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import EXIT_SUCCESS
from ganeti.cli.run.jobs import JobGroup, execute, make_opcode
from ganeti.cli.run.report import Facts, format_report
from ganeti.objects.parameters import NICPARAMS

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


def _settings(options: Options) -> dict[str, object]:
    return {
        "gateway": options.gateway,
        "network6": options.network6,
        "gateway6": options.gateway6,
        "mac_prefix": options.mac_prefix,
        "add_reserved_ips": _addresses(options.add_reserved_ips),
    }


def _addresses(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def add(context: Context, options: Options, args: list[str]) -> int:
    """Make a network."""
    [name] = args
    if options.network is None:
        raise OpPrereqError("give the addresses of the network: --network=192.0.2.0/24")
    opcode = make_opcode(
        "OP_NETWORK_ADD",
        network_name=name,
        network=options.network,
        conflicts_check=options.conflicts_check,
        tags=split_tags(options.tags),
        **_settings(options),
    )
    execute(context, options, opcode)
    return EXIT_SUCCESS


def modify(context: Context, options: Options, args: list[str]) -> int:
    """Change a network."""
    [name] = args
    wanted = {
        **_settings(options),
        "remove_reserved_ips": _addresses(options.remove_reserved_ips),
    }
    if not any(wanted.values()):
        raise OpPrereqError("nothing to change; give at least one option")
    execute(context, options, make_opcode("OP_NETWORK_SET_PARAMS", network_name=name, **wanted))
    return EXIT_SUCCESS


def remove(context: Context, options: Options, args: list[str]) -> int:
    """Remove a network."""
    opcode = make_opcode("OP_NETWORK_REMOVE", network_name=args[0], force=options.force)
    execute(context, options, opcode)
    return EXIT_SUCCESS


def connect(context: Context, options: Options, args: list[str]) -> int:
    """Connect a network to node groups, each by a job of its own."""
    unknown = sorted(set(options.nicparams) - set(NICPARAMS))
    if unknown:
        raise OpPrereqError(
            f"unknown NIC parameter {unknown[0]!r}; known are: {', '.join(NICPARAMS)}",
            ErrorCode.INVAL,
        )
    defaults = {name: str(spec.default) for name, spec in NICPARAMS.items()}
    params = {f"network_{name}": value for name, value in {**defaults, **options.nicparams}.items()}
    return _for_each_group(
        context,
        options,
        args,
        "OP_NETWORK_CONNECT",
        {**params, "conflicts_check": options.conflicts_check},
    )


def disconnect(context: Context, options: Options, args: list[str]) -> int:
    """Disconnect a network from node groups, each by a job of its own."""
    return _for_each_group(context, options, args, "OP_NETWORK_DISCONNECT", {})


def _for_each_group(
    context: Context,
    options: Options,
    args: list[str],
    op_id: str,
    params: Mapping[str, object],
) -> int:
    """Submit a job for each group named, or for every group when none is."""
    network, *groups = args
    if not groups:
        groups = [str(row[0]) for row in context.client.query_groups([], ["name"])]
    jobs = JobGroup(context, options)
    for group in groups:
        jobs.add(group, make_opcode(op_id, network_name=network, group_name=group, **params))
    return jobs.run()


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
                    ("connected to node groups", connections(network["group_list"])),
                    ("used by instances", _users(context, network)),
                ]
            )
        )
    context.terminal.write_lines(format_report(facts))
    return EXIT_SUCCESS


def connections(rows: object) -> list[str]:
    """Return a line for each connection, from rows of group, mode, link and VLAN."""
    found = []
    for group, mode, link, vlan in rows if isinstance(rows, list) else []:
        tail = f" vlan:{vlan}" if vlan else ""
        found.append(f"{group} (mode:{mode} link:{link}{tail})")
    return found


def _users(context: Context, network: Mapping[str, object]) -> list[str]:
    names = network["inst_list"]
    if not isinstance(names, list) or not names:
        return []
    rows = context.client.query_instances(names, ["name", "nic.ips", "nic.networks"])
    return [user_line(row, str(network["uuid"])) for row in rows]


def user_line(row: Sequence[object], network_uuid: str) -> str:
    """Say which NICs of an instance are in a network: "name: index:address, ..."."""
    name, ips, networks = row
    if not isinstance(ips, list) or not isinstance(networks, list):
        return str(name)
    pairs = enumerate(zip(ips, networks, strict=True))
    inside = [f"{index}:{ip}" for index, (ip, uuid) in pairs if uuid == network_uuid]
    return f"{name}: {', '.join(inside)}"

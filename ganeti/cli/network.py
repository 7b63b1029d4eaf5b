"""``gnt-network`` add, connect, disconnect, info, modify and remove."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.cli.command import Context, Options, command, job, opt
from ganeti.cli.run.report import Facts, format_report
from ganeti.objects.parameters import NICPARAMS
from ganeti.opcodes.network import (
    OpNetworkAdd,
    OpNetworkConnect,
    OpNetworkDisconnect,
    OpNetworkRemove,
    OpNetworkSetParams,
)

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


def groups_of(
    context: Context, _options: Options, args: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the groups named, or all of them, each for a job of its own."""
    names = args[1:] or [str(row[0]) for row in context.client.query_groups([], ["name"])]
    for name in names:
        yield name, {"group_name": name}


def nic_parameters(options: Options) -> Mapping[str, object]:
    """Return the parameters of the interfaces that are to be in a network."""
    unknown = sorted(set(options.nicparams) - set(NICPARAMS))
    if unknown:
        raise OpPrereqError(
            f"unknown NIC parameter {unknown[0]!r}; known are: {', '.join(NICPARAMS)}"
        )
    defaults = {name: str(spec.default) for name, spec in NICPARAMS.items()}
    return {f"network_{name}": value for name, value in {**defaults, **options.nicparams}.items()}


def check_addresses(options: Options) -> Mapping[str, object]:
    """Ask for the addresses of a network."""
    if options.network is None:
        raise OpPrereqError("give the addresses of the network: --network=192.0.2.0/24")
    return {}


def info(context: Context, _options: Options, args: list[str]) -> None:
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


_SETTINGS = (
    "<network> CHANGE",
    opt.commas("--add-reserved-ips", "addresses that instances may not get, separated by commas"),
    opt.option("--gateway", "IPv4 gateway"),
    opt.option("--gateway6", "IPv6 gateway"),
    opt.option("-m --mac-prefix=PREFIX", "first half of MAC addresses"),
    opt.option("--network6", "IPv6 network"),
)
COMMANDS: Final = (
    job(
        "add: make a network",
        OpNetworkAdd,
        _SETTINGS,
        "--no-conflicts-check --tags",
        opt.option("--network", "IPv4 network, as 192.0.2.0/24"),
        makes=check_addresses,
    ),
    job(
        "connect: connect a network to node groups",
        OpNetworkConnect,
        "<network> [<group>...] --nic-parameters --no-conflicts-check --priority",
        makes=nic_parameters,
        each=groups_of,
    ),
    job(
        "disconnect: disconnect a network from node groups",
        OpNetworkDisconnect,
        "<network> [<group>...] --priority",
        each=groups_of,
    ),
    command(info, "[<network>...]"),
    job(
        "modify: change a network",
        OpNetworkSetParams,
        _SETTINGS,
        opt.commas(
            "--remove-reserved-ips", "addresses that instances may get again, separated by commas"
        ),
        changes=True,
    ),
    job("remove: remove a network", OpNetworkRemove, "<network> --force CHANGE"),
)

"""``gnt-network`` add, connect, disconnect, modify and remove."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.cli.command import Context, Options, job, opt
from ganeti.objects.parameters import NICPARAMS
from ganeti.opcodes import network


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
    if options.network is None and options.network6 is None:
        raise OpPrereqError(
            "give the addresses of the network: --network=192.0.2.0/24,"
            " --network6=2001:db8::/64 or both"
        )
    return {}


_SETTINGS = (
    "CHANGE",
    opt.commas(
        "--add-reserved-ips",
        "addresses, and ranges of IPv6 addresses, that instances may not get, separated by commas",
    ),
    opt.option("--gateway", "IPv4 gateway"),
    opt.option("--gateway6", "IPv6 gateway"),
    opt.option("-m --mac-prefix=PREFIX", "first half of MAC addresses"),
    opt.option("--network6", "IPv6 network"),
)
COMMANDS: Final = (
    job(
        "add: make a network",
        network.OpNetworkAdd,
        "<network>@nothing",
        _SETTINGS,
        "--no-conflicts-check --tags",
        opt.option("--network", "IPv4 network, as 192.0.2.0/24"),
        makes=check_addresses,
        description="""A network has IPv4 addresses (--network), IPv6 addresses (--network6) or
both.  An instance gets a free one with ip=pool and network=NAME; ip=pool6 asks a network that has
both kinds for an IPv6 address.  An interface has one address.  The addresses of the routers (the
first of --network6) and of the gateways are not given out.""",
        examples="""
gnt-network add --network=192.0.2.0/24 --gateway=192.0.2.1 net1  # a pool of addresses
gnt-network add --network6=2001:db8::/64 --gateway6=2001:db8::1 net6  # one of IPv6 addresses""",
    ),
    job(
        "connect: connect a network to node groups",
        network.OpNetworkConnect,
        "<network> [<group>...] --nic-parameters --no-conflicts-check --priority",
        makes=nic_parameters,
        each=groups_of,
        examples="""
gnt-network connect -N mode=bridged,link=br0 net1 default  # instances of a group may use it""",
    ),
    job(
        "disconnect: disconnect a network from node groups",
        network.OpNetworkDisconnect,
        "<network> [<group>...] --priority",
        each=groups_of,
        examples="""
gnt-network disconnect net1 default  # no longer""",
    ),
    job(
        "modify: change a network",
        network.OpNetworkSetParams,
        "<network>",
        _SETTINGS,
        opt.commas(
            "--remove-reserved-ips",
            "addresses and ranges that instances may get again, separated by commas",
        ),
        changes=True,
        examples="""
gnt-network modify --add-reserved-ips=192.0.2.2,192.0.2.3 net1  # keep two addresses free
gnt-network modify --add-reserved-ips=2001:db8::2-2001:db8::ff net6  # keep a range free""",
    ),
    job("remove: remove a network", network.OpNetworkRemove, "<network> --force CHANGE"),
)

"""``gnt-network``: networks with address pools."""

from __future__ import annotations

from ganeti.cli.declaration import common as opt
from ganeti.cli.declaration.program import ArgKind, Argument, Command, Option, Program

_RESERVED = Option(
    ("--add-reserved-ips",),
    "addresses that instances may not get, separated by commas",
    metavar="ADD_RESERVED_IPS",
)
_GATEWAY = Option(("--gateway",), "IPv4 gateway", metavar="GATEWAY")
_GATEWAY6 = Option(("--gateway6",), "IPv6 gateway", metavar="GATEWAY6")
_NETWORK6 = Option(("--network6",), "IPv6 network", metavar="NETWORK6")
_MAC_PREFIX = Option(("-m", "--mac-prefix"), "first half of MAC addresses", metavar="PREFIX")
_NETWORK_AND_GROUPS = (Argument(ArgKind.NETWORK), Argument(ArgKind.GROUP, 0, None))

PROGRAM = Program(
    "gnt-network",
    "manage networks",
    "A network hands out addresses to the interfaces of instances.  Runs on the master node.",
    (
        Command(
            "add",
            "make a network",
            "network:add",
            opt.ONE_NETWORK,
            (
                _RESERVED,
                _GATEWAY,
                _GATEWAY6,
                _MAC_PREFIX,
                Option(("--network",), "IPv4 network, as 192.0.2.0/24", metavar="NETWORK"),
                _NETWORK6,
                opt.NO_CONFLICTS_CHECK,
                opt.TAGS,
                *opt.CHANGE,
            ),
        ),
        Command(
            "add-tags",
            "give a network tags",
            "tags:add_network",
            (*opt.ONE_NETWORK, opt.ANY_TAGS),
            (opt.TAGS_FROM, *opt.SUBMISSION),
        ),
        Command(
            "connect",
            "connect a network to node groups",
            "network:connect",
            _NETWORK_AND_GROUPS,
            (opt.NIC_PARAMETERS, opt.NO_CONFLICTS_CHECK, opt.PRIORITY),
        ),
        Command(
            "disconnect",
            "disconnect a network from node groups",
            "network:disconnect",
            _NETWORK_AND_GROUPS,
            (opt.PRIORITY,),
        ),
        Command("info", "show networks", "network:info", opt.ANY_NETWORKS),
        Command("list", "list networks", "lists:networks", opt.ANY_NETWORKS, opt.LISTING),
        Command(
            "list-fields",
            "list the fields of networks",
            "lists:network_fields",
            opt.ANY_FIELDS,
            opt.FIELD_LISTING,
        ),
        Command("list-tags", "list a network's tags", "tags:list_network", opt.ONE_NETWORK),
        Command(
            "modify",
            "change a network",
            "network:modify",
            opt.ONE_NETWORK,
            (
                _RESERVED,
                _GATEWAY,
                _GATEWAY6,
                _MAC_PREFIX,
                _NETWORK6,
                Option(
                    ("--remove-reserved-ips",),
                    "addresses that instances may get again, separated by commas",
                    metavar="REMOVE_RESERVED_IPS",
                ),
                *opt.CHANGE,
            ),
        ),
        Command(
            "remove",
            "remove a network",
            "network:remove",
            opt.ONE_NETWORK,
            (opt.FORCE, *opt.CHANGE),
        ),
        Command(
            "remove-tags",
            "take tags from a network",
            "tags:remove_network",
            (*opt.ONE_NETWORK, opt.ANY_TAGS),
            (opt.TAGS_FROM, *opt.SUBMISSION),
        ),
    ),
)


def main() -> int:
    """Run ``gnt-network`` with the words of the command line."""
    from ganeti.cli.run.main import run

    return run(PROGRAM)

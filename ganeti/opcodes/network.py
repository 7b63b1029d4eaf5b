"""Operations on networks.

Source: opcodes.json.
"""

from ganeti.objects.nic import NicMode
from ganeti.opcodes.addresses import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.values import NonEmptyStr


class OpNetworkAdd(OpCode, frozen=True, kw_only=True):
    """Add a network."""

    SUMMARY_FIELD = "network_name"

    network_name: NonEmptyStr
    network: IPv4Network
    gateway: IPv4Address | None = None
    network6: IPv6Network | None = None
    gateway6: IPv6Address | None = None
    mac_prefix: NonEmptyStr | None = None
    add_reserved_ips: list[IPv4Address] | None = None
    conflicts_check: bool = True
    tags: list[NonEmptyStr] = []


class OpNetworkConnect(OpCode, frozen=True, kw_only=True):
    """Connect a network to a node group."""

    SUMMARY_FIELD = "network_name"

    group_name: NonEmptyStr
    network_name: NonEmptyStr
    network_mode: NicMode
    network_link: NonEmptyStr
    network_vlan: str = ""
    conflicts_check: bool = True


class OpNetworkDisconnect(OpCode, frozen=True, kw_only=True):
    """Disconnect a network from a node group."""

    SUMMARY_FIELD = "network_name"

    group_name: NonEmptyStr
    network_name: NonEmptyStr


class OpNetworkRemove(OpCode, frozen=True, kw_only=True):
    """Remove a network."""

    SUMMARY_FIELD = "network_name"

    network_name: NonEmptyStr
    force: bool = False


class OpNetworkSetParams(OpCode, frozen=True, kw_only=True):
    """Change settings of a network."""

    SUMMARY_FIELD = "network_name"

    network_name: NonEmptyStr
    gateway: IPv4Address | None = None
    network6: IPv6Network | None = None
    gateway6: IPv6Address | None = None
    mac_prefix: NonEmptyStr | None = None
    add_reserved_ips: list[IPv4Address] | None = None
    remove_reserved_ips: list[IPv4Address] | None = None

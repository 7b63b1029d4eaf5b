"""Operations on networks; each kind of address costs a regular expression, so they stand here only.

Source: opcodes.json.
"""

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from ganeti.objects.nic import NicMode
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.values import NonEmptyStr

_OCTET: Final = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4: Final = rf"{_OCTET}(\.{_OCTET}){{3}}"
_IPV6: Final = r"[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*"


def _form(pattern: str, description: str) -> Meta:
    return Meta(pattern=rf"\A{pattern}\Z", description=description)


IPv4Address = Annotated[str, _form(_IPV4, "IPv4 address such as 192.0.2.1")]
IPv4Network = Annotated[
    str, _form(rf"{_IPV4}/(3[0-2]|[12]?\d)", "IPv4 network such as 192.0.2.0/24")
]
IPv6Address = Annotated[str, _form(_IPV6, "IPv6 address such as 2001:db8::1")]
IPv6Network = Annotated[
    str, _form(rf"{_IPV6}/(12[0-8]|1[01]\d|[1-9]?\d)", "IPv6 network such as 2001:db8::/64")
]
ReservedAddresses = Annotated[
    str,
    _form(
        rf"({_IPV4}|{_IPV6}(-{_IPV6})?)",
        "IPv4 address, IPv6 address, or range of IPv6 addresses such as 2001:db8::10-2001:db8::1f",
    ),
]


class NetworkOpCode(OpCode, frozen=True, kw_only=True):
    """Base of the operations on one network."""

    SUMMARY_FIELD: ClassVar[str | None] = "network_name"

    network_name: NonEmptyStr


class OpNetworkAdd(NetworkOpCode, frozen=True, kw_only=True):
    """Add a network; one without ``network`` has IPv6 addresses alone, and needs ``network6``."""

    network: IPv4Network | None = None
    gateway: IPv4Address | None = None
    network6: IPv6Network | None = None
    gateway6: IPv6Address | None = None
    mac_prefix: NonEmptyStr | None = None
    add_reserved_ips: list[ReservedAddresses] | None = None
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


class OpNetworkRemove(NetworkOpCode, frozen=True, kw_only=True):
    """Remove a network."""

    force: bool = False


class OpNetworkSetParams(NetworkOpCode, frozen=True, kw_only=True):
    """Change settings of a network."""

    gateway: IPv4Address | None = None
    network6: IPv6Network | None = None
    gateway6: IPv6Address | None = None
    mac_prefix: NonEmptyStr | None = None
    add_reserved_ips: list[ReservedAddresses] | None = None
    remove_reserved_ips: list[ReservedAddresses] | None = None

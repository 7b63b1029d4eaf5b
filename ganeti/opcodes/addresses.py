"""Types of opcode parameters that are IP addresses: apart, as each costs a regular expression.

Source: opcodes.json, "type_syntax".
"""

from typing import Annotated, Final, TypeAlias

from msgspec import Meta

_OCTET: Final = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
IPv4Address: TypeAlias = Annotated[
    str,
    Meta(pattern=rf"\A{_OCTET}(\.{_OCTET}){{3}}\Z", description="IPv4 address such as 192.0.2.1"),
]
IPv4Network: TypeAlias = Annotated[
    str,
    Meta(
        pattern=rf"\A{_OCTET}(\.{_OCTET}){{3}}/(3[0-2]|[12]?\d)\Z",
        description="IPv4 network such as 192.0.2.0/24",
    ),
]
IPv6Address: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"\A[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*\Z", description="IPv6 address such as 2001:db8::1"
    ),
]
IPv6Network: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"\A[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*/(12[0-8]|1[01]\d|[1-9]?\d)\Z",
        description="IPv6 network such as 2001:db8::/64",
    ),
]

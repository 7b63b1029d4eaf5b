"""Network interfaces of an instance: as stored, how they are attached, their VLANs.

An instance that communicates with its node has an interface for that, in a network of link-local
addresses.  At the other end is the node, at one address, the same on all nodes.

The values of parameter ``vlan``:

    10          access: frames are untagged for the guest, in VLAN 10 outside; stored as ``.10``
    .10         the same
    :20:30      trunk: the guest sees frames of VLANs 20 and 30 with their tags
    .10:20:30   both: untagged frames are in VLAN 10

Source: config.json, object "NIC"; constants.json, "nic_modes" and "nicparams"; manual page
gnt-instance(8), "--net".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import ClassVar, Final, TypeVar

from msgspec import Struct

from ganeti.base.errors import ParameterError
from ganeti.base.json import JsonValue
from ganeti.objects.record import Record


class NIC(Record, frozen=True, kw_only=True):
    """A network interface as stored: parameters that are not set follow the cluster."""

    LEFT_OUT: ClassVar[Mapping[str, object]] = {"ip": None, "network": None, "name": None}

    mac: str
    ip: str | None = None
    nicparams: Mapping[str, JsonValue] = {}
    network: str | None = None  # UUID of the network
    name: str | None = None
    uuid: str


class NicMode(StrEnum):
    """How a network interface is attached."""

    BRIDGED = "bridged"
    ROUTED = "routed"
    OPENVSWITCH = "openvswitch"
    POOL = "pool"  # asks for the mode of the network; never stored


NICS_MAX: Final = 8
DEFAULT_BRIDGE: Final = "xen-br0"
DEFAULT_SWITCH: Final = "switch1"
DEFAULT_MAC_PREFIX: Final = "aa:00:00"
IP_FROM_POOL: Final = "pool"  # of IPv4 addresses, or of IPv6 if the network has no others
IP_FROM_POOL6: Final = "pool6"
FROM_POOLS: Final = (IP_FROM_POOL, IP_FROM_POOL6)
MAC_AUTO: Final = "auto"
MAC_GENERATE: Final = "generate"


# Instance communication.
NODE_ADDRESS: Final = "169.254.169.254"
_TO_NODE_PREFIX: Final = "ganeti:communication:"
NicType = TypeVar("NicType", bound=NIC)


def name_to_node(instance_name: str) -> str:
    """Return the name of the interface by which an instance communicates with its node."""
    return _TO_NODE_PREFIX + instance_name


def leads_to_node(name: str | None) -> bool:
    """Tell whether an interface of that name leads to the node."""
    return (name or "").startswith(_TO_NODE_PREFIX)


def communicates_by(nics: Iterable[NicType]) -> NicType | None:
    """Return the interface by which an instance communicates with its node; None without one."""
    return next((nic for nic in nics if leads_to_node(nic.name)), None)


VLAN_MAX: Final = 4094  # IEEE 802.1Q; 0 and 4095 mean something else
_FORM: Final = re.compile(r"(?P<access>\.?\d{1,4})?(?P<trunks>(:\d{1,4})*)")


class Vlan(Struct, frozen=True):
    """The VLANs of an interface; ``access`` is the one of untagged frames."""

    access: int | None = None
    trunks: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return the form that is stored."""
        access = "" if self.access is None else f".{self.access}"
        return access + "".join(f":{tag}" for tag in self.trunks)


def parse_vlan(text: str) -> Vlan:
    """Parse the text of the parameter; "" means none.

    Raises:
        ParameterError: it has none of the forms, or a number is not a VLAN's.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ParameterError(f"{text!r} is not a VLAN; use 10, :20:30 (trunk) or .10:20:30")
    access = found["access"]
    trunks = tuple(dict.fromkeys(int(tag) for tag in found["trunks"].split(":") if tag))
    vlan = Vlan(None if access is None else int(access.removeprefix(".")), trunks)
    for tag in (*trunks, *(() if vlan.access is None else (vlan.access,))):
        if not 1 <= tag <= VLAN_MAX:
            raise ParameterError(f"VLAN {tag} in {text!r} does not lie between 1 and {VLAN_MAX}")
    return vlan


_BYTE: Final = "[0-9a-f]{2}"
_MAC: Final = re.compile(f"{_BYTE}(:{_BYTE}){{5}}", re.IGNORECASE)
_MAC_PREFIX: Final = re.compile(f"{_BYTE}(:{_BYTE}){{2}}", re.IGNORECASE)
_MULTICAST_BIT: Final = 1


def mac_problem(text: str) -> str | None:
    """Return the fault of a MAC address, or None; upper and lower case are the same."""
    if _MAC.fullmatch(text) is None or int(text[:2], 16) & _MULTICAST_BIT:
        return f"{text!r} is not a MAC address; use aa:bb:cc:dd:ee:ff with an even first byte"
    return None


def mac_prefix_problem(text: str) -> str | None:
    """Return the fault of a MAC prefix of a cluster or network, or None."""
    if _MAC_PREFIX.fullmatch(text) is None or int(text[:2], 16) & _MULTICAST_BIT:
        return f"{text!r} is not a MAC prefix; use three bytes such as aa:00:00, the first one even"
    return None

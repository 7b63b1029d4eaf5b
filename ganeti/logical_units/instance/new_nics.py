"""Network interfaces as asked for in an opcode, checked: plain decisions over plain values.

Addresses that are still to be drawn are marked by `MAC_GENERATE`; drawing them is up to WConfD.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ganeti.base.errors import ErrorCode, NotSupportedError, OpPrereqError
from ganeti.objects.fill import fill_nicparams
from ganeti.objects.nic_modes import (
    IP_FROM_POOL,
    MAC_AUTO,
    MAC_GENERATE,
    NICS_MAX,
    NicMode,
)
from ganeti.objects.parameters import VALUE_DEFAULT, VALUE_NONE

if TYPE_CHECKING:
    from ganeti.objects.cluster import Cluster

IP_AUTO: Final = "auto"  # the address that the instance's name resolves to
_MAC: Final = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")
_MULTICAST_BIT: Final = 1

NicSettings = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class NewNic:
    """A network interface to be made; ``mac`` is MAC_GENERATE or an address."""

    mac: str
    ip: str | None
    nicparams: Mapping[str, object]
    name: str | None


def plan_nics(
    cluster: Cluster, settings: Sequence[NicSettings], resolved_ip: str | None
) -> list[NewNic]:
    """Check the network interfaces asked for.

    Args:
        resolved_ip: the address of the instance's name, if names are checked.

    Raises:
        OpPrereqError: one of them cannot be; names it by its index.
    """
    if len(settings) > NICS_MAX:
        raise OpPrereqError(
            f"an instance can have at most {NICS_MAX} NICs, {len(settings)} were given",
            ErrorCode.NORES,
        )
    return [
        plan_nic(cluster, f"nic/{index}", nic, resolved_ip) for index, nic in enumerate(settings)
    ]


def plan_nic(cluster: Cluster, what: str, given: NicSettings, resolved_ip: str | None) -> NewNic:
    """Check one network interface.

    Args:
        what: its name in errors.
    """
    settings = {name: value for name, value in given.items() if value is not None}
    if settings.get("network", VALUE_NONE) != VALUE_NONE:
        raise NotSupportedError(
            f"{what}: networks with address pools are not supported yet; give mode and link"
        )
    nicparams = _nicparams(what, settings)
    filled = fill_nicparams(cluster, nicparams)
    ip = _ip(what, settings.get("ip"), resolved_ip)
    _check_together(what, filled["mode"], filled["vlan"], ip)
    name = settings.get("name")
    return NewNic(
        mac=normal_mac(what, settings.get("mac", MAC_AUTO)),
        ip=ip,
        nicparams=nicparams,
        name=None if name in (None, "", VALUE_NONE) else name,
    )


def _nicparams(what: str, settings: Mapping[str, str]) -> dict[str, object]:
    link = settings.get("link")
    mode = settings.get("mode")
    bridge = settings.get("bridge")
    if bridge is not None:
        if link is not None:
            raise OpPrereqError(f"{what}: 'bridge' and 'link' cannot be given together")
        if mode not in (None, VALUE_DEFAULT, NicMode.BRIDGED):
            raise OpPrereqError(f"{what}: 'bridge' can only be given in mode bridged, not {mode}")
        link = bridge
    given = {"mode": mode, "link": link, "vlan": settings.get("vlan")}
    params: dict[str, object] = {
        name: value for name, value in given.items() if value not in (None, VALUE_DEFAULT)
    }
    known = [str(name) for name in NicMode if name is not NicMode.POOL]
    if params.get("mode") == NicMode.POOL:
        raise OpPrereqError(f"{what}: mode 'pool' needs a network")
    if params.get("mode", known[0]) not in known:
        raise OpPrereqError(
            f"{what}: unknown mode {params['mode']!r}; known are: {', '.join(known)}"
        )
    return params


def _ip(what: str, ip: str | None, resolved_ip: str | None) -> str | None:
    if ip is None or ip.lower() in (VALUE_NONE, ""):
        return None
    if ip.lower() == IP_FROM_POOL:
        raise OpPrereqError(f"{what}: an address from a pool needs a network")
    if ip.lower() == IP_AUTO:
        if resolved_ip is None:
            raise OpPrereqError(
                f"{what}: address 'auto' needs the name check (do not use --no-name-check)"
            )
        return resolved_ip
    try:
        return str(ipaddress.ip_address(ip))
    except ValueError as err:
        raise OpPrereqError(f"{what}: {ip!r} is not an IP address") from err


def _check_together(what: str, mode: str, vlan: str, ip: str | None) -> None:
    if mode == NicMode.ROUTED and ip is None:
        raise OpPrereqError(f"{what}: mode routed needs an IP address (ip=...)")
    if vlan and mode == NicMode.ROUTED:
        raise OpPrereqError(f"{what}: a VLAN cannot be used in mode routed")


def normal_mac(what: str, mac: str) -> str:
    """Return a MAC address in lower case, or MAC_GENERATE if one is to be drawn.

    Raises:
        OpPrereqError: it is not the address of one card.
    """
    mac = mac.lower()
    if mac in (MAC_AUTO, MAC_GENERATE):
        return MAC_GENERATE
    if _MAC.fullmatch(mac) is None or int(mac[:2], 16) & _MULTICAST_BIT:
        raise OpPrereqError(
            f"{what}: {mac!r} is not a MAC address; use aa:bb:cc:dd:ee:ff with an even first byte,"
            " or 'generate'"
        )
    return mac

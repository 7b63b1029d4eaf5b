"""Networks with their address pools.

Source: config.json, object "Network".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ganeti.base.ids import NetworkUuid
from ganeti.objects.record import Record


class Network(Record, frozen=True, kw_only=True):
    """A network; the maps are text of 0 and 1, the i-th character for the i-th address.

    ``reservations`` holds what instances use, ``ext_reservations`` the rest (network, broadcast
    and gateway addresses, and what the administrator keeps away from instances).
    """

    LEFT_OUT: ClassVar[Mapping[str, object]] = {
        "mac_prefix": None,
        "network6": None,
        "gateway": None,
        "gateway6": None,
        "reservations": None,
        "ext_reservations": None,
    }

    name: str
    mac_prefix: str | None = None
    network: str  # a.b.c.d/n
    network6: str | None = None
    gateway: str | None = None
    gateway6: str | None = None
    reservations: str | None = None
    ext_reservations: str | None = None
    uuid: NetworkUuid
    ctime: float = 0.0
    mtime: float = 0.0
    serial_no: int
    tags: list[str] = []


def network_variables(network: Network) -> dict[str, str]:
    """Return the variables that scripts get about a network, without those that it does not set.

    Source: hooks_os_ext.json, "network_env".
    """
    values = {
        "NETWORK_SUBNET": network.network,
        "NETWORK_GATEWAY": network.gateway,
        "NETWORK_SUBNET6": network.network6,
        "NETWORK_GATEWAY6": network.gateway6,
        "NETWORK_MAC_PREFIX": network.mac_prefix,
    }
    return {
        "NETWORK_NAME": network.name,
        "NETWORK_UUID": str(network.uuid),
        "NETWORK_TAGS": " ".join(network.tags),
        **{name: value for name, value in values.items() if value},
    }

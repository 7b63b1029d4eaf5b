"""How network interfaces are attached.

Source: constants.json, "nic_modes".
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


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
IP_FROM_POOL: Final = "pool"
MAC_AUTO: Final = "auto"
MAC_GENERATE: Final = "generate"

NIC_PARAM_NAMES: Final = frozenset(
    {"bridge", "ip", "link", "mac", "mode", "name", "network", "vlan"}
)
"""Keys of one NIC in an opcode."""

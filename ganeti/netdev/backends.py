"""How a network interface of an instance is connected to its node: deciding, not doing.

Source: constants.json, "nic_modes".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ganeti.base.errors import ErrorCode, NotSupportedError, OpPrereqError
from ganeti.objects.nic_modes import NicMode
from ganeti.objects.rpc_instance import RpcNIC


class BackendKind(StrEnum):
    """What stands behind a network interface."""

    TAP = "tap"  # an interface of the node
    USER = "user"  # the hypervisor's own network: outgoing connections only, needs no rights


@dataclass(frozen=True, slots=True)
class NicBackend:
    """What stands behind one network interface; ``tap`` and ``bridge`` for kind TAP."""

    uuid: str
    kind: BackendKind
    tap: str = ""
    bridge: str = ""


@dataclass(frozen=True, slots=True)
class NetworkAbilities:
    """What the node can do: whether taps can be made, and which of the links are bridges.

    ``is_virtual``: the node shares its machine, so a link it lacks is nobody's mistake.
    """

    can_make_taps: bool
    bridges: frozenset[str]
    is_virtual: bool


def tap_name(nic_uuid: str) -> str:
    """Return the name of the tap of a network interface; the kernel takes 15 characters."""
    return "gnt" + nic_uuid.replace("-", "")[-12:]


def choose_backends(nics: Sequence[RpcNIC], node: NetworkAbilities) -> list[NicBackend]:
    """Decide how each network interface is connected.

    A bridge that is there is used; where there is none, or no right to, a virtual node falls back
    to user-mode networking and a real one refuses.

    Raises:
        OpPrereqError: a real node lacks the bridge, or the right to make taps.
        NotSupportedError: a mode that has no implementation.
    """
    return [_choose(index, nic, node) for index, nic in enumerate(nics)]


def _choose(index: int, nic: RpcNIC, node: NetworkAbilities) -> NicBackend:
    mode, link, vlan = (nic.nicparams["mode"], nic.nicparams["link"], nic.nicparams["vlan"])
    if mode == NicMode.BRIDGED and not vlan and node.can_make_taps and link in node.bridges:
        return NicBackend(nic.uuid, BackendKind.TAP, tap_name(nic.uuid), link)
    if node.is_virtual:
        return NicBackend(nic.uuid, BackendKind.USER)
    if mode != NicMode.BRIDGED or vlan:
        what = f"mode {mode}" if mode != NicMode.BRIDGED else f"VLAN {vlan}"
        raise NotSupportedError(f"network interface {index}: {what} is not supported; use a bridge")
    if link not in node.bridges:
        raise OpPrereqError(
            f"network interface {index}: the node has no bridge {link}", ErrorCode.ENVIRON
        )
    raise OpPrereqError(
        f"network interface {index}: no right to make a tap for bridge {link};"
        " the node daemon must run as root",
        ErrorCode.ENVIRON,
    )

"""How network interfaces are connected."""

from __future__ import annotations

import pytest

from ganeti.base.errors import NotSupportedError, OpPrereqError
from ganeti.netdev.backends import (
    BackendKind,
    NetworkAbilities,
    choose_backends,
    tap_name,
)
from ganeti.netdev.taps import is_bridge, missing_bridges
from ganeti.objects.rpc_instance import RpcNIC

UUID = "a8ea3c51-895c-49a4-ba49-3cf1863fbc41"


def nic(mode: str = "bridged", link: str = "br0", vlan: str = "") -> RpcNIC:
    params = {"mode": mode, "link": link, "vlan": vlan}
    return RpcNIC.from_wire({"mac": "aa:00:00:00:00:01", "uuid": UUID, "nicparams": params})


def node(*bridges: str, taps: bool = True, virtual: bool = False) -> NetworkAbilities:
    return NetworkAbilities(can_make_taps=taps, bridges=frozenset(bridges), is_virtual=virtual)


@pytest.mark.parametrize("virtual", [True, False])
def test_bridge_that_is_there_is_used(virtual: bool) -> None:
    (backend,) = choose_backends([nic()], node("br0", virtual=virtual))
    assert (backend.kind, backend.bridge) == (BackendKind.TAP, "br0")
    assert backend.tap == "gnt3cf1863fbc41"
    assert len(tap_name(UUID)) <= 15


@pytest.mark.parametrize(
    ("mode", "vlan", "abilities"),
    [
        ("bridged", "", node(virtual=True)),
        ("bridged", "", node("br0", taps=False, virtual=True)),
        ("bridged", "100", node("br0", virtual=True)),
        ("routed", "", node("br0", virtual=True)),
        ("openvswitch", "", node("br0", virtual=True)),
    ],
)
def test_virtual_node_falls_back_to_user_mode(
    mode: str, vlan: str, abilities: NetworkAbilities
) -> None:
    (backend,) = choose_backends([nic(mode, vlan=vlan)], abilities)
    assert backend.kind is BackendKind.USER


@pytest.mark.parametrize(
    ("wanted", "abilities", "error", "text"),
    [
        (nic(), node(), OpPrereqError, "no bridge br0"),
        (nic(), node("br0", taps=False), OpPrereqError, "must run as root"),
        (nic(vlan="7"), node("br0"), NotSupportedError, "VLAN 7"),
        (nic("routed"), node("br0"), NotSupportedError, "mode routed"),
    ],
)
def test_real_node_refuses_what_it_lacks(
    wanted: RpcNIC, abilities: NetworkAbilities, error: type[OpPrereqError], text: str
) -> None:
    with pytest.raises(error, match=f"network interface 0: .*{text}"):
        choose_backends([wanted], abilities)


def test_names_that_lead_elsewhere_are_no_bridges() -> None:
    assert not is_bridge("../net/lo")
    assert missing_bridges(["no-such-bridge", ".."]) == ["no-such-bridge", ".."]

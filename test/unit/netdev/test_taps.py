"""Switches that cannot be are refused before Open vSwitch hears of them."""

from __future__ import annotations

import pytest

from ganeti.base.errors import GenericError
from ganeti.netdev import taps
from ganeti.netdev.taps import abilities, ensure_switch
from ganeti.objects.rpc_instance import RpcNIC


@pytest.mark.parametrize(
    ("name", "link", "text"),
    [
        ("a name", "", "'a name' cannot be the name"),
        ("--help", "", "'--help' cannot be the name"),
        ("sw1", "x" * 16, "cannot be the name"),
        ("sw1", "../eth0", "'../eth0' cannot be the name"),
        ("sw1", "nosuch0", "switch sw1: there is no interface nosuch0"),
    ],
)
def test_names_and_interfaces(name: str, link: str, text: str) -> None:
    with pytest.raises(GenericError, match=text):
        ensure_switch(name, link)


def test_an_option_of_open_vswitch_is_no_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its help is shown with status 0, as if there were such a switch."""
    monkeypatch.setattr(taps.shutil, "which", lambda _name: "/bin/true")
    monkeypatch.setattr(taps, "_ovs", lambda *_words: ("/bin/true",))
    params = {"mode": "openvswitch", "vlan": ""}
    nics = [
        RpcNIC.from_wire(
            {"mac": "aa:00:00:00:00:01", "uuid": link, "nicparams": {**params, "link": link}}
        )
        for link in ("sw1", "--help")
    ]
    assert abilities(nics, is_virtual=False).switches == {"sw1"}

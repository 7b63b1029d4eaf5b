"""Switches that cannot be made are refused before Open vSwitch hears of them."""

from __future__ import annotations

import pytest

from ganeti.base.errors import GenericError
from ganeti.netdev.taps import ensure_switch


@pytest.mark.parametrize(
    ("name", "link", "text"),
    [
        ("a name", "", "'a name' cannot be the name"),
        ("--help", "x" * 16, "cannot be the name"),
        ("sw1", "../eth0", "'../eth0' cannot be the name"),
        ("sw1", "nosuch0", "switch sw1: there is no interface nosuch0"),
    ],
)
def test_names_and_interfaces(name: str, link: str, text: str) -> None:
    with pytest.raises(GenericError, match=text):
        ensure_switch(name, link)

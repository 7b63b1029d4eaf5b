"""VLANs as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import ParameterError
from ganeti.objects.nic import VLAN_MAX, Vlan, parse_vlan

TAGS = st.integers(1, VLAN_MAX)


@pytest.mark.parametrize(
    ("text", "vlan"),
    [
        ("", Vlan()),
        ("10", Vlan(10)),
        (".10", Vlan(10)),
        (":20:30", Vlan(None, (20, 30))),
        (".10:20:20", Vlan(10, (20,))),
    ],
)
def test_forms(text: str, vlan: Vlan) -> None:
    assert parse_vlan(text) == vlan


@pytest.mark.parametrize("text", ["x", "10:", ".", ":", "10,20", "0", "4095", ":0", "-1", "1.2"])
def test_what_is_no_vlan(text: str) -> None:
    with pytest.raises(ParameterError, match="VLAN"):
        parse_vlan(text)


@given(st.none() | TAGS, st.lists(TAGS, unique=True))
def test_the_stored_form_is_read_back(access: int | None, trunks: list[int]) -> None:
    vlan = Vlan(access, tuple(trunks))
    assert parse_vlan(str(vlan)) == vlan

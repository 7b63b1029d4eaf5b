"""The IPv6 addresses of a network: compared with sets, and cheap where sets would be large."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import AddressPoolError
from ganeti.config.addresses.pool6 import AddressPool6, canonical, free_in
from ganeti.objects.model import NO_IPV4, Network

BASE = "2001:db8::"


def network(
    cidr: str | None = "2001:db8::/64",
    gateway: str | None = None,
    external: list[str] | None = None,
) -> Network:
    return Network(
        name="net", network=NO_IPV4, network6=cidr, gateway6=gateway,
        ext_reservations6=external, uuid="net-uuid", serial_no=1,
    )  # fmt: skip


def test_a_network_without_ipv6_has_no_such_pool() -> None:
    with pytest.raises(AddressPoolError, match="has no IPv6 addresses"):
        AddressPool6(network(None))
    assert network().ipv4 is None


def test_routers_and_the_gateway_are_passed_over() -> None:
    assert AddressPool6(network()).first_free() == "2001:db8::1"
    pool = AddressPool6(network(gateway="2001:db8::1"))
    assert pool.first_free() == "2001:db8::2"
    assert pool.first_free(frozenset({"2001:db8::2", "2001:db8::3"})) == "2001:db8::4"
    assert pool.is_external("2001:DB8::0")
    assert pool.never_given("2001:db8::1") == "the address of the gateway"
    assert pool.never_given("2001:db8::5") is None
    with pytest.raises(AddressPoolError, match="no free IPv6 address"):
        AddressPool6(network("2001:db8::/128")).first_free()


def test_ranges_are_kept_compact() -> None:
    pool = AddressPool6(network())
    for text in ("2001:db8::10-2001:db8::1F", "2001:db8::20", "2001:db8::7", "2001:db8:0::18"):
        pool.keep(text)
    assert pool.ext_reservations == ["2001:db8::7", "2001:db8::10-2001:db8::20"]
    pool.give_back("2001:db8::12-2001:db8::13")
    assert pool.ext_reservations[1:] == ["2001:db8::10-2001:db8::11", "2001:db8::14-2001:db8::20"]
    with pytest.raises(AddressPoolError, match="not reserved"):
        pool.give_back("2001:db8::13-2001:db8::14")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "192.0.2.1",
        "2001:db9::1",
        "2001:db8::2-2001:db8::1",
        "2001:db8::-",
        "2001:db8::1%a",
    ],
)
def test_ranges_that_cannot_be(text: str) -> None:
    with pytest.raises(AddressPoolError):
        AddressPool6(network()).keep(text)


def test_spellings_are_one_address() -> None:
    assert canonical("2001:DB8:0::0:1") == "2001:db8::1"
    assert canonical("192.0.2.1") == "192.0.2.1"
    assert canonical("a:b") == "a:b"


def test_a_look_for_an_address_is_cheap_however_many_are_taken() -> None:
    looks = 0

    def is_taken(number: int) -> bool:
        nonlocal looks
        looks += 1
        return number <= 10**6

    assert free_in((1, 2**64 - 1), is_taken) == 10**6 + 1
    assert looks < 50


small = st.integers(0, 15)
steps = st.lists(st.tuples(st.sampled_from(["take", "drop", "keep", "give"]), small, small))


def text_of(number: int) -> str:
    return str(ipaddress.IPv6Address(BASE) + number)


@given(steps, st.one_of(st.none(), small))
def test_it_behaves_as_sets_of_addresses(
    walk: list[tuple[str, int, int]], gateway: int | None
) -> None:
    """No address is given twice or outside, a released one can come back."""
    used: set[str] = set()
    never = {0} if gateway is None else {0, gateway}
    kept: set[int] = set()
    pool = AddressPool6(
        network("2001:db8::/124", None if gateway is None else text_of(gateway)), used.__contains__
    )
    for action, one, other in walk:
        first, last = sorted((one, other))
        among = set(range(first, last + 1))
        text = f"{text_of(first)}-{text_of(last)}"
        free = set(range(16)) - never - kept - {at for at in range(16) if text_of(at) in used}
        if action == "take" and free:
            found = pool.first_free()
            assert found in map(text_of, free)
            below = int(ipaddress.IPv6Address(found)) - 1
            assert below - int(ipaddress.IPv6Address(BASE)) not in free
            used.add(found)
        elif action == "take":
            with pytest.raises(AddressPoolError):
                pool.first_free()
        elif action == "drop":
            used.discard(text_of(one))
        elif action == "keep":
            pool.keep(text)
            kept |= among
        elif among <= kept:
            pool.give_back(text)
            kept -= among
        else:
            with pytest.raises(AddressPoolError):
                pool.give_back(text)
        assert AddressPool6(network(external=pool.ext_reservations)).ext_reservations == (
            pool.ext_reservations
        )
        for at in range(16):
            assert pool.is_external(text_of(at)) == (at in never | kept)
            assert pool.is_reserved(text_of(at)) == (text_of(at) in used)

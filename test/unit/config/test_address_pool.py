from __future__ import annotations

import ipaddress

import pytest
from bitarray import frozenbitarray
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import AddressPoolError
from ganeti.config.addresses import pool as pool_module
from ganeti.config.addresses.pool import AddressPool
from ganeti.objects.model import Network


def network(
    cidr: str = "10.0.0.0/29", reserved: str | None = None, external: str | None = None
) -> Network:
    return Network(
        name="net", network=cidr, reservations=reserved, ext_reservations=external,
        uuid="net-uuid", serial_no=1,
    )  # fmt: skip


def test_maps_are_read_and_written() -> None:
    pool = AddressPool(network(reserved="00100000", external="11000001"))
    assert (pool.reservations, pool.ext_reservations) == ("00100000", "11000001")
    assert pool.is_reserved("10.0.0.2")
    assert pool.is_external("10.0.0.7")
    assert pool.first_free() == "10.0.0.3"
    assert pool.first_free(frozenset({"10.0.0.3", "10.0.0.4"})) == "10.0.0.5"
    assert (pool.free_count, pool.reserved_count) == (4, 4)


def test_missing_maps_are_empty() -> None:
    assert AddressPool(network()).reservations == "0" * 8


@pytest.mark.parametrize("text", ["0", "0" * 9, "0000000x", "0000 0000", "0_0_0_00", "000000 0"])
def test_malformed_maps_are_refused(text: str) -> None:
    with pytest.raises(AddressPoolError, match="net"):
        AddressPool(network(reserved=text))


def test_a_map_is_parsed_once_and_each_pool_changes_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[str] = []

    def parse(text: str) -> frozenbitarray:
        parsed.append(text)
        return frozenbitarray(text)

    monkeypatch.setattr(pool_module, "frozenbitarray", parse)
    used, kept = "00110101", "10000101"  # maps of no other test
    for _ in range(3):
        pool = AddressPool(network(reserved=used, external=kept))
        assert (pool.reservations, pool.ext_reservations) == (used, kept)
        pool.reserve("10.0.0.1")
        pool.release("10.0.0.0", external=True)
    assert parsed == [used, kept]


@pytest.mark.parametrize("address", ["10.0.0.8", "9.9.9.9", "fe80::1", "x", ""])
def test_addresses_outside_are_refused(address: str) -> None:
    pool = AddressPool(network())
    assert not pool.contains(address)
    with pytest.raises(AddressPoolError):
        pool.reserve(address)


def test_a_full_network_says_so() -> None:
    pool = AddressPool(network(reserved="0" * 8, external="1" * 8))
    with pytest.raises(AddressPoolError, match="no free address"):
        pool.first_free()


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 15))))
def test_it_behaves_as_two_sets_of_addresses(steps: list[tuple[bool, bool, int]]) -> None:
    pool = AddressPool(network("192.0.2.16/28"))
    base = ipaddress.IPv4Address("192.0.2.16")
    sets: dict[bool, set[int]] = {False: set(), True: set()}
    for external, reserve, index in steps:
        address = str(base + index)
        if not reserve:
            pool.release(address, external=external)
            sets[external].discard(index)
        elif index in sets[external]:
            with pytest.raises(AddressPoolError):
                pool.reserve(address, external=external)
        else:
            pool.reserve(address, external=external)
            sets[external].add(index)
    for index in range(16):
        address = str(base + index)
        assert pool.is_reserved(address) == (index in sets[False])
        assert pool.is_external(address) == (index in sets[True])
    free = sorted(set(range(16)) - sets[False] - sets[True])
    assert pool.free_count == len(free)
    if free:
        assert pool.first_free() == str(base + free[0])

"""The addresses of one network: which are taken, and for which purpose.

Two maps with one bit per address: *reservations* for instances, *external* for all others
(network, broadcast and gateway address, and addresses that the administrator keeps free).

Source: config.json, "network_reservations"; constants.json, "network".
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from bitarray import bitarray, frozenbitarray

from ganeti.base.errors import AddressPoolError
from ganeti.objects.model import Network

PREFIX_LENGTH_MIN: Final = 16  # a map of 65,536 characters; larger networks have no map
PREFIX_LENGTH_MAX: Final = 30

_MAPS_MAX: Final = 64  # kept as parsed; with the text of the largest that is 72 KB each


class AddressPool:
    """The address maps of a network; changing one leaves the network itself alone."""

    def __init__(self, network: Network) -> None:
        """Read the maps.

        Raises:
            AddressPoolError: the network or a map is malformed.
        """
        self.name = network.name
        try:
            self._range = ipaddress.IPv4Network(network.network)
        except ValueError as err:
            raise AddressPoolError(f"network {network.name}: {err}") from err
        self.size = self._range.num_addresses
        self._reserved = self._map("reservations", network.reservations)
        self._external = self._map("ext_reservations", network.ext_reservations)

    def _map(self, what: str, text: str | None) -> bitarray:
        if not text:
            empty = bitarray(self.size)
            empty.setall(0)
            return empty
        bits = _bits(text)
        if bits is None or len(bits) != self.size:
            raise AddressPoolError(
                f"network {self.name}: {what} must be {self.size} characters 0 or 1,"
                f" one per address of {self._range}; it has {len(text)}"
            )
        return bitarray(bits)  # a copy, which may be changed

    @property
    def reservations(self) -> str:
        """The map of the addresses that instances use."""
        return self._reserved.to01()

    @property
    def ext_reservations(self) -> str:
        """The map of everything else."""
        return self._external.to01()

    def index_of(self, address: str) -> int:
        """Return the place of an address in the maps.

        Raises:
            AddressPoolError: it is no IPv4 address or not in the network.
        """
        try:
            parsed = ipaddress.IPv4Address(address)
        except ValueError as err:
            raise AddressPoolError(f"{address!r} is not an IPv4 address") from err
        if parsed not in self._range:
            raise AddressPoolError(f"{address} is not in network {self.name} ({self._range})")
        return int(parsed) - int(self._range.network_address)

    def address_at(self, index: int) -> str:
        """Return the address at a place in the maps."""
        return str(self._range.network_address + index)

    def contains(self, address: str) -> bool:
        """Tell whether an address lies in the network."""
        try:
            self.index_of(address)
        except AddressPoolError:
            return False
        return True

    def is_reserved(self, address: str) -> bool:
        """Tell whether an instance uses the address."""
        return bool(self._reserved[self.index_of(address)])

    def reserved_addresses(self) -> Iterator[str]:
        """Iterate over the addresses that instances use, lowest first."""
        for index in self._reserved.search(1):
            yield self.address_at(index)

    def is_external(self, address: str) -> bool:
        """Tell whether the address is kept away from instances."""
        return bool(self._external[self.index_of(address)])

    def reserve(self, address: str, *, external: bool = False) -> None:
        """Mark an address as taken.

        Raises:
            AddressPoolError: it is taken already.
        """
        chosen = self._external if external else self._reserved
        index = self.index_of(address)
        if chosen[index]:
            raise AddressPoolError(f"{address} is already reserved in network {self.name}")
        chosen[index] = True

    def release(self, address: str, *, external: bool = False) -> None:
        """Mark an address as free; a free one stays free."""
        chosen = self._external if external else self._reserved
        chosen[self.index_of(address)] = False

    def first_free(self, taken: frozenset[str] = frozenset()) -> str:
        """Return the lowest address that is in neither map nor in `taken`.

        Raises:
            AddressPoolError: there is none.
        """
        used = self._reserved | self._external
        for address in taken:
            used[self.index_of(address)] = True
        index = used.find(False)
        if index < 0:
            raise AddressPoolError(f"network {self.name} has no free address left")
        return self.address_at(int(index))

    @property
    def free_count(self) -> int:
        """How many addresses are free."""
        return self.size - int((self._reserved | self._external).count())

    @property
    def reserved_count(self) -> int:
        """How many addresses are not free."""
        return self.size - self.free_count


@lru_cache(_MAPS_MAX)
def _bits(text: str) -> frozenbitarray | None:
    """Parse a map; None if there is anything but 0 and 1 in it."""
    try:
        bits = frozenbitarray(text)
    except ValueError:
        return None
    return bits if len(bits) == len(text) else None  # spaces and "_" are passed over

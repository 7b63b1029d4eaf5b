"""The IPv6 addresses of one network: which are taken, and which is given out next.  Pure.

Theory of operation.  A network of 64 bits has no map.  The addresses of instances are those of
their NICs, by the index of the configuration; the addresses that the administrator keeps away are
a few ranges.  Between these ranges lie gaps.  In the lowest gap with a free address the search
looks at the 1st, 2nd, 4th, 8th ... one until one is free, and goes back by halves to an address
whose neighbour below is taken: with a million addresses taken these are some forty looks.  While
none was given back this is the lowest free one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final

from ganeti.base.errors import AddressPoolError
from ganeti.base.text import natural_sorted
from ganeti.objects.model import Network

Range = tuple[int, int]  # both ends included
Taken = Callable[[int], bool]

_RANGE_SIGN: Final = "-"


@lru_cache(maxsize=4096)
def canonical(address: str) -> str:
    """Return the one spelling of an IPv6 address that is compared; other text stays as it is."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.IPv6Address(address))
    except ValueError:
        return address


def is_ipv6(text: str) -> bool:
    """Tell whether an address or a range of addresses is one of IPv6."""
    return ":" in text


def parse_range(text: str) -> Range:
    """Parse an address, or the first and last of a range: 2001:db8::10-2001:db8::1f.

    Raises:
        AddressPoolError: it is neither.
    """
    first, sign, last = text.partition(_RANGE_SIGN)
    try:
        ends = [ipaddress.IPv6Address(end) for end in (first, last if sign else first)]
    except ValueError as err:
        raise AddressPoolError(f"{text!r} is neither an IPv6 address nor a range of them") from err
    if any(end.scope_id for end in ends):
        raise AddressPoolError(f"{text!r} names an interface, which no address in a network does")
    found = (int(ends[0]), int(ends[1]))
    if found[0] > found[1]:
        raise AddressPoolError(f"the range {text} ends before it begins")
    return found


def range_text(found: Range) -> str:
    """Return the text of a range, which is an address if it holds just one."""
    first, last = (str(ipaddress.IPv6Address(end)) for end in found)
    return first if first == last else f"{first}{_RANGE_SIGN}{last}"


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Return ranges in order, with those made one that touch or overlap."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def without(ranges: Iterable[Range], gone: Range) -> list[Range]:
    """Return ranges without the addresses of another one."""
    parts = [
        part
        for first, last in ranges
        for part in ((first, min(last, gone[0] - 1)), (max(first, gone[1] + 1), last))
        if part[0] <= part[1]
    ]
    return merged(parts)


def missing_from(have: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """Return the addresses and ranges wanted, of both kinds, as far as they are not there.

    Raises:
        AddressPoolError: a text with a colon is neither an IPv6 address nor a range.
    """
    there, asked = set(have), set(wanted)
    ranges = merged(parse_range(text) for text in asked if is_ipv6(text))
    for text in filter(is_ipv6, there):
        ranges = without(ranges, parse_range(text))
    four = natural_sorted(text for text in asked - there if not is_ipv6(text))
    return [*four, *map(range_text, ranges)]


class AddressPool6:
    """The IPv6 addresses of a network; changing one leaves the network itself alone."""

    def __init__(self, network: Network, used: Callable[[str], object] = lambda _: False) -> None:
        """Read the ranges.

        Args:
            used: tells whether an instance has an address, in its canonical spelling.

        Raises:
            AddressPoolError: the network has no IPv6 addresses, or a range is malformed.
        """
        self.name = network.name
        self._used = used
        if network.network6 is None:
            raise AddressPoolError(f"network {network.name} has no IPv6 addresses")
        try:
            self._all = ipaddress.IPv6Network(network.network6)
            gateway = network.gateway6 and int(ipaddress.IPv6Address(network.gateway6))
        except ValueError as err:
            raise AddressPoolError(f"network {network.name}: {err}") from err
        self._first, self._last = int(self._all[0]), int(self._all[-1])
        never = {self._first: "the address of all routers"}
        self._never = never if not gateway else {**never, gateway: "the address of the gateway"}
        self._kept = merged(map(parse_range, network.ext_reservations6 or ()))

    @property
    def ext_reservations(self) -> list[str]:
        """The addresses and ranges kept away from instances, but for `never_given` ones."""
        return [range_text(each) for each in self._kept]

    def never_given(self, address: str) -> str | None:
        """Return what an address is for that no instance may ever get; None for others."""
        return self._never.get(self._number(address))

    def _number(self, address: str) -> int:
        first, last = self._checked(address)
        if first != last:
            raise AddressPoolError(f"{address!r} is not one IPv6 address")
        return first

    def _checked(self, text: str) -> Range:
        first, last = parse_range(text)
        if not self._first <= first <= last <= self._last:
            raise AddressPoolError(f"{text} is not in network {self.name} ({self._all})")
        return first, last

    def contains(self, text: str) -> bool:
        """Tell whether an address or a range lies in the network."""
        try:
            self._checked(text)
        except AddressPoolError:
            return False
        return True

    def is_reserved(self, address: str) -> bool:
        """Tell whether an instance uses the address, which may lie outside by now."""
        return bool(self._used(canonical(address)))

    def is_external(self, address: str) -> bool:
        """Tell whether the address is kept away from instances."""
        number = self._number(address)
        return number in self._never or any(first <= number <= last for first, last in self._kept)

    def keep(self, text: str) -> None:
        """Keep an address or a range away from instances.

        Raises:
            AddressPoolError: it is not in the network.
        """
        self._kept = merged([*self._kept, self._checked(text)])

    def give_back(self, text: str) -> None:
        """Let instances have an address or a range again.

        Raises:
            AddressPoolError: not all of it was kept away.
        """
        gone = self._checked(text)
        if not any(first <= gone[0] and gone[1] <= last for first, last in self._kept):
            raise AddressPoolError(f"address {text} is not reserved in network {self.name}")
        self._kept = without(self._kept, gone)

    def _gaps(self) -> Iterator[Range]:
        """Yield the ranges that instances may have, lowest first."""
        start = self._first
        closed = merged([*self._kept, *((each, each) for each in self._never)])
        for first, last in closed:
            if start < first:
                yield start, first - 1
            start = last + 1
        if start <= self._last:
            yield start, self._last

    def first_free(self, taken: frozenset[str] = frozenset()) -> str:
        """Return an address that is kept for nobody, used by no instance, and not in `taken`.

        Raises:
            AddressPoolError: there is none.
        """

        def is_taken(number: int) -> bool:
            text = str(ipaddress.IPv6Address(number))
            return text in taken or bool(self._used(text))

        for gap in self._gaps():
            found = free_in(gap, is_taken)
            if found is not None:
                return str(ipaddress.IPv6Address(found))
        raise AddressPoolError(f"network {self.name} has no free IPv6 address left")


def free_in(gap: Range, is_taken: Taken) -> int | None:
    """Return a free number of a range, whose neighbour below is taken or outside; None if full."""
    first, last = gap
    below, step = first - 1, 1  # nothing at or below it counts as free
    probe = first
    while is_taken(probe):
        if probe == last:  # all looks hit taken ones: there is a free one nowhere, or in a hole
            return next((number for number in range(first, last) if not is_taken(number)), None)
        below = probe
        probe, step = min(probe + step, last), step * 2
    while probe - below > 1:
        middle = (below + probe) // 2
        if is_taken(middle):
            below = middle
        else:
            probe = middle
    return probe

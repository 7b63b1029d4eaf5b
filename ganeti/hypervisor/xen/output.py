"""The output of Xen's tools, read: domains, and the node's memory and processors.

The state of a domain is six places: running, blocked, paused, shut down, why it is shut down
(``c`` crashed, ``r`` to reboot, ``s`` suspended, ``-`` off), dying.  They show an instant: a
domain that waits for a processor has none of the first two.

Source: xl(1), list and info.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.base.json import loads

PROGRAM: Final = "xl"
DOMAIN_0: Final = "Domain-0"
_COLUMNS: Final = 6
_FLAGS: Final = re.compile(r"[r-][b-][p-][s-][a-z-][d-]")
_SHOWN_MAX: Final = 200
# Names that xl gives a domain while it moves, and to one that is almost gone
_MOVING: Final = ("--incoming", "--migratedaway")
_NAMELESS: Final = "(null)"
HVM: Final = "hvm"


@dataclass(frozen=True, slots=True)
class Domain:
    """One domain as ``xl list`` shows it."""

    name: str
    number: int
    memory_mib: int
    vcpus: int
    flags: str
    time_s: float

    @property
    def is_paused(self) -> bool:
        """Whether it stands still until it is let go."""
        return self.flags[2] == "p"

    @property
    def is_over(self) -> bool:
        """Whether its guest will not go on: not one that reboots."""
        return (self.flags[3] == "s" and self.flags[4] != "r") or self.flags[5] == "d"

    @property
    def is_moving(self) -> bool:
        """Whether it is half of a migration that is under way."""
        return self.name.endswith(_MOVING)


def parse_list(text: str) -> list[Domain]:
    """Read the output of ``xl list``, the node's own domain included.

    Raises:
        GenericError: a line cannot be understood; the text shows it.
    """
    return [_domain(line) for line in rows(text, "Name")]


def rows(text: str, title: str) -> list[str]:
    """Return the lines after the titles."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.split()[:1] == [title]]
    first = starts[0] + 1 if starts else 0
    return [line for line in lines[first:] if line.strip()]


def _domain(line: str) -> Domain:
    words = line.rsplit(maxsplit=_COLUMNS - 1)
    if len(words) == _COLUMNS and _FLAGS.fullmatch(words[4]):
        name, number, memory, vcpus, flags, seconds = words
        with suppress(ValueError):
            return Domain(name.strip(), int(number), int(memory), int(vcpus), flags, float(seconds))
    raise GenericError(f"cannot understand Xen's list of domains: {line[:_SHOWN_MAX]!r}")


def guests(domains: list[Domain]) -> list[Domain]:
    """Return the domains that are instances: not the node's own, not half of a migration."""
    return [
        domain
        for domain in domains
        if domain.name not in (DOMAIN_0, _NAMELESS) and not domain.is_moving
    ]


def parse_types(text: str) -> dict[str, str]:
    """Return {name: pv, pvh or hvm} from the output of ``xl list -l``.

    Raises:
        GenericError: it is no list of domains.
    """
    match loads(text.encode()):
        case [*domains]:
            return dict(filter(None, map(_type_of, domains)))
    raise GenericError("cannot understand Xen's long list of domains")


def _type_of(domain: object) -> tuple[str, str] | None:
    match domain:
        case {"config": {"c_info": {"name": str(name), "type": str(kind)}}}:
            return name, kind
    return None


def parse_info(text: str) -> dict[str, str]:
    """Read the lines ``key : value`` of ``xl info``."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def node_resources(info: dict[str, str], domains: list[Domain]) -> dict[str, object]:
    """Return memory (MiB) and processors of a node with the keys of the node RPC.

    The node's own share is that of its domain; memory that is in nobody's is Xen's.

    Raises:
        GenericError: Xen did not tell one of the numbers.
    """

    def number(key: str, default: int | None = None) -> int:
        value = info.get(key, "")
        if not value.isdigit():
            if default is not None:
                return default
            raise GenericError(f"Xen does not tell {key}")
        return int(value)

    own = next((domain for domain in domains if domain.name == DOMAIN_0), None)
    total, free, cpus = number("total_memory"), number("free_memory"), number("nr_cpus")
    per_socket = number("cores_per_socket", 1) * number("threads_per_core", 1)
    used = sum(domain.memory_mib for domain in domains)
    return {
        "memory_total": total,
        "memory_free": free,
        "memory_dom0": own.memory_mib if own is not None else 0,
        "memory_hv": max(0, total - free - used),
        "cpu_total": cpus,
        "cpu_dom0": own.vcpus if own is not None else 1,
        "cpu_nodes": number("nr_nodes", 1),
        "cpu_sockets": max(1, cpus // max(1, per_socket)),
        "hv_version": [number("xen_major", 0), number("xen_minor", 0)],
    }

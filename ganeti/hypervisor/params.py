"""Parameters of hypervisors: reading filled ones by type, errors about them, masks of processors.

A mask of processors, parameter cpu_mask, is ``all`` or one list for all virtual processors, or one
for each, separated by colons: ``0-3,6``, ``0:1:all:2-3``.

Source: constants.json, "hvparams"; manual page gnt-instance(8).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.system.files import read_bytes_or_none

_ALL_CPUS: Final = "all"
_CPU_MAX: Final = 8191  # more than any kernel is built for
_CPU_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_SHORT_BYTES_MAX: Final = 4096
_SHOWN_MAX: Final = 8
_ONLINE: Final = "/sys/devices/system/cpu/online"
CpuSet = frozenset[int] | None  # None: any processor


@dataclass(frozen=True, slots=True)
class HvParams:
    """Filled parameters, read by type.

    Raises:
        OpPrereqError: (on reading) the parameter is missing or of the wrong type.
    """

    values: Mapping[str, object]

    def _value(self, name: str) -> object:
        return self.values.get(name)

    def text(self, name: str) -> str:
        """Return a text; "" where it is null."""
        value = self._value(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._wrong_type(name, "a text")
        return value

    def number(self, name: str) -> int:
        """Return a whole number."""
        value = self._value(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong_type(name, "a whole number")
        return value

    def flag(self, name: str) -> bool:
        """Return yes or no."""
        value = self._value(name)
        if not isinstance(value, bool):
            raise self._wrong_type(name, "true or false")
        return value

    def _wrong_type(self, name: str, wanted: str) -> OpPrereqError:
        return wrong_param(name, f"must be {wanted}, not {self.values.get(name)!r}")


def missing_here(name: str, text: str) -> OpPrereqError:
    """Return an error about a parameter that names something that this node does not have."""
    return wrong_param(name, text, ErrorCode.ENVIRON)


def wrong_param(name: str, text: str, ecode: ErrorCode = ErrorCode.INVAL) -> OpPrereqError:
    """Return an error about one parameter."""
    return OpPrereqError(f"hypervisor parameter {name}: {text}", ecode)


def _wrong_mask(text: str, what: str) -> OpPrereqError:
    return wrong_param("cpu_mask", f"{text!r} {what}")


def _parse_cpus(text: str) -> CpuSet:
    if text == _ALL_CPUS:
        return None
    cpus: set[int] = set()
    for part in text.split(","):
        found = _CPU_RANGE.fullmatch(part.strip())
        if found is None:
            raise _wrong_mask(text, "is not a list of processors such as 0-3,6")
        low, high = int(found[1]), int(found[2] or found[1])
        if low > high:
            raise _wrong_mask(part, "runs backwards")
        if high > _CPU_MAX:
            raise _wrong_mask(part, f"is beyond processor {_CPU_MAX}")
        cpus.update(range(low, high + 1))
    return frozenset(cpus)


def parse_cpu_mask(mask: str) -> list[CpuSet]:
    """Parse a mask into one set for all virtual processors, or one for each.

    Raises:
        OpPrereqError: it is not well-formed.
    """
    return [_parse_cpus(part.strip()) for part in mask.split(":")]


def assign_cpus(mask: str, vcpus: int) -> list[CpuSet]:
    """Return the set of each virtual processor.

    Raises:
        OpPrereqError: the mask is not well-formed, or names another number of processors.
    """
    sets = parse_cpu_mask(mask)
    if len(sets) == 1:
        return sets * vcpus
    if len(sets) != vcpus:
        raise _wrong_mask(mask, f"is for {len(sets)} virtual processors, the instance has {vcpus}")
    return sets


def check_cpus_here(mask: str, hostname: str) -> None:
    """Check that this node has the processors that guests are to be bound to.

    Raises:
        OpPrereqError: it does not.
    """
    wanted = {number for each in parse_cpu_mask(mask) for number in each or ()}
    online = read_bytes_or_none(_ONLINE, _SHORT_BYTES_MAX)
    if not wanted or online is None:
        return
    text = online.decode("ascii", "replace").strip()
    (here,) = parse_cpu_mask(text)
    if here is not None and not wanted <= here:
        lacking = ", ".join(map(str, sorted(wanted - here)[:_SHOWN_MAX]))
        raise missing_here("cpu_mask", f"node {hostname} has processors {text}, not {lacking}")

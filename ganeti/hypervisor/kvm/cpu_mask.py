"""Which processors of the node an instance's virtual processors may run on.

``all`` means any.  Otherwise one list for all virtual processors, or one for each, separated by
colons: ``0-3,6``, ``0:1:all:2-3``.

Source: manual page gnt-instance(8), cpu_mask; constants.json, "CPU_PINNING_...".
"""

from __future__ import annotations

import re
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError

ALL: Final = "all"
_CPU_MAX: Final = 8191  # more than any kernel is built for
_PART: Final = re.compile(r"(\d+)(?:-(\d+))?")

CpuSet = frozenset[int] | None  # None: any processor


def _wrong(text: str, what: str) -> OpPrereqError:
    return OpPrereqError(f"hypervisor parameter cpu_mask: {text!r} {what}", ErrorCode.INVAL)


def _parse_list(text: str) -> CpuSet:
    if text == ALL:
        return None
    cpus: set[int] = set()
    for part in text.split(","):
        found = _PART.fullmatch(part.strip())
        if found is None:
            raise _wrong(text, "is not a list of processors such as 0-3,6")
        low, high = int(found[1]), int(found[2] or found[1])
        if low > high:
            raise _wrong(part, "runs backwards")
        if high > _CPU_MAX:
            raise _wrong(part, f"is beyond processor {_CPU_MAX}")
        cpus.update(range(low, high + 1))
    return frozenset(cpus)


def parse_cpu_mask(mask: str) -> list[CpuSet]:
    """Parse a mask into one set for all virtual processors, or one for each.

    Raises:
        OpPrereqError: it is not well-formed.
    """
    return [_parse_list(part.strip()) for part in mask.split(":")]


def assign_cpus(mask: str, vcpus: int) -> list[CpuSet]:
    """Return the set of each virtual processor.

    Raises:
        OpPrereqError: the mask is not well-formed, or names another number of processors.
    """
    sets = parse_cpu_mask(mask)
    if len(sets) == 1:
        return sets * vcpus
    if len(sets) != vcpus:
        raise _wrong(mask, f"is for {len(sets)} virtual processors, the instance has {vcpus}")
    return sets

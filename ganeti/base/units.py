"""Sizes: text to MiB and back.

Source: manual page ganeti(7), "Common options": a number with an optional suffix, binary units,
mebibytes where no suffix is given.
"""

from __future__ import annotations

import math
import re
from typing import Final

from ganeti.base.errors import UnitParseError

_LETTERS: Final = {"m": 1, "g": 1024, "t": 1024 * 1024}
_MIB_PER_UNIT: Final = {"": 1} | {
    letter + rest: mib for letter, mib in _LETTERS.items() for rest in ("", "b", "ib")
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", re.IGNORECASE)
_GRANULE_MIB: Final = 4  # LVM rounds to this; sizes are multiples of it, as in 3.0
_MIB_MAX: Final = 1 << 53  # beyond it a float is not exact any more, and no disk is so large
_SHOWN_MAX: Final = 20


def parse_unit(text: str) -> int:
    """Parse a size such as ``512``, ``1.5g`` or ``2T``; returns MiB, rounded up to 4 MiB.

    Raises:
        UnitParseError: not a number, one beyond all sizes, or an unknown suffix.
    """
    found = _SIZE.fullmatch(str(text))
    if found is None:
        raise UnitParseError(f"cannot understand the size {text!r}; use for example 512, 10g or 2t")
    number, suffix = found.groups()
    factor = _MIB_PER_UNIT.get(suffix.lower())
    if factor is None:
        raise UnitParseError(f"unknown unit {suffix!r} in the size {text!r}; use m, g or t")
    size = float(number) * factor
    if size > _MIB_MAX:
        raise UnitParseError(f"the size {str(text)[:_SHOWN_MAX]!r} is too large")
    mib = math.ceil(size)
    return math.ceil(mib / _GRANULE_MIB) * _GRANULE_MIB


def format_unit(mib: float, unit: str = "h") -> str:
    """Format a size in MiB; ``unit`` is h (human readable), m, g or t.

    In the human readable form the unit's letter is added.
    """
    letter = unit
    if unit == "h":
        letter = "m" if mib < _LETTERS["g"] else "g" if mib < _LETTERS["t"] else "t"
    value = f"{round(mib)}" if letter == "m" else f"{mib / _LETTERS[letter]:.1f}"
    return value + letter.upper() if unit == "h" else value

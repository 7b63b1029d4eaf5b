"""Collector "diskstats": what the kernel counted of each block device.

Source: mond.json, collector "diskstats"; the kernel's Documentation/admin-guide/iostats.rst.
"""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import GenericError
from ganeti.collectors.node_view import Collect, NodeView, read_text

DISKSTATS: Final = "/proc/diskstats"

# Kernels since 4.18 have more columns behind these, which are left out.
_NUMBERS: Final = (
    "readsNum",
    "mergedReads",
    "secRead",
    "timeRead",
    "writes",
    "mergedWrites",
    "secWritten",
    "timeWrite",
    "ios",
    "timeIO",
    "wIOmillis",
)
_COLUMNS: Final = 3 + len(_NUMBERS)


def parse(text: str, source: str = DISKSTATS) -> list[dict[str, object]]:
    """Return the devices of /proc/diskstats.

    Raises:
        GenericError: a line cannot be understood; the text shows it.
    """
    return [_device(line, source) for line in text.splitlines() if line.strip()]


def _device(line: str, source: str) -> dict[str, object]:
    words = line.split()
    try:
        major, minor, name, *numbers = words[:_COLUMNS]
        counted = {key: int(word) for key, word in zip(_NUMBERS, numbers, strict=True)}
        return {"major": int(major), "minor": int(minor), "name": name, **counted}
    except ValueError as err:
        raise GenericError(f"{source}: cannot understand {line.strip()[:200]!r}") from err


def make(source: str = DISKSTATS) -> Collect:
    """Make the collector."""

    def collect(_view: NodeView) -> object:
        return parse(read_text(source), source)

    return collect

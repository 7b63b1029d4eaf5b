"""Collector "diskstats": the kernel's counters of each block device.

Source: mond.json, collector "diskstats"; the kernel's Documentation/admin-guide/iostats.rst.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.base.metrics import Sample
from ganeti.collectors import collector
from ganeti.collectors.collector import Collector, Data, NodeView, Timing

DISKSTATS: Final = "/proc/diskstats"
_SECTOR_BYTES: Final = 512  # of the kernel's counters, also for devices with other sectors
_MS: Final = 1 / 1000

# In the order of the columns.  Kernels since 4.18 have more behind these, which are left out.
_ROWS: Final[Mapping[str, tuple[str, float, str]]] = {
    "readsNum": ("disk_reads_completed_total", 1, "Reads completed."),
    "mergedReads": ("disk_reads_merged_total", 1, "Reads joined to others before they were done."),
    "secRead": ("disk_read_bytes_total", _SECTOR_BYTES, "Bytes read."),
    "timeRead": ("disk_read_time_seconds_total", _MS, "Time that all reads took together."),
    "writes": ("disk_writes_completed_total", 1, "Writes completed."),
    "mergedWrites": (
        "disk_writes_merged_total",
        1,
        "Writes joined to others before they were done.",
    ),
    "secWritten": ("disk_written_bytes_total", _SECTOR_BYTES, "Bytes written."),
    "timeWrite": ("disk_write_time_seconds_total", _MS, "Time that all writes took together."),
    "ios": ("disk_io_now", 1, "Reads and writes that are under way."),
    "timeIO": ("disk_io_time_seconds_total", _MS, "Time in which the device had something to do."),
    "wIOmillis": (
        "disk_io_time_weighted_seconds_total",
        _MS,
        "The same, times the requests under way.",
    ),
}
_MEASURES: Final = collector.Measures(("device",), _ROWS)
_COLUMNS: Final = 3 + len(_MEASURES.rows)


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
        counted = {key: int(word) for key, word in zip(_MEASURES.rows, numbers, strict=True)}
        return {"major": int(major), "minor": int(minor), "name": name, **counted}
    except ValueError as err:
        raise GenericError(f"{source}: cannot understand {line.strip()[:200]!r}") from err


class Diskstats(Collector):
    """Collector "diskstats": the kernel's counters of each block device."""

    name = "diskstats"
    summary = "the kernel's counters of each block device"
    category = "storage"
    timing = Timing.AT_ONCE
    empty = ()
    metrics = _MEASURES.metrics()

    def __init__(self, source: str = DISKSTATS) -> None:
        self._source = source

    def collect(self, view: NodeView) -> object:
        """Return the devices."""
        return parse(collector.read_text(self._source), self._source)

    @classmethod
    def samples(cls, data: Data) -> Iterator[Sample]:
        """Yield the counters of each device."""
        for device in data:
            yield from _MEASURES.samples(device, (device["name"],))

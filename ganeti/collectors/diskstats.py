"""Collector "diskstats": the kernel's counters of each block device.

Source: mond.json, collector "diskstats"; the kernel's Documentation/admin-guide/iostats.rst.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.collectors.collector import (
    Collector,
    Data,
    NodeView,
    Sample,
    Timing,
    counters,
    gauges,
    read_text,
)

DISKSTATS: Final = "/proc/diskstats"
_SECTOR_BYTES: Final = 512  # of the kernel's counters, whatever the device has
_MS_PER_S: Final = 1000

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


_DEVICE: Final = ("device",)
# key of the report -> (metric, factor)
_SAMPLES: Final[Mapping[str, tuple[str, float]]] = {
    "readsNum": ("ganeti_disk_reads_completed_total", 1),
    "mergedReads": ("ganeti_disk_reads_merged_total", 1),
    "secRead": ("ganeti_disk_read_bytes_total", _SECTOR_BYTES),
    "timeRead": ("ganeti_disk_read_time_seconds_total", 1 / _MS_PER_S),
    "writes": ("ganeti_disk_writes_completed_total", 1),
    "mergedWrites": ("ganeti_disk_writes_merged_total", 1),
    "secWritten": ("ganeti_disk_written_bytes_total", _SECTOR_BYTES),
    "timeWrite": ("ganeti_disk_write_time_seconds_total", 1 / _MS_PER_S),
    "ios": ("ganeti_disk_io_now", 1),
    "timeIO": ("ganeti_disk_io_time_seconds_total", 1 / _MS_PER_S),
    "wIOmillis": ("ganeti_disk_io_time_weighted_seconds_total", 1 / _MS_PER_S),
}


class Diskstats(Collector):
    """Collector "diskstats": the kernel's counters of each block device."""

    name = "diskstats"
    summary = "the kernel's counters of each block device"
    category = "storage"
    timing = Timing.AT_ONCE
    empty = ()
    metrics = (
        *counters(
            _DEVICE,
            {
                "disk_reads_completed_total": "Reads completed.",
                "disk_reads_merged_total": "Reads joined to others before they were done.",
                "disk_read_bytes_total": "Bytes read.",
                "disk_read_time_seconds_total": "Time that all reads took together.",
                "disk_writes_completed_total": "Writes completed.",
                "disk_writes_merged_total": "Writes joined to others before they were done.",
                "disk_written_bytes_total": "Bytes written.",
                "disk_write_time_seconds_total": "Time that all writes took together.",
                "disk_io_time_seconds_total": "Time in which the device had something to do.",
                "disk_io_time_weighted_seconds_total": "The same, times the requests under way.",
            },
        ),
        *gauges(_DEVICE, {"disk_io_now": "Reads and writes that are under way."}),
    )

    def __init__(self, source: str = DISKSTATS) -> None:
        self._source = source

    def collect(self, view: NodeView) -> object:
        """Return the devices."""
        return parse(read_text(self._source), self._source)

    @classmethod
    def samples(cls, data: Data) -> Iterator[Sample]:
        """Yield the counters of each device."""
        for device in data:
            for key, (name, factor) in _SAMPLES.items():
                yield Sample(name, device[key] * factor, (device["name"],))

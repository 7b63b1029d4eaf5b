"""Collector "lv": the logical volumes of this node, each segment with the name of its instance.

One call of lvs prints a row for each segment.

Source: mond.json, collector "lv"; lvs(8).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ganeti.base.metrics import Sample
from ganeti.collectors import collector
from ganeti.collectors.cluster_facts import Need
from ganeti.collectors.collector import Collector, Data, NodeView, Timing
from ganeti.storage.lvm_reports import Fields, parse, report_command

_TIMEOUT_S: Final = 30.0  # a call takes a second where there are many disks
_OUTPUT_BYTES_MAX: Final = 16 << 20
_LVS: Final = "lvs"


def _list(text: str) -> list[str]:
    return text.split(",") if text else []


# key of the report -> (field of lvs, how its text is read); in the order in which lvs prints them
_FIELDS: Final[Fields] = {
    "uuid": ("lv_uuid", str),
    "name": ("lv_name", str),
    "attr": ("lv_attr", str),
    "major": ("lv_major", int),
    "minor": ("lv_minor", int),
    "kernel_major": ("lv_kernel_major", int),
    "kernel_minor": ("lv_kernel_minor", int),
    "size": ("lv_size", int),
    "seg_count": ("seg_count", int),
    "tags": ("lv_tags", _list),
    "modules": ("lv_modules", _list),
    "vg_uuid": ("vg_uuid", str),
    "vg_name": ("vg_name", str),
    "segtype": ("segtype", str),
    "seg_start": ("seg_start", int),
    "seg_start_pe": ("seg_start_pe", int),
    "seg_size": ("seg_size", int),
    "seg_tags": ("seg_tags", _list),
    "seg_pe_ranges": ("seg_pe_ranges", str),
    "devices": ("devices", str),
}
COMMAND: Final = tuple(report_command(_LVS, _FIELDS))


def segments(report: str, owners: Mapping[tuple[str, str], str]) -> list[dict[str, object]]:
    """Return the rows of a report of lvs, each with the name of its instance or null.

    Raises:
        StorageError: it is no such report; the text shows its beginning.
    """
    rows: list[dict[str, object]] = parse(_LVS, report.encode(), "lv", _FIELDS, dict)
    return [row | {"instance": owners.get((str(row["vg_name"]), str(row["name"])))} for row in rows]


_ROWS: Final[Mapping[str, tuple[str, float, str]]] = {
    "size": ("lv_size_bytes", 1, "Size of a logical volume."),
    "seg_count": ("lv_segments", 1, "In how many pieces it lies."),
}
_MEASURES: Final = collector.Measures(("vg", "lv", "instance"), _ROWS)


class LogicalVolumes(Collector):
    """The collector; the report of lvs, as JSON, may be in a file."""

    name = "lv"
    summary = "the logical volumes, and to which instance each belongs"
    category = "storage"
    timing = Timing.WHEN_ASKED
    empty = ()
    needs = frozenset({Need.VOLUMES})
    metrics = _MEASURES.metrics()

    def __init__(self, source: str | None = None) -> None:
        self._source = source

    def collect(self, view: NodeView) -> object:
        """Return the segments."""
        return segments(self._text(view), view.cluster.volume_owners or {})

    def _text(self, view: NodeView) -> str:
        if self._source is not None:
            return collector.read_text(self._source)
        result = view.run(COMMAND, timeout_s=_TIMEOUT_S, output_bytes_max=_OUTPUT_BYTES_MAX)
        return result.check().stdout.decode("utf-8", "replace")

    @classmethod
    def samples(cls, data: Data) -> Iterator[Sample]:
        """Yield the size of each volume."""
        by_uuid = {row["uuid"]: row for row in data}  # the rows are segments
        for row in by_uuid.values():
            labels = (row["vg_name"], row["name"], row["instance"] or "")
            yield from _MEASURES.samples(row, labels)

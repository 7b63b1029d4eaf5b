"""Collector "lv": the logical volumes of this node, each segment with the name of its instance.

Source: mond.json, collector "lv".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ganeti.collectors.cluster_facts import Need
from ganeti.collectors.collector import Collector, Data, NodeView, Sample, Timing, gauges, read_text
from ganeti.storage import lvs

_TIMEOUT_S: Final = 30.0  # a call takes a second where there are many disks
_OUTPUT_BYTES_MAX: Final = 16 << 20


def parse(text: str, owners: Mapping[tuple[str, str], str]) -> list[dict[str, object]]:
    """Return the rows that lvs printed, each with the name of its instance or null.

    Raises:
        GenericError: a line cannot be understood; the text shows it.
    """
    rows = lvs.parse(text)
    for row in rows:
        row["instance"] = owners.get((str(row["vg_name"]), str(row["name"])))
    return rows


class LogicalVolumes(Collector):
    """The collector; what lvs printed may be in a file."""

    name = "lv"
    summary = "the logical volumes, and to which instance each belongs"
    category = "storage"
    timing = Timing.WHEN_ASKED
    empty = ()
    needs = frozenset({Need.VOLUMES})
    metrics = (
        *gauges(
            ("vg", "lv", "instance"),
            {
                "lv_size_bytes": "Size of a logical volume.",
                "lv_segments": "In how many pieces it lies.",
            },
        ),
    )

    def __init__(self, source: str | None = None) -> None:
        self._source = source

    def collect(self, view: NodeView) -> object:
        """Return the segments."""
        return parse(self._text(view), view.cluster.volume_owners or {})

    def _text(self, view: NodeView) -> str:
        if self._source is not None:
            return read_text(self._source)
        result = view.run(lvs.COMMAND, timeout_s=_TIMEOUT_S, output_bytes_max=_OUTPUT_BYTES_MAX)
        return result.check().stdout.decode("utf-8", "replace")

    @classmethod
    def samples(cls, data: Data) -> Iterator[Sample]:
        """Yield the size of each volume."""
        by_uuid = {row["uuid"]: row for row in data}  # the rows are segments
        for row in by_uuid.values():
            labels = (row["vg_name"], row["name"], row["instance"] or "")
            yield Sample("ganeti_lv_size_bytes", row["size"], labels)
            yield Sample("ganeti_lv_segments", row["seg_count"], labels)

"""The logical volumes of this node as data: one call of lvs, a row for each segment.  Pure.

Source: mond.json, collector "lv"; lvs(8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ganeti.base.errors import GenericError

LVS: Final = "lvs"
_SEPARATOR: Final = ";"
_LIST_SEPARATOR: Final = ","


def _size(text: str) -> int:
    return int(text.removesuffix("B"))


def _list(text: str) -> list[str]:
    return text.split(_LIST_SEPARATOR) if text else []


# key of the report -> (field of lvs, how its text is read); in the order in which lvs prints them
_FIELDS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "uuid": ("lv_uuid", str),
    "name": ("lv_name", str),
    "attr": ("lv_attr", str),
    "major": ("lv_major", int),
    "minor": ("lv_minor", int),
    "kernel_major": ("lv_kernel_major", int),
    "kernel_minor": ("lv_kernel_minor", int),
    "size": ("lv_size", _size),
    "seg_count": ("seg_count", int),
    "tags": ("lv_tags", _list),
    "modules": ("lv_modules", _list),
    "vg_uuid": ("vg_uuid", str),
    "vg_name": ("vg_name", str),
    "segtype": ("segtype", str),
    "seg_start": ("seg_start", _size),
    "seg_start_pe": ("seg_start_pe", int),
    "seg_size": ("seg_size", _size),
    "seg_tags": ("seg_tags", _list),
    "seg_pe_ranges": ("seg_pe_ranges", str),
    "devices": ("devices", str),
}
COMMAND: Final = (
    LVS,
    "--noheadings",
    "--nosuffix",
    "--units=b",
    f"--separator={_SEPARATOR}",
    "--options=" + ",".join(name for name, _ in _FIELDS.values()),
)


def parse(text: str) -> list[dict[str, object]]:
    """Return the rows that lvs printed, by the keys of the report.

    Raises:
        GenericError: a line cannot be understood; the text shows it.
    """
    return [_row(line.strip()) for line in text.splitlines() if line.strip()]


def _row(line: str) -> dict[str, object]:
    words = line.split(_SEPARATOR)
    try:
        return {
            key: read(word) for (key, (_, read)), word in zip(_FIELDS.items(), words, strict=True)
        }
    except ValueError as err:
        raise GenericError(f"cannot understand what {LVS} prints: {line[:200]!r}") from err

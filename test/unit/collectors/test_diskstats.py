"""Tests of ganeti/collectors/diskstats.py."""

from __future__ import annotations

import pytest

from ganeti.base.errors import GenericError
from ganeti.collectors import diskstats

COLUMNS = list(range(1, 12))
NAMES = [
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
]


def line(more: int) -> str:
    return " ".join(map(str, ["   8       0 sda", *COLUMNS, *range(100, 100 + more)]))


@pytest.mark.parametrize("more", [0, 4, 6, 9], ids=["2.6", "4.18", "5.5", "later"])
def test_kernels_with_any_number_of_columns_more(more: int) -> None:
    [device] = diskstats.parse(line(more) + "\n")
    assert device == {
        "major": 8,
        "minor": 0,
        "name": "sda",
        **dict(zip(NAMES, COLUMNS, strict=True)),
    }


def test_order_and_unusual_names_are_kept() -> None:
    text = "\n".join(line(6).replace("sda", name) for name in ("nvme0n1p1", "cciss/c0d0", "ram0"))
    assert [device["name"] for device in diskstats.parse(text)] == [
        "nvme0n1p1",
        "cciss/c0d0",
        "ram0",
    ]


def test_no_devices_are_no_failure() -> None:
    assert diskstats.parse("") == []


@pytest.mark.parametrize("text", ["8 0 sda", "8 0 sda 1 2 3 4", "x 0 sda 1 2 3 4 5 6 7 8 9 10 11"])
def test_a_line_that_is_not_understood_is_shown(text: str) -> None:
    with pytest.raises(GenericError, match=f"cannot understand {text!r}"):
        diskstats.parse(line(0) + "\n" + text)

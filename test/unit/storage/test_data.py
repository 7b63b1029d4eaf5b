"""Copying images into disks."""

from pathlib import Path

import pytest

from ganeti.storage.data import copy_into

MIB = 1 << 20


def test_copy_keeps_what_lies_behind(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"s" * (MIB + 5))
    target.write_bytes(b"t" * 3 * MIB)
    assert copy_into(str(source), str(target)) == MIB + 5
    assert target.read_bytes() == b"s" * (MIB + 5) + b"t" * (2 * MIB - 5)


def test_holes_read_as_zeroes_in_the_copy(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        file.truncate(2 * MIB)
        file.seek(2 * MIB)
        file.write(b"end")
    target.write_bytes(b"t" * 3 * MIB)
    copy_into(str(source), str(target))
    assert target.read_bytes()[: 2 * MIB + 3] == bytes(2 * MIB) + b"end"


@pytest.mark.parametrize("count", [0, 3, 10, 99])
def test_count_limits_the_copy(tmp_path: Path, count: int) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"0123456789")
    target.write_bytes(b"-" * 12)
    copied = min(count, 10)
    assert copy_into(str(source), str(target), count) == copied
    assert target.read_bytes() == b"0123456789"[:copied] + b"-" * (12 - copied)

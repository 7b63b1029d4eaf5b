"""Unlike other unit tests this one touches a file system, in a temporary directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ganeti.store import swap_file
from ganeti.store.swap_file import SwapFile


def test_content_is_replaced_whatever_its_length(tmp_path: Path) -> None:
    file = SwapFile(str(tmp_path / "f"), 0o600)
    for data in (b"first", b"", b"x" * 10_000, b"short", b"middle", b"y" * 300):
        file.write(data)
        assert (tmp_path / "f").read_bytes() == data
    file.close()
    assert os.listdir(tmp_path) == ["f"]


def test_leftovers_of_a_killed_writer_do_no_harm(tmp_path: Path) -> None:
    SwapFile(str(tmp_path / "f"), 0o600).write(b"one")
    (tmp_path / ".f.spare-0").write_bytes(b"garbage longer than anything")
    file = SwapFile(str(tmp_path / "f"), 0o640)
    assert (tmp_path / "f").read_bytes() == b"one"
    file.write(b"two")
    assert (tmp_path / "f").read_bytes() == b"two"
    assert os.stat(tmp_path / "f").st_mode & 0o777 == 0o640
    file.close()


def test_a_reader_is_not_disturbed_by_the_next_writes(tmp_path: Path) -> None:
    file = SwapFile(str(tmp_path / "f"), 0o600)
    file.write(b"x" * 100)
    with open(tmp_path / "f", "rb") as reader:
        for number in range(swap_file.SPARES):
            file.write(b"%d" % number)
        assert reader.read() == b"x" * 100
    file.close()


def test_without_swapping_it_is_still_atomic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap_file, "exchange", lambda _one, _other: False)
    file = SwapFile(str(tmp_path / "f"), 0o600)
    for data in (b"one", b"two"):
        file.write(data)
        assert (tmp_path / "f").read_bytes() == data
    assert os.listdir(tmp_path) == ["f"]


def test_a_failure_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    file = SwapFile(str(tmp_path / "d" / "f"), 0o600)
    with pytest.raises(OSError, match="No such file"):
        SwapFile(str(tmp_path / "none" / "f"), 0o600).write(b"x")
    file.write(b"kept")
    file.close()
    assert (tmp_path / "d" / "f").read_bytes() == b"kept"

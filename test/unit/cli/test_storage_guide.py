"""The guide to storage: its table says what the traits say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti.cli.documents import storage
from ganeti.objects.disk_templates import DiskTemplate

GUIDE = Path(__file__).resolve().parents[3] / "doc" / "storage.md"


def test_the_guide_has_the_table_of_today() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert storage.with_table(text) == text, "run 'make docs'"


def test_the_table_has_a_row_for_each_template_with_disks() -> None:
    head, _line, *rows = storage.table().splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    names = [row[0].strip("`") for row in cells]
    assert names == [each for each in DiskTemplate if each != DiskTemplate.DISKLESS]
    assert {len(row) for row in cells} == {len(head.strip("|").split("|"))}
    rbd = dict(
        zip(map(str.strip, head.strip("|").split("|")), cells[names.index("rbd")], strict=True)
    )
    assert rbd["data"] == "outside, reached by every node"
    assert rbd["space from"] == "rados (disk parameter `pool`)"
    assert (rbd["snapshots"], rbd["adopts what exists"]) == ("yes", "no")


def test_a_guide_without_a_place_for_it_is_refused() -> None:
    with pytest.raises(ValueError, match="no place"):
        storage.with_table("# Storage\n")

"""Where the files of disks are when a rename was cut off."""

from __future__ import annotations

import pytest
from fakes.large_config import disk as make_disk

from ganeti.logical_units.instance.storage.files import renamed_directories
from ganeti.objects.model import Disk

OWN = ["/srv/old/a", "/srv/old/b"]


def disk(number: int, path: str) -> Disk:
    wire = make_disk(number, "node")
    return Disk.from_wire({**wire, "dev_type": "file", "logical_id": ["loop", path]})


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        (["/srv/new/a", "/srv/new/b", "/srv/other/c"], {"/srv/old": "/srv/new"}),
        (["/srv/old/a", "/srv/old/b"], {}),  # all is well
        ([], {}),  # they are gone
        (["/srv/new/a"], {}),  # one of them is gone: that was no rename
        (["/srv/new/a", "/srv/old/b"], {}),
        (["/srv/new/a", "/srv/new/b", "/srv/old/b"], {}),
        (["/srv/new/a", "/srv/newer/b"], {}),
        (["/srv/new/a", "/srv/new/b", "/srv/newer/a", "/srv/newer/b"], {}),  # which one?
        (["/elsewhere/new/a", "/elsewhere/new/b", "/srv/new/deep/a"], {}),
    ],
)
def test_all_files_of_a_directory_in_one_beside_it(
    stored: list[str], found: dict[str, str]
) -> None:
    disks = [disk(number, path) for number, path in enumerate(OWN)]
    assert renamed_directories(disks, stored) == found


def test_each_directory_for_itself() -> None:
    disks = [disk(1, "/srv/old/a"), disk(2, "/shared/old/b")]
    assert renamed_directories(disks, ["/srv/new/a", "/shared/old/b"]) == {"/srv/old": "/srv/new"}
    assert renamed_directories([Disk.from_wire(make_disk(3, "node"))], ["/srv/x/y"]) == {}

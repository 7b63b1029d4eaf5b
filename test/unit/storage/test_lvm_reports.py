"""What LVM says, as recorded from LVM 2.03.16 with device-mapper (test/data/lvm)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti.base.errors import StorageError
from ganeti.storage.lvm_reports import (
    MIB,
    LogicalVolume,
    VolumeGroup,
    parse_groups,
    parse_logical,
    parse_physical,
    said,
)
from ganeti.system.process import CommandResult

DATA = Path(__file__).parents[2] / "data" / "lvm"


def recorded(name: str) -> bytes:
    return (DATA / f"{name}.json").read_bytes()


def test_logical_volumes() -> None:
    found = {each.name: each for each in parse_logical(recorded("lvs"))}
    assert found["web1.disk0"] == LogicalVolume(
        group="testvg",
        name="web1.disk0",
        size_bytes=32 * MIB,
        attributes="owi-a-s---",
        tags=("originstname+web1.example.com",),
        major=253,
        minor=0,
        physical=("/dev/loop0",),
    )
    assert found["striped"].physical == ("/dev/loop0", "/dev/loop1")
    assert [name for name, each in found.items() if each.is_open] == ["pool", "striped"]
    assert [name for name, each in found.items() if not each.is_active] == ["idle"]
    assert [name for name, each in found.items() if each.is_thin_pool] == ["pool"]
    assert (found["pool"].metadata_percent, found["pool"].left_bytes) == (10.84, 40 * MIB)
    assert (found["thin"].pool, found["thin"].stripes) == ("pool", 0)
    assert found["snap"].origin == "web1.disk0"
    assert not any(each.is_partial or each.is_virtual for each in found.values())


def test_volumes_without_a_physical_volume_are_partial() -> None:
    found = parse_logical(recorded("lvs-missing"))
    assert [each.name for each in found if each.is_partial] == ["pool", "thin", "thinsnap"]


def test_volume_groups() -> None:
    assert parse_groups(recorded("vgs")) == [
        VolumeGroup("testvg", 588 * MIB, 424 * MIB, 4 * MIB),
        VolumeGroup("xenvg", 6140 * MIB, 6140 * MIB, 4 * MIB),
    ]
    assert [each.missing for each in parse_groups(recorded("vgs-missing"))] == [1, 0]


def test_physical_volumes_are_one_record_each_with_their_volumes() -> None:
    found = {each.name: each for each in parse_physical(recorded("pvs"))}
    assert list(found) == ["/dev/loop0", "/dev/loop1", "/dev/loop2", "/dev/vdc"]
    assert found["/dev/loop1"].volumes == ("striped",)
    assert "pool_tdata" in found["/dev/loop0"].volumes
    assert [name for name, each in found.items() if each.is_empty] == ["/dev/vdc"]
    missing = [each for each in parse_physical(recorded("pvs-missing")) if each.is_missing]
    assert [(each.name, each.volumes) for each in missing] == [("[unknown]", ("pool_tmeta",))]
    assert not missing[0].is_allocatable


@pytest.mark.parametrize(
    "output", [b"", b"  LV  VG\n", b"{}", b'{"report": [{"lv": [{"lv_name": "a"}]}]}', b"\xff"]
)
def test_what_is_no_report_is_shown(output: bytes) -> None:
    with pytest.raises(StorageError, match="cannot understand the output of lvs"):
        parse_logical(output)


def test_complaints_are_told_without_warnings() -> None:
    noise = b"  WARNING: Sum of all thin volume sizes\nFile descriptor 3 leaked\n"
    text = b'  Volume group "nope" not found\n  Cannot process volume group nope\n'
    assert said(CommandResult(("lvs",), 5, b"", noise + text)) == (
        'Volume group "nope" not found; Cannot process volume group nope'
    )
    assert said(CommandResult(("lvs",), 5, b"", noise)) == "failed with exit status 5"

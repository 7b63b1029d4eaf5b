"""Tests of ganeti/ha/disk.py and ganeti/store/lease_disk.py: slots on a file that stands for a disk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ganeti.availability.disk import BLOCK_BYTES, Round, Slot, Verdict, area_bytes, place_of
from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.ha import disk as disk_of_agent
from ganeti.ha.disk import Place, SlotWriter
from ganeti.store import lease_disk

PATH = "/disk"
SLOTS = 4


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(str(tmp_path))
    lease_disk.prepare(found, PATH, "cluster", "lease", SLOTS)
    return found


def writer(paths: Paths, node: str, number: int, lease: str = "lease") -> SlotWriter:
    place = Place(paths.localize(PATH), True, "cluster", lease, number)
    return SlotWriter(place, Slot(lease=lease, node=node, boot_id=f"boot {node}"))


def on(paths: Paths) -> Path:
    return Path(paths.localize(PATH))


def test_nodes_see_each_other_and_who_is_condemned(paths: Paths) -> None:
    one, two = writer(paths, "one", 0), writer(paths, "two", 3)
    first = one.round()
    assert (first.trouble, first.slots) == ("", {})
    assert first.written is not None
    assert first.written.count == 1
    two.own = Slot(
        lease="lease",
        node="two",
        boot_id="boot two",
        verdicts={"one": Verdict(boot_id="boot one", loss="x")},
    )
    assert two.round().slots.keys() == {"one"}
    found = one.round()
    assert [each.loss for each in found.verdicts_on("one")] == ["x"]
    assert found.slots["one"].count == 1
    # A process that begins anew goes on counting.
    again = writer(paths, "one", 0).round()
    assert again.written is not None
    assert again.written.count == 3


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda disk: disk.unlink(), "No such file"),
        (lambda disk: os.truncate(disk, 3 * BLOCK_BYTES), "too short"),
        (lambda disk: disk.write_bytes(bytes(area_bytes(SLOTS))), "never prepared"),
        (lambda disk: disk.write_bytes(os.urandom(area_bytes(SLOTS))), "something else"),
        (lambda disk: (disk.unlink(), os.mkfifo(disk)), "no block device"),
    ],
)
def test_a_disk_that_is_lost_or_garbage_is_no_lease_and_nothing_is_written_there(
    paths: Paths, damage: object, why: str
) -> None:
    one, disk = writer(paths, "one", 0), on(paths)
    one.round()
    assert callable(damage)
    damage(disk)
    before = disk.read_bytes() if disk.is_file() else b""
    found = one.round()
    assert why in found.trouble
    assert found.written is None
    assert (disk.read_bytes() if disk.is_file() else b"") == before


def test_a_slot_of_somebody_else_that_is_garbage_ends_the_lease(paths: Paths) -> None:
    with on(paths).open("r+b") as file:
        file.seek(place_of(2))
        file.write(b"half a slot")
    found = writer(paths, "one", 0).round()
    assert found == Round(found.began_s, trouble="slot 2: it holds something else than leases")


def test_another_disk_or_an_old_copy_of_it_is_noticed(paths: Paths) -> None:
    one, disk = writer(paths, "one", 0), on(paths)
    one.round()
    copy = disk.read_bytes()
    one.round()
    disk.write_bytes(copy)
    assert one.round().trouble == "the slot of this node is not as it left it"
    lease_disk.prepare(paths, PATH, "cluster", "another lease", SLOTS)
    assert "not the one in use" in one.round().trouble
    assert "not the one in use" in lease_disk.problem(paths, PATH, "cluster", "lease")
    assert lease_disk.problem(paths, PATH, "cluster", "another lease") == ""
    lease_disk.clear(paths, PATH, "cluster")
    lease_disk.prepare(paths, PATH, "another", "lease", SLOTS)
    assert "another cluster, another" in one.round().trouble
    outside = writer(paths, "one", SLOTS)
    outside.place = replace(outside.place, cluster="another")
    assert "no slot" in outside.round().trouble


def test_a_slot_that_is_written_while_the_disk_is_cleared_is_taken_back(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, before = writer(paths, "one", 0), disk_of_agent.encode

    def encode(slot: Slot) -> bytes:
        lease_disk.clear(paths, PATH, "cluster")
        return before(slot)

    monkeypatch.setattr(disk_of_agent, "encode", encode)
    assert "never prepared" in one.round().trouble
    assert not any(on(paths).read_bytes())


def test_what_somebody_needs_is_not_made_a_lease_disk(paths: Paths) -> None:
    with pytest.raises(OpPrereqError, match="belongs to another cluster"):
        lease_disk.prepare(paths, PATH, "another", "lease", SLOTS)
    with pytest.raises(GenericError, match="another cluster"):
        lease_disk.clear(paths, PATH, "another")
    lease_disk.clear(paths, PATH, "cluster")
    assert not any(on(paths).read_bytes())
    with on(paths).open("r+b") as file:
        file.seek(place_of(SLOTS - 1))
        file.write(b"somebody's")
    with pytest.raises(OpPrereqError, match="not empty; if nobody needs what it holds, type: wipe"):
        lease_disk.prepare(paths, PATH, "cluster", "lease", SLOTS)
    os.truncate(on(paths), 0)
    os.truncate(on(paths), 8 << 20)
    with on(paths).open("r+b") as file:  # a file system whose signature is behind the slots
        file.seek((64 << 10) + 64)
        file.write(b"_BHRfS_M")
    with pytest.raises(OpPrereqError, match="lease disk /disk"):
        lease_disk.prepare(paths, PATH, "cluster", "lease", SLOTS)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[str]:
    """A block device of 8 MiB."""
    image = tmp_path / "image"
    image.touch()
    os.truncate(image, 8 << 20)
    made = subprocess.run(
        ["losetup", "--find", "--show", str(image)], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip("needs a loop device, as root")
    yield made.stdout.strip()
    subprocess.run(["losetup", "--detach", made.stdout.strip()], check=True)


def test_on_a_block_device(device: str) -> None:
    real = Paths("")
    lease_disk.prepare(real, device, "cluster", "lease", SLOTS)
    assert lease_disk.problem(real, device, "cluster", "lease") == ""
    place = Place(device, False, "cluster", "lease", 0)
    one = SlotWriter(place, Slot(lease="lease", node="one", boot_id="boot"))
    assert one.round().trouble == one.round().trouble == ""
    holder = os.open(device, os.O_RDWR | os.O_EXCL)  # as what is mounted
    with pytest.raises(OpPrereqError, match="it is in use"):
        lease_disk.prepare(real, device, "cluster", "lease", SLOTS)
    os.close(holder)
    lease_disk.clear(real, device, "cluster")
    assert "never prepared" in one.round().trouble


def test_a_real_node_takes_a_block_device_only(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(area_bytes(SLOTS)))
    with (
        pytest.raises(OSError, match="no block device"),
        lease_disk.opened(str(disk), is_virtual=False),
    ):
        pass

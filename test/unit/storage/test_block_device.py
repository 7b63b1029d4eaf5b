"""Devices that are adopted: used as they are, and never touched otherwise."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
from fakes.storage_records import Disk, Node

from ganeti.base.errors import BlockDeviceError, NotSupportedError
from ganeti.base.paths import Paths
from ganeti.storage.block_device import AdoptedVolume

PATH = "/dev/disk/by-id/made-up"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(Paths(str(tmp_path)))


def pretend(
    monkeypatch: pytest.MonkeyPatch, mode: int, numbers: tuple[int, int] = (4000, 1), error: int = 0
) -> None:
    """Let there be something at PATH, a device of those numbers, that opens so."""
    found = os.stat_result((mode, 0, 0, 1, 0, 0, 0, 0, 0, 0), {"st_rdev": os.makedev(*numbers)})
    real_stat, real_open = os.stat, os.open

    def open_it(path: str, flags: int, *rest: int, **options: int) -> int:
        if path != PATH:
            return real_open(path, flags, *rest, **options)
        assert flags & os.O_EXCL
        if error:
            raise OSError(error, os.strerror(error))
        return real_open("/dev/null", os.O_RDONLY)

    monkeypatch.setattr(
        os, "stat", lambda path, **options: found if path == PATH else real_stat(path, **options)
    )
    monkeypatch.setattr(os, "open", open_it)


@pytest.mark.shows("backend/templates/blockdev")
def test_a_device_is_used_as_it_is(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, stat.S_IFBLK | 0o660)
    disk = AdoptedVolume(Disk("blockdev", ["manual", PATH]), node)
    assert disk.create(4) is None
    assert disk.assemble().dev_path == PATH
    found = disk.find()
    assert found is not None
    assert (found.major, found.minor) == (4000, 1)
    disk.shutdown()
    disk.remove()


def test_a_device_in_use_is_not_adopted(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = AdoptedVolume(Disk("blockdev", ["manual", PATH]), node)
    pretend(monkeypatch, stat.S_IFBLK | 0o660, (1, 3))  # /dev/null is what this process has open
    with pytest.raises(BlockDeviceError, match=rf"{PATH} is in use by process \d+ \(.*; end that"):
        disk.create(4)
    assert disk.assemble().dev_path == PATH, "once adopted, it is used by its machine"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errno.EBUSY, f"{PATH} is in use by the kernel, .*; see 'lsblk {PATH}'"),
        (errno.ENOMEDIUM, f"cannot open {PATH}: No medium found"),
    ],
)
def test_a_device_that_the_kernel_does_not_give_is_not_adopted(
    node: Node, monkeypatch: pytest.MonkeyPatch, error: int, text: str
) -> None:
    pretend(monkeypatch, stat.S_IFBLK | 0o660, error=error)
    with pytest.raises(BlockDeviceError, match=text):
        AdoptedVolume(Disk("blockdev", ["manual", PATH]), node).create(4)


def test_its_data_is_left_alone(node: Node) -> None:
    disk = AdoptedVolume(Disk("blockdev", ["manual", PATH]), node)
    for forbidden in (
        lambda: disk.wipe(0, 1),
        lambda: disk.grow(1),
        lambda: disk.rename(["manual", "/dev/disk/x"]),
        lambda: disk.snapshot("s", 1),
    ):
        with pytest.raises(NotSupportedError, match="was adopted, so it cannot be"):
            forbidden()


def test_what_is_missing_or_no_device_is_told(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = AdoptedVolume(Disk("blockdev", ["manual", PATH]), node)
    assert disk.find() is None
    assert disk.dimensions() is None
    for action in (disk.assemble, lambda: disk.create(4)):
        with pytest.raises(BlockDeviceError, match="does not exist"):
            action()
    pretend(monkeypatch, stat.S_IFREG | 0o660)
    with pytest.raises(BlockDeviceError, match="is not a block device"):
        disk.find()


@pytest.mark.parametrize(
    "logical_id",
    [
        ("manual", "/dev/sda"),
        ("manual", "/dev/disk/../sda"),
        ("auto", PATH),
        (PATH,),
        ("manual", 1),
    ],
)
def test_only_devices_by_their_names_are_adopted(node: Node, logical_id: Sequence[object]) -> None:
    with pytest.raises(BlockDeviceError):
        AdoptedVolume(Disk("blockdev", logical_id), node)

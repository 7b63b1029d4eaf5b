"""Disks in images of format qcow2, made by the real programs and compared byte for byte."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest
from fakes.storage_records import Disk, Node

from ganeti.base.errors import BlockDeviceError
from ganeti.base.paths import Paths
from ganeti.storage import qcow2, registry
from ganeti.storage.file import FileVolume, Qcow2Volume
from ganeti.storage.interface import Volume, contents
from ganeti.storage.nbd import NbdImage

MIB = 1 << 20
SIZE_MIB = 8
BASE = "/srv/ganeti/file-storage/web1"
PROGRAMS = ("qemu-img", "qemu-nbd", "qemu-storage-daemon")
pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(not all(map(shutil.which, PROGRAMS)), reason="needs qemu-utils"),
]
with_fuse = pytest.mark.skipif(
    not os.path.exists("/dev/fuse") or os.geteuid() != 0, reason="needs FUSE and root"
)


new_disk = partial(Disk, "file", size=SIZE_MIB)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(Paths(str(tmp_path)))


def volume_of(node: Node, fmt: str = "qcow2", name: str = "disk0") -> Volume:
    params = {"format": fmt} if fmt else {}
    return registry.volume_of(new_disk(["loop", f"{BASE}/{name}"], params), node)


@pytest.fixture
def volume(node: Node) -> Volume:
    made = volume_of(node)
    made.create(SIZE_MIB)
    return made


def size_mib(volume: Volume) -> float:
    found = volume.dimensions()
    assert found is not None
    return found.size_bytes / MIB


def write(volume: Volume, at_mib: int, data: bytes) -> None:
    """Write into the disk, as a program that knows nothing of images does."""
    with contents(volume) as path, open(path, "r+b") as file:
        file.seek(at_mib * MIB)
        file.write(data)


def read(volume: Volume) -> bytes:
    with contents(volume) as path:
        return Path(path).read_bytes()


def test_the_size_of_a_disk_is_that_of_the_disk_in_its_image(volume: Volume) -> None:
    path = Path(volume.assemble().dev_path)
    assert size_mib(volume) == SIZE_MIB
    assert path.stat().st_size < MIB, "nothing is taken ahead"
    assert path.stat().st_mode & 0o777 == 0o660
    assert os.listdir(path.parent) == [path.name]
    volume.grow(4, dryrun=True)
    assert size_mib(volume) == SIZE_MIB
    volume.grow(4)
    assert size_mib(volume) == SIZE_MIB + 4
    with pytest.raises(BlockDeviceError, match="File exists"):
        volume.create(2)
    volume.remove()
    assert volume.find() is None
    assert volume.dimensions() is None


def test_the_format_is_never_guessed(node: Node, volume: Volume) -> None:
    as_raw = volume_of(node, "")
    assert type(as_raw) is FileVolume
    assert as_raw.raw_view is None
    image = Path(volume.assemble().dev_path)
    found = as_raw.dimensions()
    assert found is not None
    assert found.size_bytes == image.stat().st_size, "the file itself, head of an image or not"

    raw = volume_of(node, "raw", "disk1")
    raw.create(SIZE_MIB)
    recorded_as_image = volume_of(node, "qcow2", "disk1")
    assert isinstance(recorded_as_image, Qcow2Volume)
    for refused in (
        recorded_as_image.find,
        recorded_as_image.assemble,
        recorded_as_image.snapshots,
    ):
        with pytest.raises(BlockDeviceError, match="is not an image of format qcow2"):
            refused()


@pytest.mark.parametrize(
    "options", [["-b", "/etc/hostname", "-F", "raw"], ["-o", "data_file={directory}/elsewhere"]]
)
def test_an_image_that_leads_elsewhere_is_refused(
    volume: Volume, tmp_path: Path, options: list[str]
) -> None:
    path = volume.assemble().dev_path
    os.unlink(path)
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", *options, path, "8M"]
    subprocess.run([word.format(directory=tmp_path) for word in argv], check=True)
    with pytest.raises(BlockDeviceError, match="leads to another file"):
        volume.assemble()


@with_fuse
def test_programs_read_and_write_the_bytes_of_the_disk(volume: Volume) -> None:
    expected = bytearray(SIZE_MIB * MIB)
    assert read(volume) == bytes(expected)
    for at_mib, data in ((0, b"QFI\xfb first"), (3, os.urandom(70_000)), (7, b"last")):
        write(volume, at_mib, data)
        expected[at_mib * MIB : at_mib * MIB + len(data)] = data
    assert read(volume) == bytes(expected)
    volume.wipe(3, 2)
    expected[3 * MIB : 5 * MIB] = bytes(2 * MIB)
    assert read(volume) == bytes(expected)
    image = volume.assemble().dev_path
    done = subprocess.run(["qemu-img", "check", "-q", "-f", "qcow2", image], check=False)
    assert done.returncode == 0


@with_fuse
def test_nothing_is_left_of_a_view(node: Node, volume: Volume) -> None:
    view = volume.raw_view
    assert view is not None
    with pytest.raises(ZeroDivisionError), contents(volume):
        1 / 0  # noqa: B018 - the reader fails
    assert os.listdir(os.path.dirname(view.path)) == []
    with contents(volume) as path, open(path, "r+b") as file:
        another = pytest.raises(BlockDeviceError, match="another program works on the disk in")
        with another, contents(volume_of(node)):
            pass
        with pytest.raises(BlockDeviceError, match=r"cannot grow .* lock"):
            volume.grow(1)
        file.write(b"undisturbed")
    assert read(volume).startswith(b"undisturbed")
    assert os.listdir(os.path.dirname(view.path)) == []


@with_fuse
def test_a_view_ends_with_the_process_that_wanted_it(volume: Volume) -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contents(volume):
            os.write(writer, b"x")
            os.kill(os.getpid(), 9)
    assert os.read(reader, 1) == b"x"
    os.waitpid(pid, 0)
    for descriptor in (reader, writer):
        os.close(descriptor)
    assert len(read(volume)) == SIZE_MIB * MIB


@with_fuse
def test_snapshots_are_kept_restored_and_removed(volume: Volume) -> None:
    assert volume.snapshots() == []
    write(volume, 1, b"one" * 1000)
    first = read(volume)
    volume.keep("first")
    write(volume, 1, b"two" * 1000)
    second = read(volume)
    volume.grow(4)
    volume.keep("second")
    assert [each.name for each in volume.snapshots()] == ["first", "second"]
    volume.restore("first")
    assert size_mib(volume) == SIZE_MIB + 4, "its recorded size"
    assert read(volume) == first + bytes(4 * MIB)
    volume.restore("second")
    assert read(volume) == second + bytes(4 * MIB)
    volume.forget("first")
    volume.forget("first")
    assert [each.name for each in volume.snapshots()] == ["second"]
    with pytest.raises(BlockDeviceError, match="has no snapshot 'first'"):
        volume.restore("first")


def test_a_restored_disk_has_no_record_of_what_was_written(volume: Volume) -> None:
    image = volume.assemble().dev_path
    volume.keep("first")
    for name in ("one", "two"):
        subprocess.run(["qemu-img", "bitmap", "--add", "-f", "qcow2", image, name], check=True)
    info = ["qemu-img", "info", "-f", "qcow2", image]
    assert b"bitmaps" in subprocess.run(info, check=True, capture_output=True).stdout
    volume.restore("first")
    assert b"bitmaps" not in subprocess.run(info, check=True, capture_output=True).stdout


@with_fuse
def test_a_snapshot_is_read_whoever_has_the_image(volume: Volume, tmp_path: Path) -> None:
    write(volume, 2, b"kept" * 500)
    volume.keep("kept")
    kept = read(volume)
    image, socket_path = volume.assemble().dev_path, str(tmp_path / "nbd")
    served = qcow2.snapshot_served(image, "kept", socket_path)
    with contents(volume) as path, open(path, "r+b") as file, served:
        file.seek(2 * MIB)
        file.write(b"changed" * 500)
        os.fsync(file.fileno())
        found = NbdImage(socket_path, "kept")
        data = bytearray(found.size)
        for begin, end in found.areas():
            data[begin:end] = found.read(begin, end - begin)
        found.close()
    assert bytes(data) == kept
    assert not os.path.exists(socket_path)
    missing = qcow2.snapshot_served(image, "missing", socket_path)
    with pytest.raises(BlockDeviceError, match="cannot show snapshot 'missing'"), missing:
        pass

"""A zeroing image boots in a real machine, and fills the free space of disks before an export."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
from fakes.virtual_cluster import TestCluster

from ganeti.bootstrap.virtual import lifecycle

NAME, IMAGE = "zeroed.example.com", "/srv/zeroing.img"
ADD = "instance add --no-name-check --no-ip-check --no-install --no-start -B memory=16"
SIZE_MIB, SECTOR_BYTES, MIB = 2, 512, 1 << 20
FREE: Final = range(64 * SECTOR_BYTES, 128 * SECTOR_BYTES)  # as the image sees it

_CODE: Final = bytes.fromhex(
    "ea057c000031c08ed88ec08ed0bc007cfb6631c0bf007eb9800066f3abbe587cb80043b281cd13721aff06607c"
    "813e607c800075e8be4e7cac84c07406baf803eeebf5ba0406b80020effaf4ebfc66696c6c65640d0a00901000"
    "0100007e00004000000000000000"
)


def disks_of(cluster: TestCluster, node: str, name: str) -> list[Path]:
    directory = Path(cluster.paths_of(node).localize(f"/srv/ganeti/file-storage/{name}"))
    return sorted(directory.iterdir(), key=lambda path: path.suffix)


def put_image(cluster: TestCluster, node: str, sector: bytes) -> None:
    path = Path(cluster.paths_of(node).localize(IMAGE))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(sector.ljust(SECTOR_BYTES - 2, b"\0") + b"\x55\xaa")


@pytest.mark.qemu
@pytest.mark.skipif(lifecycle.find_qemu() is None, reason="no QEMU binary is installed")
def test_free_space_is_zero_in_the_export(cluster: TestCluster) -> None:
    one, two, _three = cluster.nodes
    disk = f"--disk 0:size={SIZE_MIB}"
    cluster.gnt(f"{ADD} -t file {disk} -H kvm -o bootsector+default -n {one} {NAME}")
    export = f"backup export --zero-free-space -n {two} {NAME}"
    cluster.refused(export, "gnt-cluster modify --zeroing-image=PATH")
    cluster.gnt(f"cluster modify --zeroing-image={IMAGE}")
    try:
        cluster.refused(export, f"has no zeroing image {IMAGE}")
        put_image(cluster, one, _CODE)
        [path] = disks_of(cluster, one, NAME)
        path.write_bytes(b"data" * (SIZE_MIB * MIB // 4))
        said = cluster.gnt(export).out
        assert "Free space on the disks of zeroed.example.com is filled" in said
        assert disks_of(cluster, one, NAME) == [path], "the copy of the image is gone"
        wanted = bytearray(b"data" * (SIZE_MIB * MIB // 4))
        wanted[FREE.start : FREE.stop] = bytes(len(FREE))
        assert path.read_bytes() == wanted
        assert NAME in cluster.gnt(f"backup list -n {two} --no-headers").out
        put_image(cluster, one, b"\xfa\xf4\xeb\xfc")  # stops and never ends
        cluster.refused(
            "backup export --zero-free-space --zeroing-timeout-fixed=3 --zeroing-timeout-per-mib=0"
            f" -n {two} {NAME}",
            "did not power itself off within 3 seconds",
        )
        assert disks_of(cluster, one, NAME) == [path]
        assert cluster.instance_field(NAME, "status") == "ADMIN_down"
    finally:
        cluster.gnt("cluster modify --zeroing-image=")
        cluster.gnt(f"backup remove {NAME}")


def test_the_image_is_what_its_source_says(tmp_path: Path) -> None:
    if not (shutil.which("as") and shutil.which("ld")):
        pytest.skip("needs as and ld to assemble the guest")
    source = Path(__file__).parents[1] / "guests" / "zeroing.S"
    subprocess.run(["as", "--32", source, "-o", tmp_path / "guest.o"], check=True)
    link = ["ld", "-m", "elf_i386", "-Ttext", "0x7c00", "--oformat", "binary"]
    subprocess.run([*link, tmp_path / "guest.o", "-o", tmp_path / "guest.bin"], check=True)
    assert (tmp_path / "guest.bin").read_bytes().rstrip(b"\0") == _CODE.rstrip(b"\0")

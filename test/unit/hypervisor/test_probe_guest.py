"""The guest in one boot sector is what its source says."""

import shutil
import subprocess
from pathlib import Path

import pytest

from ganeti.hypervisor.kvm.qemu import SECTOR_BYTES, boot_sector

SOURCE = Path(__file__).resolve().parents[2] / "guests" / "boot_sector.S"


def test_sector_is_bootable_and_complete() -> None:
    sector = boot_sector()
    assert len(sector) == SECTOR_BYTES
    assert sector.endswith(b"\x55\xaa")


def test_work_count_changes_nothing_else() -> None:
    worked = boot_sector(0x01020304)
    changed = [i for i, (a, b) in enumerate(zip(boot_sector(), worked, strict=True)) if a != b]
    assert changed == [5, 6, 7, 8]


def test_code_is_the_assembled_source(tmp_path: Path) -> None:
    if not (shutil.which("gcc") and shutil.which("ld")):
        pytest.skip("needs gcc and ld to assemble the guest")
    subprocess.run(["gcc", "-c", SOURCE, "-o", tmp_path / "guest.o"], check=True)
    link = ["ld", "-m", "elf_x86_64", "-Ttext", "0x7c00", "--oformat", "binary"]
    subprocess.run([*link, tmp_path / "guest.o", "-o", tmp_path / "guest.bin"], check=True)
    assert (tmp_path / "guest.bin").read_bytes() == boot_sector()

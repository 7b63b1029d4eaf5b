"""The guests in one boot sector are what their sources say."""

import shutil
import subprocess
from pathlib import Path

import pytest
from guests import pattern

from ganeti.hypervisor.kvm.qemu import SECTOR_BYTES, boot_sector

SOURCES = Path(__file__).resolve().parents[2] / "guests"


def test_sector_is_bootable_and_complete() -> None:
    sector = boot_sector()
    assert len(sector) == SECTOR_BYTES
    assert sector.endswith(b"\x55\xaa")


def test_work_count_changes_nothing_else() -> None:
    worked = boot_sector(0x01020304)
    changed = [i for i, (a, b) in enumerate(zip(boot_sector(), worked, strict=True)) if a != b]
    assert changed == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("source", "sector"),
    [("boot_sector.S", boot_sector()), ("pattern.S", pattern.image()[:SECTOR_BYTES])],
)
def test_code_is_the_assembled_source(tmp_path: Path, source: str, sector: bytes) -> None:
    if not (shutil.which("gcc") and shutil.which("ld")):
        pytest.skip("needs gcc and ld to assemble the guest")
    subprocess.run(["gcc", "-c", SOURCES / source, "-o", tmp_path / "guest.o"], check=True)
    link = ["ld", "-m", "elf_x86_64", "-Ttext", "0x7c00", "--oformat", "binary"]
    subprocess.run([*link, tmp_path / "guest.o", "-o", tmp_path / "guest.bin"], check=True)
    code = (tmp_path / "guest.bin").read_bytes()
    assert code[:510].ljust(510, b"\0") + b"\x55\xaa" == sector


def _disk(numbers: list[int]) -> bytearray:
    disk = bytearray(pattern.image())
    for number in numbers:
        start = (pattern.FIRST_SECTOR + number % pattern.SECTORS) * SECTOR_BYTES
        disk[start : start + SECTOR_BYTES] = number.to_bytes(4, "little") * 128
    return disk


@pytest.mark.parametrize("count", [0, 1, 100, pattern.SECTORS, pattern.SECTORS + 3])
def test_a_pattern_is_complete_up_to_the_number_that_was_said(count: int) -> None:
    disk = _disk(list(range(1, count + 1)))
    assert pattern.check(disk, count) == count
    with pytest.raises(AssertionError, match="1 are lost"):
        pattern.check(disk, count + 1)


@pytest.mark.parametrize("damage", [b"\0\0\0\0", b"\x07\0\0\0"])
def test_a_damaged_pattern_is_seen(damage: bytes) -> None:
    disk = _disk(list(range(1, 100)))
    start = (pattern.FIRST_SECTOR + 50) * SECTOR_BYTES + 8
    disk[start : start + 4] = damage
    with pytest.raises(AssertionError, match="sector 114: 32"):
        pattern.check(disk, 99)


def test_only_complete_lines_of_the_guest_count() -> None:
    said = "up\r\n0000000e\r\n!0000000f\r\n00000010"
    assert pattern.acknowledged(said) == 15
    assert pattern.acknowledged("up\r\n") == 0

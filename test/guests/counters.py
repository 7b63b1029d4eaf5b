"""A guest that writes one counter to two disks; its source is ``two_counters.S``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SECTOR_BYTES: Final = 512
UP_TEXT: Final = "up"
LOG_SECTOR: Final = 64
LOG_SECTORS: Final = 8
_COUNTER_SECTOR: Final = 1

_CODE: Final = bytes.fromhex(
    "ea057c000031c08ed88ec08ed0bc007cfbb442b280be6c7ccd13be647cac84c07406baf803eeebf566ff06007e"
    "66a1007ebf007eb9800066f3abc706747c0100e81100a1007e83e00783c040a3747ce80200ebd4b280e80200b2"
    "81be6c7cb80043cd13c375700d0a008d740010000100007e00000100000000000000"
)


def disk_images(directory: Path, size_mib: int) -> list[Path]:
    """Write the two disks of the guest; returns their paths."""
    sector = _CODE.ljust(SECTOR_BYTES - 2, b"\0") + b"\x55\xaa"
    paths = [directory / "disk0", directory / "disk1"]
    for path, start in zip(paths, (sector, b""), strict=True):
        with path.open("wb") as file:
            file.write(start)
            file.truncate(size_mib << 20)
    return paths


def code() -> bytes:
    """Return the program, as it is assembled."""
    return _CODE


def counter(image: bytes) -> int:
    """Return the counter of a disk."""
    return _number(image, _COUNTER_SECTOR)


def live_counter(path: Path) -> int:
    """Return the counter of a disk that is being written; the sector may be torn, not the number."""
    with path.open("rb") as file:
        return live_counter_of(file.read((_COUNTER_SECTOR + 1) * SECTOR_BYTES))


def live_counter_of(image: bytes) -> int:
    """Return the counter of such a disk from a copy of its bytes."""
    begin = _COUNTER_SECTOR * SECTOR_BYTES
    return int.from_bytes(image[begin : begin + 4], "little")


def log(image: bytes) -> list[int]:
    """Return the counters of the rounds that are noted on a disk."""
    numbers = (_number(image, LOG_SECTOR + place) for place in range(LOG_SECTORS))
    return [number for number in numbers if number]


def _number(image: bytes, sector: int) -> int:
    """Return the counter in a sector, which is full of it."""
    begin = sector * SECTOR_BYTES
    data = image[begin : begin + SECTOR_BYTES]
    assert data == data[:4] * (SECTOR_BYTES // 4), f"sector {sector} was torn"
    return int.from_bytes(data[:4], "little")


def check_one_instant(images: list[bytes], restarts: int = 0) -> int:
    """Check that copies of the two disks are of one instant; returns the counter.

    Args:
        restarts: how often the guest was stopped just before; each may have cost a note, in whose
            place the one of a turn before is still there.
    """
    first, second = map(counter, images)
    assert first - second in (0, 1), (first, second)
    for image in images:
        noted = log(image)
        # A round notes itself after its counter was written to both.
        assert second - 1 - restarts <= max(noted) <= second, (max(noted), first, second)
        assert min(noted) > first - LOG_SECTORS * (1 + restarts) - 2, (min(noted), first)
    return first

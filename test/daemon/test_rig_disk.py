"""The disk of the rig's virtual machines (`test/rig/disk.py`) loses what was never flushed."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig.disk import CACHE_SECTORS, SECTOR, CachedDisk

PROGRAM = Path(__file__).parents[1] / "rig" / "disk.py"
SIZE = 4 << 20
TIMEOUT_S = 60.0

needs_qemu = pytest.mark.skipif(shutil.which("qemu-io") is None, reason="needs qemu-io")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "disk"
    path.write_bytes(bytes(SIZE))
    return path


@pytest.fixture
def served(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, PROGRAM, "0", path]) as process:
        until = time.monotonic() + TIMEOUT_S
        while not Path(f"{path}.socket").exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        yield process
        process.kill()


def qemu_io(path: Path, *commands: str) -> subprocess.CompletedProcess[str]:
    words = [word for command in commands for word in ("-c", command)]
    return subprocess.run(
        ["qemu-io", "-t", "writeback", "-f", "raw", *words, f"nbd+unix:///?socket={path}.socket"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@needs_qemu
def test_qemu_reads_what_it_wrote_and_a_power_cut_keeps_only_what_was_flushed(
    path: Path, served: subprocess.Popen[bytes]
) -> None:
    done = qemu_io(
        path,
        "write -P 1 0 64k",
        "flush",
        "write -P 2 64k 64k",
        "read -P 1 0 64k",
        "read -P 2 64k 64k",
        "abort",
    )
    assert "verification failed" not in done.stdout
    served.kill()
    served.wait(TIMEOUT_S)
    content = path.read_bytes()
    assert content[: 64 << 10] == b"\1" * (64 << 10)
    assert content[64 << 10 : 128 << 10].count(2) < 64 << 10  # a random half may have been kept


@needs_qemu
@pytest.mark.parametrize(
    ("command", "expected"), [("write -f -P 3 4k 4k", 3), ("write -z 4k 4k", 0)]
)
def test_forced_writes_and_zeroes(
    path: Path, served: subprocess.Popen[bytes], command: str, expected: int
) -> None:
    done = qemu_io(path, "write -P 1 0 64k", "flush", command, f"read -P {expected} 4k 4k", "abort")
    assert "verification failed" not in done.stdout
    if expected:
        served.kill()
        served.wait(TIMEOUT_S)
        assert path.read_bytes()[4096:8192] == bytes([expected]) * 4096


def test_what_is_in_the_cache_is_read_over_the_file(path: Path) -> None:
    disk = CachedDisk(str(path), random.Random(1))
    disk.write(SECTOR, b"a" * SECTOR)
    assert disk.read(0, 3 * SECTOR) == bytes(SECTOR) + b"a" * SECTOR + bytes(SECTOR)
    assert path.read_bytes() == bytes(SIZE)


def test_half_of_the_cache_is_written_out_and_the_rest_by_a_flush(path: Path) -> None:
    disk = CachedDisk(str(path), random.Random(1))
    disk.write(0, b"a" * 100 * SECTOR)
    disk.write_out_half()
    kept = path.read_bytes()[: 100 * SECTOR]
    assert kept.count(b"a" * SECTOR) == 50
    assert kept.rstrip(b"\0").count(0), "they are written in any order"
    disk.flush()
    assert path.read_bytes() == b"a" * 100 * SECTOR + bytes(SIZE - 100 * SECTOR)


def test_a_full_cache_is_written_out_in_part(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(4 * CACHE_SECTORS * SECTOR)
    disk = CachedDisk(str(path), random.Random(1))
    disk.write(0, b"a" * CACHE_SECTORS * SECTOR)
    assert b"a" not in path.read_bytes()
    disk.write(2 * CACHE_SECTORS * SECTOR, b"b" * SECTOR)
    assert path.read_bytes().count(b"a") == pytest.approx(CACHE_SECTORS * SECTOR // 2, rel=0.01)


def test_chance_is_that_of_the_seed(tmp_path: Path) -> None:
    def kept(seed: int) -> bytes:
        path = tmp_path / "disk"
        path.write_bytes(bytes(SIZE))
        disk = CachedDisk(str(path), random.Random(seed))
        disk.write(0, b"a" * 100 * SECTOR)
        disk.write_out_half()
        return path.read_bytes()

    assert kept(1) == kept(1)
    assert kept(1) != kept(2)

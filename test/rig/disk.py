"""A disk that loses in a power cut what was never flushed, served to QEMU by the NBD protocol.

What a guest writes is kept in memory, as in the volatile cache of a disk, sector by sector; a flush
writes it to the disk's file, and a full cache writes out a random half of its sectors, so what was not
flushed may be kept in part and in any order.  SIGKILL is the power cut: memory is gone, the file is as
a real disk would be.  Never sync'ed to the disk below: the machine that runs the rig keeps its power.

    python disk.py SEED FILE...     serves FILE at the Unix socket FILE.socket, until it is killed

Source: https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import struct
import sys
from collections.abc import Iterator
from typing import Final

SECTOR: Final = 512
CACHE_SECTORS: Final = 16 << 20 >> 9  # 16 MiB, that of a small real disk
WRITE_OUT_S: Final = 5.0  # a disk does so sooner, but guests here are ten times slower, too
_NBD_MAGIC: Final = b"NBDMAGIC"
_OPTION_MAGIC: Final = b"IHAVEOPT"
_OPTION_REPLY: Final = 0x3E889045565A9
_REQUEST: Final = 0x25609513
_REPLY: Final = 0x67446698
_FIXED_NEWSTYLE: Final = 1
_GO, _ACK, _INFO, _UNSUPPORTED = 7, 1, 3, (1 << 31) + 1
# Has flags, sends flush, forced unit access, trim, and writing zeroes.
_FLAGS: Final = 1 | 4 | 8 | 32 | 64
_READ, _WRITE, _DISCONNECT, _FLUSH, _TRIM, _WRITE_ZEROES = 0, 1, 2, 3, 4, 6
_FORCED: Final = 1


class CachedDisk:
    """The content of a disk: its file, and over it the sectors that were not flushed yet."""

    def __init__(self, path: str, chance: random.Random) -> None:
        self._file = os.open(path, os.O_RDWR)
        self.size = os.fstat(self._file).st_size
        self._chance = chance
        self._cache: dict[int, bytes] = {}

    def read(self, offset: int, length: int) -> bytes:
        """Return what was written last, flushed or not."""
        data = os.pread(self._file, length, offset)
        first = offset // SECTOR
        found = [n for n in range(first, first + length // SECTOR) if n in self._cache]
        if not found:
            return data
        over = bytearray(data)
        for number in found:
            start = (number - first) * SECTOR
            over[start : start + SECTOR] = self._cache[number]
        return bytes(over)

    def write(self, offset: int, data: bytes) -> None:
        """Keep whole sectors in memory."""
        first = offset // SECTOR
        for start in range(0, len(data), SECTOR):
            self._cache[first + start // SECTOR] = data[start : start + SECTOR]
        if len(self._cache) > CACHE_SECTORS:
            self.write_out_half()

    def write_out_half(self) -> None:
        """Write out a random half."""
        cached = sorted(self._cache)
        self._write_out(self._chance.sample(cached, (len(cached) + 1) // 2))

    def flush(self) -> None:
        """Write everything out."""
        self._write_out(list(self._cache))

    def force(self, offset: int, length: int) -> None:
        """Write some sectors out."""
        first = offset // SECTOR
        self._write_out([n for n in range(first, first + length // SECTOR) if n in self._cache])

    def _write_out(self, sectors: list[int]) -> None:
        for run in _runs(sorted(sectors)):
            data = b"".join(self._cache.pop(number) for number in run)
            os.pwrite(self._file, data, run[0] * SECTOR)


def _runs(numbers: list[int]) -> Iterator[range]:
    """Split ascending numbers into ranges without gaps."""
    start = 0
    for end in range(1, len(numbers) + 1):
        if end == len(numbers) or numbers[end] != numbers[end - 1] + 1:
            yield range(numbers[start], numbers[end - 1] + 1)
            start = end


async def _greet(disk: CachedDisk, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> bool:
    """Agree with the client on the only disk there is; returns whether it goes on."""
    to.write(_NBD_MAGIC + _OPTION_MAGIC + struct.pack(">H", _FIXED_NEWSTYLE))
    await source.readexactly(4)
    while True:
        magic, option, length = struct.unpack(">8sII", await source.readexactly(16))
        assert magic == _OPTION_MAGIC
        await source.readexactly(length)
        if option != _GO:
            to.write(struct.pack(">QIII", _OPTION_REPLY, option, _UNSUPPORTED, 0))
            continue
        to.write(struct.pack(">QIII", _OPTION_REPLY, option, _INFO, 12))
        to.write(struct.pack(">HQH", 0, disk.size, _FLAGS))
        to.write(struct.pack(">QIII", _OPTION_REPLY, option, _ACK, 0))
        return True


def _serve(disk: CachedDisk, command: int, offset: int, length: int, data: bytes) -> bytes:
    """Do one request; returns what was read."""
    match command:
        case 0:
            return disk.read(offset, length)
        case 1:
            disk.write(offset, data)
        case 3:
            disk.flush()
        case 4:
            pass  # what was trimmed may read as before
        case 6:
            disk.write(offset, bytes(length))
        case _:
            raise OSError(errno.EINVAL, "unknown command")
    return b""


async def _talk(disk: CachedDisk, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    await _greet(disk, source, to)
    while True:
        header = await source.readexactly(28)
        magic, flags, command, handle, offset, length = struct.unpack(">IHHQQI", header)
        assert magic == _REQUEST
        if command == _DISCONNECT:
            return
        data = await source.readexactly(length) if command == _WRITE else b""
        error, found = 0, b""
        try:
            found = _serve(disk, command, offset, length, data)
            if flags & _FORCED:
                disk.force(offset, length)
        except OSError as err:
            error = err.errno or errno.EIO
        to.write(struct.pack(">IIQ", _REPLY, error, handle) + found)
        await to.drain()


async def _main(seed: str, paths: list[str]) -> None:
    tasks = []
    for path in paths:
        disk = CachedDisk(path, random.Random(f"{seed} {path}"))

        async def talk(
            source: asyncio.StreamReader, to: asyncio.StreamWriter, disk: CachedDisk = disk
        ) -> None:
            try:
                await _talk(disk, source, to)
            except asyncio.IncompleteReadError:
                pass  # QEMU is gone
            finally:
                to.close()

        server = await asyncio.start_unix_server(talk, f"{path}.socket", limit=1 << 20)
        tasks += [server.serve_forever(), _age(disk)]
    await asyncio.gather(*tasks)


async def _age(disk: CachedDisk) -> None:
    while True:
        await asyncio.sleep(WRITE_OUT_S)
        disk.write_out_half()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2:]))

"""A guest that fits into one boot sector: to find out what this machine can run, and to try it.

It says on the serial console that it is up, counts its starts in the second sector of its disk,
prints a counter twice a second and powers off when the ACPI button is pressed.  Its source is
``test/guests/boot_sector.S``; a test assembles that and compares.

Run as ``python -m ganeti.hypervisor.probe_guest DISK`` it is written to the beginning of a disk.
"""

from __future__ import annotations

import os
import sys
from typing import Final

SECTOR_BYTES: Final = 512
UP_TEXT: Final = b"guest up"
WORK_DONE_TEXT: Final = b"work done"
_WORK_COUNT: Final = slice(5, 9)  # place of the work count, little endian

_CODE: Final = bytes.fromhex(
    "ea097c00000000000031c08ed88ec08ed0bc007c8816167dfbbee67ce89d00668b0e057c67e316dbe3d9eed9"
    "e8dcc1dd16007e664975f6bef17ce87f00b442e865007215ff06007eb80043e859007209befd7ca1007ee858"
    "00ba0206ed0d0001eff4ba0006ed83f8ff7405a90001751fa16c042b06177d83f80872e50106177dff06197d"
    "a1197dbe047de82400ebd2ba0006b80001efbe0a7de82000ba0406b80020effaf4ebfc8a16167dbe1c7dcd13"
    "c350e8070058e80d00be137dac84c07424e81400ebf631d2bb0a00f7f35285c07403e8f1ff58043052baf803"
    "eeb40ebb0700cd105ac367756573742075700d0a00776f726b20646f6e650d0a007374617274200062656174"
    "2000706f776572206f66660d0a0000000000009010000100007e000001"
)


def boot_sector(work_count: int = 0) -> bytes:
    """Return the boot sector.

    Args:
        work_count: rounds of floating point work to do first; a million takes a few milliseconds
            on a processor and a third of a second where it is emulated.
    """
    sector = bytearray(_CODE.ljust(SECTOR_BYTES, b"\0"))
    sector[_WORK_COUNT] = work_count.to_bytes(4, "little")
    sector[510:] = b"\x55\xaa"
    return bytes(sector)


def write_to(path: str) -> None:
    """Write the boot sector to the beginning of a disk, which must exist."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, boot_sector(), 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m ganeti.hypervisor.probe_guest DISK")
    write_to(sys.argv[1])

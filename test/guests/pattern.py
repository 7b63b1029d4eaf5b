"""A guest that fills its disk with numbers and says which of them it wrote; its source is ``pattern.S``."""

from __future__ import annotations

from typing import Final

SECTOR_BYTES: Final = 512
UP_TEXT: Final = "up"
ERROR_TEXT: Final = "!"
FIRST_SECTOR: Final = 64
SECTORS: Final = 4096
IMAGE_BYTES: Final = (FIRST_SECTOR + SECTORS) * SECTOR_BYTES  # all that it writes lies in this

_CODE: Final = bytes.fromhex(
    "ea057c000031c08ed88ec08ed0bc007cfcfbbec67ce89300b442e88600ba0206ed0d0001efba0006eda9000175"
    "4966a1007e6640bf007eb9800066f3ab25ff0f83c040e84900b80100e84300668b1e007eb9080066c1c30488d8"
    "240f04303c3976020427e84e00e2ebbed07ce83c00b90400f4e2fdebaeba0006b80001efbecd7ce82700ba0406"
    "b80020effaf4ebfca3dc7cb80043e80b007308becb7ce80b00ebf0c3b280bed47ccd13c3ac84c074f2e80200eb"
    "f688c4bafd03eca82074fbbaf80388e0eec375700d0a0021006f66660d0a009010000100007e00000100000000"
    "000000"
)


def code() -> bytes:
    """Return the program, as it is assembled."""
    return _CODE


def image() -> bytes:
    """Return a disk's first sectors that boot the guest, with nothing written yet."""
    sector = _CODE.ljust(SECTOR_BYTES - 2, b"\0") + b"\x55\xaa"
    return sector.ljust(IMAGE_BYTES, b"\0")


def acknowledged(said: str) -> int:
    """Return the last number that the guest said completely, 0 if none."""
    lines = said.split("\n")[:-1]
    numbers = [line.strip().lstrip(ERROR_TEXT) for line in lines]
    return next((int(number, 16) for number in reversed(numbers) if len(number) == 8), 0)


def check(image: bytes | bytearray, last: int) -> int:
    """Check that everything up to a number is on a disk; returns the highest number on it.

    Raises:
        AssertionError: with the sectors that are torn, older than what was said, or strange.
    """
    found, wrong = 0, []
    for place in range(SECTORS):
        start = (FIRST_SECTOR + place) * SECTOR_BYTES
        data = image[start : start + SECTOR_BYTES]
        number = int.from_bytes(data[:4], "little")
        wanted = last - (last - place) % SECTORS  # the last number that went to this sector
        if (
            data != data[:4] * (SECTOR_BYTES // 4)
            or number < wanted
            or (number and number % SECTORS != place)
        ):
            wrong.append(f"sector {FIRST_SECTOR + place}: {data[:8].hex()}, not {wanted}")
        found = max(found, number)
    assert not wrong, f"of {last} numbers {len(wrong)} are lost: {wrong[:5]}"
    return found

"""A guest that answers keys, on its serial console and its keyboard; its source is ``echo.S``."""

from __future__ import annotations

import os
from typing import Final

UP_TEXT: Final = "echo up"
_CODE: Final = bytes.fromhex(
    "ea057c000031c08ed88ed0bc007cfbfcb8e30031d2cd14be807cac84c07405e85300ebf6bafd03eca801740b"
    "baf803ecb33cb73ee82300b401cd1674e730e4cd1650b35bb75de8110058b900b88ec131ffb41fb9d007f3ab"
    "ebca5088d8e8060058e8020088f850bafd03eca82074fb58baf803eec3e8eeffb40ebb0700cd10c36563686f"
    "2075700d0a"
)


def image(path: str | os.PathLike[str]) -> str:
    """Write a disk that boots the guest; returns its path."""
    with open(path, "wb") as file:
        file.write(_CODE.ljust(510, b"\0") + b"\x55\xaa")
        file.truncate(1 << 20)
    return os.fspath(path)

"""What ``ps`` and ``top`` show of a process."""

from __future__ import annotations

import contextlib
from typing import Final

_COMM_PATH: Final = "/proc/self/comm"


def show_name(name: str) -> None:
    """Let ``ps`` and ``top`` show what this process is; the kernel keeps 15 characters."""
    with contextlib.suppress(OSError), open(_COMM_PATH, "w", encoding="utf-8") as file:
        file.write(name)

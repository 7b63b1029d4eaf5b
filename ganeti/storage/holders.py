"""Who holds a block device: other devices, mounted file systems, swap space, processes.

Source: sysfs (holders), proc(5) (mountinfo, fd).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

HOLDERS_MAX: Final = 5  # named in a message


def holders(major: int, minor: int) -> list[str]:
    """Name those who hold a device open, some of them if there are many; each once."""
    found: list[str] = []
    for each in _all(major, minor):
        if each not in found:
            found.append(each)
        if len(found) == HOLDERS_MAX:
            break
    return found


def _all(major: int, minor: int) -> Iterator[str]:
    yield from _devices(major, minor)
    yield from _mounts(major, minor)
    yield from _processes(os.makedev(major, minor))


def _devices(major: int, minor: int) -> Iterator[str]:
    base = f"/sys/dev/block/{major}:{minor}"
    with suppress(OSError):
        for name in sorted(os.listdir(f"{base}/holders")):
            label = ""
            with suppress(OSError), open(f"/sys/class/block/{name}/dm/name") as file:
                label = f" ({file.read().strip()})"
            yield f"device {name}{label}"


def _mounts(major: int, minor: int) -> Iterator[str]:
    with suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            fields = line.split()
            if len(fields) > 4 and fields[2] == f"{major}:{minor}":
                yield f"the file system mounted at {fields[4]}"


def _processes(device: int) -> Iterator[str]:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                if _opens(f"/proc/{pid}/fd/{descriptor}", device):
                    yield f"process {pid} ({_name(pid)})"
                    break


def _opens(path: str, device: int) -> bool:
    with suppress(OSError):
        return os.stat(path).st_rdev == device
    return False


def _name(pid: str) -> str:
    with suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()
    return "?"

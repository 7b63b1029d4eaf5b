"""Time and chance: the only place that asks the system for either."""

from __future__ import annotations

import os
import time

from ganeti.system.failpoints import wall_clock_ns

NANOSECONDS_PER_SECOND = 1_000_000_000


def now() -> float:
    """Return seconds since the epoch."""
    return wall_clock_ns() / NANOSECONDS_PER_SECOND


def now_ns() -> int:
    """Return nanoseconds since the epoch."""
    return wall_clock_ns()


def timestamp() -> tuple[int, int]:
    """Return the time as job files store it: seconds, microseconds."""
    seconds, nanoseconds = divmod(wall_clock_ns(), NANOSECONDS_PER_SECOND)
    return seconds, nanoseconds // 1000


def monotonic() -> float:
    """Return seconds since the machine booted, on a clock that never jumps, for deadlines."""
    return time.monotonic()


def local(at: float) -> float:
    """Return a time as seconds since 1970 began by the clock on the wall of this machine."""
    return at + time.localtime(at).tm_gmtoff


def processor_time() -> float:
    """Return seconds of processor time that this thread has used."""
    return time.thread_time()


def random_bytes(count: int) -> bytes:
    """Return bytes fit for keys and secrets."""
    return os.urandom(count)


def new_uuid() -> str:
    """Return a random (version 4) UUID."""
    octets = bytearray(os.urandom(16))
    octets[6] = (octets[6] & 0x0F) | 0x40
    octets[8] = (octets[8] & 0x3F) | 0x80
    text = octets.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def boot_id() -> str:
    """Return the identifier that the kernel drew when this machine booted."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def pause(seconds: float) -> None:
    """Do nothing for a while: between tries of a bounded retry, never to wait for an event."""
    time.sleep(seconds)

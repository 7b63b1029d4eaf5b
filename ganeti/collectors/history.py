"""What a node and its KVM instances used of processor, memory, disks and network, and when.

The kernel counts; the differences between two looks are kept, in rings of a fixed length: one for
the last hour, a value for each minute, and one for the last day, a value for every ten.  Rings live
in memory, and a subject that is gone leaves with its values.

Source: proc(5), sysfs(5).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.collectors import cpu_load, diskstats
from ganeti.collectors.collector import read_text
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.state import load_runtime, running_machines

NODE: Final = ""  # the subject beside the instances, which have their names
MINUTE_S: Final = 60.0
HOUR_LENGTH: Final = 60
TEN_MINUTES: Final = 10
DAY_LENGTH: Final = 144
FIELDS: Final = ("time", "cpu", "memory", "disk_read", "disk_written", "net_in", "net_out")

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_SECTOR_BYTES: Final = 512
_MADE: Final = re.compile(r"(loop|ram|zram|dm-|md|drbd|nbd|sr)\d")  # upon others, or of no weight
_MIB: Final = 1 << 20
_KIB_IN_MIB: Final = 1 << 10


Parts = Mapping[str, float]
"""A counter of each processor, device or interface that a subject has."""
WHOLE: Final = ""  # the part of a subject that is counted in one


class Counters(NamedTuple):
    """The counters of a subject; only the memory is a state, in MiB."""

    cpu_s: Parts = {}
    memory_mib: float = 0.0
    disk_read: Parts = {}  # bytes, as all that follow
    disk_written: Parts = {}
    net_in: Parts = {}
    net_out: Parts = {}


Point = tuple[float, ...]
"""Time, processors kept busy, MiB, and bytes per second in the order of `FIELDS`."""


def difference(before: Counters, after: Counters, now: float, seconds: float) -> Point:
    """Return the point between two looks."""
    cpu, *others = (
        _growth(old, new) / seconds
        for old, new in zip(_counted(before), _counted(after), strict=True)
    )
    return (now, *(round(each, 3) for each in (cpu, after.memory_mib, *others)))


def _counted(found: Counters) -> tuple[Parts, ...]:
    return (found.cpu_s, found.disk_read, found.disk_written, found.net_in, found.net_out)


def _growth(before: Parts, after: Parts) -> float:
    """Return by how much the counters grew; one that began anew counts from 0.

    A part that came or went between the two looks counts for nothing: its counter is as old as it.
    """
    return sum(
        new - before[name] if new >= before[name] else new
        for name, new in after.items()
        if name in before
    )


def average(points: Sequence[Point]) -> Point:
    """Return the mean of some points, at the time of the last."""
    return (
        points[-1][0],
        *(round(sum(column) / len(points), 3) for column in list(zip(*points, strict=True))[1:]),
    )


@dataclass(slots=True)
class _Rings:
    last: Counters
    hour: deque[Point] = field(default_factory=lambda: deque(maxlen=HOUR_LENGTH))
    day: deque[Point] = field(default_factory=lambda: deque(maxlen=DAY_LENGTH))
    since_ten: list[Point] = field(default_factory=list)


class History:
    """The rings of a node."""

    def __init__(self) -> None:
        self._rings: dict[str, _Rings] = {}
        self._looked: float | None = None

    def add(self, now: float, found: Mapping[str, Counters]) -> None:
        """Take the counters of all subjects."""
        seconds = None if self._looked is None else now - self._looked
        self._looked = now
        for name in self._rings.keys() - found.keys():
            del self._rings[name]
        for name, counters in found.items():
            rings = self._rings.setdefault(name, _Rings(counters))
            if seconds is not None and seconds > 0 and rings.last is not counters:
                self._add_point(rings, difference(rings.last, counters, now, seconds))
            rings.last = counters

    @staticmethod
    def _add_point(rings: _Rings, point: Point) -> None:
        rings.hour.append(point)
        rings.since_ten.append(point)
        if len(rings.since_ten) == TEN_MINUTES:
            rings.day.append(average(rings.since_ten))
            rings.since_ten.clear()

    def of(self, name: str) -> dict[str, object] | None:
        """Return the values of a subject as they are told; None of one that is not here."""
        rings = self._rings.get(name)
        if rings is None:
            return None
        return {"fields": FIELDS, "hour": list(rings.hour), "day": list(rings.day)}


# Looking.


def look(paths: Paths) -> dict[str, Counters]:
    """Return the counters of the node and of the machines that run on it."""
    interfaces = dict(_interfaces(read_text("/proc/net/dev")))
    found = {NODE: _node(interfaces)}
    for files, process, facts in running_machines(paths):
        taps = [name for name in _taps(files) if name in interfaces]
        found[files.name] = Counters(
            {WHOLE: facts.cpu_s},
            facts.resident_bytes / _MIB,
            *_process_io(process.pid),
            # A tap received what its guest has sent.
            net_in={name: interfaces[name][1] for name in taps},
            net_out={name: interfaces[name][0] for name in taps},
        )
    return found


def _node(interfaces: Mapping[str, tuple[float, float]]) -> Counters:
    ticks = cpu_load.parse(read_text(cpu_load.STAT))
    devices = {
        name: each
        for each in diskstats.parse(read_text(diskstats.DISKSTATS), diskstats.DISKSTATS)
        for name in [str(each["name"])]
        if not _MADE.match(name) and os.path.exists(f"/sys/block/{name}")
    }
    cards = _cards(interfaces)
    return Counters(
        {name: busy / _TICKS_PER_SECOND for name, busy in ticks.items()},
        memory_used_mib(read_text("/proc/meminfo")),
        {name: float(str(each["secRead"])) * _SECTOR_BYTES for name, each in devices.items()},
        {name: float(str(each["secWritten"])) * _SECTOR_BYTES for name, each in devices.items()},
        {name: interfaces[name][0] for name in cards},
        {name: interfaces[name][1] for name in cards},
    )


def memory_used_mib(text: str) -> float:
    """Return the memory that programs cannot have any more, from the text of /proc/meminfo."""
    rows = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    total, free = (int(rows[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
    return (total - free) / _KIB_IN_MIB


def _interfaces(text: str) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield the bytes that each interface received and sent, from the text of /proc/net/dev."""
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        values = rest.split()
        if len(values) > 8:
            yield name.strip(), (float(values[0]), float(values[8]))


def _cards(interfaces: Iterable[str]) -> list[str]:
    """Return the interfaces that are hardware; where there is none, as in a container, all."""
    names = [name for name in interfaces if name != "lo"]
    return [name for name in names if os.path.exists(f"/sys/class/net/{name}/device")] or names


def _taps(files: MachineFiles) -> Sequence[str]:
    with contextlib.suppress(GenericError):
        runtime = load_runtime(files)
        if runtime is not None:
            return runtime.taps
    return ()


def _process_io(pid: int) -> tuple[Parts, Parts]:
    """Return the bytes that a process had read from and written to disks; none if not for us."""
    try:
        text = read_text(f"/proc/{pid}/io")
    except GenericError:
        return {}, {}
    rows = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    return ({WHOLE: float(rows.get("read_bytes", 0))}, {WHOLE: float(rows.get("write_bytes", 0))})

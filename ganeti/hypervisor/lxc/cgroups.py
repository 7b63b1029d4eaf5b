"""Control groups: where those of a container are, and the settings of both versions.

Of version 1 every controller is a file system of its own; of version 2 all are one.  A node that
has both uses, for limits, those of version 1.

    lxc.payload.NAME   the group of a container's processes, below that of the caller of lxc-start

Source: the kernel's cgroup-v1 and cgroup-v2; cgroups(7), /proc/PID/cgroup; proc(5), mountinfo.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from ganeti.system.files import read_bytes

_MIB: Final = 1 << 20
_NS_PER_S: Final = 1e9
_US_PER_S: Final = 1e6
_PROC_BYTES_MAX: Final = 16 << 20
_PAYLOAD: Final = "lxc.payload."
_UNLIMITED_MIB: Final = 1 << 40  # version 1 says a number of 63 bits
_V2_ALWAYS: Final = frozenset({"cpuacct", "devices", "freezer"})  # controllers in name only
NEEDED: Final = ("cpuacct", "cpuset", "devices", "memory")


@dataclass(frozen=True, slots=True)
class Mount:
    """A hierarchy: where it is mounted, and the group that is seen there."""

    point: str
    root: str

    def directory(self, group: str) -> str:
        """Return the directory of a group, as named in /proc/PID/cgroup."""
        inner = group.removeprefix(self.root) if self.root != "/" else group
        return f"{self.point}/{inner.strip('/')}".rstrip("/")


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of one version's settings.

    ``prefix`` is that of LXC's configuration; ``swap`` limits memory and swap together, or swap.
    """

    prefix: str
    memory: str
    swap: str
    swap_is_total: bool
    cpus: str = "cpuset.cpus"


V1: Final = Keys(
    "lxc.cgroup", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", swap_is_total=True
)
V2: Final = Keys("lxc.cgroup2", "memory.max", "memory.swap.max", swap_is_total=False)


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """The control groups of a node: ``legacy`` are the controllers of version 1."""

    legacy: Mapping[str, Mount] = field(default_factory=dict)
    unified: Mount | None = None
    unified_controllers: frozenset[str] = frozenset()

    @property
    def keys(self) -> Keys:
        """The names of the settings that limit containers."""
        return V1 if "memory" in self.legacy else V2

    @property
    def known(self) -> frozenset[str]:
        """The controllers that containers can be put under."""
        own = self.unified_controllers | _V2_ALWAYS if self.unified_controllers else frozenset()
        return frozenset(self.legacy) | own

    def mount_of(self, controller: str) -> Mount | None:
        """Return the hierarchy of a controller."""
        return self.legacy.get(controller) or (self.unified if controller in self.known else None)


def parse_mounts(mountinfo: str) -> Hierarchies:
    """Find the hierarchies in the content of /proc/self/mountinfo; not yet their controllers."""
    legacy: dict[str, Mount] = {}
    unified = None
    for line in filter(None, mountinfo.split("\n")):  # other separators may be in a name
        left, _, right = line.partition(" - ")
        kind, *rest = right.split(" ")
        _number, _parent, _device, root, point, *_options = left.split(" ")
        if kind == "cgroup2" and unified is None:
            unified = Mount(point, root)
        elif kind == "cgroup":
            for word in rest[-1].split(","):
                if "=" not in word:
                    legacy.setdefault(word, Mount(point, root))
    return Hierarchies(legacy, unified)


def payload_groups(text: str, name: str) -> dict[str, str]:
    """Find the groups of a container in the content of /proc/PID/cgroup of a process in it.

    Returns:
        {controller: group}; "" is the controller of version 2.  Groups that the container made
        below its own are left off; a hierarchy in which it has none is left out.
    """
    found = {}
    for line in filter(None, text.split("\n")):  # the guest's own groups may have any other name
        _number, controllers, path = line.split(":", 2)
        match = re.match(rf"(.*/{re.escape(_PAYLOAD + name)}(?:-\d+)?)(/|$)", path)
        if match:
            for controller in controllers.split(","):
                found[controller] = match[1]
    return found


def parse_memory(text: str) -> int | None:
    """Read a limit of memory in MiB; None for no limit."""
    text = text.strip()
    limit_mib = int(text) // _MIB if text.isdigit() else _UNLIMITED_MIB
    return limit_mib if limit_mib < _UNLIMITED_MIB else None


def parse_cpu_stat(text: str) -> float:
    """Read the processor time in seconds from cpu.stat of version 2."""
    found = re.search(r"^usage_usec (\d+)$", text, re.MULTILINE)
    return int(found[1]) / _US_PER_S if found else 0.0


def _read(path: str) -> str:
    return read_bytes(path, _PROC_BYTES_MAX).decode("utf-8", "replace")


def hierarchies() -> Hierarchies:
    """Look at the control groups of this node."""
    found = parse_mounts(_read("/proc/self/mountinfo"))
    if found.unified is None:
        return found
    controllers: frozenset[str] = frozenset()
    with suppress(OSError):
        controllers = frozenset(_read(f"{found.unified.point}/cgroup.controllers").split())
    return Hierarchies(found.legacy, found.unified, controllers)


def limits_swap(here: Hierarchies) -> bool:
    """Tell whether the kernel can limit the swap of a group."""
    mount = here.mount_of("memory")
    if mount is None:
        return False
    if here.keys is V1:
        return os.path.exists(f"{mount.point}/{V1.swap}")
    with suppress(OSError):  # the root has no limits: look below it
        groups = [entry.path for entry in os.scandir(mount.point) if entry.is_dir()]
        return any(os.path.exists(f"{group}/{V2.swap}") for group in groups)
    return False


@dataclass(frozen=True, slots=True)
class Usage:
    """The groups of one running container."""

    here: Hierarchies
    groups: Mapping[str, str]

    def _file(self, controller: str, name: str) -> str:
        mount, group = self.here.mount_of(controller), self.groups.get(controller)
        if mount is None or group is None:
            mount, group = self.here.unified, self.groups.get("")
        if mount is None or group is None:
            raise FileNotFoundError(f"no control group for {controller}")
        return f"{mount.directory(group)}/{name}"

    def memory_mib(self) -> int | None:
        """Return the limit of memory; None without one."""
        with suppress(OSError):
            return parse_memory(_read(self._file("memory", self.here.keys.memory)))
        return None

    def cpu_time_s(self) -> float:
        """Return the processor time used so far."""
        with suppress(OSError):
            return int(_read(self._file("cpuacct", "cpuacct.usage"))) / _NS_PER_S
        with suppress(OSError):
            return parse_cpu_stat(_read(self._file("", "cpu.stat")))
        return 0.0


def usage_of(pid: int, name: str, here: Hierarchies) -> Usage:
    """Find the groups of a container by its first process."""
    text = ""
    with suppress(OSError):
        text = _read(f"/proc/{pid}/cgroup")
    return Usage(here, payload_groups(text, name))

"""The node itself, for hypervisors inside its operating system: memory, processors, restart.

Source: node_rpc.json, node_info ("hypervisor info").
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import HypervisorError, failing_as
from ganeti.system.files import read_bytes

_KIB_PER_MIB: Final = 1024
_PROC_BYTES_MAX: Final = 16 << 20
_NUMA_NODES: Final = "/sys/devices/system/node"
_SYSRQ_ENABLE: Final = "/proc/sys/kernel/sysrq"
_SYSRQ_TRIGGER: Final = "/proc/sysrq-trigger"


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of the node in MiB; ``free`` includes memory that could be freed at once."""

    total_mib: int
    free_mib: int


def parse_meminfo(text: str) -> Memory:
    """Read the content of /proc/meminfo."""
    values = {
        name: int(number) // _KIB_PER_MIB
        for name, number in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)
    }
    free = values.get("MemAvailable")
    if free is None:  # kernels before 3.14
        free = sum(values.get(name, 0) for name in ("MemFree", "Buffers", "Cached"))
    return Memory(values["MemTotal"], free)


def count_sockets(cpuinfo: str) -> int:
    """Count the processor sockets in the content of /proc/cpuinfo."""
    return len(set(re.findall(r"^physical id\s*:\s*(\d+)$", cpuinfo, re.MULTILINE))) or 1


def _read(path: str) -> str:
    return read_bytes(path, _PROC_BYTES_MAX).decode("utf-8", "replace")


def _numa_nodes() -> int:
    try:
        names = os.listdir(_NUMA_NODES)
    except OSError:
        return 1
    return sum(bool(re.fullmatch(r"node\d+", name)) for name in names) or 1


def resources(guests_mib: int) -> dict[str, object]:
    """Return the node's memory and processors with the keys of the node RPC.

    Args:
        guests_mib: memory that the instances hold; the rest of the used memory is the node's own.
    """
    memory = parse_meminfo(_read("/proc/meminfo"))
    own_mib = max(0, memory.total_mib - memory.free_mib - guests_mib)
    return {
        "memory_total": memory.total_mib,
        "memory_free": memory.free_mib,
        "memory_dom0": own_mib,
        "cpu_total": os.cpu_count() or 1,
        "cpu_dom0": 1,
        "cpu_nodes": _numa_nodes(),
        "cpu_sockets": count_sockets(_read("/proc/cpuinfo")),
    }


def restart_at_once(hostname: str) -> None:
    """Restart the machine without stopping anything, not even writing back its disks."""
    with failing_as(HypervisorError, f"cannot restart {hostname}"):
        for path, word in ((_SYSRQ_ENABLE, "1"), (_SYSRQ_TRIGGER, "b")):
            with open(path, "w", encoding="ascii") as file:
                file.write(word)

"""What a machine on this node does, read from its process and its monitor.

Source: QEMU's QMP reference, RunState.
"""

from __future__ import annotations

import os
from typing import Final

from ganeti.base.text import natural_sorted
from ganeti.hypervisor.interface import InstanceInfo, InstanceState, NodeEnv
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.monitor import Monitor, MonitorError, MonitorGone, MonitorTimeout
from ganeti.hypervisor.kvm.process import QemuProcess, find_process
from ganeti.hypervisor.kvm.runtime import load_runtime
from ganeti.system import clock

INFO_TIMEOUT_S: Final = 5.0
ALL_INFO_TIMEOUT_S: Final = 20.0  # all machines together: less than the call has (URGENT, 60 s)
_LEAST_S: Final = 0.1  # what answers at all does so in a millisecond
# Not running, and not to be started again in this process: the guest switched itself off, or its
# memory has gone to another node.
_DOWN_STATES: Final = frozenset({"shutdown", "postmigrate"})
_MIB: Final = 1 << 20


def known_names(env: NodeEnv) -> list[str]:
    """Return the names of all machines of which there is a trace, in order."""
    try:
        names = os.listdir(f"{env.paths.kvm_dir}/pid")
    except FileNotFoundError:
        return []
    return natural_sorted(name for name in names if not name.startswith("."))


def is_incoming(files: MachineFiles) -> bool:
    """Tell whether the instance is marked as being received."""
    return os.path.exists(files.incoming)


def is_unfinished(files: MachineFiles, status: str) -> bool:
    """Tell whether this is what a start that was cut off left: a guest that never began."""
    if status != "prelaunch":
        return False
    runtime = load_runtime(files)
    return runtime is None or not runtime.paused


def look_at_all(env: NodeEnv) -> list[InstanceInfo]:
    """Look at all machines of this node; many that do not answer cost no more time than a few."""
    deadline = clock.monotonic() + ALL_INFO_TIMEOUT_S
    found = []
    for name in known_names(env):
        left_s = max(_LEAST_S, deadline - clock.monotonic())
        info = _look_within(MachineFiles(env.paths, name), min(INFO_TIMEOUT_S, left_s))
        if info is not None:
            found.append(info)
    return found


def look(files: MachineFiles) -> InstanceInfo | None:
    """Look at one machine; None when it does not run here, or is still being received.

    A QEMU that does not answer is taken to run, with the size that it was started with.
    """
    return _look_within(files, INFO_TIMEOUT_S)


def _look_within(files: MachineFiles, timeout_s: float) -> InstanceInfo | None:
    process = find_process(files)
    if process is None:
        return None
    try:
        with Monitor.connect(files.name, files.socket_path("info"), timeout_s) as monitor:
            status = monitor.status()
            if is_incoming(files) and status != "running":
                return None
            down = status in _DOWN_STATES or is_unfinished(files, status)
            return InstanceInfo(
                name=files.name,
                memory_mib=memory_mib(monitor),
                vcpus=len(monitor.query_list("query-cpus-fast")),
                state=InstanceState.SHUTDOWN if down else InstanceState.RUNNING,
                cpu_time_s=process.cpu_time_s(),
            )
    except MonitorGone:
        if find_process(files) is None:
            return None
    except MonitorTimeout:
        if is_incoming(files):
            return None
    return _from_command_line(files.name, process)


def memory_mib(monitor: Monitor) -> int:
    """Return the memory that the guest may use now."""
    try:
        value = monitor.query("query-balloon").get("actual")
    except MonitorError:  # no balloon, or no driver for it in the guest
        value = monitor.query("query-memory-size-summary").get("base-memory")
    return int(str(value)) // _MIB


def _from_command_line(name: str, process: QemuProcess) -> InstanceInfo:
    memory = process.argument("-m").partition(",")[0]
    vcpus = process.argument("-smp").partition(",")[0]
    return InstanceInfo(
        name=name,
        memory_mib=int(memory) if memory.isdigit() else 0,
        vcpus=int(vcpus) if vcpus.isdigit() else 1,
        state=InstanceState.RUNNING,
        cpu_time_s=process.cpu_time_s(),
    )

"""Ending and resetting machines.

A guest is asked by the ACPI power button, again and again because one that still boots does not
notice it, and is given a time; after that, or where it cannot be asked, its QEMU is ended.
"""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.launch import clean_up
from ganeti.hypervisor.kvm.monitor import Monitor, MonitorGone, MonitorTimeout
from ganeti.hypervisor.kvm.process import end, find_process, kill
from ganeti.hypervisor.kvm.runtime import load_runtime
from ganeti.system import clock
from ganeti.system.process import wait_gone

PRESS_INTERVAL_S: Final = 5.0
_EXIT_TIMEOUT_S: Final = 10.0  # QEMU writes back its disks before it ends
_CONNECT_TIMEOUT_S: Final = 5.0
_SHUTDOWN: Final = frozenset({"SHUTDOWN"})


def stop(files: MachineFiles, *, force: bool, timeout_s: float) -> None:
    """Stop a machine and remove what it leaves; does nothing when there is none.

    Raises:
        HypervisorError: its process cannot be ended.
    """
    process = find_process(files)
    if process is not None:
        try:
            with Monitor.connect(
                files.name, files.socket_path("control"), _CONNECT_TIMEOUT_S
            ) as monitor:
                if not force and monitor.status() == "running":
                    press_until_down(monitor, timeout_s)
                monitor.execute("quit")
        except (MonitorGone, MonitorTimeout):
            pass  # it is gone, as was wanted, or hangs and will be killed
        if not wait_gone(process.pid, _EXIT_TIMEOUT_S) and not end(process.pid):
            raise HypervisorError(f"instance {files.name}: process {process.pid} cannot be ended")
    clean_up(files)


def press_until_down(monitor: Monitor, timeout_s: float) -> bool:
    """Press the power button until the guest has switched itself off; returns whether it has.

    Raises:
        MonitorGone: QEMU ended, as it does when the guest switches itself off.
    """
    deadline = clock.monotonic() + timeout_s
    while (left_s := deadline - clock.monotonic()) > 0:
        monitor.execute("system_powerdown")
        if monitor.wait_event(_SHUTDOWN, min(left_s, PRESS_INTERVAL_S)) is not None:
            return True
    return False


def can_reboot_softly(files: MachineFiles) -> bool:
    """Tell whether a reboot keeps the machine: one that is to exit at it ends its QEMU."""
    runtime = load_runtime(files)
    return runtime is None or runtime.machine.params.text("reboot_behavior") != "exit"


def soft_reboot(files: MachineFiles, timeout_s: float) -> None:
    """Let the guest shut down and start again in the same machine; a deaf guest is reset.

    Raises:
        HypervisorError: there is no machine, or it does not run again.
    """
    runtime = load_runtime(files)
    if runtime is None or find_process(files) is None:
        raise HypervisorError(f"instance {files.name} does not run")
    params = runtime.machine.params
    with Monitor.connect(files.name, files.socket_path("control")) as monitor:
        can_ask = params.flag("acpi") and monitor.schema().has_argument("set-action", "shutdown")
        if can_ask and monitor.status() == "running":
            monitor.execute("set-action", {"shutdown": "pause"})
            press_until_down(monitor, timeout_s)
        monitor.execute("system_reset")
        if monitor.status() != "running":
            monitor.execute("cont")
        if can_ask:
            action = "pause" if params.flag("user_shutdown") else "poweroff"
            monitor.execute("set-action", {"shutdown": action})


def kill_now(files: MachineFiles) -> None:
    """Kill the process of a machine, if there is one, and remove what it leaves.

    Raises:
        HypervisorError: the process does not end.
    """
    process = find_process(files)
    if process is not None and not kill(process.pid):
        raise HypervisorError(f"instance {files.name}: process {process.pid} cannot be killed")
    clean_up(files)

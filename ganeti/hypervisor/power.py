"""Restarting the node at once, for hypervisors that run inside its operating system."""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import HypervisorError, NotSupportedError
from ganeti.hypervisor.interface import NodeEnv

_SYSRQ_ENABLE: Final = "/proc/sys/kernel/sysrq"
_SYSRQ_TRIGGER: Final = "/proc/sysrq-trigger"


def powercycle(env: NodeEnv) -> None:
    """Restart the machine without stopping anything, not even writing back its disks.

    Raises:
        NotSupportedError: the node is virtual, so the machine is not its own.
    """
    if env.is_virtual:
        raise NotSupportedError(f"{env.hostname} is a virtual node and cannot be power cycled")
    try:
        with open(_SYSRQ_ENABLE, "w", encoding="ascii") as file:
            file.write("1")
        with open(_SYSRQ_TRIGGER, "w", encoding="ascii") as file:
            file.write("b")
    except OSError as err:
        raise HypervisorError(f"cannot restart {env.hostname}: {err.strerror}") from err

"""The table of hypervisors; each driver is imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, cast

from ganeti.base.errors import ErrorCode, NotSupportedError, OpPrereqError
from ganeti.hypervisor.interface import Hypervisor, NodeEnv

# name -> "module:class", the class taking a NodeEnv; None where there is no driver yet
_DRIVERS: Final[Mapping[str, str | None]] = {
    "chroot": "ganeti.hypervisor.chroot:ChrootHypervisor",
    "fake": "ganeti.hypervisor.fake:FakeHypervisor",
    "kvm": "ganeti.hypervisor.kvm.driver:KvmHypervisor",
    "lxc": None,
    "xen-hvm": None,
    "xen-pvm": None,
}


def driver_modules() -> list[str]:
    """Return the modules of all drivers, for a process that wants them imported beforehand."""
    return sorted({target.partition(":")[0] for target in _DRIVERS.values() if target})


def supported_hypervisors() -> list[str]:
    """Return the names of the hypervisors that have a driver."""
    return [name for name, target in _DRIVERS.items() if target is not None]


def get_hypervisor(name: str, env: NodeEnv) -> Hypervisor:
    """Return the driver of a hypervisor on a node.

    Raises:
        OpPrereqError: there is no hypervisor of that name.
        NotSupportedError: it has no driver.
    """
    if name not in _DRIVERS:
        raise OpPrereqError(
            f"unknown hypervisor {name!r}; known are {', '.join(_DRIVERS)}", ErrorCode.INVAL
        )
    target = _DRIVERS[name]
    if target is None:
        raise NotSupportedError(
            f"hypervisor {name!r} is not supported; use one of {', '.join(supported_hypervisors())}"
        )
    module, _, attribute = target.partition(":")
    factory = cast("Callable[[NodeEnv], Hypervisor]", getattr(import_module(module), attribute))
    return factory(env)

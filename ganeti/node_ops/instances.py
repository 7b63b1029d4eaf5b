"""Instances on this node: looking at them, starting, stopping, rebooting.

What the master asks for a second time is answered as done: a call whose answer got lost may be
repeated.

Source: node_rpc.json, calls instance_*, "reason_trail".
"""

import logging
import os
import threading
from typing import Final

import msgspec

from ganeti.base.errors import GenericError, HypervisorError
from ganeti.base.json import dumps
from ganeti.hypervisor.interface import InstanceState
from ganeti.node_ops import drivers
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.leftovers import alone
from ganeti.objects.hypervisors import RebootType
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.system import clock, files

logger = logging.getLogger(__name__)

_REASON_SOURCE: Final = "gnt:daemon:noded"
_POWERCYCLE_DELAY_S: Final = 5.0
_REASON_MODE: Final = 0o644
_REASON_DIRECTORY_MODE: Final = 0o755


class ConsoleNode(msgspec.Struct, frozen=True):
    """What a console needs to know of its instance's primary node."""

    name: str
    primary_ip: str


class ConsoleRequest(msgspec.Struct, frozen=True):
    """One instance in instance_console_info, as stored, with its filled parameters beside it."""

    instance: dict[str, object]
    node: ConsoleNode
    hvparams: dict[str, object] = msgspec.field(name="hvParams")
    beparams: dict[str, object] = msgspec.field(name="beParams")


def all_instances_info(
    context: NodeContext, hypervisor_list: list[str], _all_hvparams: dict[str, object]
) -> dict[str, dict[str, object]]:
    """Return {instance name: memory, vcpus, state, time} of all instances of some hypervisors.

    Raises:
        HypervisorError: two hypervisors know an instance of the same name.
    """
    found: dict[str, dict[str, object]] = {}
    for name in hypervisor_list:
        for info in drivers.hypervisor(context, name).all_instances_info():
            if info.name in found:
                raise HypervisorError(
                    f"instance {info.name!r} is there twice on node {context.hostname}"
                )
            found[info.name] = info.to_wire()
    return found


def instance_list(
    context: NodeContext, hypervisor_list: list[str], _hvparams: dict[str, object]
) -> list[str]:
    """Return the names of all instances of some hypervisors."""
    return sorted(
        instance
        for name in hypervisor_list
        for instance in drivers.hypervisor(context, name).list_instances()
    )


def instance_info(
    context: NodeContext, instance: str, hname: str, _hvparams: dict[str, object] | None
) -> dict[str, object]:
    """Return memory, vcpus, state and time of one instance; {} when it does not run here."""
    info = drivers.hypervisor(context, hname).instance_info(instance)
    return {} if info is None else info.to_wire()


def instance_console_info(
    context: NodeContext, instances: dict[str, ConsoleRequest]
) -> dict[str, dict[str, object]]:
    """Return how to reach the console of each of some instances, the preferred way."""
    return {name: _console(context, request) for name, request in instances.items()}


def hypervisor_validate_params(
    context: NodeContext, hvname: str, hvfull: dict[str, object]
) -> None:
    """Check filled hypervisor parameters against this node.

    Raises:
        OpPrereqError: a parameter is wrong here; the text names it.
    """
    driver = drivers.hypervisor(context, hvname)
    driver.check_params(hvfull)
    driver.validate_params(hvfull)


def instance_start(
    context: NodeContext, instance_hvp_bep: RpcInstance, startup_paused: bool, reason: list[object]
) -> None:
    """Start an instance; one that runs already is left alone.

    Raises:
        HypervisorError, BlockDeviceError: it does not run.
    """
    instance = instance_hvp_bep
    drivers.check_instance_name(instance.name)
    driver = drivers.hypervisor(context, instance.hypervisor)
    info = driver.instance_info(instance.name)
    if info is not None and info.state is InstanceState.RUNNING:
        logger.info("instance %s runs already, not started", instance.name)
        return
    if info is not None:
        driver.stop(instance.name, force=True)  # what is left of a guest that went down by itself
    try:
        disks = drivers.assemble_disks(context, instance)
        drivers.open_disks(context, instance)
        linked = drivers.with_links(context, instance.name, disks)
        with alone(context, instance.name):
            driver.start(instance, linked, paused=startup_paused)
    except GenericError:
        drivers.unlink_disks(context.paths, instance.name)
        raise
    store_reason(context, instance.name, reason, "start")


def instance_shutdown(
    context: NodeContext, instance: RpcInstance, timeout: float, reason: list[object]
) -> None:
    """Stop an instance, by force once ``timeout`` seconds are over; 0 asks for force at once.

    What an earlier job left at work on its disks is ended, too.

    Raises:
        HypervisorError: it still runs.
    """
    drivers.check_instance_name(instance.name)
    driver = drivers.hypervisor(context, instance.hypervisor)
    if driver.instance_info(instance.name) is None:
        with alone(context, instance.name):  # its disks may be taken away next
            logger.info("instance %s does not run, not stopped", instance.name)
    else:
        driver.stop(instance.name, force=timeout <= 0, timeout_s=timeout)
        if driver.instance_info(instance.name) is not None:
            raise HypervisorError(
                f"instance {instance.name!r} still runs on node {context.hostname}"
            )
        store_reason(context, instance.name, reason, "shutdown")
    drivers.unlink_disks(context.paths, instance.name)


def instance_reboot(
    context: NodeContext,
    inst: RpcInstance,
    reboot_type: RebootType,
    shutdown_timeout: float,
    reason: list[object],
) -> None:
    """Reboot an instance that runs: ``soft`` inside its machine, ``hard`` with a new one.

    Raises:
        HypervisorError: it does not run, or did not come up again.
        GenericError: a full reboot, which the master composes of a stop and a start.
    """
    if reboot_type is RebootType.FULL:
        raise GenericError("a full reboot is a shutdown and a start, not one call")
    drivers.check_instance_name(inst.name)
    driver = drivers.hypervisor(context, inst.hypervisor)
    if driver.instance_info(inst.name) is None:
        raise HypervisorError(f"instance {inst.name!r} does not run on node {context.hostname}")
    disks = drivers.with_links(context, inst.name, drivers.assemble_disks(context, inst))
    driver.reboot(inst, disks, kind=reboot_type, timeout_s=shutdown_timeout)
    store_reason(context, inst.name, reason, "reboot")


def instance_balloon_memory(context: NodeContext, instance: RpcInstance, memory: int) -> None:
    """Set the memory (MiB) that a running instance may use.

    Raises:
        HypervisorError: it does not run, or cannot change its size.
    """
    drivers.hypervisor(context, instance.hypervisor).balloon(instance.name, memory)


def hotplug_supported(context: NodeContext, instance: RpcInstance) -> None:
    """Check that devices of a running instance can be added and taken away.

    Raises:
        HotplugError: they cannot; the text says why.
    """
    drivers.hypervisor(context, instance.hypervisor).hotplug_supported(instance)


def node_powercycle(context: NodeContext, hypervisor: str, _hvparams: dict[str, object]) -> str:
    """Restart this node at once, without stopping anything.

    The answer is sent before it happens: a child of this one waits a moment first.

    Raises:
        GenericError: this is a virtual node, which shares its machine with others.
    """
    if context.paths.root:
        raise GenericError(f"node {context.hostname} is virtual and has no power to switch")
    driver = drivers.hypervisor(context, hypervisor)
    if os.fork() == 0:
        os.setsid()
        threading.Event().wait(_POWERCYCLE_DELAY_S)
        try:
            driver.powercycle()
        finally:
            os._exit(1)
    return f"restarting in {_POWERCYCLE_DELAY_S:g} seconds"


def store_reason(
    context: NodeContext, instance_name: str, reason: list[object], action: str
) -> None:
    """Write down why the state of an instance changed last, for the monitoring daemon."""
    trail = [*reason, [f"{_REASON_SOURCE}:{action}", "", clock.now_ns()]]
    directory = context.paths.instance_reason_dir
    try:
        files.ensure_directory(directory, _REASON_DIRECTORY_MODE)
        files.write_atomic(os.path.join(directory, instance_name), dumps(trail), _REASON_MODE)
    except OSError as err:  # the instance is as it was asked for: that is no failure
        logger.warning("cannot write down why %s changed: %s; ignoring", instance_name, err)


def _console(context: NodeContext, request: ConsoleRequest) -> dict[str, object]:
    """Return the console of one instance."""
    filled = {
        **request.instance,
        "hvparams": request.hvparams,
        "beparams": request.beparams,
        "nics": [],  # unfilled as they come; a console does not depend on them
    }
    instance = RpcInstance.from_wire(filled)
    consoles = drivers.hypervisor(context, instance.hypervisor).consoles(
        instance, node_name=request.node.name, node_address=request.node.primary_ip
    )
    return consoles[0].to_wire()

"""Instances on this node: looking at them, starting, stopping, rebooting.

What the master asks for a second time is answered as done: a call whose answer got lost may be
repeated.

Source: node_rpc.json, calls instance_*, "reason_trail".
"""

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ganeti.base.errors import GenericError, HypervisorError
from ganeti.base.json import dumps
from ganeti.hypervisor.interface import InstanceState
from ganeti.node_ops import drivers
from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.node_ops.leftovers import alone
from ganeti.objects.hypervisors import RebootType
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.protocol.service import Argument
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


_REQUESTS: Final = Argument("instances", dict[str, ConsoleRequest])


class Instances(NodeHandler):
    """Instances."""

    def all_instances_info(
        self, hypervisor_list: Sequence[str], all_hvparams: Mapping[str, object]
    ) -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = {}
        for driver in drivers.hypervisors(self.context, hypervisor_list, all_hvparams):
            for info in driver.all_instances_info():
                if info.name in found:
                    raise HypervisorError(
                        f"instance {info.name!r} is there twice on node {self.hostname}"
                    )
                found[info.name] = info.to_wire()
        return found

    def instance_list(
        self, hypervisor_list: Sequence[str], hvparams: Mapping[str, object]
    ) -> list[str]:
        return sorted(
            instance
            for driver in drivers.hypervisors(self.context, hypervisor_list, hvparams)
            for instance in driver.list_instances()
        )

    def instance_info(
        self, instance: str, hname: str, hvparams: Mapping[str, object] | None
    ) -> dict[str, object]:
        info = drivers.hypervisor(self.context, hname, hvparams or {}).instance_info(instance)
        return {} if info is None else info.to_wire()

    def instance_console_info(
        self, instances: Mapping[str, Mapping[str, object]]
    ) -> dict[str, dict[str, object]]:
        requests: dict[str, ConsoleRequest] = _REQUESTS.read(instances)
        return {name: _console(self.context, request) for name, request in requests.items()}

    def hypervisor_validate_params(self, hvname: str, hvfull: Mapping[str, object]) -> None:
        driver = drivers.hypervisor(self.context, hvname, hvfull)
        driver.check_params(hvfull)
        driver.check_on_node(hvfull)

    def instance_start(
        self, instance: RpcInstance, *, startup_paused: bool, reason: Sequence[object]
    ) -> None:
        drivers.check_instance_name(instance.name)
        driver = drivers.hypervisor_of(self.context, instance)
        info = driver.instance_info(instance.name)
        if info is not None and info.state is InstanceState.RUNNING:
            logger.info("instance %s runs already, not started", instance.name)
            return
        if info is not None:
            driver.stop(
                instance.name, force=True
            )  # what is left of a guest that went down by itself
        try:
            disks = drivers.assemble_disks(self.context, instance)
            drivers.open_disks(self.context, instance)
            linked = drivers.with_links(self.context, instance.name, disks)
            with alone(self.context, instance.name):
                driver.start(instance, linked, paused=startup_paused)
        except GenericError:
            drivers.unlink_disks(self.paths, instance.name)
            raise
        store_reason(self.context, instance.name, reason, "start")

    def instance_shutdown(
        self, instance: RpcInstance, timeout: float, reason: Sequence[object]
    ) -> None:
        drivers.check_instance_name(instance.name)
        driver = drivers.hypervisor_of(self.context, instance)
        if driver.instance_info(instance.name) is None:
            with alone(self.context, instance.name):  # its disks may be taken away next
                logger.info("instance %s does not run, not stopped", instance.name)
        else:
            driver.stop(instance.name, force=timeout <= 0, timeout_s=timeout)
            if driver.instance_info(instance.name) is not None:
                raise HypervisorError(
                    f"instance {instance.name!r} still runs on node {self.hostname}"
                )
            store_reason(self.context, instance.name, reason, "shutdown")
        drivers.unlink_disks(self.paths, instance.name)

    def instance_reboot(
        self,
        instance: RpcInstance,
        reboot_type: RebootType,
        shutdown_timeout: float,
        reason: Sequence[object],
    ) -> None:
        if reboot_type is RebootType.FULL:
            raise GenericError("a full reboot is a shutdown and a start, not one call")
        drivers.check_instance_name(instance.name)
        driver = drivers.hypervisor_of(self.context, instance)
        if driver.instance_info(instance.name) is None:
            raise HypervisorError(
                f"instance {instance.name!r} does not run on node {self.hostname}"
            )
        disks = drivers.with_links(
            self.context, instance.name, drivers.assemble_disks(self.context, instance)
        )
        driver.reboot(instance, disks, kind=reboot_type, timeout_s=shutdown_timeout)
        store_reason(self.context, instance.name, reason, "reboot")

    def instance_balloon_memory(self, instance: RpcInstance, memory: int) -> None:
        drivers.hypervisor_of(self.context, instance).balloon(instance.name, memory)

    def node_powercycle(self, hypervisor: str, hvparams: Mapping[str, object]) -> str:
        if self.paths.root:
            raise GenericError(f"node {self.hostname} is virtual and has no power to switch")
        driver = drivers.hypervisor(self.context, hypervisor, hvparams)
        if os.fork() == 0:
            os.setsid()
            threading.Event().wait(_POWERCYCLE_DELAY_S)
            try:
                driver.powercycle()
            finally:
                os._exit(1)
        return f"restarting in {_POWERCYCLE_DELAY_S:g} seconds"


def store_reason(
    context: NodeContext, instance_name: str, reason: Sequence[object], action: str
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
    consoles = drivers.hypervisor_of(context, instance).consoles(
        instance, node_name=request.node.name, node_address=request.node.primary_ip
    )
    return consoles[0].to_wire()

"""Instances on this node: looking at them, starting, stopping, rebooting.

A request that the master repeats is answered as done: a call whose answer got lost may be
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
from ganeti.hypervisor import node
from ganeti.hypervisor.interface import GUEST_WAIT_S, ConsoleNode, InstanceState
from ganeti.node_ops.context import NodeHandler, check_instance_name
from ganeti.node_ops.instances import communication, departures
from ganeti.node_ops.leftovers import alone
from ganeti.objects.hypervisors import ConsoleKind, RebootType
from ganeti.objects.model import InstanceConsole
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.protocol.service import Argument
from ganeti.system import clock, files

logger = logging.getLogger(__name__)

_GUESTS_S: Final = 20.0  # all guests together: less than the call has (URGENT, 60 s)
_LEAST_S: Final = 0.1  # a guest that answers at all does so in milliseconds
_REASON_SOURCE: Final = "gnt:daemon:noded"
_POWERCYCLE_DELAY_S: Final = 5.0
_REASON_MODE: Final = 0o644
_REASON_DIRECTORY_MODE: Final = 0o755


HvParams = Mapping[str, object]
Reason = Sequence[object]  # the steps of a trail
Wire = dict[str, object]


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
        self, hypervisor_list: Sequence[str], all_hvparams: HvParams
    ) -> dict[str, Wire]:
        found: dict[str, Wire] = {}
        for driver in self.node.hypervisors(hypervisor_list, all_hvparams):
            for info in driver.all_instances_info():
                if info.name in found:
                    raise self._error(info.name, "is there twice")
                found[info.name] = info.to_wire()
        return found

    def instance_list(self, hypervisor_list: Sequence[str], hvparams: HvParams) -> list[str]:
        return self.node.instance_names(hypervisor_list, hvparams)

    def instance_info(self, instance: str, hname: str, hvparams: HvParams | None) -> Wire:
        info = self.node.hypervisor(hname, hvparams or {}).instance_info(instance)
        return {} if info is None else info.to_wire()

    def instance_console_info(
        self, instances: Mapping[str, Mapping[str, object]]
    ) -> dict[str, Wire]:
        requests: dict[str, ConsoleRequest] = _REQUESTS.read(instances)
        return {name: self._console(request) for name, request in requests.items()}

    def instance_consoles(
        self, instances: Mapping[str, Mapping[str, object]]
    ) -> dict[str, list[Wire]]:
        requests: dict[str, ConsoleRequest] = _REQUESTS.read(instances)
        return {name: self._ways(request) for name, request in requests.items()}

    def instance_guest_info(self, instances: Mapping[str, Mapping[str, object]]) -> dict[str, Wire]:
        requests: dict[str, ConsoleRequest] = _REQUESTS.read(instances)
        deadline = clock.monotonic() + _GUESTS_S
        found = {}
        for name, request in requests.items():
            instance = _described(request)
            left_s = max(_LEAST_S, deadline - clock.monotonic())
            driver = self.node.hypervisor_of(instance)
            found[name] = driver.guest(instance, min(GUEST_WAIT_S, left_s)).to_wire()
        return found

    def hypervisor_validate_params(self, hvname: str, hvfull: HvParams) -> None:
        self.node.hypervisor(hvname, hvfull).check_all(hvfull)

    def instance_start(
        self, instance: RpcInstance, *, startup_paused: bool, reason: Reason
    ) -> None:
        check_instance_name(instance.name)
        driver = self.node.hypervisor_of(instance)
        info = driver.instance_info(instance.name)
        if info is not None and info.state is InstanceState.RUNNING:
            logger.info("instance %s runs already, not started", instance.name)
            departures.forget(self.paths, instance)
            return
        departures.check(self.paths, instance)
        if info is not None:
            driver.stop(instance.name, force=True)  # remains of a guest that switched itself off
        try:
            disks = self.node.linked_disks(instance)
            self.node.open_disks(instance)
            with alone(self.node, instance.name):
                driver.start(instance, disks, paused=startup_paused)
        except GenericError:
            self.node.unlink_disks(instance.name)
            raise
        self._store_reason(instance.name, reason, "start")

    def instance_shutdown(self, instance: RpcInstance, timeout: float, reason: Reason) -> None:
        check_instance_name(instance.name)
        driver = self.node.hypervisor_of(instance)
        info = driver.instance_info(instance.name)
        if info is None or info.state is not InstanceState.RUNNING:
            departures.check(self.paths, instance)
        if info is None:
            with alone(self.node, instance.name):  # its disks may be taken away next
                logger.info("instance %s does not run, not stopped", instance.name)
                # A guest that has ended by itself leaves interfaces, routes and helpers here.
                driver.stop(instance.name, force=True)
        else:
            driver.stop(instance.name, force=timeout <= 0, timeout_s=timeout)
            if driver.instance_info(instance.name) is not None:
                raise self._error(instance.name, "still runs")
            departures.forget(self.paths, instance)
            self._store_reason(instance.name, reason, "shutdown")
        self.node.unlink_disks(instance.name)
        communication.forget(self.paths, instance.name)

    def instance_reboot(
        self,
        instance: RpcInstance,
        reboot_type: RebootType,
        shutdown_timeout: float,
        reason: Reason,
    ) -> None:
        if reboot_type is RebootType.FULL:
            raise GenericError("a full reboot is a shutdown and a start, not one call")
        check_instance_name(instance.name)
        driver = self.node.hypervisor_of(instance)
        info = driver.instance_info(instance.name)
        if info is None:
            raise self._error(instance.name, "does not run")
        if info.state is not InstanceState.RUNNING:
            departures.check(self.paths, instance)
        disks = self.node.linked_disks(instance)
        driver.reboot(instance, disks, kind=reboot_type, timeout_s=shutdown_timeout)
        self._store_reason(instance.name, reason, "reboot")

    def instance_balloon_memory(self, instance: RpcInstance, memory: int) -> None:
        self.node.hypervisor_of(instance).balloon(instance.name, memory)

    def node_powercycle(self, hypervisor: str, hvparams: HvParams) -> str:
        if self.paths.root:
            raise GenericError(f"node {self.hostname} is virtual and has no power to switch")
        # The daemon does it itself: it is locked in memory, a child would have pages that are not.
        threading.Timer(_POWERCYCLE_DELAY_S, node.restart_at_once, [self.hostname]).start()
        return f"restarting in {_POWERCYCLE_DELAY_S:g} seconds"

    def _error(self, instance_name: str, what: str) -> HypervisorError:
        return HypervisorError(f"instance {instance_name!r} {what} on node {self.hostname}")

    def _store_reason(self, instance_name: str, reason: Reason, action: str) -> None:
        """Write down why the state of an instance changed last, for the monitoring daemon."""
        trail = [*reason, [f"{_REASON_SOURCE}:{action}", "", clock.now_ns()]]
        directory = self.paths.instance_reason_dir
        try:
            files.ensure_directory(directory, _REASON_DIRECTORY_MODE)
            files.write_atomic(os.path.join(directory, instance_name), dumps(trail), _REASON_MODE)
        except OSError as err:  # the instance is as it was asked for: that is no failure
            logger.warning("cannot write down why %s changed: %s; ignoring", instance_name, err)

    def _console(self, request: ConsoleRequest) -> Wire:
        """Return the console of one instance."""
        instance = _described(request)
        driver = self.node.hypervisor_of(instance)
        return driver.consoles(instance, request.node)[0].to_wire()

    def _ways(self, request: ConsoleRequest) -> list[Wire]:
        """Return every way to the console of one instance, from this node itself."""
        instance = _described(request)
        driver = self.node.hypervisor_of(instance)
        found = driver.consoles(instance, request.node)
        path = driver.vnc_socket(instance)
        if path:
            vnc = InstanceConsole(instance=instance.name, kind=ConsoleKind.VNC, host=path)
            found = [each for each in found if each.kind is not ConsoleKind.MESSAGE] + [vnc]
        return [each.to_wire() for each in found]


def _described(request: ConsoleRequest) -> RpcInstance:
    parameters = {"hvparams": request.hvparams, "beparams": request.beparams}
    # The NICs come unfilled; neither console nor guest agent depends on them.
    return RpcInstance.from_wire({**request.instance, **parameters, "nics": []})

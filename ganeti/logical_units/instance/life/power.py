"""Start, stop and reboot an instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.base.errors import GenericError, OpExecError, wrong_state
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.base import InstanceUnit, OnInstance, check_node_online
from ganeti.logical_units.instance.memory import reserve_memory
from ganeti.logical_units.instance.parameters import (
    check_beparams,
    check_filled_beparams,
    check_hvparams,
    without_defaults,
)
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.fill import cluster_hvparams, fill_beparams
from ganeti.objects.hypervisors import RebootType
from ganeti.objects.model import AdminState, AdminStateSource, Instance, LiveState, Node
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.opcodes.instance import OpInstanceReboot, OpInstanceShutdown, OpInstanceStartup
from ganeti.protocol.wconfd import ObjectKind, WConfCalls


def check_not_offline(view: InstanceView) -> None:
    """Refuse an instance that is marked offline.

    Raises:
        OpPrereqError: it is (wrong_state).
    """
    if view.instance.admin_state is AdminState.OFFLINE:
        name = view.instance.name
        raise wrong_state(
            f"instance {name!r} is marked offline; use 'gnt-instance modify --online {name}' first"
        )


def own_hvparams(view: InstanceView) -> dict[str, object]:
    """Return the cluster's filled parameters of the instance's hypervisor."""
    return cluster_hvparams(view.cluster).get(view.instance.hypervisor, {})


def running_info(context: JobContext, view: InstanceView, node: Node) -> Mapping[str, object]:
    """Ask a node about the instance; returns an empty mapping when it is not there.

    Raises:
        OpPrereqError: the node does not answer.
    """
    answer = context.nodes.check(node, f"look at instance {view.instance.name!r}").instance_info(
        view.instance.name, view.instance.hypervisor, own_hvparams(view)
    )
    return answer if isinstance(answer, Mapping) else {}


def is_running(info: Mapping[str, object]) -> bool:
    """Tell whether an instance runs, from the answer of its node."""
    return info.get("state") == LiveState.RUNNING


def check_not_running(context: JobContext, view: InstanceView) -> None:
    """Refuse an instance that runs.

    Raises:
        OpPrereqError: it does (wrong_state), or its node does not answer.
    """
    if is_running(running_info(context, view, view.primary)):
        raise wrong_state(
            f"instance {view.instance.name!r} is running on node {view.primary.name!r}; shut it"
            " down first"
        )


def start_on_primary(
    context: JobContext,
    view: InstanceView,
    wire: RpcInstance,
    paused: bool,
    reason: Sequence[object],
) -> None:
    """Start the instance on its primary node, which makes the disks ready itself.

    Raises:
        OpExecError: it did not start; its disks are closed again.
    """
    node = view.primary
    what = f"start instance {view.instance.name!r}"
    try:
        context.nodes.on(node, what).instance_start(wire, startup_paused=paused, reason=reason)
    except GenericError:
        disks.deactivate(context, view, node)
        raise


def start_again(context: JobContext, view: InstanceView, reason: Sequence[object]) -> bool:
    """Start an instance that was stopped for a while; returns False if it runs already.

    Raises:
        OpExecError: it did not start; says how to start it once that is mended.
    """
    name = view.instance.name
    try:
        if is_running(running_info(context, view, view.primary)):
            return False
        start_on_primary(context, view, view.wire(), False, reason)
    except GenericError as err:
        raise OpExecError(
            f"{err}; the instance is down: start it with 'gnt-instance startup {name}' once that is"
            " mended"
        ) from err
    return True


def stop_on_primary(
    context: JobContext, view: InstanceView, node: Node, timeout_s: int, reason: Sequence[object]
) -> None:
    """Stop the instance on a node and close its disks there.

    Raises:
        OpExecError: it could not be stopped.
    """
    context.nodes.on(node, f"shut down instance {view.instance.name!r}").instance_shutdown(
        view.wire(), timeout_s, reason
    )
    disks.deactivate(context, view, node)


@dataclass(frozen=True, slots=True)
class Start(OnInstance):
    """How an instance is started.

    Attributes:
        hvparams, beparams: given for this start alone.
    """

    hvparams: Mapping[str, object]
    beparams: Mapping[str, object]
    is_running: bool


class LUInstanceStartup(InstanceUnit[OpInstanceStartup, Start]):
    """Start an instance."""

    hooks = HookPoint("instance-start", ObjectType.INSTANCE)

    def own_values(self, plan: Start) -> Mapping[str, object]:
        return {"FORCE": self.op.force}

    def plan(self, found: OnInstance) -> Start:
        """Refuse an instance that is offline or does not fit into the node's memory."""
        view, instance = found.view, found.view.instance
        check_not_offline(view)
        hvparams = without_defaults(check_hvparams(instance.hypervisor, self.op.hvparams))
        beparams = without_defaults(check_beparams(self.op.beparams))
        if view.primary.offline:
            self._check_offline_primary(view)
            return Start(view, hvparams, beparams, is_running=False)
        if is_running(running_info(self.context, view, view.primary)):
            return Start(view, hvparams, beparams, is_running=True)
        if hvparams:
            self._check_params_on_node(view, hvparams)
        given = replace(instance, beparams={**instance.beparams, **beparams})
        filled = fill_beparams(view.cluster, given)
        check_filled_beparams(filled)
        reserve_memory(
            self.context,
            view.primary,
            f"instance {instance.name!r}",
            filled["minmem"],
            instance.hypervisor,
            own_hvparams(view),
        )
        return Start(view, hvparams, beparams, is_running=False)

    def _check_offline_primary(self, view: InstanceView) -> None:
        if not self.op.ignore_offline_nodes:
            raise wrong_state(
                f"primary node {view.primary.name!r} of instance {view.instance.name!r} is marked"
                " offline; use --ignore-offline to only mark the instance as started, or fail it"
                " over"
            )
        self.context.warn("ignoring that the primary node is offline")
        if self.op.hvparams or self.op.beparams:
            self.context.warn("parameters given for this start are ignored")

    def _check_params_on_node(self, view: InstanceView, hvparams: Mapping[str, object]) -> None:
        self.context.nodes.check(
            view.primary, "use these hypervisor parameters"
        ).hypervisor_validate_params(view.instance.hypervisor, view.wire(hvp=hvparams).hvparams)

    def execute(self, plan: Start) -> None:
        """Record that the instance is meant to run, then start it."""
        view = plan.view
        mark_up(self.config, view.instance, remember=not self.op.no_remember)
        if view.primary.offline:
            self.context.info("primary node offline, marked instance as started")
            return
        if plan.is_running:
            self.context.info(f"instance {view.instance.name} is running already")
            return
        wire = view.wire(hvp=plan.hvparams, bep=plan.beparams)
        start_on_primary(self.context, view, wire, self.op.startup_paused, self.op.reason or [])


def mark_up(config: WConfCalls, instance: Instance, *, remember: bool) -> None:
    """Record that the instance is meant to run and its disks to be ready, if that is news."""
    changes: dict[str, object] = {}
    if remember and instance.admin_state is not AdminState.UP:
        changes["admin_state"] = AdminState.UP.value
    if remember and instance.admin_state_source is not AdminStateSource.ADMIN:
        changes["admin_state_source"] = AdminStateSource.ADMIN.value
    if not instance.disks_active:
        changes["disks_active"] = True
    if changes:
        config.modify(ObjectKind.INSTANCE, instance.uuid, changes)


class LUInstanceShutdown(InstanceUnit[OpInstanceShutdown, OnInstance]):
    """Shut an instance down."""

    hooks = HookPoint("instance-stop", ObjectType.INSTANCE)

    def own_values(self, plan: OnInstance) -> Mapping[str, object]:
        return {"TIMEOUT": self.op.timeout}

    def plan(self, found: OnInstance) -> OnInstance:
        """Refuse an instance that is offline, or whose node is."""
        instance, primary = found.view.instance, found.view.primary
        if self.op.force:
            if instance.admin_state is AdminState.OFFLINE:
                self.context.warn("ignoring that the instance is marked offline")
        else:
            check_not_offline(found.view)
        if primary.offline and self.op.ignore_offline_nodes:
            self.context.warn("ignoring that the primary node is offline")
        elif primary.offline:
            raise wrong_state(
                f"primary node {primary.name!r} of instance {instance.name!r} is marked"
                " offline; use --ignore-offline to only mark the instance as stopped"
            )
        return found

    def execute(self, plan: OnInstance) -> None:
        """Record that the instance is meant to be down, then stop it and close its disks."""
        view, instance = plan.view, plan.view.instance
        if not self.op.no_remember:
            self._mark_down(instance)
        if view.primary.offline:
            self.context.info("primary node offline, marked instance as stopped")
            return
        stop_on_primary(self.context, view, view.primary, self.op.timeout, self.op.reason or [])
        if self.op.no_remember and instance.disks_active:
            self.config.modify(ObjectKind.INSTANCE, instance.uuid, {"disks_active": False})

    def _mark_down(self, instance: Instance) -> None:
        source = self.op.admin_state_source or AdminStateSource.ADMIN
        if instance.admin_state is AdminState.OFFLINE:
            return
        wanted: dict[str, object] = {
            "admin_state": AdminState.DOWN.value,
            "admin_state_source": source.value,
            "disks_active": False,
        }
        now = {
            "admin_state": instance.admin_state.value,
            "admin_state_source": instance.admin_state_source.value,
            "disks_active": instance.disks_active,
        }
        if wanted != now:
            self.config.modify(ObjectKind.INSTANCE, instance.uuid, wanted)


@dataclass(frozen=True, slots=True)
class Reboot(OnInstance):
    """An instance that is rebooted, or started if it does not run."""

    is_running: bool


class LUInstanceReboot(InstanceUnit[OpInstanceReboot, Reboot]):
    """Reboot an instance: soft and hard within its process, full by stopping and starting it."""

    hooks = HookPoint("instance-reboot", ObjectType.INSTANCE)

    def own_values(self, plan: Reboot) -> Mapping[str, object]:
        return {
            "IGNORE_SECONDARIES": self.op.ignore_secondaries,
            "REBOOT_TYPE": self.op.reboot_type.value,
            "SHUTDOWN_TIMEOUT": self.op.shutdown_timeout,
        }

    def plan(self, found: OnInstance) -> Reboot:
        """Refuse an instance that is offline, or whose node is."""
        view = found.view
        check_not_offline(view)
        check_node_online(view.primary, f"primary node of {view.instance.name!r}:")
        return Reboot(view, is_running(running_info(self.context, view, view.primary)))

    def execute(self, plan: Reboot) -> None:
        """Reboot; an instance that does not run is started."""
        if plan.is_running and self.op.reboot_type is not RebootType.FULL:
            self._reboot_in_process(plan.view)
        else:
            self._restart(plan)
        mark_up(self.config, plan.view.instance, remember=True)

    def _reboot_in_process(self, view: InstanceView) -> None:
        self.context.nodes.on(
            view.primary, f"reboot instance {view.instance.name!r}"
        ).instance_reboot(
            view.wire(), self.op.reboot_type, self.op.shutdown_timeout, self.op.reason or []
        )

    def _restart(self, plan: Reboot) -> None:
        view, timeout_s = plan.view, self.op.shutdown_timeout
        if plan.is_running:
            stop_on_primary(self.context, view, view.primary, timeout_s, self.op.reason or [])
        else:
            name = view.instance.name
            self.context.info(f"instance {name} was already stopped, starting now")
        start_on_primary(self.context, view, view.wire(), False, self.op.reason or [])

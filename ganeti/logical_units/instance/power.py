"""Start, stop and reboot an instance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, GenericError, OpExecError, OpPrereqError
from ganeti.logical_units.instance import disks
from ganeti.logical_units.instance.memory import reserve_memory
from ganeti.logical_units.instance.parameters import (
    check_beparams,
    check_filled_beparams,
    check_hvparams,
    without_defaults,
)
from ganeti.logical_units.instance.subject import InstanceUnit, Subject, check_node_online
from ganeti.logical_units.node_calls import ask, call_node, failure_text, order
from ganeti.objects.admin_state import AdminState, AdminStateSource
from ganeti.objects.fill import cluster_hvparams, fill_beparams
from ganeti.objects.hypervisors import RebootType
from ganeti.objects.instance_status import LiveState
from ganeti.opcodes.instance import OpInstanceReboot, OpInstanceShutdown, OpInstanceStartup

if TYPE_CHECKING:
    from ganeti.logical_units.context import JobContext
    from ganeti.objects.node import Node

Reason = list[object]


def check_not_offline(subject: Subject) -> None:
    """Refuse an instance that is marked offline.

    Raises:
        OpPrereqError: it is (wrong_state).
    """
    if subject.instance.admin_state is AdminState.OFFLINE:
        name = subject.instance.name
        raise OpPrereqError(
            f"instance {name!r} is marked offline; use 'gnt-instance modify --online {name}' first",
            ErrorCode.STATE,
        )


def own_hvparams(subject: Subject) -> dict[str, object]:
    """Return the cluster's filled parameters of the instance's hypervisor."""
    return cluster_hvparams(subject.cluster).get(subject.instance.hypervisor, {})


def running_info(context: JobContext, subject: Subject, node: Node) -> Mapping[str, object]:
    """Ask a node about the instance; returns an empty mapping when it is not there.

    Raises:
        OpPrereqError: the node does not answer.
    """
    answer = ask(
        context,
        node,
        f"look at instance {subject.instance.name!r}",
        "instance_info",
        subject.instance.name,
        subject.instance.hypervisor,
        own_hvparams(subject),
    )
    return answer if isinstance(answer, Mapping) else {}


def is_running(info: Mapping[str, object]) -> bool:
    """Tell whether an instance runs, from what its node says."""
    return info.get("state") == LiveState.RUNNING


def start_on_primary(
    context: JobContext, subject: Subject, wire: Mapping[str, object], paused: bool, reason: object
) -> None:
    """Start the instance on its primary node, which makes the disks ready itself.

    Raises:
        OpExecError: it did not start; its disks are closed again.
    """
    node = subject.primary
    what = f"start instance {subject.instance.name!r}"
    try:
        order(context, node, what, "instance_start", wire, paused, reason)
    except GenericError:
        disks.deactivate(context, subject, node)
        raise


def start_again(context: JobContext, subject: Subject, reason: object) -> bool:
    """Start an instance that was stopped for a while; returns False if it runs already.

    Raises:
        OpExecError: it did not start; says how to start it once that is mended.
    """
    name = subject.instance.name
    try:
        if is_running(running_info(context, subject, subject.primary)):
            return False
        start_on_primary(context, subject, subject.wire(), False, reason)
    except GenericError as err:
        raise OpExecError(
            f"{err}; the instance is down: start it with 'gnt-instance startup {name}' once that is"
            " mended"
        ) from err
    return True


def stop_on_primary(
    context: JobContext, subject: Subject, node: Node, timeout_s: int, reason: object
) -> None:
    """Stop the instance on a node and close its disks there.

    Raises:
        OpExecError: it could not be stopped.
    """
    order(
        context,
        node,
        f"shut down instance {subject.instance.name!r}",
        "instance_shutdown",
        subject.wire(),
        timeout_s,
        reason,
    )
    disks.deactivate(context, subject, node)


class LUInstanceStartup(InstanceUnit[OpInstanceStartup]):
    """Start an instance."""

    is_running = False

    def own_env(self) -> Mapping[str, object]:
        """Say whether it is forced."""
        return {"FORCE": self.op.force}

    def check_prereq(self) -> None:
        """Refuse an instance that is offline or does not fit into the node's memory."""
        subject = self.subject
        check_not_offline(subject)
        self.hvp = without_defaults(check_hvparams(self.instance.hypervisor, self.op.hvparams))
        self.bep = without_defaults(check_beparams(self.op.beparams))
        if subject.primary.offline:
            self._check_offline_primary()
            return
        self.is_running = is_running(running_info(self.context, subject, subject.primary))
        if self.is_running:
            return
        if self.hvp:
            self._check_params_on_node()
        given = replace(self.instance, beparams={**self.instance.beparams, **self.bep})
        filled = fill_beparams(self.cluster, given)
        check_filled_beparams(filled)
        reserve_memory(
            self.context,
            subject.primary,
            f"instance {self.instance.name!r}",
            filled["minmem"],
            self.instance.hypervisor,
            own_hvparams(subject),
        )

    def _check_offline_primary(self) -> None:
        if not self.op.ignore_offline_nodes:
            name = self.subject.primary.name
            raise OpPrereqError(
                f"primary node {name!r} of instance {self.instance.name!r} is marked offline; use"
                " --ignore-offline to only mark the instance as started, or fail it over",
                ErrorCode.STATE,
            )
        self.context.warn("ignoring that the primary node is offline")
        if self.op.hvparams or self.op.beparams:
            self.context.warn("parameters given for this start are ignored")

    def _check_params_on_node(self) -> None:
        wire = self.subject.wire(hvp=self.hvp)
        ask(
            self.context,
            self.subject.primary,
            "use these hypervisor parameters",
            "hypervisor_validate_params",
            self.instance.hypervisor,
            wire["hvparams"],
            ecode=ErrorCode.INVAL,
        )

    def exec(self) -> None:
        """Record that the instance is meant to run, then start it."""
        mark_up(self, remember=not self.op.no_remember)
        if self.subject.primary.offline:
            self.context.info("primary node offline, marked instance as started")
            return
        if self.is_running:
            self.context.info(f"instance {self.instance.name} is running already")
            return
        wire = self.subject.wire(hvp=self.hvp, bep=self.bep)
        start_on_primary(self.context, self.subject, wire, self.op.startup_paused, self.op.reason)


def mark_up(
    unit: InstanceUnit[OpInstanceStartup] | InstanceUnit[OpInstanceReboot], *, remember: bool
) -> None:
    """Record that the instance is meant to run and its disks to be ready, if that is news."""
    instance = unit.instance
    changes: dict[str, object] = {}
    if remember and instance.admin_state is not AdminState.UP:
        changes["admin_state"] = AdminState.UP.value
    if remember and instance.admin_state_source is not AdminStateSource.ADMIN:
        changes["admin_state_source"] = AdminStateSource.ADMIN.value
    if not instance.disks_active:
        changes["disks_active"] = True
    if changes:
        unit.config.modify_instance(instance.uuid, changes)


class LUInstanceShutdown(InstanceUnit[OpInstanceShutdown]):
    """Shut an instance down."""

    def own_env(self) -> Mapping[str, object]:
        """Tell how long it gets."""
        return {"TIMEOUT": self.op.timeout}

    def check_prereq(self) -> None:
        """Refuse an instance that is offline, and one whose node is."""
        if self.op.force:
            if self.instance.admin_state is AdminState.OFFLINE:
                self.context.warn("ignoring that the instance is marked offline")
        else:
            check_not_offline(self.subject)
        primary = self.subject.primary
        if primary.offline and self.op.ignore_offline_nodes:
            self.context.warn("ignoring that the primary node is offline")
        elif primary.offline:
            raise OpPrereqError(
                f"primary node {primary.name!r} of instance {self.instance.name!r} is marked"
                " offline; use --ignore-offline to only mark the instance as stopped",
                ErrorCode.STATE,
            )

    def exec(self) -> None:
        """Record that the instance is meant to be down, then stop it and close its disks."""
        if not self.op.no_remember:
            self._mark_down()
        if self.subject.primary.offline:
            self.context.info("primary node offline, marked instance as stopped")
            return
        primary = self.subject.primary
        stop_on_primary(self.context, self.subject, primary, self.op.timeout, self.op.reason)
        if self.op.no_remember and self.instance.disks_active:
            self.config.modify_instance(self.instance.uuid, {"disks_active": False})

    def _mark_down(self) -> None:
        source = self.op.admin_state_source or AdminStateSource.ADMIN
        if self.instance.admin_state is AdminState.OFFLINE:
            return
        wanted: dict[str, object] = {
            "admin_state": AdminState.DOWN.value,
            "admin_state_source": source.value,
            "disks_active": False,
        }
        now = {
            "admin_state": self.instance.admin_state.value,
            "admin_state_source": self.instance.admin_state_source.value,
            "disks_active": self.instance.disks_active,
        }
        if wanted != now:
            self.config.modify_instance(self.instance.uuid, wanted)


class LUInstanceReboot(InstanceUnit[OpInstanceReboot]):
    """Reboot an instance: soft and hard inside its process, full by stopping and starting it."""

    def own_env(self) -> Mapping[str, object]:
        """Tell how it is rebooted."""
        return {
            "IGNORE_SECONDARIES": self.op.ignore_secondaries,
            "REBOOT_TYPE": self.op.reboot_type.value,
            "SHUTDOWN_TIMEOUT": self.op.shutdown_timeout,
        }

    def check_prereq(self) -> None:
        """Refuse an instance that is offline, and one whose node is."""
        check_not_offline(self.subject)
        check_node_online(self.subject.primary, f"primary node of {self.instance.name!r}:")
        self.is_running = is_running(running_info(self.context, self.subject, self.subject.primary))

    def exec(self) -> None:
        """Reboot; an instance that does not run is started."""
        if self.is_running and self.op.reboot_type is not RebootType.FULL:
            self._reboot_inside()
        else:
            self._restart()
        mark_up(self, remember=True)

    def _reboot_inside(self) -> None:
        result = call_node(
            self.context,
            self.subject.primary,
            "instance_reboot",
            self.subject.wire(),
            self.op.reboot_type.value,
            self.op.shutdown_timeout,
            self.op.reason,
        )
        if result.error is not None:
            doing = f"reboot instance {self.instance.name!r}"
            raise OpExecError(failure_text(doing, self.subject.primary, "instance_reboot", result))

    def _restart(self) -> None:
        if self.is_running:
            stop_on_primary(
                self.context,
                self.subject,
                self.subject.primary,
                self.op.shutdown_timeout,
                self.op.reason,
            )
        else:
            self.context.info(f"instance {self.instance.name} was already stopped, starting now")
        wire = self.subject.wire()
        start_on_primary(self.context, self.subject, wire, False, self.op.reason)

"""Start, stop, reboot, install again and remove an instance; say how its console is reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs
from msgspec.structs import replace

from ganeti.base.errors import GenericError, OpExecError, OpPrereqError, wrong_state
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance import guest, isolated
from ganeti.logical_units.instance.base import (
    InstanceUnit,
    OnInstance,
    check_complete,
    check_primary_online,
)
from ganeti.logical_units.instance.guest import (
    check_not_offline,
    check_not_running,
    check_os,
    why_not_stopped,
)
from ganeti.logical_units.instance.helper import remove_left
from ganeti.logical_units.instance.isolated import install_os
from ganeti.logical_units.instance.parameters import (
    check_beparams,
    check_filled_beparams,
    check_hvparams,
    check_processors,
    without_defaults,
)
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.storage.syncing import tell_degraded
from ganeti.logical_units.instance.view import InstanceView, changed_fields
from ganeti.logical_units.locks import LockLevel, LockNeed, shared
from ganeti.objects.fill import fill_beparams, fill_hvparams, fill_osparams_all
from ganeti.objects.hypervisors import RebootType
from ganeti.objects.model import AdminState, AdminStateSource, Node
from ganeti.objects.parameters import apply_changes
from ganeti.objects.record import PrivateParams
from ganeti.opcodes.instance import (
    OpInstanceConsole,
    OpInstanceReboot,
    OpInstanceReinstall,
    OpInstanceRemove,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.protocol.wconfd import ObjectKind


@dataclass(frozen=True, slots=True)
class Start(OnInstance):
    """How an instance is started.

    Attributes:
        hvparams, beparams: given for this start alone.
    """

    hvparams: Mapping[str, object]
    beparams: Mapping[str, object]
    is_running: bool = False


class LUInstanceStartup(InstanceUnit[OpInstanceStartup, Start]):
    """Start an instance."""

    hooks = HookPoint("instance-start", ObjectType.INSTANCE)
    told = ("force",)

    def plan(self, found: OnInstance) -> Start:
        """Refuse an instance that is offline or does not fit into the node's memory."""
        view, instance = found.view, found.view.instance
        guest.check_not_offline(view)
        hvparams = without_defaults(check_hvparams(instance.hypervisor, self.op.hvparams))
        beparams = without_defaults(check_beparams(self.op.beparams))
        plan = Start(view, hvparams, beparams)
        if view.primary.offline:
            self._check_offline_primary(view)
            return plan
        if guest.runs(self.context, view):
            return Start(view, hvparams, beparams, is_running=True)
        guest.check_runs_nowhere_else(self.context, view)
        if hvparams:
            wire = view.wire(view.primary, hvp=hvparams)
            here = [view.primary]
            guest.check_hvparams_on(self.context, here, instance.hypervisor, wire.hvparams)
        given = replace(
            instance,
            hvparams={**instance.hvparams, **hvparams},
            beparams={**instance.beparams, **beparams},
        )
        filled = fill_beparams(view.cluster, given)
        check_filled_beparams(filled)
        check_processors(fill_hvparams(view.cluster, given), filled["vcpus"])
        guest.reserve_for(self.context, view, view.primary, filled["minmem"])
        return plan

    def _check_offline_primary(self, view: InstanceView) -> None:
        if not self.op.ignore_offline_nodes:
            raise wrong_state(
                f"primary node {view.primary.name!r} of instance {view.name!r} is marked"
                " offline; use --ignore-offline to only mark the instance as started, or fail it"
                " over"
            )
        self.context.warn("ignoring that the primary node is offline")
        if self.op.hvparams or self.op.beparams:
            self.context.warn("parameters given for this start are ignored")

    def execute(self, plan: Start) -> None:
        """Record that the instance is meant to run, then start it."""
        view = plan.view
        mark_up(self.context, view, remember=not self.op.no_remember)
        if view.primary.offline:
            self.context.info("primary node offline, marked instance as started")
            return
        if plan.is_running:
            self.context.info(f"instance {view.name} is running already")
            return
        wire = view.wire(view.primary, hvp=plan.hvparams, bep=plan.beparams)
        reason, paused = self.op.reason or [], self.op.startup_paused
        guest.start_on(
            self.context,
            view,
            view.primary,
            reason,
            wire=wire,
            paused=paused,
            ignore_secondaries=self.op.force,
        )
        tell_degraded(self.context, view)


def mark_up(context: JobContext, view: InstanceView, *, remember: bool) -> None:
    """Record that the instance is meant to run and its disks to be ready, if that is news."""
    state = {"admin_state": AdminState.UP.value, "admin_state_source": AdminStateSource.ADMIN.value}
    guest.record(context, view.instance, disks_active=True, **(state if remember else {}))


class LUInstanceShutdown(InstanceUnit[OpInstanceShutdown, OnInstance]):
    """Shut an instance down, or the machine that installs it."""

    hooks = HookPoint("instance-stop", ObjectType.INSTANCE)
    takes_incomplete = True
    told = ("timeout",)

    def plan(self, found: OnInstance) -> OnInstance:
        """Refuse an instance that is offline, or whose node is."""
        instance, primary = found.view.instance, found.view.primary
        if found.view.is_planned:
            check_complete(found.view)
        if not self.op.force:
            guest.check_not_offline(found.view)
        elif instance.admin_state is AdminState.OFFLINE:
            self.context.warn("ignoring that the instance is marked offline")
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
        view, instance, op = plan.view, plan.view.instance, self.op
        is_remembered = not op.no_remember and instance.admin_state is not AdminState.OFFLINE
        if is_remembered:
            source = (op.admin_state_source or AdminStateSource.ADMIN).value
            state = {"admin_state": AdminState.DOWN.value, "admin_state_source": source}
            guest.record(self.context, instance, disks_active=False, **state)
        if view.primary.offline:
            self.context.info("primary node offline, marked instance as stopped")
            return
        try:
            guest.stop(self.context, view, op.timeout, op.reason or [])
        except GenericError:
            if is_remembered:
                self.context.warn(
                    f"instance {view.name} is recorded as stopped, but may still run; shut it down"
                    " again once the error below is mended"
                )
            raise
        if op.no_remember:
            guest.record(self.context, instance, disks_active=False)


@dataclass(frozen=True, slots=True)
class Reboot(OnInstance):
    """An instance that is rebooted, or started if it does not run."""

    is_running: bool


class LUInstanceReboot(InstanceUnit[OpInstanceReboot, Reboot]):
    """Reboot an instance: soft and hard within its process, full by stopping and starting it."""

    hooks = HookPoint("instance-reboot", ObjectType.INSTANCE)
    told = ("ignore_secondaries", "reboot_type", "shutdown_timeout")

    def plan(self, found: OnInstance) -> Reboot:
        """Refuse an instance that is offline, or whose node is."""
        guest.check_not_offline(found.view)
        check_primary_online(found.view)
        was_running = guest.runs(self.context, found.view)
        if not was_running:
            guest.check_runs_nowhere_else(self.context, found.view)
        return Reboot(found.view, was_running)

    def execute(self, plan: Reboot) -> None:
        """Reboot; an instance that does not run is started."""
        context, view, op = self.context, plan.view, self.op
        name, reason = view.name, op.reason or []
        if plan.is_running and op.reboot_type is not RebootType.FULL:
            nodes = context.nodes.on(view.primary, f"reboot instance {name!r}")
            nodes.instance_reboot(
                view.wire(view.primary), op.reboot_type, op.shutdown_timeout, reason
            )
        else:
            if plan.is_running:
                guest.stop(context, view, op.shutdown_timeout, reason)
            else:
                context.info(f"instance {name} was already stopped, starting now")
            ignore = op.ignore_secondaries
            guest.start_on(context, view, view.primary, reason, ignore_secondaries=ignore)
            tell_degraded(context, view)
        mark_up(context, view, remember=True)


class LUInstanceConsole(InstanceUnit[OpInstanceConsole, OnInstance]):
    """Ask the primary node how to reach the console; changes nothing."""

    def locks(self, found: OnInstance) -> LockNeed:
        """Lock only the instance, shared."""
        return shared(LockLevel.INSTANCE, [found.view.name])

    def plan(self, found: OnInstance) -> OnInstance:
        """Refuse an instance that does not run, telling its administrative state."""
        view, name = found.view, found.view.name
        check_primary_online(view)
        if guest.runs(self.context, view):
            return found
        state = {
            AdminState.UP: "is not running although it is meant to: it crashed or was shut down"
            " from inside",
            AdminState.DOWN: "is down",
            AdminState.OFFLINE: "is marked offline",
        }[view.instance.admin_state]
        raise wrong_state(f"instance {name!r} {state}; start it with 'gnt-instance startup {name}'")

    def execute(self, plan: OnInstance) -> dict[str, object]:
        """Return the console as the node describes it."""
        view, instance = plan.view, plan.view.instance
        what = f"find the console of instance {instance.name!r}"
        answer = self.context.nodes.on(view.primary, what).instance_console_info(
            {instance.name: view.described()}
        )
        console = answer.get(instance.name) if isinstance(answer, Mapping) else None
        if not isinstance(console, Mapping):
            raise OpExecError(
                f"cannot {what}: node {view.primary.name!r}, call instance_console_info: the"
                " answer does not have the instance"
            )
        return dict(console)


_HINT = "use --ignore-failures to remove the instance from the configuration all the same"


class LUInstanceRemove(InstanceUnit[OpInstanceRemove, OnInstance]):
    """Stop the instance, remove its disks, remove it from the configuration."""

    hooks = HookPoint("instance-remove", ObjectType.INSTANCE)
    takes_incomplete = True
    told = ("shutdown_timeout",)

    def hook_nodes(self, plan: OnInstance) -> Sequence[Node]:
        return [self.master]

    def hook_nodes_after(self, plan: OnInstance) -> Sequence[Node]:
        return [self.master, *plan.view.nodes]

    def hook_values_after(self, plan: OnInstance) -> Mapping[str, object]:
        return self.hook_values(plan)  # the instance is gone now

    def plan(self, found: OnInstance) -> OnInstance:
        """Refuse an instance whose node is offline, unless failures are to be ignored."""
        view, primary = found.view, found.view.primary
        if primary.offline and not self.op.ignore_failures and not view.is_planned:
            raise wrong_state(
                f"primary node {primary.name!r} of instance {view.name!r} is offline, its"
                f" disks cannot be removed; {_HINT}"
            )
        if not self.op.ignore_failures and not view.is_planned:
            guest.check_runs_nowhere_else(self.context, view)
        return found

    def execute(self, plan: OnInstance) -> None:
        """Stop and remove it; a failure ends it unless failures are to be ignored."""
        op, reason = self.op, self.op.reason or []
        remove_instance(self.context, plan.view, op.shutdown_timeout, op.ignore_failures, reason)


def remove_instance(
    context: JobContext,
    view: InstanceView,
    shutdown_timeout_s: int,
    ignore_failures: bool,
    reason: Sequence[object],
) -> None:
    """Stop an instance, remove its disks, remove it from the configuration.

    Raises:
        OpExecError: a step failed, and failures are not to be ignored.
    """

    def judge(failure: str | None) -> None:
        if failure and not ignore_failures:
            raise OpExecError(f"{failure}; {_HINT}")
        if failure:
            context.warn(f"{failure}; ignoring")

    if not view.is_planned:
        judge(why_not_stopped(context, view, shutdown_timeout_s, reason))
        if view.disks:
            context.info(f"removing block devices for instance {view.name}")
        remove_left(context, view)
        judge(next(iter(disks.remove(context, view)), None))
    context.config.delete(ObjectKind.INSTANCE, view.instance.uuid)


@dataclass(frozen=True, slots=True)
class Reinstallation(OnInstance):
    """The operating system to install, and its parameters.

    Attributes:
        osparams, private: as they are to be recorded with the instance.
        filled: as the create script gets them: with defaults and secret ones.
        isolated: of the machine of its own that runs the script, if it must not run on the node.
    """

    os_name: str
    osparams: Mapping[str, object]
    private: PrivateParams
    filled: PrivateParams
    isolated: isolated.Limits | None


class LUInstanceReinstall(InstanceUnit[OpInstanceReinstall, Reinstallation]):
    """Run the create script again, perhaps of another operating system.

    It also completes an instance whose creation was broken off.
    """

    hooks = HookPoint("instance-reinstall", ObjectType.INSTANCE)
    takes_incomplete = True

    def plan(self, found: OnInstance) -> Reinstallation:
        """Refuse an instance that runs or has no disks, and an unusable operating system."""
        view, name = found.view, found.view.name
        if view.is_planned:
            raise wrong_state(
                f"instance {name!r} is only planned, its disks were never made; make it with"
                f" 'gnt-instance add --commit {name}'"
            )
        check_primary_online(view)
        check_not_offline(view)
        check_not_running(self.context, view)
        if not view.traits.has_disks:
            raise OpPrereqError(f"instance {name!r} is diskless, there is nothing to install on")
        os_name = self.op.os_type or view.instance.os
        if not os_name:
            raise OpPrereqError(f"instance {name!r} has no operating system; give one with -o")
        return self._with_parameters(view, os_name)

    def _with_parameters(self, view: InstanceView, os_name: str) -> Reinstallation:
        instance = view.instance
        # Parameters of the old operating system mean nothing to another one.
        same = os_name == instance.os
        osparams = apply_changes(instance.osparams if same else {}, self.op.osparams or {})
        old = instance.osparams_private if same else PrivateParams()
        new = self.op.osparams_private or PrivateParams()
        private = PrivateParams(apply_changes(old.reveal(), new.reveal()))
        filled = fill_osparams_all(
            view.cluster, os_name, osparams, private, self.op.osparams_secret
        )
        check_os(
            self.context,
            view.primary,
            os_name,
            filled,
            hypervisor=instance.hypervisor,
            installs=True,
            isolates=bool(view.cluster.install_image),
            force_variant=self.op.force_variant,
        )
        needed = isolated.is_needed(
            self.context, view.cluster, view.primary, instance.hypervisor, os_name
        )
        limits = isolated.Limits() if needed else None
        return Reinstallation(view, os_name, osparams, private, filled, limits)

    def execute(self, plan: Reinstallation) -> None:
        """Record the choice, then install."""
        view = self._record(plan)
        instance = view.instance
        self.context.feedback("Running the instance OS create scripts...")
        try:
            disks.open_for_script(self.context, view)
            install_os(
                self.context,
                view,
                plan.filled,
                self.op.debug_level,
                reinstall=True,
                isolated=plan.isolated,
                reason=self.op.reason or [],
            )
        except GenericError:
            self.context.warn(
                f"instance {instance.name} has no usable operating system now; install it"
                " again before it is started"
            )
            raise
        finally:
            disks.deactivate(self.context, view, view.primary)
        if instance.forthcoming:
            self.config.modify(ObjectKind.INSTANCE, instance.uuid, {"forthcoming": None})

    def _record(self, plan: Reinstallation) -> InstanceView:
        """Write the choice into the configuration; returns the instance as it is then."""
        instance = plan.view.instance
        new = structs.replace(
            instance, os=plan.os_name, osparams=dict(plan.osparams), osparams_private=plan.private
        )
        if new.os != instance.os:
            self.context.feedback(f"Changing OS to '{plan.os_name}'...")
        changes = changed_fields(instance, new)
        if changes:
            self.config.modify(ObjectKind.INSTANCE, instance.uuid, changes)
        return plan.view.with_instance(new)

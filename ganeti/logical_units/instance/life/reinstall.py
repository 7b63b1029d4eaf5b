"""Install the operating system of a stopped instance again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import structs

from ganeti.base.errors import GenericError, OpExecError, OpPrereqError, wrong_state
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.base import InstanceUnit, OnInstance, check_node_online
from ganeti.logical_units.instance.life.power import check_not_offline, check_not_running
from ganeti.logical_units.instance.os_scripts import run_script
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.fill import fill_osparams_all
from ganeti.objects.record import PrivateParams
from ganeti.opcodes.instance import OpInstanceReinstall
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import OS_CHECK_HYPERVISOR
from ganeti.protocol.wconfd import ObjectKind


@dataclass(frozen=True, slots=True)
class Reinstallation(OnInstance):
    """The operating system to install, and its parameters.

    Attributes:
        osparams, private: as they are to be recorded with the instance.
        filled: as the create script gets them: with defaults and secret ones.
    """

    os_name: str
    osparams: Mapping[str, object]
    private: PrivateParams
    filled: PrivateParams


class LUInstanceReinstall(InstanceUnit[OpInstanceReinstall, Reinstallation]):
    """Run the create script again, perhaps of another operating system.

    It also completes an instance whose creation was broken off.
    """

    hooks = HookPoint("instance-reinstall", ObjectType.INSTANCE)
    takes_incomplete = True

    def plan(self, found: OnInstance) -> Reinstallation:
        """Refuse an instance that runs or has no disks, and an unusable operating system."""
        view, name = found.view, found.view.instance.name
        if view.is_planned:
            raise wrong_state(
                f"instance {name!r} is only planned, its disks were never made; make it with"
                f" 'gnt-instance add --commit {name}'"
            )
        check_node_online(view.primary, f"primary node of instance {name!r}:")
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
        osparams = {**(instance.osparams if same else {}), **(self.op.osparams or {})}
        own_private = instance.osparams_private if same else PrivateParams()
        private = own_private.merged(self.op.osparams_private or {})
        filled = fill_osparams_all(
            view.cluster, os_name, osparams, private, self.op.osparams_secret
        )
        self.context.nodes.check(view.primary, f"use operating system {os_name!r}").os_validate(
            True,
            os_name,
            ["parameters", OS_CHECK_HYPERVISOR + instance.hypervisor],
            filled.reveal(),
            self.op.force_variant,
        )
        return Reinstallation(view, os_name, osparams, private, filled)

    def execute(self, plan: Reinstallation) -> None:
        """Record the choice, then install."""
        view = self._record(plan)
        instance = view.instance
        self.context.feedback("Running the instance OS create scripts...")
        try:
            self._install(view, plan)
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
        changes: dict[str, object] = {}
        if plan.os_name != instance.os:
            self.context.feedback(f"Changing OS to '{plan.os_name}'...")
            changes["os"] = plan.os_name
        if plan.osparams != instance.osparams:
            changes["osparams"] = plan.osparams
        if plan.private != instance.osparams_private:
            changes["osparams_private"] = plan.private.reveal()
        if not changes:
            return plan.view
        self.config.modify(ObjectKind.INSTANCE, instance.uuid, changes)
        return plan.view.with_instance(
            structs.replace(
                instance,
                os=plan.os_name,
                osparams=dict(plan.osparams),
                osparams_private=plan.private,
            )
        )

    def _install(self, view: InstanceView, plan: Reinstallation) -> None:
        wire, debug_level = view.wire(osp=plan.filled), self.op.debug_level or 0
        result = run_script(
            self.context, view, NodeCalls.instance_os_add, wire, reinstall=True, debug=debug_level
        )
        if result.error is not None:
            doing = f"install operating system {plan.os_name!r} for instance"
            text = f"{doing} {view.instance.name!r}"
            raise OpExecError(result.explain(text))

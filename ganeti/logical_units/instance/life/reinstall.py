"""Install the operating system of a stopped instance again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import structs

from ganeti.base.errors import GenericError, OpPrereqError, wrong_state
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.base import InstanceUnit, OnInstance, check_primary_online
from ganeti.logical_units.instance.guest import (
    check_not_offline,
    check_not_running,
    check_os,
    install_os,
)
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.view import InstanceView, changed_fields
from ganeti.objects.fill import fill_osparams_all
from ganeti.objects.record import PrivateParams
from ganeti.opcodes.instance import OpInstanceReinstall
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
        osparams = {**(instance.osparams if same else {}), **(self.op.osparams or {})}
        own_private = instance.osparams_private if same else PrivateParams()
        private = own_private.merged(self.op.osparams_private or {})
        filled = fill_osparams_all(
            view.cluster, os_name, osparams, private, self.op.osparams_secret
        )
        check_os(
            self.context,
            view.primary,
            os_name,
            filled,
            hypervisor=instance.hypervisor,
            force_variant=self.op.force_variant,
        )
        return Reinstallation(view, os_name, osparams, private, filled)

    def execute(self, plan: Reinstallation) -> None:
        """Record the choice, then install."""
        view = self._record(plan)
        instance = view.instance
        self.context.feedback("Running the instance OS create scripts...")
        try:
            install_os(self.context, view, plan.filled, self.op.debug_level, reinstall=True)
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

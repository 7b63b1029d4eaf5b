"""Install the operating system of a stopped instance again."""

from __future__ import annotations

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, GenericError, OpExecError, OpPrereqError
from ganeti.logical_units.instance import disks
from ganeti.logical_units.instance.os_scripts import INSTALL, run_script
from ganeti.logical_units.instance.power import check_not_offline, is_running, running_info
from ganeti.logical_units.instance.subject import InstanceUnit, check_node_online
from ganeti.logical_units.node_calls import ask, failure_text
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.fill import fill_osparams_all
from ganeti.opcodes.instance import OpInstanceReinstall
from ganeti.protocol.node_rpc_values import OS_CHECK_HYPERVISOR


class LUInstanceReinstall(InstanceUnit[OpInstanceReinstall]):
    """Run the create script again, perhaps of another operating system.

    It also completes an instance whose creation was broken off.
    """

    takes_incomplete = True

    def check_prereq(self) -> None:
        """Refuse an instance that runs or has no disks, and an OS that will not do."""
        subject, name = self.subject, self.instance.name
        if subject.is_planned:
            raise OpPrereqError(
                f"instance {name!r} is only planned, its disks were never made; make it with"
                f" 'gnt-instance add --commit {name}'",
                ErrorCode.STATE,
            )
        check_node_online(subject.primary, f"primary node of instance {name!r}:")
        check_not_offline(subject)
        if is_running(running_info(self.context, subject, subject.primary)):
            raise OpPrereqError(
                f"instance {name!r} is running on node {subject.primary.name!r}; shut it down"
                " first",
                ErrorCode.STATE,
            )
        if subject.template == DiskTemplate.DISKLESS:
            raise OpPrereqError(
                f"instance {name!r} is diskless, there is nothing to install on", ErrorCode.INVAL
            )
        self.os_name = self.op.os_type or self.instance.os
        if not self.os_name:
            raise OpPrereqError(
                f"instance {name!r} has no operating system; give one with -o", ErrorCode.INVAL
            )
        self._check_os()

    def _check_os(self) -> None:
        # Parameters of the old operating system mean nothing to another one.
        same = self.os_name == self.instance.os
        self.osparams = {
            **(self.instance.osparams if same else {}),
            **(self.op.osparams or {}),
        }
        private = self.instance.osparams_private if same else type(self.instance.osparams_private)()
        self.private = private.merged(self.op.osparams_private or {})
        self.filled = fill_osparams_all(
            self.cluster, self.os_name, self.osparams, self.private, self.op.osparams_secret
        )
        ask(
            self.context,
            self.subject.primary,
            f"use operating system {self.os_name!r}",
            "os_validate",
            True,
            self.os_name,
            ["parameters", OS_CHECK_HYPERVISOR + self.instance.hypervisor],
            self.filled.reveal(),
            self.op.force_variant,
            ecode=ErrorCode.INVAL,
        )

    def exec(self) -> None:
        """Write the choice down, then install."""
        changes: dict[str, object] = {}
        if self.os_name != self.instance.os:
            self.context.feedback(f"Changing OS to '{self.os_name}'...")
            changes["os"] = self.os_name
        if self.osparams != self.instance.osparams:
            changes["osparams"] = self.osparams
        if self.private != self.instance.osparams_private:
            changes["osparams_private"] = self.private.reveal()
        if changes:
            self.config.modify_instance(self.instance.uuid, changes)
            self.subject.instance = replace(
                self.instance,
                os=self.os_name,
                osparams=self.osparams,
                osparams_private=self.private,
            )
        self.context.feedback("Running the instance OS create scripts...")
        try:
            self._install()
        except GenericError:
            self.context.warn(
                f"instance {self.instance.name} has no usable operating system now; install it"
                " again before it is started"
            )
            raise
        finally:
            disks.deactivate(self.context, self.subject, self.subject.primary)
        if self.instance.forthcoming:
            self.config.modify_instance(self.instance.uuid, {"forthcoming": None})

    def _install(self) -> None:
        subject = self.subject
        wire, debug_level = subject.wire(osp=self.filled), self.op.debug_level or 0
        result = run_script(self.context, subject, INSTALL, wire, True, debug_level)
        if result.error is not None:
            doing = f"install operating system {self.os_name!r} for instance"
            text = f"{doing} {self.instance.name!r}"
            raise OpExecError(failure_text(text, subject.primary, INSTALL, result))

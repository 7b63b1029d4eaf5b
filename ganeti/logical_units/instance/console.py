"""Say how to reach the console of a running instance."""

from __future__ import annotations

from collections.abc import Mapping

from ganeti.base.errors import ErrorCode, OpExecError, OpPrereqError
from ganeti.logical_units.instance.power import is_running, running_info
from ganeti.logical_units.instance.subject import InstanceUnit, check_node_online
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, shared
from ganeti.logical_units.node_calls import order
from ganeti.objects.admin_state import AdminState
from ganeti.objects.fill import fill_beparams, fill_hvparams
from ganeti.opcodes.instance import OpInstanceConsole


class LUInstanceConsole(InstanceUnit[OpInstanceConsole]):
    """Ask the primary node how to reach the console; changes nothing."""

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock only the instance, shared."""
        return shared(level, [self.instance.name]) if level is LockLevel.INSTANCE else {}

    def check_prereq(self) -> None:
        """Refuse an instance that does not run, saying what it is meant to do."""
        name, primary = self.instance.name, self.subject.primary
        check_node_online(primary, f"primary node of instance {name!r}:")
        if is_running(running_info(self.context, self.subject, primary)):
            return
        meant = {
            AdminState.UP: "is not running although it is meant to: it crashed or was shut down"
            " from inside",
            AdminState.DOWN: "is down",
            AdminState.OFFLINE: "is marked offline",
        }[self.instance.admin_state]
        raise OpPrereqError(
            f"instance {name!r} {meant}; start it with 'gnt-instance startup {name}'",
            ErrorCode.STATE,
        )

    def exec(self) -> dict[str, object]:
        """Return the console as the node describes it."""
        subject, name = self.subject, self.instance.name
        request = {
            name: {
                "instance": self.instance.to_wire(),
                "node": subject.primary.to_wire(),
                "group": subject.group.to_wire(),
                "hvParams": fill_hvparams(self.cluster, self.instance),
                "beParams": {**fill_beparams(self.cluster, self.instance)},
            }
        }
        what = f"find the console of instance {name!r}"
        answer = order(self.context, subject.primary, what, "instance_console_info", request)
        console = answer.get(name) if isinstance(answer, Mapping) else None
        if not isinstance(console, Mapping):
            raise OpExecError(
                f"cannot {what}: node {subject.primary.name!r}, call instance_console_info: the"
                " answer does not have the instance"
            )
        return dict(console)

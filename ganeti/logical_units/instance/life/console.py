"""Say how to reach the console of a running instance."""

from __future__ import annotations

from collections.abc import Mapping

from ganeti.base.errors import OpExecError, wrong_state
from ganeti.logical_units.instance.base import InstanceUnit, OnInstance, check_node_online
from ganeti.logical_units.instance.life.power import is_running, running_info
from ganeti.logical_units.locks import LockLevel, LockNeed, shared
from ganeti.objects.fill import fill_beparams, fill_hvparams
from ganeti.objects.model import AdminState
from ganeti.opcodes.instance import OpInstanceConsole


class LUInstanceConsole(InstanceUnit[OpInstanceConsole, OnInstance]):
    """Ask the primary node how to reach the console; changes nothing."""

    def locks(self, found: OnInstance) -> LockNeed:
        """Lock only the instance, shared."""
        return shared(LockLevel.INSTANCE, [found.view.instance.name])

    def plan(self, found: OnInstance) -> OnInstance:
        """Refuse an instance that does not run, telling its administrative state."""
        view, name = found.view, found.view.instance.name
        check_node_online(view.primary, f"primary node of instance {name!r}:")
        if is_running(running_info(self.context, view, view.primary)):
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
        request = {
            instance.name: {
                "instance": instance.to_wire(),
                "node": view.primary.to_wire(),
                "group": view.group.to_wire(),
                "hvParams": fill_hvparams(view.cluster, instance),
                "beParams": {**fill_beparams(view.cluster, instance)},
            }
        }
        what = f"find the console of instance {instance.name!r}"
        answer = self.context.nodes.on(view.primary, what).instance_console_info(request)
        console = answer.get(instance.name) if isinstance(answer, Mapping) else None
        if not isinstance(console, Mapping):
            raise OpExecError(
                f"cannot {what}: node {view.primary.name!r}, call instance_console_info: the"
                " answer does not have the instance"
            )
        return dict(console)

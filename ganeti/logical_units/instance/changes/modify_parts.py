"""The common part of changes of an instance; each kind of devices is one part.

The order of the work, for all parts together:

    check         locks held, nothing done: refuse, and say what the instance will look like
    before_store  what must be ready first: make disks, unplug devices that go
    (the configuration is changed)
    after_store   what follows: plug devices that came, remove what nobody refers to any more

So a job that is killed never leaves a running guest with a device that the configuration does not
know: at most one is missing from the guest, which its next start mends.  Undo steps that are pushed
run when a later step fails.
"""

from __future__ import annotations

from typing import Protocol

from ganeti.base.errors import wrong_state
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.life.power import is_running, running_info
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.undo import Undo
from ganeti.objects.model import Instance
from ganeti.opcodes.instance import OpInstanceSetParams
from ganeti.protocol.node_calls import NodeCalls

Results = list[tuple[str, object]]  # what was changed, as the opcode answers it


class ModifyPart(Protocol):
    """One kind of changes of an instance."""

    @property
    def is_asked(self) -> bool:
        """Whether the opcode asks for any such change."""

    @property
    def results(self) -> Results:
        """The changes as the opcode answers them; complete at the end."""

    def check(self, instance: Instance) -> Instance:
        """Refuse changes that are not possible; return the instance as it will be stored."""

    def before_store(self, undo: Undo) -> None:
        """Do the work that comes before the change of the configuration."""

    def after_store(self, undo: Undo) -> None:
        """Do the work that comes after the change of the configuration."""


class Hotplug:
    """Changes of devices of the running guest, as far as they are asked for and possible.

    Whether they are is decided once, by `decide`, for disks and NICs together.
    """

    def __init__(self, context: JobContext, view: InstanceView, op: OpInstanceSetParams) -> None:
        self._context = context
        self._view = view
        self._op = op
        self.is_on = False
        self._runs: bool | None = None

    def decide(self) -> None:
        """Find out whether devices can be changed while the instance runs.

        Raises:
            OpPrereqError: the guest runs and its devices cannot be changed (with --hotplug).
        """
        op, view = self._op, self._view
        if not (op.hotplug or op.hotplug_if_possible) or view.primary.offline:
            return
        name, primary = view.instance.name, view.primary
        if not self.guest_runs():
            self._context.info(f"instance {name} does not run, so nothing needs to be hotplugged")
            return
        result = self._context.nodes.call_one(NodeCalls.hotplug_supported, primary, view.wire())
        if result.error is None:
            self.is_on = True
        elif op.hotplug_if_possible:
            self._context.warn(
                f"hotplug is not possible ({result.error}); the running instance sees the change"
                " when it is restarted"
            )
        else:
            raise wrong_state(
                f"instance {name!r}: hotplug is not possible: {result.error}; without --hotplug the"
                " change takes effect when the instance is restarted"
            )

    def guest_runs(self) -> bool:
        """Tell whether the instance runs; its node is asked once."""
        if self._runs is None:
            info = running_info(self._context, self._view, self._view.primary)
            self._runs = is_running(info)
        return self._runs

    def device(
        self,
        doing: str,
        action: str,
        kind: str,
        device: dict[str, object],
        extra: object = None,
        seq: int = 0,
    ) -> object:
        """Change one device of the running guest.

        Args:
            action, kind: as of constants.json, HOTPLUG_ALL_ACTIONS and HOTPLUG_ALL_TARGETS.
            device: a disk or NIC as nodes get it; ``extra`` is what else the node needs for it.
            seq: its index.

        Raises:
            OpExecError: the guest keeps its devices as they were.
        """
        return self._context.nodes.on(self._view.primary, doing).hotplug_device(
            self._view.wire(), action, kind, device, extra, seq
        )

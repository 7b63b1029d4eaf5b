"""The common part of changes of an instance; each kind of changes is one part.

The order of the work, for all parts together:

    planning      locks held, nothing done: refuse, and decide how the instance will look
    before_store  the work that must be done first: make disks, unplug devices that go
    store         the configuration of disks is changed; then that of the instance, for all parts
    after_store   plug devices that came
    finish        remove disks that nobody refers to any more

So a job that is killed never leaves a running guest with a device that the configuration does not
know: at most one is missing from the guest, which its next start mends.  Undo steps that are pushed
run when a later step fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ganeti.base.errors import OpExecError, wrong_state
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance import guest
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.undo import Undo
from ganeti.opcodes.instance import OpInstanceSetParams
from ganeti.protocol.node_calls import NodeCalls

Results = list[tuple[str, object]]  # the changes, as the opcode answers them
Wire = dict[str, object]


@dataclass(frozen=True, slots=True)
class Work:
    """An instance that is changed, and how its running guest is.

    Attributes:
        hotplugs: devices of the running guest are changed; decided once, for disks and NICs.
        runs: whether the guest runs; None if its node was not asked.
    """

    context: JobContext
    view: InstanceView
    op: OpInstanceSetParams
    hotplugs: bool = False
    runs: bool | None = None

    def guest_runs(self) -> bool:
        """Tell whether the guest runs, as `guest.runs_here`."""
        return self.runs or guest.runs_here(self.context, self.view)

    def hotplug(self, doing: str, action: str, kind: str, device: Wire, index: int) -> object:
        """Change one device of the running guest.

        Args:
            action, kind: as of constants.json, HOTPLUG_ALL_ACTIONS and HOTPLUG_ALL_TARGETS.
            device: a disk or NIC as nodes get it.

        Raises:
            OpExecError: the guest keeps its devices as they were.
        """
        nodes = self.context.nodes.on(self.view.primary, doing)
        wire = self.view.wire(self.view.primary)
        return nodes.hotplug_device(wire, action, kind, device, None, index)

    def unplug(self, word: str, kind: str, device: Wire, index: int) -> None:
        """Take a device from the running guest; ``word`` names it to people."""
        doing = f"hotplug: take {word} {index} from the running instance"
        self.hotplug(doing, "hotremove", kind, device, index)
        self.context.info(f"{word} {index} was taken from the running instance")

    def plug(self, word: str, action: str, kind: str, device: Wire, index: int) -> bool:
        """Give a device to the running guest; return whether it has it.

        Raises:
            OpExecError: it does not, and --hotplug was given.
        """
        doing = f"hotplug: give {word} {index} to the running instance"
        try:
            place = self.hotplug(doing, action, kind, device, index)
        except OpExecError as err:
            if not self.op.hotplug_if_possible:
                raise
            self.context.warn(f"{err}; the instance sees the {word} when it is restarted")
            return False
        where = f" at {place}" if place else ""
        self.context.info(f"{word} {index} was given to the running instance{where}")
        return True


def begin(context: JobContext, view: InstanceView, op: OpInstanceSetParams) -> Work:
    """Find out whether devices can be changed while the instance runs, if that is asked for.

    Raises:
        OpPrereqError: the guest runs and its devices cannot be changed (with --hotplug).
    """
    name = view.name
    if not (op.hotplug or op.hotplug_if_possible) or view.primary.offline:
        return Work(context, view, op)
    if not guest.runs(context, view):
        context.info(f"instance {name} does not run, so nothing needs to be hotplugged")
        return Work(context, view, op, runs=False)
    wire = view.wire(view.primary)
    result = context.nodes.call_one(NodeCalls.hotplug_supported, view.primary, wire)
    if result.error is not None and not op.hotplug_if_possible:
        raise wrong_state(
            f"instance {name!r}: hotplug is not possible: {result.error}; without --hotplug the"
            " change takes effect when the instance is restarted"
        )
    if result.error is not None:
        context.warn(
            f"hotplug is not possible ({result.error}); the running instance sees the change"
            " when it is restarted"
        )
    return Work(context, view, op, hotplugs=result.error is None, runs=True)


@dataclass(frozen=True, slots=True)
class ModifyPart:
    """One kind of changes of an instance, decided."""

    work: Work

    @property
    def results(self) -> Results:
        """The changes, as the opcode answers them."""
        return []

    def before_store(self, undo: Undo) -> Self:
        """Do the work that comes first; return the part with the devices as they are then."""
        return self

    def store(self, undo: Undo) -> None:
        """Change the configuration of disks."""

    def after_store(self, undo: Undo) -> None:
        """Do the work that comes after the change of the configuration."""

    def finish(self) -> None:
        """Do the work that cannot be undone and cannot fail; failures are told."""

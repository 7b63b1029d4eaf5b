"""Changes that touch no device: the memory of the running guest, and the primary node.

Source: manual page gnt-instance(8), modify: --runtime-memory, --new-primary.
"""

from __future__ import annotations

from ganeti.base.errors import OpPrereqError, wrong_state
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.changes.modify_parts import Hotplug, Results
from ganeti.logical_units.instance.life.power import is_running, own_hvparams, running_info
from ganeti.logical_units.instance.memory import reserve_memory
from ganeti.logical_units.instance.moving.target import check_other_node, check_target, record_move
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.undo import Undo
from ganeti.objects.fill import fill_beparams
from ganeti.objects.model import Instance, Node
from ganeti.opcodes.instance import OpInstanceSetParams


class MemoryPart:
    """The memory that a running guest has just now, within the limits that it has at any time."""

    def __init__(
        self, context: JobContext, view: InstanceView, op: OpInstanceSetParams, _hotplug: Hotplug
    ) -> None:
        self._context = context
        self._view = view
        self._wanted_mib = op.runtime_mem
        self.results: Results = []

    @property
    def is_asked(self) -> bool:
        """Whether the opcode says how much."""
        return self._wanted_mib is not None

    def check(self, instance: Instance) -> Instance:
        """Refuse a guest that does not run, and memory that it may not or cannot have."""
        view, name = self._view, instance.name
        wanted_mib = self._wanted_mib or 0
        info = running_info(self._context, view, view.primary)
        if not is_running(info):
            raise wrong_state(
                f"instance {name!r} does not run, so it has no memory to change; its limits are"
                " changed with -B minmem=...,maxmem=..."
            )
        filled = fill_beparams(view.cluster, instance)
        if not filled["minmem"] <= wanted_mib <= filled["maxmem"]:
            raise OpPrereqError(
                f"instance {name!r} must have from {filled['minmem']} to {filled['maxmem']} MiB of"
                f" memory (minmem and maxmem), got {wanted_mib} MiB"
            )
        has_mib = info.get("memory")
        more_mib = wanted_mib - (has_mib if isinstance(has_mib, int) else 0)
        if more_mib > 0:
            params = own_hvparams(view)
            reserve_memory(self._context, view.primary, name, more_mib, instance.hypervisor, params)
        return instance

    def before_store(self, undo: Undo) -> None:
        """Do nothing: only the limits are stored."""

    def after_store(self, undo: Undo) -> None:
        """Give the guest its memory, or take it."""
        view = self._view
        doing = f"change the memory of instance {view.instance.name!r}"
        self._context.nodes.on(view.primary, doing).instance_balloon_memory(
            view.wire(), self._wanted_mib or 0
        )
        self.results.append(("runtime_memory", self._wanted_mib))


class PrimaryPart:
    """Another primary node, to which somebody has brought the disks already."""

    def __init__(
        self, context: JobContext, view: InstanceView, op: OpInstanceSetParams, target: Node | None
    ) -> None:
        self._context = context
        self._view = view
        self._op = op
        self._target = target
        self.results: Results = []

    @property
    def is_asked(self) -> bool:
        """Whether the opcode names a node."""
        return self._target is not None

    def check(self, instance: Instance) -> Instance:
        """Refuse an instance that runs, and a node that does not have its disks."""
        view, name = self._view, instance.name
        target = self._target
        assert target is not None, "the opcode names a node"
        check_other_node(view, target)
        if self._op.disks or self._op.disk_template:
            raise OpPrereqError(
                f"instance {name!r}: change its disks before or after its primary node, not at once"
            )
        check_target(self._context, view, target, ignore_ipolicy=self._op.ignore_ipolicy)
        if self._op.force:
            return instance
        if is_running(running_info(self._context, view, view.primary)):
            raise wrong_state(
                f"instance {name!r} runs on node {view.primary.name!r}; shut it down first, or"
                " use 'gnt-instance migrate' or 'failover'"
            )
        self._check_disks(target)
        return instance

    def _check_disks(self, target: Node) -> None:
        name = self._view.instance.name
        for index, disk in enumerate(self._view.disks):
            doing = f"look for disk {index} of instance {name!r}"
            wire = self._view.disk_wire(disk)
            if self._context.nodes.check(target, doing).blockdev_find(wire) is None:
                raise wrong_state(
                    f"node {target.name!r} does not have disk {index} of instance {name!r}; use"
                    " 'gnt-instance move' to copy the disks, or --force if they are to come"
                )

    def before_store(self, undo: Undo) -> None:
        """Do nothing: nothing is made or moved."""

    def after_store(self, undo: Undo) -> None:
        """Write the node down, for the instance and its disks, as the last step."""
        assert self._target is not None
        record_move(self._context, self._view, self._target)
        self.results.append(("pnode", self._target.name))

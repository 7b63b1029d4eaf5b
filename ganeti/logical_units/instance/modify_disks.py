"""Changes of the disks of an instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganeti.base.errors import NotSupportedError
from ganeti.logical_units.instance.modify_parts import Hotplug, Results

if TYPE_CHECKING:
    from ganeti.logical_units.context import JobContext
    from ganeti.logical_units.instance.subject import Subject
    from ganeti.logical_units.undo import Undo
    from ganeti.objects.instance import Instance
    from ganeti.opcodes.instance import OpInstanceSetParams


class DiskPart:
    """Add, remove and modify disks."""

    def __init__(
        self, context: JobContext, subject: Subject, op: OpInstanceSetParams, hotplug: Hotplug
    ) -> None:
        self._context = context
        self._subject = subject
        self._op = op
        self._hotplug = hotplug
        self.results: Results = []

    @property
    def is_asked(self) -> bool:
        """Whether the opcode names disks."""
        return bool(self._op.disks)

    def check(self, instance: Instance) -> Instance:
        """Refuse all changes of disks, for now."""
        if self.is_asked:
            raise NotSupportedError(
                f"instance {instance.name!r}: changing 'disks' is not supported yet"
            )
        return instance

    def before_store(self, undo: Undo) -> None:
        """Unplug the disks that go."""

    def after_store(self, undo: Undo) -> None:
        """Plug the disks that came."""

"""Replace one half of mirrored disks: only drbd has any, and that is not built yet."""

from __future__ import annotations

from collections.abc import Mapping

from ganeti.base.errors import NotSupportedError, OpPrereqError
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.base import InstanceUnit, OnInstance
from ganeti.opcodes.instance import OpInstanceReplaceDisks


class LUInstanceReplaceDisks(InstanceUnit[OpInstanceReplaceDisks, OnInstance]):
    """Say why the disks of an instance cannot be replaced, and what helps instead."""

    hooks = HookPoint("mirrors-replace", ObjectType.INSTANCE)

    def plan(self, found: OnInstance) -> OnInstance:
        """Refuse every template that there is.

        Raises:
            OpPrereqError: the disks are not mirrored.
            NotSupportedError: they are, and that is not built.
        """
        name, template = found.view.instance.name, found.view.template
        if found.view.traits.mirrored:
            raise NotSupportedError(
                f"instance {name!r}: replacing disks of template {template!r} is not supported yet"
            )
        raise OpPrereqError(
            f"instance {name!r}: disk template {template!r} has no mirrored disks to replace; for"
            " lost disks see 'gnt-instance recreate-disks', to go to another node 'gnt-instance"
            " move' or 'migrate'"
        )

    def own_values(self, plan: OnInstance) -> Mapping[str, object]:
        return {
            "MODE": self.op.mode.value,
            "NEW_SECONDARY": self.op.remote_node or "",
            "OLD_SECONDARY": "",
        }

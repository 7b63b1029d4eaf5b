"""Replace one half of mirrored disks: only drbd has any, and that is not built yet."""

from __future__ import annotations

from collections.abc import Mapping

from ganeti.base.errors import ErrorCode, NotSupportedError, OpPrereqError
from ganeti.logical_units.instance.subject import InstanceUnit
from ganeti.objects.disk_templates import INTERNALLY_MIRRORED
from ganeti.opcodes.instance import OpInstanceReplaceDisks


class LUInstanceReplaceDisks(InstanceUnit[OpInstanceReplaceDisks]):
    """Say why the disks of an instance cannot be replaced, and what helps instead."""

    def check_prereq(self) -> None:
        """Refuse every template that there is.

        Raises:
            OpPrereqError: the disks are not mirrored.
            NotSupportedError: they are, and that is not built.
        """
        name, template = self.instance.name, self.subject.template
        if template in INTERNALLY_MIRRORED:
            raise NotSupportedError(
                f"instance {name!r}: replacing disks of template {template!r} is not supported yet"
            )
        raise OpPrereqError(
            f"instance {name!r}: disk template {template!r} has no mirrored disks to replace; for"
            " lost disks see 'gnt-instance recreate-disks', to go to another node 'gnt-instance"
            " move' or 'migrate'",
            ErrorCode.INVAL,
        )

    def own_env(self) -> Mapping[str, object]:
        """Tell what was asked for."""
        return {
            "MODE": self.op.mode.value,
            "NEW_SECONDARY": self.op.remote_node or "",
            "OLD_SECONDARY": "",
        }

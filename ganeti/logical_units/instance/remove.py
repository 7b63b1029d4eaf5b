"""Remove an instance and its disks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ganeti.base.errors import ErrorCode, OpExecError, OpPrereqError
from ganeti.logical_units.instance import disks
from ganeti.logical_units.instance.subject import InstanceUnit, Subject
from ganeti.logical_units.node_calls import call_node, failure_text
from ganeti.opcodes.instance import OpInstanceRemove

if TYPE_CHECKING:
    from ganeti.logical_units.context import JobContext
    from ganeti.objects.node import Node

_HINT = "use --ignore-failures to remove the instance from the configuration all the same"


class LUInstanceRemove(InstanceUnit[OpInstanceRemove]):
    """Stop the instance, remove its disks, forget it."""

    takes_incomplete = True

    def own_env(self) -> Mapping[str, object]:
        """Tell how long the instance gets to stop."""
        return {"SHUTDOWN_TIMEOUT": self.op.shutdown_timeout}

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Run hooks on the master, and afterwards on the nodes that had the instance."""
        return [self.master], [self.master, *self.subject.nodes]

    def hooks_env_after(self) -> Mapping[str, object]:
        """Tell what it was: it is gone now."""
        return self.hooks_env()

    def check_prereq(self) -> None:
        """Refuse an instance whose node is offline, unless failures are to be ignored."""
        primary = self.subject.primary
        if primary.offline and not self.op.ignore_failures and not self.subject.is_planned:
            raise OpPrereqError(
                f"primary node {primary.name!r} of instance {self.instance.name!r} is offline, its"
                f" disks cannot be removed; {_HINT}",
                ErrorCode.STATE,
            )

    def exec(self) -> None:
        """Stop, remove, forget; each failure ends it unless failures are to be ignored."""
        remove_instance(
            self.context,
            self.subject,
            shutdown_timeout_s=self.op.shutdown_timeout,
            ignore_failures=self.op.ignore_failures,
            reason=self.op.reason,
        )


def remove_instance(
    context: JobContext,
    subject: Subject,
    *,
    shutdown_timeout_s: int,
    ignore_failures: bool,
    reason: object,
) -> None:
    """Stop an instance, remove its disks, forget it.

    Raises:
        OpExecError: a step failed, and failures are not to be ignored.
    """

    def failed(text: str) -> None:
        if not ignore_failures:
            raise OpExecError(f"{text}; {_HINT}")
        context.warn(f"{text}; ignoring")

    primary, instance = subject.primary, subject.instance
    if subject.is_planned:
        context.config.delete_instance(instance.uuid)
        return
    result = call_node(
        context, primary, "instance_shutdown", subject.wire(), shutdown_timeout_s, reason
    )
    if result.error is not None:
        doing = f"shut down instance {instance.name!r}"
        failed(failure_text(doing, primary, "instance_shutdown", result))
    if subject.disks:
        context.info(f"removing block devices for instance {instance.name}")
    left = disks.remove(context, subject)
    if left:
        failed(left[0])
    context.config.delete_instance(instance.uuid)

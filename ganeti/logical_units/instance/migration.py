"""The live part of a migration: the steps on both nodes, and the way back from each.

    source  migration_info                   nothing has changed
    target  accept_instance                  a guest waits for its memory
    source  instance_migrate                 the memory is on its way
    source  instance_get_migration_status    until it has left completely
    target  instance_finalize_migration_dst  the guest runs there from now on
            the configuration                names the target as primary node
    source  instance_finalize_migration_src  the old guest is gone

Before the guest runs on the target every failure leads back: what waits there is removed, then the
guest goes on at the source.  Once it may run on the target there is no way back: the source is
never started again unless the target says that it does not run there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ganeti.base.errors import GenericError, OpExecError
from ganeti.logical_units.instance import disks
from ganeti.logical_units.instance.power import is_running, own_hvparams
from ganeti.logical_units.instance.subject import Subject
from ganeti.logical_units.instance.target import record_move
from ganeti.logical_units.node_calls import call_node, failure_text, order

if TYPE_CHECKING:
    from ganeti.logical_units.context import JobContext
    from ganeti.objects.node import Node

POLL_S: Final = 0.05  # between two looks; the node itself waits up to a second for the end
PROGRESS_S: Final = 2.0  # between two messages
NO_ANSWER_S_MAX: Final = 30.0  # a node daemon that is restarted is back by then
MIGRATION_S_MAX: Final = 14400.0  # the longest class of node calls: four hours

ACTIVE: Final = frozenset({"active", "postcopy-active"})
COMPLETED: Final = "completed"


def cleanup_hint(name: str) -> str:
    """Say what to do when it is not known where the instance runs."""
    return f"run 'gnt-instance migrate --cleanup {name}' to find out and put it right"


@dataclass(slots=True)
class Migration:
    """One migration of a running instance."""

    context: JobContext
    subject: Subject
    target: Node
    live: bool
    info: object = ""

    @property
    def source(self) -> Node:
        """The node that it runs on."""
        return self.subject.primary

    @property
    def name(self) -> str:
        """The instance's name."""
        return self.subject.instance.name

    def run(self) -> None:
        """Move the instance.

        Raises:
            OpExecError: it did not move; the message says where it runs, or how to find out.
            JobCanceled: canceled on the way; it goes on at the source.
        """
        say = self.context.feedback
        say(f"Migrating instance {self.name}")
        self.info = self._describe()
        try:
            say(f"* preparing {self.target.name} to accept the instance")
            address = self._accept()
            self.context.check_canceled()
            say(f"* migrating instance to {self.target.name}")
            self._begin(address)
            self._wait_for_end()
        except GenericError:
            self._go_back()
            raise
        self._let_run()
        record_move(self.context, self.subject, self.target)
        self._forget_at_source()
        say("* done")

    def _describe(self) -> object:
        try:
            return self._order(self.source, "describe", "migration_info")
        except GenericError as err:
            raise OpExecError(f"{err}; nothing was changed") from err

    def _order(self, node: Node, doing: str, call: str, *args: object) -> object:
        what = f"{doing} instance {self.name!r}"
        return order(self.context, node, what, call, self.subject.wire(), *args)

    def _accept(self) -> str:
        answer = self._order(
            self.target, "accept", "accept_instance", self.info, self.target.secondary_ip
        )
        return answer if isinstance(answer, str) and answer else self.target.secondary_ip

    def _begin(self, address: str) -> None:
        what = f"migrate instance {self.name!r}"
        cluster_name = self.subject.cluster.cluster_name
        wire = self.subject.wire()
        order(
            self.context,
            self.source,
            what,
            "instance_migrate",
            cluster_name,
            wire,
            address,
            self.live,
        )
        self.context.feedback("* starting memory transfer")

    def _wait_for_end(self) -> None:
        """Wait until the memory has left completely; tell the progress."""
        clock = self.context.monotonic
        deadline = clock() + MIGRATION_S_MAX
        next_message = clock() + PROGRESS_S
        while True:
            self.context.check_canceled()
            status = self._status()
            state = status.get("status")
            if state == COMPLETED:
                self.context.feedback(_end_text(status))
                return
            if state not in ACTIVE:
                reason = status.get("error") or f"its state is {state!r}"
                raise OpExecError(
                    f"cannot migrate instance {self.name!r}: node {self.source.name!r}, call"
                    f" instance_get_migration_status: {reason}"
                )
            if clock() >= deadline:
                raise OpExecError(
                    f"cannot migrate instance {self.name!r}: the transfer has not ended within"
                    f" {MIGRATION_S_MAX / 3600:.0f} hours"
                )
            if clock() >= next_message:
                next_message = clock() + PROGRESS_S
                self.context.feedback(progress_text(status))
            self.context.wait(POLL_S)

    def _status(self) -> Mapping[str, object]:
        """Ask the source how far it is; patient with a node daemon that is being restarted."""
        deadline = self.context.monotonic() + NO_ANSWER_S_MAX
        call = "instance_get_migration_status"
        while True:
            result = call_node(self.context, self.source, call, self.subject.wire())
            if result.error is None:
                return result.payload if isinstance(result.payload, Mapping) else {}
            if self.context.monotonic() >= deadline:
                doing = f"follow the migration of instance {self.name!r}"
                raise OpExecError(failure_text(doing, self.source, call, result))
            self.context.wait(1.0)

    def _go_back(self) -> None:
        """Remove what waits on the target, then let the guest go on at the source."""
        clean = self._try(self.target, "instance_finalize_migration_dst", self.info, False)
        # Not before the target is known to be clear: two copies must never run.
        clean = clean and self._try(
            self.source, "instance_finalize_migration_src", False, self.live
        )
        if clean:
            self.context.info(f"the migration was undone, {self.name} runs on {self.source.name}")
        else:
            self.context.warn(f"the migration could not be undone; {cleanup_hint(self.name)}")

    def _try(self, node: Node, call: str, *args: object) -> bool:
        result = call_node(self.context, node, call, self.subject.wire(), *args)
        if result.error is not None:
            doing = f"undo the migration of instance {self.name!r}"
            self.context.warn(failure_text(doing, node, call, result))
        return result.error is None

    def _let_run(self) -> None:
        """Let the guest run on the target; the one step that cannot be undone."""
        call = "instance_finalize_migration_dst"
        wire = self.subject.wire(primary_node=self.target.uuid)
        result = call_node(self.context, self.target, call, wire, self.info, True)
        if result.error is None:
            return
        text = failure_text(f"finish the migration of {self.name!r}", self.target, call, result)
        look = call_node(
            self.context,
            self.target,
            "instance_info",
            self.name,
            self.subject.instance.hypervisor,
            own_hvparams(self.subject),
        )
        if look.error is not None or not isinstance(look.payload, Mapping):
            raise OpExecError(f"{text}; {cleanup_hint(self.name)}")
        if is_running(look.payload):
            self.context.warn(f"{text}; it runs there all the same, ignoring")
            return
        self._go_back()
        raise OpExecError(text)

    def _forget_at_source(self) -> None:
        call = "instance_finalize_migration_src"
        result = call_node(self.context, self.source, call, self.subject.wire(), True, self.live)
        if result.error is not None:
            doing = f"remove what is left of instance {self.name!r}"
            text = failure_text(doing, self.source, call, result)
            self.context.warn(f"{text}; {cleanup_hint(self.name)}")
        disks.deactivate(self.context, self.subject, self.source)


def _number(status: Mapping[str, object], name: str) -> float | None:
    value = status.get(name)
    return float(value) if isinstance(value, int | float) else None


def progress_text(status: Mapping[str, object]) -> str:
    """Say how much of the memory has been sent."""
    sent, total = _number(status, "transferred_ram"), _number(status, "total_ram")
    if sent is None or not total:
        return "* memory transfer in progress"
    return f"* memory transfer progress: {min(100.0, 100 * sent / total):.2f} %"


def _end_text(status: Mapping[str, object]) -> str:
    downtime_ms = _number(status, "downtime_ms")
    pause = "" if downtime_ms is None else f", the guest stood still for {downtime_ms:.0f} ms"
    return f"* memory transfer complete{pause}"

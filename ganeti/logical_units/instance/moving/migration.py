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
from typing import Final

from ganeti.base.errors import GenericError, OpExecError
from ganeti.clients.node_rpc import RpcResult
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.life.power import is_running, own_hvparams
from ganeti.logical_units.instance.moving.target import record_move
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.model import Node
from ganeti.protocol.node_calls import NodeCalls

POLL_S: Final = 0.05  # between two looks; the node itself waits up to a second for the end
PROGRESS_S: Final = 2.0  # between two messages
NO_ANSWER_S_MAX: Final = 30.0  # a node daemon that is restarted is back by then
MIGRATION_S_MAX: Final = 14400.0  # the longest class of node calls: four hours

ACTIVE: Final = frozenset({"active", "postcopy-active"})
COMPLETED: Final = "completed"


def cleanup_hint(name: str) -> str:
    """Return the hint for an instance that may run on either node."""
    return f"run 'gnt-instance migrate --cleanup {name}' to find out and put it right"


@dataclass(slots=True)
class Migration:
    """One migration of a running instance."""

    context: JobContext
    view: InstanceView
    target: Node
    live: bool
    info: str = ""

    @property
    def source(self) -> Node:
        """The node that it runs on."""
        return self.view.primary

    @property
    def name(self) -> str:
        """The instance's name."""
        return self.view.instance.name

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
        record_move(self.context, self.view, self.target)
        self._forget_at_source()
        say("* done")

    def _describe(self) -> str:
        try:
            nodes = self.context.nodes.on(self.source, f"describe instance {self.name!r}")
            return nodes.migration_info(self.view.wire())
        except GenericError as err:
            raise OpExecError(f"{err}; nothing was changed") from err

    def _accept(self) -> str:
        nodes = self.context.nodes.on(self.target, f"accept instance {self.name!r}")
        address = nodes.accept_instance(self.view.wire(), self.info, self.target.secondary_ip)
        return address if isinstance(address, str) and address else self.target.secondary_ip

    def _begin(self, address: str) -> None:
        what = f"migrate instance {self.name!r}"
        cluster_name = self.view.cluster.cluster_name
        wire = self.view.wire()
        self.context.nodes.on(self.source, what).instance_migrate(
            cluster_name, wire, address, live=self.live
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
        while True:
            result = self.context.nodes.call_one(
                NodeCalls.instance_get_migration_status, self.source, self.view.wire()
            )
            if result.error is None:
                return result.payload if isinstance(result.payload, Mapping) else {}
            if self.context.monotonic() >= deadline:
                doing = f"follow the migration of instance {self.name!r}"
                raise OpExecError(result.explain(doing))
            self.context.wait(1.0)

    def _go_back(self) -> None:
        """Remove the waiting guest from the target, then let the guest go on at the source."""
        nodes, wire = self.context.nodes, self.view.wire()
        clean = self._is_undone(
            nodes.call_one(
                NodeCalls.instance_finalize_migration_dst,
                self.target,
                wire,
                self.info,
                success=False,
            )
        )
        # Not before the target is known to be clear: two copies must never run.
        clean = clean and self._is_undone(
            nodes.call_one(
                NodeCalls.instance_finalize_migration_src,
                self.source,
                wire,
                success=False,
                live=self.live,
            )
        )
        if clean:
            self.context.info(f"the migration was undone, {self.name} runs on {self.source.name}")
        else:
            self.context.warn(f"the migration could not be undone; {cleanup_hint(self.name)}")

    def _is_undone(self, result: RpcResult[None]) -> bool:
        if result.error is not None:
            self.context.warn(result.explain(f"undo the migration of instance {self.name!r}"))
        return result.error is None

    def _let_run(self) -> None:
        """Let the guest run on the target; the one step that cannot be undone."""
        result = self.context.nodes.call_one(
            NodeCalls.instance_finalize_migration_dst,
            self.target,
            self.view.wire(primary_node=self.target.uuid),
            self.info,
            success=True,
        )
        if result.error is None:
            return
        text = result.explain(f"finish the migration of {self.name!r}")
        look = self.context.nodes.call_one(
            NodeCalls.instance_info,
            self.target,
            self.name,
            self.view.instance.hypervisor,
            own_hvparams(self.view),
        )
        if look.error is not None or not isinstance(look.payload, Mapping):
            raise OpExecError(f"{text}; {cleanup_hint(self.name)}")
        if is_running(look.payload):
            self.context.warn(f"{text}; it runs there all the same, ignoring")
            return
        self._go_back()
        raise OpExecError(text)

    def _forget_at_source(self) -> None:
        result = self.context.nodes.call_one(
            NodeCalls.instance_finalize_migration_src,
            self.source,
            self.view.wire(),
            success=True,
            live=self.live,
        )
        if result.error is not None:
            doing = f"remove what is left of instance {self.name!r}"
            text = result.explain(doing)
            self.context.warn(f"{text}; {cleanup_hint(self.name)}")
        disks.deactivate(self.context, self.view, self.source)


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

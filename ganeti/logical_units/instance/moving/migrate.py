"""Move a running instance to another node that reaches its disks.

The steps on both nodes, and the way back from each:

    source  instance_balloon_memory          the guest fits, if it had too much memory
    source  migration_info                   nothing else has changed
    both    drbd_attach_net                  both may write to disks with copies (`mirrors`)
    target  accept_instance                  a guest waits for its memory
    source  instance_migrate                 the memory is on its way
    source  instance_get_migration_status    until it has left completely
    target  instance_finalize_migration_dst  the guest runs there from now on
            the configuration                names the target as primary node
    source  instance_finalize_migration_src  the old guest is gone

Before the guest runs on the target every failure leads back: the guest that waits there is removed,
then the guest goes on at the source.  Once it may run on the target there is no way back: the
source is never started again unless the target says that it does not run there, and has not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ErrorCode, GenericError, OpExecError, OpPrereqError, wrong_state
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance import guest, metadata
from ganeti.logical_units.instance.base import WithTarget
from ganeti.logical_units.instance.moving.failover import check_failover, clean_up, fail_over
from ganeti.logical_units.instance.moving.mirrors import BothWrite
from ganeti.logical_units.instance.moving.target import (
    MoveUnit,
    check_finds_disks,
    check_movable,
    check_other_node,
    check_target,
    record_move,
)
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.storage.copying import ask_patiently, looks
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.fill import fill_beparams
from ganeti.objects.hypervisors import DEFAULT_SHUTDOWN_TIMEOUT_S, MigrationMode
from ganeti.objects.model import Node
from ganeti.opcodes.instance import OpInstanceMigrate
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.wconfd import LockMode

POLL_S: Final = 0.05  # between two looks; the node itself waits up to a second for the end
PROGRESS_S: Final = 2.0  # between two messages
SHRINK_POLL_S: Final = 0.5
SHRINK_S_MAX: Final = 60.0  # a guest that has a driver for its balloon needs a second
MIGRATION_S_MAX: Final = 14400.0  # the longest class of node calls: four hours

ACTIVE: Final = frozenset({"active", "postcopy-active"})
COMPLETED: Final = "completed"
_BALLOON: Final = NodeCalls.instance_balloon_memory
_STATUS: Final = NodeCalls.instance_get_migration_status
_TO_TARGET: Final = NodeCalls.instance_finalize_migration_dst
_AT_SOURCE: Final = NodeCalls.instance_finalize_migration_src


def cleanup_hint(name: str) -> str:
    """Return the hint for an instance that may run on either node."""
    return f"run 'gnt-instance migrate --cleanup {name}' to find out and put it right"


@dataclass(slots=True)
class Migration:
    """One migration of a running instance.

    Attributes:
        memory_mib: what the guest has now.
        fitting_mib: what there is for it on the target, if that is less.
    """

    context: JobContext
    view: InstanceView
    target: Node
    live: bool
    memory_mib: int
    fitting_mib: int
    info: str = ""

    @property
    def source(self) -> Node:
        """The node that it runs on."""
        return self.view.primary

    @property
    def both(self) -> BothWrite:
        """Its disks with copies."""
        return BothWrite(self.context, self.view)

    @property
    def name(self) -> str:
        """The instance's name."""
        return self.view.name

    def run(self) -> None:
        """Move the instance.

        Raises:
            OpExecError: it did not move; the message says where it runs, or how to find out.
            JobCanceled: canceled on the way; it goes on at the source.
        """
        say = self.context.feedback
        say(f"Migrating instance {self.name}")
        try:
            if self.fitting_mib < self.memory_mib:
                self._shrink()
            self.info = self._describe()
            self.both.check()
        except GenericError:
            self._grow_back()
            raise
        try:
            self.both.allow(self.target)
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
        self._record()
        self._forget_at_source()
        say("* done")

    def _describe(self) -> str:
        try:
            nodes = self.context.nodes.on(self.source, f"describe instance {self.name!r}")
            return nodes.migration_info(self.view.wire(self.source))
        except GenericError as err:
            raise OpExecError(f"{err}; nothing was changed") from err

    def _shrink(self) -> None:
        """Take memory from the guest until it fits on the target.

        Raises:
            OpExecError: it keeps its memory.
            JobCanceled: canceled meanwhile.
        """
        context, wanted_mib, view = self.context, self.fitting_mib, self.view
        context.feedback(
            f"* the guest gives back memory: {wanted_mib} of {self.memory_mib} MiB are left to it,"
            f" which fit on {self.target.name}; 'gnt-instance modify -m' gives it more again"
        )
        nodes = context.nodes.on(self.source, f"change the memory of instance {self.name!r}")
        deadline = context.monotonic() + SHRINK_S_MAX
        nodes.instance_balloon_memory(view.wire(self.source), wanted_mib)
        for _ in looks(context, SHRINK_POLL_S, PROGRESS_S):
            info = nodes.instance_info(self.name, view.instance.hypervisor, view.own_hvparams)
            if guest.memory_of(info) <= wanted_mib:
                return
            if context.monotonic() >= deadline:
                raise OpExecError(
                    f"cannot migrate instance {self.name!r}: node {self.target.name!r} has"
                    f" {wanted_mib} MiB for it, and its guest has not given back what it has more"
                    f" within {SHRINK_S_MAX:.0f} s; it goes on at {self.source.name}"
                )

    def _grow_back(self) -> None:
        """Give the guest back the memory that was taken from it, if any was."""
        if self.fitting_mib < self.memory_mib:
            doing, call = f"give instance {self.name!r} its memory", _BALLOON
            wire = self.view.wire(self.source)
            self.context.attempt(doing, call, self.source, wire, self.memory_mib)

    def _accept(self) -> str:
        metadata.bring(self.context, self.view, self.target)
        nodes = self.context.nodes.on(self.target, f"accept instance {self.name!r}")
        address = nodes.accept_instance(
            self.view.wire(self.target), self.info, self.target.secondary_ip
        )
        return address if isinstance(address, str) and address else self.target.secondary_ip

    def _begin(self, address: str) -> None:
        nodes = self.context.nodes.on(self.source, f"migrate instance {self.name!r}")
        cluster_name = self.view.cluster.cluster_name
        nodes.instance_migrate(cluster_name, self.view.wire(self.source), address, live=self.live)
        self.context.feedback("* starting memory transfer")

    def _wait_for_end(self) -> None:
        """Wait until the memory has left completely; tell the progress."""
        context, doing = self.context, f"migrate instance {self.name!r}"
        deadline = context.monotonic() + MIGRATION_S_MAX
        for is_due in looks(context, POLL_S, PROGRESS_S):
            status = self._status()
            state = status.get("status")
            if state == COMPLETED:
                context.feedback(_end_text(status))
                return
            if state not in ACTIVE:
                reason = status.get("error") or f"its state is {state!r}"
                raise OpExecError(
                    f"cannot {doing}: node {self.source.name!r}, call"
                    f" instance_get_migration_status: {reason}"
                )
            if context.monotonic() >= deadline:
                hours = f"{MIGRATION_S_MAX / 3600:.0f} hours"
                raise OpExecError(f"cannot {doing}: the transfer has not ended within {hours}")
            if is_due:
                context.feedback(progress_text(status))

    def _status(self) -> Mapping[str, object]:
        """Ask the source how far it is; patient with a node daemon that is being restarted."""
        doing, call = f"follow the migration of instance {self.name!r}", _STATUS
        answer = ask_patiently(self.context, doing, call, self.source, self.view.wire(self.source))
        return answer if isinstance(answer, Mapping) else {}

    def _go_back(self, *, may_have_run: bool = False) -> None:
        """Remove the waiting guest from the target, then let the guest go on at the source.

        Args:
            may_have_run: the target was told to let it run; then only a guest that is found waiting
                there proves that the memory at the source is not older than the disks.
        """
        attempt, wire = self.context.attempt, self.view.wire
        doing = f"undo the migration of instance {self.name!r}"
        # Not before the target is known to be clear: two copies must never run.
        source = self.source
        clean = self._clear_target(doing, may_have_run=may_have_run) and attempt(
            doing, _AT_SOURCE, source, wire(source), success=False, live=self.live
        )
        if clean and self.both.forbid(source):
            self._grow_back()
            self.context.info(f"the migration was undone, {self.name} runs on {self.source.name}")
        else:
            self.context.warn(f"the migration could not be undone; {cleanup_hint(self.name)}")

    def _clear_target(self, doing: str, *, may_have_run: bool) -> bool:
        """Remove the waiting guest; returns whether the one at the source may go on."""
        context, target = self.context, self.target
        wire = self.view.wire(target)
        result = context.nodes.call_one(_TO_TARGET, target, wire, self.info, success=False)
        if result.error is not None:
            context.warn(result.explain(doing))
            return False
        if may_have_run and result.payload is not True:
            context.warn(f"{self.name} may have run on {target.name}, and ended there")
            return False
        return True

    def _let_run(self) -> None:
        """Let the guest run on the target; the one step that cannot be undone."""
        context = self.context
        wire = self.view.wire(self.target, primary_node=self.target.uuid)
        doing = f"finish the migration of {self.name!r}"
        text = context.failure(doing, _TO_TARGET, self.target, wire, self.info, success=True)
        if text is None:
            return
        hypervisor, hvparams = self.view.instance.hypervisor, self.view.own_hvparams
        look = context.nodes.call_one(
            NodeCalls.instance_info, self.target, self.name, hypervisor, hvparams
        )
        if look.error is not None or not isinstance(look.payload, Mapping):
            raise OpExecError(f"{text}; {cleanup_hint(self.name)}")
        if guest.is_running(look.payload):
            context.warn(f"{text}; it is there all the same, ignoring")
            context.attempt(doing, _TO_TARGET, self.target, wire, self.info, success=True)
            return
        self._go_back(may_have_run=True)
        raise OpExecError(text)

    def _record(self) -> None:
        try:
            record_move(self.context, self.view, self.target)
        except GenericError as err:
            raise OpExecError(
                f"instance {self.name!r} runs on node {self.target.name!r} now, and that could not"
                f" be recorded: {err}; {cleanup_hint(self.name)}"
            ) from err

    def _forget_at_source(self) -> None:
        context, wire = self.context, self.view.wire(self.source)
        doing = f"remove the old process of instance {self.name!r}"
        text = context.failure(doing, _AT_SOURCE, self.source, wire, success=True, live=self.live)
        if text is not None:
            context.warn(f"{text}; {cleanup_hint(self.name)}")
        if self.view.needs_own_nodes:
            self.both.forbid(self.target)
        else:
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


def decide_live(mode: MigrationMode | None, live: bool | None, default: object) -> bool:
    """Decide whether the instance runs on while it moves.

    Args:
        default: the cluster's ``migration_mode`` for the hypervisor.

    Raises:
        OpPrereqError: both ways of saying it were used (wrong_input).
    """
    if mode is not None and live is not None:
        raise OpPrereqError("only one of 'mode' and 'live' can be given, they mean the same")
    if live is not None:
        return live
    return (mode or default) != MigrationMode.NONLIVE


@dataclass(frozen=True, slots=True)
class MigrationPlan(WithTarget):
    """How an instance is migrated.

    Attributes:
        live: it runs on while it moves.
        memory_mib, fitting_mib: as of `Migration`.
        why_failover: the reason why it is failed over instead, if it is.
    """

    live: bool
    memory_mib: int = 0
    fitting_mib: int = 0
    why_failover: str | None = None


class LUInstanceMigrate(MoveUnit[OpInstanceMigrate, MigrationPlan]):
    """Migrate an instance, or clean up after an interrupted migration."""

    hooks = HookPoint("instance-migrate", ObjectType.INSTANCE)
    doing = "migrate"
    told = ("allow_runtime_changes",)
    resources = LockMode.SHARED

    def plan(self, found: WithTarget) -> MigrationPlan:
        """Refuse an instance that cannot be migrated, or not there."""
        view = found.view
        check_movable(view, self.doing)
        default_mode = view.own_hvparams.get("migration_mode")
        live = decide_live(self.op.mode, self.op.live, default_mode)
        if self.op.cleanup:
            return MigrationPlan(view, found.target, live)
        target = found.goal
        check_other_node(view, target)
        why_not, memory_mib = self._find_obstacle(view)
        if why_not is not None:
            if not fill_beparams(view.cluster, view.instance)["always_failover"]:
                self._check_failover_allowed(view, why_not)
            check_failover(self.context, view, target, ignore_ipolicy=self.op.ignore_ipolicy)
            return MigrationPlan(view, target, live, why_failover=why_not)
        check_target(self.context, view, target, ignore_ipolicy=self.op.ignore_ipolicy)
        check_finds_disks(self.context, view, target)
        fitting_mib = self._reserve(view, target, memory_mib)
        return MigrationPlan(view, target, live, memory_mib, fitting_mib)

    def _reserve(self, view: InstanceView, target: Node, memory_mib: int) -> int:
        """Reserve memory on the target; returns how much of the guest's fits there.

        Raises:
            OpPrereqError: not even the least that it may have, or it must not change.
        """
        least_mib = fill_beparams(view.cluster, view.instance)["minmem"]
        can_shrink = self.op.allow_runtime_changes and least_mib < memory_mib
        try:
            guest.reserve_for(self.context, view, target, memory_mib)
        except OpPrereqError as err:
            if not can_shrink or err.ecode not in (ErrorCode.NORES, ErrorCode.TEMP_NORES):
                raise
        else:
            return memory_mib
        left_mib = guest.memory_left_mib(self.context, view, target)
        fitting_mib = max(least_mib, min(left_mib, memory_mib))
        guest.reserve_for(self.context, view, target, fitting_mib)
        return fitting_mib

    def _find_obstacle(self, view: InstanceView) -> tuple[str | None, int]:
        """Return why it cannot be migrated, if so, and the memory (MiB) that it has now."""
        source = view.primary
        if source.offline:
            return f"its primary node {source.name!r} is marked offline", 0
        if fill_beparams(view.cluster, view.instance)["always_failover"]:
            return "its backend parameter 'always_failover' is set", 0
        info = guest.running_info(self.context, view)
        if not guest.is_running(info):
            return "it does not run", 0
        result = self.context.nodes.call_one(
            NodeCalls.instance_migratable, source, view.wire(source)
        )
        if result.error is not None:
            return f"node {source.name!r}, call {result.call}: {result.error}", 0
        return None, guest.memory_of(info)

    def _check_failover_allowed(self, view: InstanceView, why_not: str) -> None:
        if not self.op.allow_failover:
            name = view.name
            raise wrong_state(
                f"cannot migrate instance {name!r}: {why_not}; use 'gnt-instance failover {name}',"
                " or --allow-failover"
            )

    def own_values(self, plan: MigrationPlan) -> Mapping[str, object]:
        own = {"MIGRATE_CLEANUP": self.op.cleanup, "MIGRATE_LIVE": plan.live}
        return {**super().own_values(plan), **own}

    def execute(self, plan: MigrationPlan) -> None:
        if self.op.cleanup:
            clean_up(self.context, plan.view)
        elif plan.why_failover is None:
            sizes = plan.memory_mib, plan.fitting_mib
            Migration(self.context, plan.view, plan.goal, plan.live, *sizes).run()
        else:
            self.context.info(f"cannot migrate: {plan.why_failover}; failing over instead")
            fail_over(
                self.context,
                plan.view,
                plan.goal,
                shutdown_timeout_s=DEFAULT_SHUTDOWN_TIMEOUT_S,
                ignore_consistency=False,
                reason=self.op.reason or [],
            )

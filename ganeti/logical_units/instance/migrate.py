"""Move a running instance to another node that reaches its disks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units.instance.cleanup import clean_up
from ganeti.logical_units.instance.failover import check_failover, fail_over
from ganeti.logical_units.instance.memory import reserve_memory
from ganeti.logical_units.instance.migration import Migration
from ganeti.logical_units.instance.power import is_running, own_hvparams, running_info
from ganeti.logical_units.instance.subject import InstanceUnit
from ganeti.logical_units.instance.target import (
    check_movable,
    check_target,
    find_target,
    locks_for_move,
    locks_for_search,
    nodes_to_search,
    require_target,
)
from ganeti.logical_units.lock_plan import LockLevel, LockNeed
from ganeti.logical_units.node_calls import call_node
from ganeti.objects.fill import fill_beparams
from ganeti.objects.hypervisors import DEFAULT_SHUTDOWN_TIMEOUT_S, MigrationMode
from ganeti.opcodes.instance import OpInstanceMigrate

if TYPE_CHECKING:
    from ganeti.base.ids import NodeUuid
    from ganeti.objects.node import Node


def decide_live(mode: MigrationMode | None, live: bool | None, default: object) -> bool:
    """Decide whether the instance runs on while it moves.

    Args:
        default: the cluster's ``migration_mode`` for the hypervisor.

    Raises:
        OpPrereqError: both ways of saying it were used (wrong_input).
    """
    if mode is not None and live is not None:
        raise OpPrereqError(
            "only one of 'mode' and 'live' can be given, they mean the same", ErrorCode.INVAL
        )
    if live is not None:
        return live
    return (mode or default) != MigrationMode.NONLIVE


class LUInstanceMigrate(InstanceUnit[OpInstanceMigrate]):
    """Migrate an instance, or put right what an interrupted migration has left."""

    why_failover: str | None = None  # set when it is failed over instead

    chosen: NodeUuid | None = None  # by an allocator

    def take_over(self, earlier: Self) -> None:
        """Stay with the node that the allocator chose; memory on it is reserved."""
        self.chosen = earlier.target.uuid if earlier.target else None

    def expand_names(self) -> None:
        """Read the instance, and look the target up, or have one chosen."""
        super().expand_names()
        self.target = find_target(self.context, self.subject, self.op, self.chosen, doing="migrate")

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the instance, and the nodes that it is or may be on."""
        locks = locks_for_search if self.op.cleanup else locks_for_move
        return locks(level, self.subject, self.target)

    def check_prereq(self) -> None:
        """Refuse what cannot be migrated, or not there."""
        subject = self.subject
        check_movable(subject, "migrate")
        default_mode = own_hvparams(subject).get("migration_mode")
        self.live = decide_live(self.op.mode, self.op.live, default_mode)
        if self.op.cleanup:
            return
        target = self.target = require_target(subject, self.target)
        why_not, memory_mib = self._find_obstacle()
        if why_not is not None:
            self._allow_failover(why_not)
            check_failover(self.context, subject, target, ignore_ipolicy=self.op.ignore_ipolicy)
            return
        check_target(self.context, subject, target, ignore_ipolicy=self.op.ignore_ipolicy)
        reserve_memory(
            self.context,
            target,
            f"instance {self.instance.name!r}",
            memory_mib,
            self.instance.hypervisor,
            own_hvparams(subject),
        )

    def _find_obstacle(self) -> tuple[str | None, int]:
        """Return why it cannot be migrated, if so, and the memory (MiB) that it has now."""
        subject = self.subject
        source = subject.primary
        if source.offline:
            return f"its primary node {source.name!r} is marked offline", 0
        if fill_beparams(self.cluster, self.instance)["always_failover"]:
            return "its backend parameter 'always_failover' is set", 0
        info = running_info(self.context, subject, source)
        if not is_running(info):
            return "it does not run", 0
        call = "instance_migratable"
        result = call_node(self.context, source, call, subject.wire())
        if result.error is not None:
            return f"node {source.name!r}, call {call}: {result.error}", 0
        memory_mib = info.get("memory")
        return None, memory_mib if isinstance(memory_mib, int) else 0

    def _allow_failover(self, why_not: str) -> None:
        name = self.instance.name
        if not self.op.allow_failover:
            raise OpPrereqError(
                f"cannot migrate instance {name!r}: {why_not}; use 'gnt-instance failover {name}',"
                " or --allow-failover",
                ErrorCode.STATE,
            )
        self.why_failover = why_not

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Run hooks on master, source and target."""
        nodes = [
            self.master,
            *self.subject.nodes,
            *([self.target] if self.target else []),
        ]
        return nodes, nodes

    def own_env(self) -> Mapping[str, object]:
        """Tell from where to where it goes."""
        return {
            "ALLOW_RUNTIME_CHANGES": self.op.allow_runtime_changes,
            "MIGRATE_CLEANUP": self.op.cleanup,
            "MIGRATE_LIVE": self.live,
            "OLD_PRIMARY": self.subject.primary.name,
            "NEW_PRIMARY": self.target.name if self.target else "",
            "OLD_SECONDARY": "",
            "NEW_SECONDARY": "",
        }

    def exec(self) -> None:
        """Do it."""
        if self.op.cleanup:
            clean_up(
                self.context, self.subject, nodes_to_search(self.config, self.subject, self.target)
            )
            return
        assert self.target is not None
        if self.why_failover is None:
            Migration(self.context, self.subject, self.target, self.live).run()
            return
        self.context.info(f"cannot migrate: {self.why_failover}; failing over instead")
        fail_over(
            self.context,
            self.subject,
            self.target,
            shutdown_timeout_s=DEFAULT_SHUTDOWN_TIMEOUT_S,
            ignore_consistency=False,
            reason=self.op.reason,
        )

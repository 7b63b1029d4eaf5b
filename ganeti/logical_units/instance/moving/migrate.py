"""Move a running instance to another node that reaches its disks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ganeti.base.errors import OpPrereqError, wrong_state
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.life.power import is_running, own_hvparams, running_info
from ganeti.logical_units.instance.memory import reserve_memory
from ganeti.logical_units.instance.moving.cleanup import clean_up
from ganeti.logical_units.instance.moving.failover import check_failover, fail_over
from ganeti.logical_units.instance.moving.migration import Migration
from ganeti.logical_units.instance.moving.target import (
    Move,
    MoveUnit,
    check_movable,
    check_other_node,
    check_target,
    nodes_of_move,
)
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.fill import fill_beparams
from ganeti.objects.hypervisors import DEFAULT_SHUTDOWN_TIMEOUT_S, MigrationMode
from ganeti.objects.model import Node
from ganeti.opcodes.instance import OpInstanceMigrate
from ganeti.protocol.node_calls import NodeCalls


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
class MigrationPlan(Move):
    """How an instance is migrated.

    Attributes:
        live: it runs on while it moves.
        why_failover: the reason why it is failed over instead, if it is.
    """

    live: bool
    why_failover: str | None = None


class LUInstanceMigrate(MoveUnit[OpInstanceMigrate, MigrationPlan]):
    """Migrate an instance, or clean up after an interrupted migration."""

    hooks = HookPoint("instance-migrate", ObjectType.INSTANCE)
    doing = "migrate"

    def plan(self, found: Move) -> MigrationPlan:
        """Refuse an instance that cannot be migrated, or not there."""
        view = found.view
        check_movable(view, self.doing)
        default_mode = own_hvparams(view).get("migration_mode")
        live = decide_live(self.op.mode, self.op.live, default_mode)
        if self.op.cleanup:
            return MigrationPlan(view, found.target, live)
        target = found.goal
        check_other_node(view, target)
        why_not, memory_mib = self._find_obstacle(view)
        if why_not is not None:
            self._check_failover_allowed(view, why_not)
            check_failover(self.context, view, target, ignore_ipolicy=self.op.ignore_ipolicy)
            return MigrationPlan(view, target, live, why_not)
        check_target(self.context, view, target, ignore_ipolicy=self.op.ignore_ipolicy)
        reserve_memory(
            self.context,
            target,
            f"instance {view.instance.name!r}",
            memory_mib,
            view.instance.hypervisor,
            own_hvparams(view),
        )
        return MigrationPlan(view, target, live)

    def _find_obstacle(self, view: InstanceView) -> tuple[str | None, int]:
        """Return why it cannot be migrated, if so, and the memory (MiB) that it has now."""
        source = view.primary
        if source.offline:
            return f"its primary node {source.name!r} is marked offline", 0
        if fill_beparams(view.cluster, view.instance)["always_failover"]:
            return "its backend parameter 'always_failover' is set", 0
        info = running_info(self.context, view, source)
        if not is_running(info):
            return "it does not run", 0
        call = "instance_migratable"
        result = self.context.nodes.call_one(NodeCalls.instance_migratable, source, view.wire())
        if result.error is not None:
            return f"node {source.name!r}, call {call}: {result.error}", 0
        memory_mib = info.get("memory")
        return None, memory_mib if isinstance(memory_mib, int) else 0

    def _check_failover_allowed(self, view: InstanceView, why_not: str) -> None:
        if not self.op.allow_failover:
            name = view.instance.name
            raise wrong_state(
                f"cannot migrate instance {name!r}: {why_not}; use 'gnt-instance failover {name}',"
                " or --allow-failover"
            )

    def hook_nodes(self, plan: MigrationPlan) -> Sequence[Node]:
        """Run hooks on master, source and target."""
        return [self.master, *plan.view.nodes, *([plan.target] if plan.target else [])]

    def own_values(self, plan: MigrationPlan) -> Mapping[str, object]:
        return {
            "ALLOW_RUNTIME_CHANGES": self.op.allow_runtime_changes,
            "MIGRATE_CLEANUP": self.op.cleanup,
            "MIGRATE_LIVE": plan.live,
            **nodes_of_move(plan),
        }

    def execute(self, plan: MigrationPlan) -> None:
        if self.op.cleanup:
            clean_up(self.context, plan)
        elif plan.why_failover is None:
            Migration(self.context, plan.view, plan.goal, plan.live).run()
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

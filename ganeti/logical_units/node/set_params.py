"""Change flags and settings of a node.

A node is at most one of candidate, drained and offline.  Setting one of them clears the others; a
flag that changes without having been asked for is explained.

Source: design-2.0, "Node flags"; opcodes.json, OP_NODE_SET_PARAMS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import OpPrereqError, wrong_state
from ganeti.logical_units import lookup
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.locks import LockLevel, LockNeed, exclusive, shared, union
from ganeti.logical_units.node import base as checks
from ganeti.logical_units.node.base import NodeUnit, make_switch, switch_of
from ganeti.logical_units.node.candidates import (
    demote,
    forget_boot,
    has_room,
    is_capable,
    keeps_rights,
    let_in_candidates_alone,
    promote,
    refill_pool,
    tell_availability,
)
from ganeti.logical_units.parameters import parameter_changes
from ganeti.objects.fill import fill_ndparams
from ganeti.objects.model import Node
from ganeti.opcodes.node import OpNodeSetParams
from ganeti.protocol.wconfd import ObjectKind

FLAGS: Final = ("master_candidate", "drained", "offline")
ALL_FLAGS: Final = (*FLAGS, "master_capable", "vm_capable")


@dataclass(frozen=True, slots=True)
class FlagPlan:
    """New values of the flags that change, and the reasons of changes that were not asked for."""

    changes: Mapping[str, bool]
    reasons: Mapping[str, str]


def plan_flags(
    old: Node, asked: Mapping[str, bool], *, is_master: bool, has_room: bool
) -> FlagPlan:
    """Decide the new flags.

    Args:
        asked: the flags given, of all five.
        has_room: one more candidate is wanted.

    Raises:
        OpPrereqError: the flags contradict each other, or the node cannot have them.
    """
    name, chosen = old.name, [flag for flag in FLAGS if asked.get(flag)]
    if len(chosen) > 1:
        raise OpPrereqError(f"node {name!r}: only one of {' and '.join(chosen)} can be set")
    _check_master(name, asked, chosen, is_master=is_master)
    capable = asked.get("master_capable", old.master_capable)
    if "master_candidate" in chosen and not capable:
        raise wrong_state(
            f"node {name!r} is not master_capable, so it cannot be a master candidate"
        )
    new = {flag: asked.get(flag, getattr(old, flag)) for flag in FLAGS}
    reasons: dict[str, str] = {}
    for flag in FLAGS:
        if chosen and flag not in chosen and new[flag]:
            new[flag] = False
            reasons[flag] = f"auto-unset due to {chosen[0]}"
    if new["master_candidate"] and not capable:
        new["master_candidate"] = False
        reasons["master_candidate"] = "auto-demotion due to not being master capable"
    if _is_freed(old, new, asked) and capable and has_room:
        new["master_candidate"] = True
        reasons["master_candidate"] = "auto-promotion, there is room among the candidates"
    new |= {flag: asked[flag] for flag in ("master_capable", "vm_capable") if flag in asked}
    changes = {flag: value for flag, value in new.items() if getattr(old, flag) != value}
    return FlagPlan(changes, {flag: why for flag, why in reasons.items() if flag in changes})


def _check_master(
    name: str, asked: Mapping[str, bool], chosen: list[str], *, is_master: bool
) -> None:
    if not is_master:
        return
    loses: list[str] = [flag for flag in chosen if flag != "master_candidate"]
    loses += [flag for flag in ("master_candidate", "master_capable") if asked.get(flag) is False]
    if loses:
        raise OpPrereqError(
            f"node {name!r} is the master node, {loses[0]} cannot be changed on it; fail the master"
            " role over first ('gnt-cluster master-failover')"
        )


def _is_freed(old: Node, new: Mapping[str, bool], asked: Mapping[str, bool]) -> bool:
    """Tell whether a node that could be no candidate now is an ordinary one."""
    if any(new[flag] for flag in FLAGS) or asked.get("master_candidate") is False:
        return False
    was_bound = old.drained or old.offline
    became_capable = bool(asked.get("master_capable")) and not old.master_capable
    return was_bound or became_capable


@dataclass(frozen=True, slots=True)
class NodeChange:
    """New values of flags and other fields of a node.

    ``foreign_config``: why the configuration that it brings is not the cluster's, if so.
    """

    node: Node
    flags: FlagPlan
    settings: Mapping[str, object]
    foreign_config: str | None = None


class LUNodeSetParams(NodeUnit[OpNodeSetParams, NodeChange]):
    """Change a node; the result lists the changes."""

    hooks = HookPoint("node-modify", ObjectType.NODE)

    def locks(self, found: Node) -> LockNeed:
        """Lock the node, and instances that would have to connect anew to its other address."""
        node = exclusive(LockLevel.NODE, [found.uuid])
        if self.op.secondary_ip in (None, found.secondary_ip):
            return node
        names = [each.name for each in checks.copied_on(self.config, found)]
        return union(shared(LockLevel.INSTANCE, names), node)

    def plan(self, found: Node) -> NodeChange:
        """Refuse changes that contradict each other, or that are not possible."""
        asked = {flag: value for flag in ALL_FLAGS if (value := getattr(self.op, flag)) is not None}
        others = self.others(found)
        flags = plan_flags(
            found,
            asked,
            is_master=found.uuid == self.cluster.master_node,
            has_room=has_room(others, self.cluster.candidate_pool_size),
        )
        is_offline = flags.changes.get("offline", found.offline)
        settings = self._plan_settings(found, others, is_offline=is_offline)
        if not (asked or settings) and self.op.powered is None and self.op.secondary_ip is None:
            raise OpPrereqError("please give at least one change")
        if flags.changes.get("master_candidate") is False and not self.op.auto_promote:
            self._check_pool(found, others)
        if flags.changes.get("vm_capable") is False:
            checks.check_no_instances(self.config, found)
        if found.offline and not is_offline:
            self._check_answers(found, settings)
            foreign = checks.find_foreign_config(self.context, found, others)
            return NodeChange(found, flags, settings, foreign)
        return NodeChange(found, flags, settings)

    def _plan_settings(
        self, node: Node, others: Sequence[Node], *, is_offline: bool
    ) -> dict[str, object]:
        op = self.op
        settings: dict[str, object] = {}
        if op.powered is not None:
            self._check_powered(node, op.powered, is_offline=is_offline)
            if op.powered != node.powered:
                settings["powered"] = op.powered
        settings |= parameter_changes(op, node)
        if op.secondary_ip is not None and op.secondary_ip != node.secondary_ip:
            self._check_secondary_ip(replace(node, secondary_ip=op.secondary_ip), others)
            checks.check_copies_at_rest(self.config, node)
            settings["secondary_ip"] = op.secondary_ip
        return settings

    def _check_powered(self, node: Node, powered: bool, *, is_offline: bool) -> None:
        """Refuse to record power that no helper switches, or that cannot be true."""
        if not self._helper(node):
            raise wrong_state(
                f"no out-of-band helper is set for node {node.name!r}, so nothing is recorded of"
                " its power; set the node parameter oob_program"
            )
        if not powered and not is_offline:
            raise wrong_state(
                f"node {node.name!r} is not marked offline, so it has power; use --offline=yes as"
                " well"
            )

    def _helper(self, node: Node) -> object:
        """Return the out-of-band program of the node as it is; nothing where there is none."""
        group = lookup.require_group(self.config, node.group)
        return fill_ndparams(self.cluster, group, node)["oob_program"]

    def _check_secondary_ip(self, after: Node, others: Sequence[Node]) -> None:
        """Refuse an address that the node cannot have; only the master decides on having one."""
        is_master = after.uuid == self.cluster.master_node
        checks.check_addresses(after, others, after if is_master else self.master)
        if not after.offline:
            checks.check_has_secondary_ip(self.context, after)

    def _check_pool(self, node: Node, others: Sequence[Node]) -> None:
        candidates = sum(other.master_candidate for other in others)
        possible = sum(is_capable(other) for other in others)
        if candidates < min(self.cluster.candidate_pool_size, possible):
            raise wrong_state(
                f"without node {node.name!r} there are not enough master candidates; use"
                " --auto-promote to let others take its place"
            )

    def _check_answers(self, node: Node, settings: Mapping[str, object]) -> None:
        if not settings.get("powered", node.powered) and self._helper(node):
            raise wrong_state(
                f"node {node.name!r} is recorded as switched off; use 'gnt-node power on"
                f" {node.name}' first, or --node-powered=yes if it has power"
            )
        checks.check_version(self.context, replace(node, offline=False))
        self.context.warn(
            f"node {node.name} goes online without being re-added; please make sure that it is"
            " healthy"
        )

    def hook_nodes(self, plan: NodeChange) -> Sequence[Node]:
        """Run hooks on the master and the node."""
        return [self.master, plan.node]

    def hook_values(self, plan: NodeChange) -> Mapping[str, object]:
        return {
            "OP_TARGET": plan.node.name,
            **{flag.upper(): getattr(self.op, flag) for flag in ALL_FLAGS},
        }

    def execute(self, plan: NodeChange) -> list[tuple[str, object]]:
        """Change the node; returns the changes."""
        node, flags, settings = plan.node, plan.flags, plan.settings
        for flag, why in flags.reasons.items():
            self.context.info(f"{flag} of node {node.name}: {why}")
        if flags.changes.get("offline") is False:
            checks.lead(self.context, node, plan.foreign_config)
            forget_boot(self.context, node)
        changes = {**flags.changes, **settings}
        if changes.keys() & {"ndparams", "offline"}:
            self._make_switch(node, replace(node, **changes))
        if changes:
            self.config.modify(ObjectKind.NODE, node.uuid, changes)
        if flags.changes.get("offline") is False:
            let_in_candidates_alone(self.context, self.cluster, replace(node, **flags.changes))
        self._follow_role(replace(node, **flags.changes), flags.changes.get("master_candidate"))
        if flags.changes or "ndparams" in settings:
            tell_availability(self.context)
        return [
            *((flag, flags.reasons.get(flag, value)) for flag, value in flags.changes.items()),
            *settings.items(),
        ]

    def _make_switch(self, node: Node, after: Node) -> None:
        group = lookup.require_group(self.config, node.group)
        comes_back = node.offline and not after.offline
        before = None if comes_back else switch_of(self.cluster, group, node)
        make_switch(self.context, after, switch_of(self.cluster, group, after), before)

    def _follow_role(self, node: Node, becomes_candidate: bool | None) -> None:
        """Give the node the files of a candidate, or take them away; fill the pool again.

        What was cut off before it had given or taken everything is ended by being asked for again.
        """
        op, cluster = self.op, self.cluster
        is_missing = node.uuid not in (*cluster.candidate_certs, cluster.master_node)
        unwanted = op.offline or op.drained or False in (op.master_candidate, op.master_capable)
        if becomes_candidate or (op.master_candidate and is_missing):
            promote(self.context, node)
        elif becomes_candidate is False or (unwanted and keeps_rights(self.context, node)):
            demote(self.context, node)
            if self.op.auto_promote:
                refill_pool(self.context, [node.uuid])

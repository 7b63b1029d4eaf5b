"""Change flags and settings of a node."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.versions import PROTOCOL_VERSION
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, exclusive
from ganeti.logical_units.node.candidates import demote, has_room, is_capable, promote, refill_pool
from ganeti.logical_units.node.parameters import check_disk_state, check_hv_state, check_ndparams
from ganeti.logical_units.node.remove import instance_names
from ganeti.logical_units.node.roles import FLAGS, Flags, plan_flags
from ganeti.logical_units.node.switches import make_switch, switch_of
from ganeti.logical_units.node_calls import ask
from ganeti.objects.fill import fill_ndparams
from ganeti.objects.node import Node
from ganeti.objects.parameters import apply_changes
from ganeti.opcodes.node import OpNodeSetParams

ALL_FLAGS = (*FLAGS, "master_capable", "vm_capable")


class LUNodeSetParams(LogicalUnit[OpNodeSetParams]):
    """Change a node; the result lists what was changed."""

    def expand_names(self) -> None:
        """Look the node up."""
        self.node = lookup.require_node(self.config, self.op.node_uuid or self.op.node_name)

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the node exclusively."""
        return exclusive(level, [self.node.uuid]) if level is LockLevel.NODE else {}

    @cached_property
    def others(self) -> list[Node]:
        """Every other node."""
        return [node for node in lookup.all_nodes(self.config) if node.uuid != self.node.uuid]

    def check_prereq(self) -> None:
        """Refuse changes that contradict each other, or that are not possible."""
        node = self.node
        asked = {flag: value for flag in ALL_FLAGS if (value := getattr(self.op, flag)) is not None}
        self.flags = plan_flags(
            node.name,
            Flags(**{flag: getattr(node, flag) for flag in ALL_FLAGS}),
            asked,
            is_master=node.uuid == self.cluster.master_node,
            has_room=has_room(self.others, self.cluster.candidate_pool_size),
        )
        self.settings = self._plan_settings()
        if not asked and not self.settings and self.op.powered is None:
            raise OpPrereqError("please give at least one change", ErrorCode.INVAL)
        self._check_pool()
        if self.flags.changes.get("vm_capable") is False:
            self._check_no_instances()
        if self.flags.changes.get("offline") is False:
            self._check_answers()

    def _plan_settings(self) -> dict[str, object]:
        op, node = self.op, self.node
        settings: dict[str, object] = {}
        if op.powered is not None:
            self._check_powered(op.powered)
            if op.powered != node.powered:
                settings["powered"] = op.powered
        if op.ndparams is not None:
            settings["ndparams"] = apply_changes(node.ndparams, check_ndparams(op.ndparams))
        if op.hv_state is not None:
            settings["hv_state_static"] = {**node.hv_state_static, **check_hv_state(op.hv_state)}
        if op.disk_state is not None:
            checked = check_disk_state(op.disk_state)
            settings["disk_state_static"] = {**node.disk_state_static, **checked}
        if op.secondary_ip is not None and op.secondary_ip != node.secondary_ip:
            settings["secondary_ip"] = self._check_secondary_ip(op.secondary_ip)
        return settings

    def _check_powered(self, powered: bool) -> None:
        """Refuse a record of the power that nothing keeps, or that cannot be true."""
        node = self.node
        if not self._helper():
            raise OpPrereqError(
                f"no out-of-band helper is set for node {node.name!r}, so nothing is recorded of"
                " its power; set the node parameter oob_program",
                ErrorCode.STATE,
            )
        if not powered and not self.flags.changes.get("offline", node.offline):
            raise OpPrereqError(
                f"node {node.name!r} is not marked offline, so it has power; use --offline=yes as"
                " well",
                ErrorCode.STATE,
            )

    def _helper(self) -> object:
        """Return the out-of-band program of the node as it is; nothing where there is none."""
        group = lookup.require_group(self.config, self.node.group)
        return fill_ndparams(self.cluster, group, self.node)["oob_program"]

    def _check_secondary_ip(self, address: str) -> str:
        node = self.node
        try:
            ipaddress.ip_address(address)
        except ValueError as err:
            raise OpPrereqError(f"{address!r} is not an IP address", ErrorCode.INVAL) from err
        for other in self.others:
            if address in (other.primary_ip, other.secondary_ip):
                raise OpPrereqError(
                    f"the address {address} is already used by node {other.name!r}",
                    ErrorCode.NOTUNIQUE,
                )
        if node.uuid != self.cluster.master_node:
            is_dual = address != node.primary_ip
            if is_dual != (self.master.secondary_ip != self.master.primary_ip):
                raise OpPrereqError(
                    f"node {node.name!r} must have a secondary address of its own exactly if the"
                    " master node has one",
                    ErrorCode.INVAL,
                )
        if not node.offline:
            what = f"check the secondary address {address}"
            if not ask(self.context, node, what, "node_has_ip_address", address):
                raise OpPrereqError(
                    f"node {node.name!r} does not have the address {address}", ErrorCode.ENVIRON
                )
        return address

    def _check_pool(self) -> None:
        if self.flags.changes.get("master_candidate") is not False or self.op.auto_promote:
            return
        candidates = sum(node.master_candidate for node in self.others)
        possible = sum(is_capable(node) for node in self.others)
        if candidates < min(self.cluster.candidate_pool_size, possible):
            raise OpPrereqError(
                f"without node {self.node.name!r} there are not enough master candidates; use"
                " --auto-promote to let others take its place",
                ErrorCode.STATE,
            )

    def _check_no_instances(self) -> None:
        primary, secondary = instance_names(self.config, self.node)
        if primary or secondary:
            raise OpPrereqError(
                f"node {self.node.name!r} has the instance(s)"
                f" {', '.join([*primary, *secondary][:10])}, so it must stay vm_capable; move them"
                " first",
                ErrorCode.STATE,
            )

    def _check_answers(self) -> None:
        if not self.settings.get("powered", self.node.powered) and self._helper():
            raise OpPrereqError(
                f"node {self.node.name!r} is recorded as switched off; use 'gnt-node power on"
                f" {self.node.name}' first, or --node-powered=yes if it has power",
                ErrorCode.STATE,
            )
        node = replace(self.node, offline=False)
        version = ask(self.context, node, f"bring node {node.name!r} back", "version")
        if version != PROTOCOL_VERSION:
            raise OpPrereqError(
                f"node {node.name!r} speaks protocol version {version}, the master"
                f" {PROTOCOL_VERSION}",
                ErrorCode.ENVIRON,
            )
        self.context.warn(
            f"node {node.name} goes online without being re-added; please make sure that it is"
            " healthy"
        )

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Run hooks on the master and the node."""
        nodes = [self.master, self.node]
        return nodes, nodes

    def hooks_env(self) -> Mapping[str, object]:
        """Tell what was asked for."""
        return {
            "OP_TARGET": self.node.name,
            **{flag.upper(): getattr(self.op, flag) for flag in ALL_FLAGS},
        }

    def exec(self) -> list[tuple[str, object]]:
        """Change it; returns what was changed."""
        node, flags = self.node, self.flags
        for flag, why in flags.reasons.items():
            self.context.info(f"{flag} of node {node.name}: {why}")
        changes = {**flags.changes, **self.settings}
        if changes.keys() & {"ndparams", "offline"}:
            self._make_switch(replace(node, **changes))
        if changes:
            self.config.modify_node(node.uuid, changes)
        self._follow_role()
        return [
            *((flag, flags.reasons.get(flag, value)) for flag, value in flags.changes.items()),
            *self.settings.items(),
        ]

    def _make_switch(self, after: Node) -> None:
        group = lookup.require_group(self.config, self.node.group)
        comes_back = self.node.offline and not after.offline
        before = None if comes_back else switch_of(self.cluster, group, self.node)
        make_switch(self.context, after, switch_of(self.cluster, group, after), before)

    def _follow_role(self) -> None:
        """Give the node what a candidate needs, or take it away; fill the pool again."""
        now = replace(self.node, **self.flags.changes)
        match self.flags.changes.get("master_candidate"):
            case True:
                promote(self.context, now)
            case False:
                demote(self.context, now)
                if self.op.auto_promote:
                    refill_pool(self.context, [self.node.uuid])

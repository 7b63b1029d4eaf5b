"""Add a node to the cluster, or take a known one in again.

The machine was set up before (certificate, simple configuration, node daemon); here it is checked,
entered into the configuration and given what candidates need.  The node's group is locked shared,
so that it cannot go away meanwhile; the node itself is locked before it is there.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.ids import NodeUuid
from ganeti.base.versions import PROTOCOL_VERSION
from ganeti.logical_units import ancillary, lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.host_names import resolve
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, exclusive, shared
from ganeti.logical_units.node import ssh_keys
from ganeti.logical_units.node.candidates import demote, has_room, is_capable, trust
from ganeti.logical_units.node.parameters import check_disk_state, check_hv_state, check_ndparams
from ganeti.logical_units.node.switches import make_switch, switch_of
from ganeti.logical_units.node_calls import ask, order
from ganeti.logical_units.undo import Undo
from ganeti.objects.node import Node
from ganeti.opcodes.node import OpNodeAdd

if TYPE_CHECKING:
    from ganeti.logical_units.context import JobContext
    from ganeti.objects.nodegroup import NodeGroup


class LUNodeAdd(LogicalUnit[OpNodeAdd]):
    """Add a node, or take a known one in again."""

    def __init__(self, context: JobContext, op: OpNodeAdd) -> None:
        super().__init__(context, op)
        self.new_uuid = NodeUuid(context.new_uuid())

    def take_over(self, earlier: Self) -> None:
        """Keep the new node's UUID, which is locked."""
        self.new_uuid = earlier.new_uuid

    def expand_names(self) -> None:
        """Resolve the name, and find out which group and which known node are meant."""
        self.name, resolved_ip = resolve("node", self.op.node_name, self.context.paths)
        self.known = next((node for node in self.all_nodes if node.name == self.name), None)
        if self.op.readd:
            if self.known is None:
                raise OpPrereqError(
                    f"node {self.name!r} is not in the configuration; add it without --readd",
                    ErrorCode.NOENT,
                )
            if self.known.uuid == self.cluster.master_node:
                raise OpPrereqError(
                    f"node {self.name!r} is the master; it cannot be re-added", ErrorCode.STATE
                )
            if self.op.group is not None:
                raise OpPrereqError(
                    "a group cannot be given when a node is re-added; use 'gnt-group assign-nodes'"
                )
        elif self.known is not None:
            raise OpPrereqError(
                f"node {self.name!r} is already in the configuration; use --readd to take it in"
                " again",
                ErrorCode.EXISTS,
            )
        self.primary_ip = self.op.primary_ip or resolved_ip
        self.group = self._find_group()

    @cached_property
    def all_nodes(self) -> list[Node]:
        """Every node of the cluster."""
        return lookup.all_nodes(self.config)

    @property
    def others(self) -> list[Node]:
        """Every node but the one being added."""
        return [node for node in self.all_nodes if node.name != self.name]

    def _find_group(self) -> NodeGroup:
        if self.known is not None:
            return lookup.require_group(self.config, self.known.group)
        if self.op.group is not None:
            return lookup.require_group(self.config, self.op.group)
        groups = lookup.present(self.config.get_node_groups(None))
        if len(groups) != 1:
            raise OpPrereqError(
                f"there are {len(groups)} node groups; say with -g which one node {self.name!r}"
                " belongs to",
                ErrorCode.INVAL,
            )
        return groups[0]

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the group shared, and the node exclusively."""
        match level:
            case LockLevel.NODEGROUP:
                return shared(level, [self.group.uuid])
            case LockLevel.NODE:
                return exclusive(level, [self.known.uuid if self.known else self.new_uuid])
            case _:
                return {}

    def check_prereq(self) -> None:
        """Check addresses and parameters, and ask the node for its version."""
        self.node = self._planned_node()
        _check_addresses(self.node, self.others, self.master)
        self._check_version()
        if self.node.secondary_ip != self.node.primary_ip:
            self._check_secondary_ip()

    def _planned_node(self) -> Node:
        op, known = self.op, self.known
        ndparams = check_ndparams(op.ndparams or {})
        if known is None:
            node = Node(
                name=self.name,
                uuid=self.new_uuid,
                primary_ip=self.primary_ip,
                secondary_ip=op.secondary_ip or self.primary_ip,
                group=self.group.uuid,
                master_candidate=False,
                offline=False,
                drained=False,
                master_capable=op.master_capable is not False,
                vm_capable=op.vm_capable is not False,
                ndparams=ndparams,
                powered=True,
                hv_state_static=check_hv_state(op.hv_state or {}),
                disk_state_static=check_disk_state(op.disk_state or {}),
                serial_no=1,
            )
        else:
            node = replace(
                known,
                primary_ip=self.primary_ip,
                secondary_ip=op.secondary_ip or known.secondary_ip,
                offline=False,
                drained=False,
                master_candidate=False,
                powered=True,
                master_capable=_or(op.master_capable, known.master_capable),
                vm_capable=_or(op.vm_capable, known.vm_capable),
                ndparams={**known.ndparams, **ndparams},
            )
        wanted = is_capable(node) and has_room(self.others, self.cluster.candidate_pool_size)
        return replace(node, master_candidate=wanted)

    def _check_version(self) -> None:
        version = ask(self.context, self.node, f"ask node {self.name!r} for its version", "version")
        if version != PROTOCOL_VERSION:
            raise OpPrereqError(
                f"node {self.name!r} speaks protocol version {version}, the master"
                f" {PROTOCOL_VERSION}; install the same version on both",
                ErrorCode.ENVIRON,
            )

    def _check_secondary_ip(self) -> None:
        ip = self.node.secondary_ip
        what = f"check the secondary address {ip}"
        if not ask(self.context, self.node, what, "node_has_ip_address", ip):
            raise OpPrereqError(
                f"node {self.name!r} does not have the secondary address {ip}", ErrorCode.ENVIRON
            )

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Run hooks on all other nodes, and afterwards on the new one as well."""
        return self.others, [*self.others, self.node]

    def hooks_env(self) -> Mapping[str, object]:
        """Tell about the node to be."""
        return {
            "OP_TARGET": self.name,
            "NODE_NAME": self.name,
            "NODE_PIP": self.node.primary_ip,
            "NODE_SIP": self.node.secondary_ip,
            "MASTER_CAPABLE": str(self.node.master_capable),
            "VM_CAPABLE": str(self.node.vm_capable),
        }

    def exec(self) -> None:
        """Enter the node into the configuration, and make it known and trusted."""
        node = self.node
        if node.master_candidate:
            self.context.info("Node will be a master candidate")
        if self.cluster.modify_etc_hosts:
            what = f"enter node {node.name!r} into the hosts file"
            order(
                self.context,
                self.master,
                what,
                "etc_hosts_modify",
                "add",
                node.name,
                node.primary_ip,
            )
        make_switch(self.context, node, switch_of(self.cluster, self.group, node))
        with Undo(self.context) as undo:
            self._enter(undo)
            if node.master_candidate:
                trust(self.context, node)
            undo.forget()
        ssh_keys.introduce(self.context, self.cluster, node)
        if node.master_candidate:
            ssh_keys.admit(self.context, self.cluster, node)
        ancillary.distribute(self.context, self.cluster, [node], master_name=self.master.name)
        ancillary.send_hosts(self.context, self.cluster, self.others)

    def _enter(self, undo: Undo) -> None:
        node, known = self.node, self.known
        if known is None:
            undo.push(
                f"remove node {node.name!r} from the configuration",
                lambda: self._forget(node),
            )
            self.config.create_node(node.to_wire())
            return
        if known.master_candidate:
            demote(self.context, known)
        before, after = known.to_wire(), node.to_wire()
        changes = {name: value for name, value in after.items() if before.get(name) != value}
        self.context.info(f"readding node {node.name}, the offline and drained flags are reset")
        if changes:
            self.config.modify_node(node.uuid, changes)
            back = {name: before.get(name) for name in changes}
            undo.push(
                f"restore the flags of node {node.name!r}",
                lambda: self.config.modify_node(node.uuid, back),
            )

    def _forget(self, node: Node) -> None:
        if any(self.config.get_nodes([node.uuid])):
            self.config.set_candidate_cert(node.uuid, None)
            self.config.delete_node(node.uuid)


def _or(given: bool | None, otherwise: bool) -> bool:
    return otherwise if given is None else given


def _check_addresses(node: Node, others: Sequence[Node], master: Node) -> None:
    """Refuse addresses that are malformed or taken, and another number of networks than elsewhere.

    Raises:
        OpPrereqError: which address, and why.
    """
    for what, address in (("primary", node.primary_ip), ("secondary", node.secondary_ip)):
        try:
            ipaddress.ip_address(address)
        except ValueError as err:
            raise OpPrereqError(
                f"the {what} address {address!r} of node {node.name!r} is not an IP address"
            ) from err
    own = {node.primary_ip, node.secondary_ip}
    for other in others:
        taken = own & {other.primary_ip, other.secondary_ip}
        if taken:
            raise OpPrereqError(
                f"the address {min(taken)} of node {node.name!r} is already used by node"
                f" {other.name!r}",
                ErrorCode.NOTUNIQUE,
            )
    is_dual = node.secondary_ip != node.primary_ip
    if is_dual != (master.secondary_ip != master.primary_ip):
        have = "a secondary address of its own" if is_dual else "no secondary address"
        raise OpPrereqError(
            f"node {node.name!r} has {have}, unlike the master node; give -s accordingly",
            ErrorCode.INVAL,
        )

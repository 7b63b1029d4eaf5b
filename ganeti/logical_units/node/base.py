"""The common part of units about one node, and the checks of a node that joins or changes."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpExecError, OpPrereqError, wrong_state
from ganeti.base.text import natural_sort_key, shown
from ganeti.base.versions import PROTOCOL_VERSION
from ganeti.clients.node_rpc import RpcResult
from ganeti.jobs.votes import Answer, Poll, Standing, judge
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.context import JobContext
from ganeti.objects.fill import fill_ndparams
from ganeti.objects.model import Cluster, Instance, Node, NodeGroup
from ganeti.objects.parameters import NDPARAMS
from ganeti.opcodes.node import NodeOpCode
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import NodeFacts
from ganeti.protocol.wconfd import WConfCalls

NodeOpType = TypeVar("NodeOpType", bound=NodeOpCode)
PlanType = TypeVar("PlanType")

_VOTE_S: Final = 20.0  # the others refuse a daemon that is no master's within that
_VOTE_PAUSE_S: Final = 1.0


class NodeUnit(LogicalUnit[NodeOpType, Node, PlanType]):
    """An operation on one node."""

    def resolve(self) -> Node:
        return lookup.require_node(self.config, self.op.node_uuid or self.op.node_name)

    def others(self, node: Node) -> list[Node]:
        """Return all other nodes."""
        return [other for other in lookup.all_nodes(self.config) if other.uuid != node.uuid]


def instances_of(config: WConfCalls, node: Node) -> tuple[list[Instance], list[Instance]]:
    """Return the instances with this primary node, and those with this secondary node, by name."""
    found = config.get_node_instances([node.uuid])[0] or ([], [])
    primary, secondary = (
        sorted(
            lookup.present(config.get_instances(uuids)) if uuids else [],
            key=lambda instance: natural_sort_key(instance.name),
        )
        for uuids in found
    )
    return primary, secondary


def copied_on(config: WConfCalls, node: Node) -> list[Instance]:
    """Return the instances whose disks have copies on this node, and send writes to others."""
    primary, secondary = instances_of(config, node)
    instances = [*primary, *secondary]
    return [
        instance
        for instance, disks in zip(instances, lookup.disks_of_each(config, instances), strict=True)
        if any(disk.traits.mirrored for disk in disks)
    ]


def check_copies_at_rest(config: WConfCalls, node: Node) -> None:
    """Refuse another secondary address of a node while disks are copied through the present one.

    Raises:
        OpPrereqError: names the instances.
    """
    busy = [each.name for each in copied_on(config, node) if each.disks_active]
    if busy:
        raise wrong_state(
            f"the secondary address of node {node.name!r} cannot change while the disks of"
            f" {shown(busy)} are active, as their copies use it; 'gnt-instance shutdown' first"
            " ('gnt-instance deactivate-disks' where an instance does not run)"
        )


def check_no_instances(config: WConfCalls, node: Node) -> None:
    """Refuse to make a node with instances one that can have none.

    Raises:
        OpPrereqError: names the instances.
    """
    primary, secondary = instances_of(config, node)
    names = [instance.name for instance in (*primary, *secondary)]
    if names:
        raise wrong_state(
            f"node {node.name!r} has the instance(s) {', '.join(names[:10])}, so it must stay"
            " vm_capable; move them first"
        )


def check_addresses(node: Node, others: Sequence[Node], master: Node) -> None:
    """Refuse malformed or used addresses, and a secondary address only here or only elsewhere.

    Raises:
        OpPrereqError: names the address and the reason.
    """
    for which, address in (("primary", node.primary_ip), ("secondary", node.secondary_ip)):
        try:
            ipaddress.ip_address(address)
        except ValueError as err:
            raise OpPrereqError(
                f"the {which} address {address!r} of node {node.name!r} is not an IP address"
            ) from err
    own = {node.primary_ip, node.secondary_ip}
    for other in others:
        used = own & {other.primary_ip, other.secondary_ip}
        if used:
            raise OpPrereqError(
                f"the address {min(used)} of node {node.name!r} is already used by node"
                f" {other.name!r}",
                ErrorCode.NOTUNIQUE,
            )
    is_dual = node.secondary_ip != node.primary_ip
    if is_dual != (master.secondary_ip != master.primary_ip):
        has = "a secondary address of its own" if is_dual else "no secondary address"
        raise OpPrereqError(
            f"node {node.name!r} has {has}, unlike the master node; give -s accordingly"
        )


def check_has_secondary_ip(context: JobContext, node: Node) -> None:
    """Ask a node whether its secondary address is there.

    Raises:
        OpPrereqError: it is not, or the node does not answer.
    """
    address = node.secondary_ip
    calls = context.nodes.check(node, f"check the secondary address {address}")
    if not calls.node_has_ip_address(address):
        raise OpPrereqError(
            f"node {node.name!r} does not have the secondary address {address}", ErrorCode.ENVIRON
        )


def check_version(context: JobContext, node: Node) -> None:
    """Refuse a node of another version.

    Raises:
        OpPrereqError: it speaks another version of the protocol, or does not answer.
    """
    doing = f"ask node {node.name!r} for its version"
    [found] = context.nodes.call_all(NodeCalls.version, [node]).values()
    if found.address:  # it is to come back, so the usual advice to mark it offline is of no use
        raise OpPrereqError(
            f"cannot {doing}: {found.failure_text}; start its daemon there:"
            " 'systemctl start ganeti-noded'",
            ErrorCode.ENVIRON,
        )
    if found.error is not None:
        raise OpPrereqError(found.explain(doing), ErrorCode.ENVIRON)
    version = found.payload
    if version != PROTOCOL_VERSION:
        raise OpPrereqError(
            f"node {node.name!r} speaks protocol version {version}, the master {PROTOCOL_VERSION};"
            " install the same version on both",
            ErrorCode.ENVIRON,
        )


def _facts_at_rest(
    context: JobContext, nodes: Sequence[Node], name: str
) -> Mapping[str, RpcResult[NodeFacts]]:
    """Ask nodes for what they know of the master; one of them may have booted just now.

    Its daemons of a master run until the others have told them that it is none.
    """
    until_s = context.monotonic() + _VOTE_S
    while True:
        answers = context.nodes.call_all(NodeCalls.master_facts, nodes)
        found = answers[name]
        is_at_rest = found.error is not None or not found.payload.daemons
        if is_at_rest or context.monotonic() > until_s:
            return answers
        context.wait(_VOTE_PAUSE_S)


def find_foreign_config(context: JobContext, node: Node, others: Sequence[Node]) -> str | None:
    """Say why the configuration on a node that comes back is not the cluster's; None if it is.

    One that is newer than the master's counts as foreign if the others agree that this master is
    the master: then they never acknowledged it.

    Args:
        others: all other nodes, the master included.

    Raises:
        OpPrereqError: daemons of a master run there, or the others do not agree.
    """
    there = replace(node, offline=False)
    answers = _facts_at_rest(context, [*others, there], node.name)
    facts = {name: answer.payload for name, answer in answers.items() if answer.error is None}
    found, master = facts.pop(node.name, None), context.config.get_cluster().master_node
    own_name = next(other.name for other in others if other.uuid == master)
    if found is None or own_name not in facts:
        return None  # a node of Ganeti 3.0 answers no such question
    if found.daemons:
        raise wrong_state(
            f"node {node.name!r} runs {' and '.join(found.daemons)}, as if it were the master; try"
            " again if it has just booted, as they end once the others have told it, or stop them"
        )
    own = facts[own_name]
    serial = max(found.config_serial, found.claim_serial)
    if found.cluster_uuid not in ("", own.cluster_uuid):
        return f"is that of another cluster ({found.cluster_uuid})"
    if serial <= own.config_serial:
        return None
    newer = f"has serial number {serial}, higher than that of the cluster ({own.config_serial})"
    online = [other.name for other in others if not other.offline]
    votes = {name: Answer(each.master_name, each) for name, each in facts.items()}
    silent = {name: str(answers[name].error) for name in online if name not in facts}
    verdict = judge(Poll(own_name, online, votes, silent))
    if verdict.standing is not Standing.CONFIRMED:
        raise wrong_state(
            f"the configuration on node {node.name!r} {newer}, and the other nodes do not agree"
            f" that it is not needed: {verdict.reason}"
        )
    return newer


def lead(context: JobContext, node: Node, foreign_config: str | None) -> None:
    """Have a node that comes back follow this master, before anything else is asked of it.

    It may know this master as a former one only, whose jobs it refuses: the role was elsewhere when
    it went.

    Args:
        foreign_config: why its configuration is not the cluster's, if so; it is set aside.

    Raises:
        OpExecError: it does not follow; the text says whom it follows.
    """
    there = replace(node, offline=False)
    if foreign_config is not None:
        _set_config_aside(context, there, foreign_config)
    serial_no, _ = context.config.get_serial()
    values = context.config.get_ssconf()
    result = context.nodes.call_one(NodeCalls.ssconf_accept, there, serial_no, values)
    # Nodes of Ganeti 3.0 lack the call, and refuse nobody.
    if result.error is not None and not result.lacks_call:
        raise OpExecError(result.explain(f"tell node {node.name!r} whom to follow"))


def _set_config_aside(context: JobContext, node: Node, why: str) -> None:
    """Rename the configuration of a node that comes back.

    Raises:
        OpExecError: the node cannot.
    """
    path = context.nodes.on(node, "set the configuration there aside").config_set_aside()
    if path is not None:
        context.warn(
            f"the configuration on node {node.name} {why}; it was written while the node was apart"
            f" from the others and counts no more.  It is kept there as {path}, and its jobs in"
            " the directory of the queue with the same ending"
        )


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch that a node is to have, and the interface that connects it, "" for none."""

    name: str
    link: str


def switch_of(cluster: Cluster, group: NodeGroup, node: Node) -> Switch | None:
    """Return the switch that a node's filled parameters ask for."""
    params = fill_ndparams(cluster, group, node)
    if not params["ovs"]:
        return None
    return Switch(params["ovs_name"] or str(NDPARAMS["ovs_name"].default), params["ovs_link"] or "")


def make_switch(
    context: JobContext, node: Node, wanted: Switch | None, before: Switch | None = None
) -> None:
    """Make the switch of a node, unless it was to have the same before.

    Raises:
        OpExecError: the node cannot.
    """
    if wanted is None or wanted == before:
        return
    if node.offline:
        context.warn(f"node {node.name} is offline; it gets its Open vSwitch when it is re-added")
        return
    if not wanted.link:
        context.warn(
            f"Open vSwitch {wanted.name!r} of node {node.name} is connected to no interface, so"
            " its guests reach nothing outside; give one with the node parameter ovs_link"
        )
    what = f"make Open vSwitch {wanted.name!r}"
    context.nodes.on(node, what).node_configure_ovs(wanted.name, wanted.link)

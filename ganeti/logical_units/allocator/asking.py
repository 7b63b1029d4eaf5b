"""Asks an allocator: reads the cluster, has the program run on the master, checks the answer.

One pass costs one call of ``node_info`` to each node that can answer, and one of
``all_instances_info`` to those that have instances which are meant to run; never one for each
instance.  No lock is needed or held: whoever acts on the answer checks it again under locks.

Source: iallocator.json, "calling".
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ganeti.base.errors import ErrorCode, GenericError, OpPrereqError
from ganeti.clients.node_rpc import RpcResult, target_of
from ganeti.config.config_data import split_config
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.answer import read_answer
from ganeti.logical_units.allocator.question import NodeFacts, Snapshot, build_question, is_asked
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.locks import PriorityChangedError
from ganeti.objects.model import AdminState, Cluster, Node
from ganeti.protocol.iallocator import DEFAULT_SHORTCUT, AllocatorRequest, Wanted, encode_request
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.service import call_of
from ganeti.protocol.wconfd import ClientId, WConfCalls
from ganeti.query.live import instances_arguments, node_info_arguments
from ganeti.query.view import InstanceLive, NodeLive, instances_from_rpc

_NODE_INFO: Final = call_of(NodeCalls.node_info)
_INSTANCES: Final = "all_instances_info"


@dataclass(frozen=True, slots=True)
class Allocator:
    """A program, and the options that it gets; an option without a value is None."""

    name: str
    options: Mapping[str, object]


def choose_allocator(cluster: Cluster, asked: str | None, what: str) -> Allocator:
    """Return the allocator asked for; none, or ".", means the cluster's default.

    Args:
        what: what is to be placed, as errors begin.

    Raises:
        OpPrereqError: the cluster has no default.
    """
    default = cluster.default_iallocator
    name = default if asked in (None, DEFAULT_SHORTCUT) else asked
    if not name:
        raise OpPrereqError(
            f"{what}: no node was given, and the cluster has no default allocator; give one with -I"
            " NAME, set one with 'gnt-cluster modify -I NAME', or name a node if that is possible"
        )
    return Allocator(name, dict(cluster.default_iallocator_params) if name == default else {})


def read_snapshot(config: WConfCalls) -> Snapshot:
    """Read the configuration for an allocator, in one piece."""
    return Snapshot(split_config(bytes(config.read_config())))


def ask_allocator(
    context: JobContext,
    allocator: Allocator,
    wanted: Wanted,
    snapshot: Snapshot,
    *,
    hypervisor: str | None = None,
) -> Any:
    """Return the answer of an allocator, of the type of the mode.

    Args:
        hypervisor: whose view of the nodes' memory counts; the cluster's first by default.

    Raises:
        OpPrereqError: it cannot be run, fails, finds no place, or talks nonsense.
    """
    question = make_question(context, snapshot, wanted, hypervisor=hypervisor)
    said = run_allocator(context, allocator, question)
    return read_answer(allocator.name, question, said)


def make_question(
    context: JobContext, snapshot: Snapshot, wanted: Wanted, *, hypervisor: str | None = None
) -> AllocatorRequest:
    """Ask the nodes, and return the whole question."""
    return build_question(snapshot, _node_facts(context, snapshot, hypervisor), wanted)


def run_allocator(context: JobContext, allocator: Allocator, question: AllocatorRequest) -> str:
    """Have the program run on the master, and return its output.

    Raises:
        OpPrereqError: there is no such program, it fails, or takes too long; says what it printed.
    """
    mode = question.mode.value
    master = lookup.require_node(context.config, context.config.get_cluster().master_node)
    context.info(f"asking allocator {allocator.name} (mode {mode})")
    result = _answer_of(context, master, allocator, encode_request(question))
    if result.error is not None or not isinstance(result.payload, str):
        said = result.error or "the node's answer is not text"
        raise OpPrereqError(
            f"allocator {allocator.name!r}, mode {mode}, on node {master.name!r}: {said}",
            ErrorCode.ENVIRON,
        )
    return result.payload


def _answer_of(
    context: JobContext, master: Node, allocator: Allocator, question: str
) -> RpcResult[object]:
    """Wait for the answer; the job can be canceled meanwhile, and get another priority."""
    while True:
        # No request for locks waits now that could be given the new priority: it was noted, and
        # the question, which that has interrupted, is asked again.
        with contextlib.suppress(PriorityChangedError), context.interruptible():
            return context.nodes.call_one(
                NodeCalls.iallocator_runner,
                master,
                allocator.name,
                question,
                dict(allocator.options),
            )


def _node_facts(
    context: JobContext, snapshot: Snapshot, hypervisor: str | None
) -> dict[str, NodeFacts]:
    """Ask the nodes that can answer; one that does not is told about and left out."""
    # Read before the nodes are asked: what is used by then may be reserved as well, which is
    # careful; the other way round it could be missing from both.
    reserved = _reserved(context)
    nodes = [node for node in snapshot.nodes.values() if is_asked(node)]
    infos = _node_infos(context, snapshot, nodes, hypervisor)
    running = _running(context, snapshot, [node for node in nodes if node.uuid in infos])
    return {
        uuid: NodeFacts(info, running.get(uuid, {}), *reserved.get(uuid, (0, 0)))
        for uuid, info in infos.items()
    }


def _reserved(context: JobContext) -> dict[str, tuple[int, int]]:
    """Return the reservations of other jobs: (memory, disk space) in MiB by UUID of the node."""
    total: dict[str, tuple[int, int]] = {}
    for client, node, memory_mib, disk_mib in context.config.list_node_reservations():
        if ClientId.from_wire(client) != context.config.owner:
            before = total.get(node, (0, 0))
            total[node] = (before[0] + memory_mib, before[1] + disk_mib)
    return total


def _node_infos(
    context: JobContext, snapshot: Snapshot, nodes: list[Node], hypervisor: str | None
) -> dict[str, NodeLive]:
    targets = {
        target_of(node): node_info_arguments(
            snapshot.cluster, snapshot.groups.get(node.group), node, hypervisor
        )
        for node in nodes
    }
    answers = context.rpc.perform(_NODE_INFO, targets) if targets else {}
    found = {}
    for node in nodes:
        result = answers[node.name]
        try:
            found[str(node.uuid)] = NodeLive.from_rpc(result.check(_NODE_INFO.name))
        except GenericError as err:
            context.warn(f"{err}; the allocator is told that node {node.name} is offline")
    return found


def _running(
    context: JobContext, snapshot: Snapshot, nodes: list[Node]
) -> dict[str, dict[str, InstanceLive]]:
    """Return the instances that nodes hold; only those are asked that should hold any."""
    holding = {
        each.primary_node
        for each in snapshot.instances.values()
        if each.admin_state is AdminState.UP
    }
    asked = {node.name: node for node in nodes if node.uuid in holding}
    answers = context.nodes.call_all(
        NodeCalls.all_instances_info, asked.values(), *instances_arguments(snapshot.cluster)
    )
    found = {}
    for name, result in answers.items():
        try:
            found[str(asked[name].uuid)] = instances_from_rpc(result.check(_INSTANCES))
        except GenericError as err:
            context.warn(f"{err}; its instances count with their maximum memory")
    return found

"""Asks an allocator: reads the cluster, has the program run on the master, checks what it says.

One pass costs one call of ``node_info`` to each node that can answer, and one of
``all_instances_info`` to those that have instances which are meant to run; never one for each
instance.  No lock is needed or held: whoever acts on the answer checks it again under locks.

Source: iallocator.json, "calling".
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ganeti.base.errors import ErrorCode, GenericError, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.answer import read_answer
from ganeti.logical_units.allocator.question import (
    NodeFacts,
    Snapshot,
    build_question,
    is_asked,
)
from ganeti.logical_units.locks import PriorityChangedError
from ganeti.logical_units.node_calls import call_node, call_nodes, target_of
from ganeti.objects.admin_state import AdminState
from ganeti.objects.disk_templates import StorageType
from ganeti.objects.fill import cluster_hvparams, fill_ndparams
from ganeti.objects.storage_units import storage_units
from ganeti.protocol.iallocator import (
    DEFAULT_SHORTCUT,
    AllocatorRequest,
    Wanted,
    encode_request,
)
from ganeti.protocol.wconfd import ClientId
from ganeti.query.view import InstanceLive, NodeLive, instances_from_rpc

if TYPE_CHECKING:
    from ganeti.clients.node_rpc import RpcResult
    from ganeti.clients.wconfd_stub import WConfStub
    from ganeti.logical_units.context import JobContext
    from ganeti.objects.cluster import Cluster
    from ganeti.objects.node import Node

_NODE_INFO: Final = "node_info"
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
            " NAME, set one with 'gnt-cluster modify -I NAME', or name a node if that is possible",
            ErrorCode.INVAL,
        )
    return Allocator(name, dict(cluster.default_iallocator_params) if name == default else {})


def read_snapshot(config: WConfStub) -> Snapshot:
    """Read what allocators are told of the configuration, in one piece."""
    return Snapshot.from_wire(config.read_config())


def ask_allocator(
    context: JobContext,
    allocator: Allocator,
    wanted: Wanted,
    snapshot: Snapshot,
    *,
    hypervisor: str | None = None,
) -> Any:
    """Return what an allocator answers, of the type of the mode.

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
    """Have the program run on the master, and return what it prints.

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


def _answer_of(context: JobContext, master: Node, allocator: Allocator, question: str) -> RpcResult:
    """Wait for the answer; the job can be canceled meanwhile, and get another priority."""
    while True:
        # No request for locks waits now that could be given the new priority: it was noted, and
        # the question, which that has interrupted, is asked again.
        with contextlib.suppress(PriorityChangedError), context.interruptible():
            return call_node(
                context,
                master,
                "iallocator_runner",
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
    """Return what other jobs have reserved on nodes: (memory, disk space) in MiB by UUID."""
    total: dict[str, tuple[int, int]] = {}
    for client, node, memory_mib, disk_mib in context.config.list_node_reservations():
        if ClientId.from_wire(client) != context.config.owner:
            before = total.get(node, (0, 0))
            total[node] = (before[0] + memory_mib, before[1] + disk_mib)
    return total


def _node_infos(
    context: JobContext, snapshot: Snapshot, nodes: list[Node], hypervisor: str | None
) -> dict[str, NodeLive]:
    cluster = snapshot.cluster
    name = hypervisor or str(cluster.enabled_hypervisors[0])
    specs = [[name, cluster_hvparams(cluster).get(name, {})]]
    targets = {target_of(node): [_units(snapshot, node), specs] for node in nodes}
    answers = context.rpc.call(_NODE_INFO, targets) if targets else {}
    found = {}
    for node in nodes:
        result = answers[node.name]
        try:
            found[str(node.uuid)] = NodeLive.from_rpc(result.check(_NODE_INFO))
        except GenericError as err:
            context.warn(f"{err}; the allocator is told that node {node.name} is offline")
    return found


def _units(snapshot: Snapshot, node: Node) -> list[list[object]]:
    cluster = snapshot.cluster
    params = fill_ndparams(cluster, snapshot.groups[node.group], node)
    exclusive = params["exclusive_storage"]
    units = storage_units(cluster, exclusive=exclusive)
    if exclusive and cluster.volume_group_name:
        units.append([StorageType.LVM_PV.value, cluster.volume_group_name, [exclusive]])
    return units


def _running(
    context: JobContext, snapshot: Snapshot, nodes: list[Node]
) -> dict[str, dict[str, InstanceLive]]:
    """Return the instances that nodes hold; only those are asked that should hold any."""
    holding = {
        each.primary_node for each in snapshot.instances if each.admin_state is AdminState.UP
    }
    asked = {node.name: node for node in nodes if node.uuid in holding}
    params = cluster_hvparams(snapshot.cluster)
    answers = call_nodes(context, asked.values(), _INSTANCES, list(params), params)
    found = {}
    for name, result in answers.items():
        try:
            found[str(asked[name].uuid)] = instances_from_rpc(result.check(_INSTANCES))
        except GenericError as err:
            context.warn(f"{err}; its instances count with their maximum memory")
    return found

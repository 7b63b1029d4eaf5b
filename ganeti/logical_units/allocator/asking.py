"""Asks an allocator: reads the cluster, has the program run on the master, checks the answer.

An allocator is somebody else's program: its answer is compared with the question before anybody
acts on it, and each mistake is one error that names the allocator, the mode and the mistake.

One pass costs one call of ``node_info`` to each node that can answer, and one of
``all_instances_info`` to each that has instances which are meant to run; never one for each
instance.  No lock is needed or held: the caller checks the answer again under locks.

Source: iallocator.json, "calling", "response" and "result_per_mode".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from ganeti.base.errors import ErrorCode, GenericError, OpPrereqError, ProtocolError
from ganeti.base.json import loads
from ganeti.clients.node_rpc import RpcResult, target_of
from ganeti.config.config_data import split_config
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.question import NodeFacts, Snapshot, build_question, is_asked
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.locks import PriorityChangedError
from ganeti.objects.allocation_modes import IAllocatorMode, default_allocators
from ganeti.objects.model import AdminState, Cluster, Node
from ganeti.opcodes.registry import decode_opcode
from ganeti.protocol import iallocator
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.service import call_of
from ganeti.protocol.wconfd import ClientId, WConfCalls
from ganeti.query.live import instances_arguments, node_info_arguments
from ganeti.query.view import InstanceLive, NodeLive, instances_from_rpc

_NODE_INFO: Final = call_of(NodeCalls.node_info)


@dataclass(frozen=True, slots=True)
class Allocator:
    """A program, and the options that it gets; an option without a value is None.

    ``others`` are asked one after the other where this one gives no answer that can be used.
    """

    name: str
    options: Mapping[str, object]
    others: Sequence[Allocator] = ()

    def with_option(self, name: str) -> Allocator:
        """Return it with one more option, which the others get as well."""
        options = {**self.options, name: None}
        return Allocator(self.name, options, [each.with_option(name) for each in self.others])


def choose_allocator(
    cluster: Cluster, asked: str | None, what: str, mode: IAllocatorMode
) -> Allocator:
    """Return the allocator asked for; none, or ".", means the cluster's defaults for the mode.

    Args:
        what: the purpose, as errors begin.

    Raises:
        OpPrereqError: the cluster has no default.
    """
    default = cluster.default_iallocator
    names: Sequence[str] = [asked] if asked else []
    if asked in (None, iallocator.DEFAULT_SHORTCUT):
        names = default_allocators(default, cluster.default_iallocators, mode)
    if not names:
        raise OpPrereqError(
            f"{what}: no node was given, and the cluster has no default allocator; give one with -I"
            " NAME, set one with 'gnt-cluster modify -I NAME', or name a node if that is possible"
        )
    params = dict(cluster.default_iallocator_params)
    first, *others = [Allocator(name, params if name == default else {}) for name in names]
    return replace(first, others=others)


def read_snapshot(config: WConfCalls) -> Snapshot:
    """Read the configuration for an allocator, in one piece."""
    return Snapshot(split_config(bytes(config.read_config())))


def ask_allocator(
    context: JobContext,
    allocator: Allocator,
    wanted: iallocator.Wanted,
    snapshot: Snapshot,
    *,
    hypervisor: str | None = None,
) -> tuple[str, Any]:
    """Return the name of the allocator that answered, and its answer, of the type of the mode.

    Args:
        hypervisor: whose view of the nodes' memory counts; the cluster's first by default.

    Raises:
        OpPrereqError: each one asked cannot be run, fails, finds no place, or talks nonsense.
    """
    question = make_question(context, snapshot, wanted, hypervisor=hypervisor)
    failures: list[OpPrereqError] = []
    for each in (allocator, *allocator.others):
        try:
            said = run_allocator(context, each, question)
            if iallocator.EXPLAIN in each.options:
                for line in read_explanation(said):
                    context.info(line)
            return each.name, read_answer(each.name, question, said)
        except OpPrereqError as err:
            failures.append(err)
            if len(failures) <= len(allocator.others):
                context.info(f"{err.message}; asking the next one")
    # Where one of them finds no place, room is what is missing; the others could not even say.
    codes = [err.ecode for err in failures]
    ecode = ErrorCode.NORES if ErrorCode.NORES in codes else codes[0]
    raise OpPrereqError("; ".join(err.message for err in failures), ecode) from failures[-1]


def make_question(
    context: JobContext,
    snapshot: Snapshot,
    wanted: iallocator.Wanted,
    *,
    hypervisor: str | None = None,
) -> iallocator.AllocatorRequest:
    """Ask the nodes, and return the whole question."""
    return build_question(snapshot, _node_facts(context, snapshot, hypervisor), wanted)


def run_allocator(
    context: JobContext, allocator: Allocator, question: iallocator.AllocatorRequest
) -> str:
    """Have the program run on the master, and return its output.

    Raises:
        OpPrereqError: there is no such program, it fails, or takes too long; the message has its
            output.
    """
    mode = question.mode.value
    master = lookup.require_node(context.config, context.config.get_cluster().master_node)
    context.info(f"asking allocator {allocator.name} (mode {mode})")
    result = _answer_of(context, master, allocator, iallocator.encode_request(question))
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
                NodeCalls.iallocator_runner, master, allocator.name, question, allocator.options
            )


def _node_facts(
    context: JobContext, snapshot: Snapshot, hypervisor: str | None
) -> dict[str, NodeFacts]:
    """Ask the nodes that can answer; one that does not is told about and left out."""
    # Read before the nodes are asked: room used by then may be counted as reserved too, which is
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
            found[str(node.uuid)] = NodeLive.from_rpc(result.check(result.call))
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
            found[str(asked[name].uuid)] = instances_from_rpc(result.check(result.call))
        except GenericError as err:
            context.warn(f"{err}; its instances count with their maximum memory")
    return found


_SHOWN_CHARACTERS_MAX: Final = 200


class _WrongAnswerError(Exception):
    """The answer of an allocator is wrong; the text says why."""


def read_answer(allocator: str, question: iallocator.AllocatorRequest, content: str) -> Any:
    """Return the result of an answer, of the type that `RESULTS` tells for the question's mode.

    Raises:
        OpPrereqError: the allocator found no place (insufficient_resources), or its answer is no
            answer to this question (internal_error).
    """
    mode = question.mode
    try:
        answer = _fields(content)
        if not answer["success"]:
            why = answer["info"] or "no reason given"
            raise OpPrereqError(
                f"allocator {allocator!r}, mode {mode.value}: {why}", ErrorCode.NORES
            )
        result = _typed(mode, answer["result"])
        _check(question, result)
    except _WrongAnswerError as err:
        raise OpPrereqError(
            f"allocator {allocator!r}, mode {mode.value}: its answer cannot be used: {err}",
            ErrorCode.FAULT,
        ) from err
    return result


def read_explanation(content: str) -> list[str]:
    """Return the lines for people in an answer; none where there are none to be found."""
    try:
        return msgspec.json.decode(content, type=iallocator.Explained).explanation
    except msgspec.DecodeError:
        return []


def _fields(content: str) -> dict[str, Any]:
    """Return success, info and result; the older name of the result will do."""
    try:
        answer = loads(content)
    except ProtocolError as err:
        raise _WrongAnswerError(f"{err.message}{_beginning(content)}") from err
    if not isinstance(answer, Mapping):
        raise _WrongAnswerError(f"it is not a JSON object{_beginning(content)}")
    found = {"result": answer["nodes"]} if "nodes" in answer else {}
    found |= answer
    missing = [key for key in ("success", "info", "result") if key not in found]
    if missing:
        raise _WrongAnswerError(f"{', '.join(map(repr, missing))} is missing")
    for key, kind, word in (("success", bool, "true or false"), ("info", str, "text")):
        if not isinstance(found[key], kind):
            raise _WrongAnswerError(f"{key!r} is not {word}")
    return found


def _beginning(content: str) -> str:
    text = content.strip()
    return f"; it begins with {_shown(text)}" if text else " (it printed nothing)"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}..."


def _typed(mode: IAllocatorMode, result: object) -> Any:
    try:
        return msgspec.convert(result, iallocator.RESULTS[mode])
    except msgspec.ValidationError as err:
        raise _WrongAnswerError(f"'result': {err}, got {_shown(result)}") from err


def _check(question: iallocator.AllocatorRequest, result: Any) -> None:
    """Refuse a result that does not fit the request."""
    match question.request:
        case iallocator.MultiAllocate(instances=instances):
            _check_places(question, instances, result)
        case iallocator.Relocate() as wanted:
            _check_relocate(question, wanted, result)
        case iallocator.AllocateSecondary(name=name):
            _check_secondary(question, name, result)
        case iallocator.NodeEvacuate(instances=names) | iallocator.ChangeGroup(instances=names):
            _check_moves(question, names, result)
        case iallocator.Balance() as balance:
            _check_moves(question, list(question.instances), result)
            if len(result[2]) > balance.moves_max:
                raise _WrongAnswerError(
                    f"{len(result[2])} jobs, and at most {balance.moves_max} were asked for"
                )
        case iallocator.Capacity() as kind:
            for names in result:
                _check_place(question, kind, names)
            if len(result) > kind.count_max:
                raise _WrongAnswerError(
                    f"{len(result)} instances, and at most {kind.count_max} were asked for"
                )
        case iallocator.Allocate() as wanted:
            _check_place(question, wanted, result)


def _check_nodes(
    question: iallocator.AllocatorRequest, names: Sequence[str], count: int, what: str
) -> None:
    if len(names) != count:
        raise _WrongAnswerError(f"{what}: {count} node(s) are needed, it names {_shown(names)}")
    unknown = [name for name in names if name not in question.nodes]
    if unknown:
        raise _WrongAnswerError(f"{what}: there is no node {_shown(unknown[0])}")
    if len(set(names)) != len(names):
        raise _WrongAnswerError(f"{what}: it names a node twice: {_shown(names)}")


def _check_place(
    question: iallocator.AllocatorRequest,
    wanted: iallocator.NewInstance,
    names: iallocator.NodeNames,
) -> None:
    what = f"instance {wanted.name!r}"
    _check_nodes(question, names, wanted.required_nodes, what)
    allowed = wanted.restrict_to_nodes
    for name in names:
        if isinstance(allowed, list) and name not in allowed:
            raise _WrongAnswerError(f"{what}: node {name!r} is not among the allowed ones")
        group = question.nodegroups[question.nodes[name].group].name
        if wanted.group_name not in (None, group):
            raise _WrongAnswerError(
                f"{what}: node {name!r} is in node group {group!r}, not in {wanted.group_name!r}"
            )


def _check_places(
    question: iallocator.AllocatorRequest,
    wanted_instances: Sequence[iallocator.NewInstance],
    result: iallocator.MultiAllocateResult,
) -> None:
    placed, failed = result
    wanted = {instance.name: instance for instance in wanted_instances}
    _check_each_once(wanted, [*(name for name, _nodes in placed), *failed])
    missing = set(wanted) - {name for name, _nodes in placed} - set(failed)
    if missing:
        raise _WrongAnswerError(f"it says nothing about {', '.join(sorted(missing))}")
    for name, nodes in placed:
        _check_place(question, wanted[name], nodes)


def _check_each_once(asked: Iterable[str], names: Sequence[str]) -> None:
    known = set(asked)
    for name in names:
        if name not in known:
            raise _WrongAnswerError(f"it was not asked about instance {_shown(name)}")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _WrongAnswerError(f"it names instance {twice!r} twice")


def _check_relocate(
    question: iallocator.AllocatorRequest, wanted: iallocator.Relocate, result: iallocator.NodeNames
) -> None:
    what = f"instance {wanted.name!r}"
    _check_nodes(question, result, wanted.required_nodes, what)
    groups = {question.nodes[name].group for name in wanted.relocate_from}
    for name in result:
        if name in wanted.relocate_from:
            raise _WrongAnswerError(f"{what}: node {name!r} is the one that it is to leave")
        if question.nodes[name].group not in groups:
            raise _WrongAnswerError(f"{what}: node {name!r} is in another node group")


def _check_secondary(question: iallocator.AllocatorRequest, name: str, node: str) -> None:
    _check_nodes(question, [node], 1, f"instance {name!r}")
    if node in question.instances[name].nodes[:1]:
        raise _WrongAnswerError(f"instance {name!r}: node {node!r} is its primary node already")


def _check_moves(
    question: iallocator.AllocatorRequest, asked: Sequence[str], result: iallocator.EvacuateResult
) -> None:
    moved, failed, jobs = result
    _check_each_once(asked, [*(row[0] for row in moved), *(row[0] for row in failed)])
    for name, _group, nodes in moved:
        unknown = [node for node in nodes if node not in question.nodes]
        if unknown:
            raise _WrongAnswerError(f"instance {name!r}: there is no node {_shown(unknown[0])}")
    for number, job in enumerate(jobs, 1):
        if not job:
            raise _WrongAnswerError(f"job {number} is empty")
        for opcode in job:
            _check_opcode(question, asked, opcode, f"job {number}")


def _check_opcode(
    question: iallocator.AllocatorRequest,
    asked: Sequence[str],
    opcode: Mapping[str, Any],
    what: str,
) -> None:
    op_id = opcode.get("OP_ID")
    if not isinstance(op_id, str) or op_id not in iallocator.JOB_OPCODES:
        allowed = ", ".join(sorted(iallocator.JOB_OPCODES))
        raise _WrongAnswerError(f"{what}: opcode {_shown(op_id)} is not allowed, only {allowed}")
    try:
        decode_opcode(opcode)
    except OpPrereqError as err:
        raise _WrongAnswerError(f"{what}: {err.message}") from err
    if opcode["instance_name"] not in asked:
        raise _WrongAnswerError(
            f"{what}: it was not asked about instance {_shown(opcode['instance_name'])}"
        )
    for key in ("target_node", "remote_node"):
        if opcode.get(key) is not None and opcode[key] not in question.nodes:
            raise _WrongAnswerError(f"{what}: there is no node {_shown(opcode[key])}")

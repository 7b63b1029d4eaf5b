"""The questions that nodes and WConfD are asked for a query, and their answers read.  Pure.

Each program that runs a query asks them in its own way: LuxiD many at once beside everything else,
a job one after the other.  Of a node that does not answer nothing is known.

Source: node_rpc.json, "node_info", "all_instances_info", "instance_info",
"blockdev_getmirrorstatus_multi", "instance_console_info", "export_list"; "instance_guest_info" is
ours; wconfd.json, "listLocksWaitingStatus"; query_fields.json, "lock".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from ganeti.base.errors import ProtocolError
from ganeti.base.ids import InstanceUuid, NodeUuid
from ganeti.config.tables import Tables
from ganeti.objects.disk_templates import DiskTemplate, StorageType, thin_pool_of
from ganeti.objects.fill import cluster_hvparams, fill_diskparams, fill_ndparams
from ganeti.objects.model import Cluster, Guest, Instance, InstanceConsole, Node, NodeGroup
from ganeti.objects.rpc_instance import RpcDisk
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import NodeCall
from ganeti.protocol.node_rpc_values import ChainPoint
from ganeti.protocol.service import call_of
from ganeti.query.context import RunContext
from ganeti.query.engine import Targets
from ganeti.query.view import (
    Copy,
    InstanceLive,
    LockState,
    NodeLive,
    View,
    copies_from_rpc,
    instances_from_rpc,
)

T = TypeVar("T")


class NodeQuestion(msgspec.Struct, frozen=True):
    """One call on some nodes.

    Attributes:
        part: the part of a `View` that holds the answers.
        method: the call, as ``NodeCalls.node_info``.
        asked: the arguments for each node.
    """

    part: str
    method: Callable[..., object]
    asked: Mapping[NodeUuid, list[object]]
    decode: Callable[[object], Any]

    @property
    def call(self) -> NodeCall:
        """The call that `method` declares."""
        return call_of(self.method)


def hypervisor_specs(cluster: Cluster) -> list[tuple[str, dict[str, object]]]:
    """Return [name, parameters] of each enabled hypervisor, the default one first."""
    filled = cluster_hvparams(cluster)
    return [(name.value, filled.get(name, {})) for name in cluster.enabled_hypervisors]


def node_info_arguments(
    cluster: Cluster, group: NodeGroup | None, node: Node, hypervisor: str | None = None
) -> list[object]:
    """Return the arguments of ``node_info``: storage units and hypervisors.

    A node that gives whole physical volumes to its instances is asked for these too.

    Args:
        hypervisor: the one that is asked for, instead of the default one.
    """
    exclusive = group is not None and fill_ndparams(cluster, group, node)["exclusive_storage"]
    units = storage_units(cluster, group, exclusive=exclusive)
    if exclusive and cluster.volume_group_name:
        units.append([StorageType.LVM_PV.value, cluster.volume_group_name, [exclusive]])
    specs = hypervisor_specs(cluster)
    return [units, [spec for spec in specs if spec[0] == hypervisor] or specs[:1]]


def instances_arguments(cluster: Cluster) -> tuple[list[str], dict[str, Mapping[str, object]]]:
    """Return the arguments of ``all_instances_info``."""
    specs = hypervisor_specs(cluster)
    return [name for name, _params in specs], dict(specs)


def questions(config: Tables, targets: Targets) -> list[NodeQuestion]:
    """Return the questions about the objects that a plan names, but for `questions_to_running`."""
    infos = {
        uuid: node_info_arguments(
            config.cluster, config.groups.get(config.nodes[uuid].group), config.nodes[uuid]
        )
        for uuid in targets.node_info
    }
    exports: dict[NodeUuid, list[object]] = {uuid: [] for uuid in targets.exports}
    chains: dict[NodeUuid, list[object]] = {uuid: [[]] for uuid in targets.chains}
    possible = (
        NodeQuestion("node_live", NodeCalls.node_info, infos, NodeLive.from_rpc),
        _about_instances(config.cluster, targets),
        NodeQuestion(
            "copies",
            NodeCalls.blockdev_getmirrorstatus_multi,
            {uuid: [disks] for uuid, disks in targets.copies.items()},
            copies_from_rpc,
        ),
        NodeQuestion("exports", NodeCalls.export_list, exports, lambda it: _as(list[str], it)),
        NodeQuestion("chains", NodeCalls.export_chains, chains, _chains),
    )
    return [question for question in possible if question.asked]


def _about_instances(cluster: Cluster, targets: Targets) -> NodeQuestion:
    """Return the question what runs; a node that has many instances looks at one only if it may."""
    only = targets.only
    if only is None:
        arguments: list[object] = [*instances_arguments(cluster)]
        running = dict.fromkeys(targets.instance_info, arguments)
        return NodeQuestion(
            "instance_live", NodeCalls.all_instances_info, running, instances_from_rpc
        )
    hypervisor = str(only.hypervisor)
    arguments = [only.name, hypervisor, cluster_hvparams(cluster).get(hypervisor, {})]
    running = dict.fromkeys(targets.instance_info, arguments)

    def decode(payload: object) -> dict[str, InstanceLive]:
        return instances_from_rpc({only.name: payload} if payload else {})

    return NodeQuestion("instance_live", NodeCalls.instance_info, running, decode)


def _chains(payload: object) -> dict[str, list[ChainPoint]]:
    return dict(_as(list[tuple[str, list[ChainPoint]]], payload))


_Answer = type[InstanceConsole] | type[Guest]


def questions_to_running(view: View, targets: Targets) -> list[NodeQuestion]:
    """Return the questions about consoles and guests, once it is known which instances run."""
    possible = (
        ("consoles", NodeCalls.instance_console_info, targets.consoles, InstanceConsole),
        ("guests", NodeCalls.instance_guest_info, targets.guests, Guest),
    )
    return [_of_running(view, *each) for each in possible if each[2]]


def _of_running(
    view: View,
    part: str,
    method: Callable[..., object],
    instances: Iterable[InstanceUuid],
    kind: _Answer,
) -> NodeQuestion:
    """Return a question to the primary nodes of instances about each of them."""
    context = RunContext(view)
    requests: dict[NodeUuid, dict[str, object]] = {}
    uuids: dict[str, InstanceUuid] = {}
    for uuid in instances:
        instance = context.instances[uuid]
        uuids[instance.name] = uuid
        requests.setdefault(instance.primary_node, {})[instance.name] = _request(instance, context)

    def decode(payload: object) -> dict[InstanceUuid, InstanceConsole | Guest]:
        answers = _as(dict[str, dict[str, object]], payload)
        known = {uuids[name]: wire for name, wire in answers.items() if name in uuids}
        return {uuid: kind.from_wire(wire) for uuid, wire in known.items()}

    asked: dict[NodeUuid, list[object]] = {node: [each] for node, each in requests.items()}
    return NodeQuestion(part, method, asked, decode)


def request_of(instance: Instance, view: View) -> dict[str, object]:
    """Return the argument of a call about the console of one instance."""
    return {instance.name: _request(instance, RunContext(view))}


def _request(instance: Instance, context: RunContext) -> dict[str, object]:
    node = context.nodes[instance.primary_node]
    return {
        "instance": instance.to_wire(),
        "node": node.to_wire(),
        "group": context.groups[node.group].to_wire(),
        "hvParams": dict(context.hvparams(instance)),
        "beParams": dict(context.beparams(instance)),
    }


def with_answers(view: View, question: NodeQuestion, answers: Mapping[NodeUuid, Any]) -> View:
    """Return the view with the decoded answers to a question; None for nodes without one."""
    if question.part == "copies":
        return replace(view, copies=_copies_by_disk(question, answers))
    if question.part not in ("consoles", "guests"):
        return replace(view, **{question.part: answers})
    found = [answer for answer in answers.values() if answer is not None]
    by_instance = {uuid: it for answer in found for uuid, it in answer.items()}
    return replace(view, **{question.part: by_instance})


def _copies_by_disk(
    question: NodeQuestion, answers: Mapping[NodeUuid, list[Copy] | None]
) -> dict[str, Copy]:
    asked = {uuid: cast("list[RpcDisk]", args[0]) for uuid, args in question.asked.items()}
    return {
        disk.uuid: copy
        for uuid, disks in asked.items()
        for disk, copy in zip(disks, answers.get(uuid) or (), strict=False)
    }


def _as(kind: type[T], payload: object) -> T:
    try:
        return msgspec.convert(payload, kind)
    except msgspec.ValidationError as err:
        raise ProtocolError(f"unexpected answer: {err}") from err


def lock_states(answer: object) -> list[LockState]:
    """Turn the answer to ``listLocksWaitingStatus`` into one state per lock.

    Raises:
        ProtocolError: it has another shape.
    """
    try:
        owners, waiting = msgspec.convert(answer, tuple[list[Any], list[Any]])
        held = {name: [(_client(who), str(mode)) for who, mode in some] for name, some in owners}
        pending: dict[str, dict[str, list[str]]] = {}
        priorities: dict[str, list[tuple[str, int]]] = {}
        for priority, who, request in sorted(waiting, key=lambda each: each[0]):
            for name, mode in request:
                if mode != "release":
                    pending.setdefault(name, {}).setdefault(mode, []).append(_client(who))
                    priorities.setdefault(name, []).append((_client(who), int(priority)))
    except (TypeError, ValueError, msgspec.ValidationError) as err:
        raise ProtocolError(f"unexpected answer of WConfD about locks: {err}") from err
    return [
        LockState(
            name=name,
            mode=held[name][0][1] if held.get(name) else None,
            owners=tuple(sorted(who for who, _mode in held.get(name, []))),
            pending=tuple(
                (mode, tuple(waiters)) for mode, waiters in sorted(pending.get(name, {}).items())
            ),
            priorities=tuple(priorities.get(name, ())),
        )
        for name in sorted(held.keys() | pending.keys())
    ]


def _client(client: object) -> str:
    match client:
        case [int(job_id), *_]:
            return f"job{job_id}"
        case [str(identifier), *_]:
            return identifier
    raise ValueError(f"{client!r} is not a client")


# Which storage of a node its cluster uses, in the form that ``node_info`` is asked with.


def storage_units(
    cluster: Cluster, group: NodeGroup | None, *, exclusive: bool
) -> list[list[object]]:
    """Return [type, name, parameters] of the storage of the enabled disk templates, in order.

    Args:
        group: the group of the node, whose parameters of disks count.
        exclusive: whether the node gives whole physical volumes to its instances.
    """
    templates = {each.traits.storage: each for each in reversed(cluster.enabled_disk_templates)}
    found: list[list[object]] = []
    for kind in dict.fromkeys(each.traits.storage for each in cluster.enabled_disk_templates):
        name, params = storage_unit(cluster, group, templates[kind])
        if name:
            lvm = [exclusive] if kind is StorageType.LVM_VG else []
            found.append([kind.value, name, [params] if params else lvm])
    return found


def storage_unit(
    cluster: Cluster, group: NodeGroup | None, template: DiskTemplate
) -> tuple[str, dict[str, object]]:
    """Return the name of the storage unit of a template, "" without one, and how it is reached.

    Returns:
        Its name, and the parameters of its disks where a node needs them to reach it.
    """
    units = template.traits.storage.units
    if units is None:
        return "", {}
    params = fill_diskparams(cluster, group, template) if units.has_parameters else {}
    if units.parameter:
        return str(params[units.parameter]), params
    name = str(getattr(cluster, units.setting) or "") if units.setting else ""
    pool = thin_pool_of(fill_diskparams(cluster, group, template))
    return (f"{name}/{pool}" if name and pool else name), params

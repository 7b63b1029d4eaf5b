"""The state of a cluster as text: written by one of the tools for placement, read by any other.

Five sections of lines with an empty line between each two: groups, nodes, instances, tags of the
cluster, instance policies.  The columns of a line are separated by ``|``, values within a column by
commas.  Both ways go through the question to an allocator, so a cluster from a file is checked like
any other.

Source: manual page htools(1), "--text-data" and "--simulate".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ganeti.allocation.state import ClusterState
from ganeti.base.errors import GenericError
from ganeti.base.units import parse_unit
from ganeti.objects.model import AdminState, AllocPolicy
from ganeti.objects.parameters import IPOLICY_DEFAULTS
from ganeti.protocol import iallocator as wire

_SECTIONS: Final = 5
_SPEC: Final = ("memory-size", "cpu-count", "disk-size", "disk-count", "nic-count", "spindle-use")
_STATUS: Final = {"down": "ADMIN_down", "offline": "ADMIN_offline", "up": "running"}
_ADMIN_STATE: Final = {
    "ADMIN_down": AdminState.DOWN,
    "USER_down": AdminState.DOWN,
    "ADMIN_offline": AdminState.OFFLINE,
}  # every other state is seen of an instance that is meant to be up
_POLICIES: Final = {
    **{policy.value: policy for policy in AllocPolicy},
    "allocable": AllocPolicy.LAST_RESORT,
    "p": AllocPolicy.PREFERRED,
    "a": AllocPolicy.LAST_RESORT,
    "u": AllocPolicy.UNALLOCABLE,
}
_UNKNOWN: Final = "?"
# The columns of a node with numbers, in their order.
_NUMBERS: Final = (
    *("total_memory", "reserved_memory", "free_memory"),
    *("total_disk", "free_disk", "total_cpus"),
)


# Reading.


def with_text(request: wire.AllocatorRequest, text: str) -> wire.AllocatorRequest:
    """Return a question about the cluster of a text instead of its own.

    Raises:
        GenericError: the text is not understood; the message names the line.
    """
    sections: list[list[tuple[int, str]]] = [[]]
    for number, line in enumerate(text.splitlines(), 1):
        if line or len(sections) == _SECTIONS:
            sections[-1].append((number, line))
        else:
            sections.append([])
    if len(sections) < _SECTIONS:
        raise GenericError(f"{len(sections)} sections of lines, {_SECTIONS} are needed")
    groups, nodes, instances, tags, policies = sections
    ipolicies = dict(_each(policies, _ipolicy, 6))
    default = ipolicies.get("", IPOLICY_DEFAULTS)
    found = dict(_each(groups, _group, 5))
    return replace(
        request,
        cluster_tags=[line for _, line in tags if line],
        ipolicy=default,
        nodegroups={
            uuid: replace(group, ipolicy=ipolicies.get(group.name, default))
            for uuid, group in found.items()
        },
        nodes=dict(_each(nodes, _node, 9)),
        instances=dict(_each(instances, _instance, 10)),
    )


def _each(lines: Iterable[tuple[int, str]], read: Any, least: int) -> Iterable[tuple[str, Any]]:
    for number, line in lines:
        if not line:
            continue
        columns = line.split("|")
        if len(columns) < least:
            raise GenericError(f"line {number}: {len(columns)} columns, {least} are needed")
        try:
            yield read(columns)
        except ValueError as err:
            raise GenericError(f"line {number}: {err}") from err


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _column(columns: Sequence[str], place: int, default: str) -> str:
    """Return a column that files of older versions lack."""
    return columns[place] if place < len(columns) else default


def _group(columns: Sequence[str]) -> tuple[str, wire.AllocatorGroup]:
    name, uuid, policy, tags, networks = columns[:5]
    return uuid, wire.AllocatorGroup(
        name=name, alloc_policy=policy, networks=_words(networks), ipolicy={}, tags=_words(tags)
    )


def _node(columns: Sequence[str]) -> tuple[str, wire.AllocatorNode]:
    name, *numbers, role, group = columns[:9]
    spindles = int(_column(columns, 9, "1"))
    is_exclusive = _column(columns, 11, "N") == "Y"
    made = _empty_node(group, spindles, _words(_column(columns, 10, "")), role == "M")
    params = {
        **made.ndparams,
        "exclusive_storage": is_exclusive,
        "cpu_speed": float(_column(columns, 14, "1.0")),
    }
    if role == "Y" or _UNKNOWN in numbers:
        return name, replace(made, offline=True, ndparams=params)
    return name, replace(
        made,
        ndparams=params,
        total_spindles=spindles if is_exclusive else 0,
        free_spindles=int(_column(columns, 12, "0")),
        reserved_cpus=int(_column(columns, 13, "0")),
        **dict(zip(_NUMBERS, map(int, numbers), strict=True)),
    )


def _empty_node(group: str, spindles: int, tags: list[str], is_master: bool) -> wire.AllocatorNode:
    return wire.AllocatorNode(
        tags=tags,
        primary_ip="",
        secondary_ip="",
        offline=False,
        drained=False,
        master_candidate=is_master,
        group=group,
        master_capable=True,
        vm_capable=True,
        ndparams={"spindle_count": spindles, "exclusive_storage": False, "cpu_speed": 1.0},
    )


def _instance(columns: Sequence[str]) -> tuple[str, wire.AllocatorInstance]:
    name, memory, disk, vcpus, status, _, primary, secondary, template, tags = columns[:10]
    spindles = _column(columns, 11, "-")
    own = int(spindles) if spindles.isdigit() else None
    size = int(disk)
    disks = (
        [wire.AllocatorDisk(dev_type=template, size=size, mode="rw", spindles=own)] if size else []
    )
    return name, wire.AllocatorInstance(
        tags=_words(tags),
        admin_state=_ADMIN_STATE.get(status, AdminState.UP),
        vcpus=int(vcpus),
        memory=int(memory),
        spindle_use=int(_column(columns, 10, "1")),
        os="",
        nodes=[node for node in (primary, secondary) if node],
        nics=[],
        disks=disks,
        disk_template=template,
        disks_active=True,
        hypervisor="",
        disk_space_total=size,
    )


def _ipolicy(columns: Sequence[str]) -> tuple[str, dict[str, Any]]:
    owner, standard, limits, templates, vcpu_ratio, spindle_ratio = columns[:6]
    specs = [_spec(part) for part in limits.split(";")]
    return owner, {
        "std": _spec(standard),
        "minmax": [
            {"min": low, "max": high} for low, high in zip(specs[::2], specs[1::2], strict=True)
        ],
        "disk-templates": _words(templates),
        "vcpu-ratio": float(vcpu_ratio),
        "spindle-ratio": float(spindle_ratio),
    }


def _spec(text: str) -> dict[str, int]:
    values = [int(word) for word in text.split(",")]
    return dict(zip(_SPEC, values, strict=False))


def with_made_up(
    request: wire.AllocatorRequest, descriptions: Sequence[str]
) -> wire.AllocatorRequest:
    """Return a question about empty groups: ``policy,nodes,disk,memory,cpus,spindles`` for each.

    Raises:
        GenericError: a description is not understood.
    """
    groups: dict[str, wire.AllocatorGroup] = {}
    nodes: dict[str, wire.AllocatorNode] = {}
    for number, description in enumerate(descriptions, 1):
        uuid = f"fake-uuid-{number:02}"
        try:
            policy, count, disk, memory, cpus, spindles = description.split(",")
            groups[uuid] = wire.AllocatorGroup(
                name=f"group-{number:02}", alloc_policy=_POLICIES[policy], ipolicy=IPOLICY_DEFAULTS
            )
            memory_mib, disk_mib = parse_unit(memory), parse_unit(disk)
            sizes = (memory_mib, 0, memory_mib, disk_mib, disk_mib, int(cpus))
            empty = replace(
                _empty_node(uuid, int(spindles), [], False),
                **dict(zip(_NUMBERS, sizes, strict=True)),
                **dict.fromkeys(("total_spindles", "free_spindles", "reserved_cpus"), 0),
            )
            nodes |= {f"node-{number:02}-{each:03}": empty for each in range(1, int(count) + 1)}
        except (ValueError, KeyError, GenericError) as err:
            raise GenericError(
                f"cannot make up a group from {description!r}; give for example"
                " preferred,20,100g,16g,4,2"
            ) from err
    return replace(
        request,
        cluster_tags=[],
        ipolicy=IPOLICY_DEFAULTS,
        nodegroups=groups,
        nodes=nodes,
        instances={},
    )


# Writing.


def followed(
    request: wire.AllocatorRequest, before: ClusterState, after: ClusterState
) -> wire.AllocatorRequest:
    """Return the question as it would be once its answer has been followed."""
    nodes = {}
    for name, node in request.nodes.items():
        old, new = before.load(name), after.load(name)
        nodes[name] = replace(
            node,
            free_memory=_changed(node.free_memory, new.free_memory - old.free_memory),
            free_disk=_changed(node.free_disk, new.free_disk - old.free_disk),
            free_spindles=_changed(node.free_spindles, new.free_spindles - old.free_spindles),
        )
    wanted = {each.name: _as_existing(each) for each in _wishes(request.request)}
    instances = {
        name: replace(
            wanted.get(name) or request.instances[name],
            nodes=list(each.nodes),
            disk_template=each.template.value,
        )
        for name, each in after.instances.items()
    }
    return replace(request, nodes=nodes, instances=instances)


def _wishes(wanted: wire.Wanted) -> Sequence[wire.NewInstance]:
    if isinstance(wanted, wire.MultiAllocate):
        return wanted.instances
    return [wanted] if isinstance(wanted, wire.Allocate) else []


def _changed(value: int | UnsetType, change: int) -> int | UnsetType:
    return value + change if isinstance(value, int) else UNSET


def _as_existing(wish: wire.NewInstance) -> wire.AllocatorInstance:
    return wire.AllocatorInstance(
        tags=wish.tags,
        admin_state=AdminState.UP.value,
        vcpus=wish.vcpus,
        memory=wish.memory,
        spindle_use=wish.spindle_use,
        os=wish.os,
        nodes=[],
        nics=[],
        disks=[_as_existing_disk(disk) for disk in wish.disks],
        disk_template=wish.disk_template,
        disks_active=True,
        hypervisor=wish.hypervisor,
        disk_space_total=wish.disk_space_total,
    )


def _as_existing_disk(disk: Mapping[str, Any]) -> wire.AllocatorDisk:
    return wire.AllocatorDisk(
        dev_type=str(disk.get("dev_type", "")),
        size=disk["size"],
        mode=str(disk.get("mode", "rw")),
        spindles=disk.get("spindles"),
    )


def to_text(request: wire.AllocatorRequest) -> str:
    """Return the cluster of a question as text."""
    sections = (
        [
            _line(group.name, uuid, group.alloc_policy, group.tags, group.networks)
            for uuid, group in request.nodegroups.items()
        ],
        [_node_line(name, node) for name, node in request.nodes.items()],
        [_instance_line(name, each) for name, each in request.instances.items()],
        request.cluster_tags,
        [
            _ipolicy_line("", request.ipolicy),
            *(_ipolicy_line(group.name, group.ipolicy) for group in request.nodegroups.values()),
        ],
    )
    return "\n".join("".join(f"{line}\n" for line in lines) for lines in sections)


def _line(*columns: object) -> str:
    return "|".join(
        ",".join(map(str, column)) if isinstance(column, list | tuple) else str(column)
        for column in columns
    )


def _node_line(name: str, node: wire.AllocatorNode) -> str:
    numbers = [getattr(node, each) for each in _NUMBERS]
    is_away = node.offline or node.drained or not node.vm_capable
    params = node.ndparams
    is_exclusive = params.get("exclusive_storage") is True
    return _line(
        name,
        *(0 if is_away or not isinstance(value, int) else value for value in numbers),
        "Y" if is_away else "N",
        node.group,
        node.total_spindles if is_exclusive else params.get("spindle_count", 1),
        node.tags,
        "Y" if is_exclusive else "N",
        node.free_spindles or 0,
        node.reserved_cpus or 0,
        float(params.get("cpu_speed", 1)),
    )


def _instance_line(name: str, each: wire.AllocatorInstance) -> str:
    spindles = [disk.spindles for disk in each.disks if disk.spindles is not None]
    return _line(
        name,
        each.memory,
        each.disk_space_total,
        each.vcpus,
        _STATUS.get(each.admin_state, "running"),
        "Y",
        *[*each.nodes, "", ""][:2],
        each.disk_template,
        each.tags,
        each.spindle_use,
        sum(spindles) if spindles else "-",
        "N",
    )


def _ipolicy_line(owner: str, policy: Mapping[str, Any]) -> str:
    filled = {**IPOLICY_DEFAULTS, **policy}
    limits = ";".join(
        f"{_spec_text(pair['min'])};{_spec_text(pair['max'])}" for pair in filled["minmax"]
    )
    return _line(
        owner,
        _spec_text(filled["std"]),
        limits,
        filled["disk-templates"],
        float(filled["vcpu-ratio"]),
        float(filled["spindle-ratio"]),
    )


def _spec_text(spec: Mapping[str, int]) -> str:
    return ",".join(str(spec.get(name, 0)) for name in _SPEC)

"""The state of a cluster as text: written by one of the tools for placement, read by any other.

Five sections of lines with an empty line between each two: groups, nodes, instances, tags of the
cluster, instance policies.  The columns of a line are separated by ``|``, values within a column by
commas.

Source: manual page htools(1), "--text-data" and "--simulate".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, Final, TypeVar

from ganeti.allocation.load import Free
from ganeti.allocation.model import Group, Instance, InstanceStatus, Node
from ganeti.allocation.snapshot import (
    RESOURCE_NAMES,
    Resources,
    Snapshot,
    make_group,
    make_instance,
    make_node,
    make_snapshot,
)
from ganeti.allocation.tags import TagMeanings, meanings_of
from ganeti.base.errors import GenericError
from ganeti.base.text import COLUMN_SEPARATOR, fits_column
from ganeti.base.units import parse_unit
from ganeti.objects.model import AllocPolicy
from ganeti.objects.parameters import IPOLICY_DEFAULTS

_SECTIONS: Final = 5
_SPEC: Final = ("memory-size", "cpu-count", "disk-size", "disk-count", "nic-count", "spindle-use")
_POLICIES: Final = {
    **{policy.value: policy for policy in AllocPolicy},
    "allocable": AllocPolicy.LAST_RESORT,
    "p": AllocPolicy.PREFERRED,
    "a": AllocPolicy.LAST_RESORT,
    "u": AllocPolicy.UNALLOCABLE,
}
_UNKNOWN: Final = "?"
_NO_SPINDLES: Final = "-"
_YES_OR_NO: Final = {"Y": True, "N": False}

Made = TypeVar("Made")


# Reading.


def read_text(content: bytes, path: str, more_exclusion: Iterable[str] = ()) -> Snapshot:
    """Return the cluster in the content of a file.

    Args:
        more_exclusion: beginnings of exclusion tags besides those of the cluster.

    Raises:
        GenericError: the text is not understood; the message names the file and the line.
    """
    try:
        return from_text(content.decode(), more_exclusion)
    except UnicodeDecodeError as err:
        raise GenericError(f"{path}: invalid UTF-8 at byte {err.start}") from err
    except GenericError as err:
        raise GenericError(f"{path}: {err.message}") from err


def from_text(text: str, more_exclusion: Iterable[str] = ()) -> Snapshot:
    """Return the cluster that a text describes.

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
    group_lines, node_lines, instance_lines, tag_lines, policy_lines = sections
    tags = [line for _, line in tag_lines if line]
    meanings = meanings_of(tags, more_exclusion)
    ipolicies = dict(_each(policy_lines, _ipolicy, 6, "instance policy"))
    default = ipolicies.get("", IPOLICY_DEFAULTS)
    groups = dict(
        _each(group_lines, lambda columns: _group(columns, ipolicies, default), 4, "node group")
    )
    nodes = dict(_each(node_lines, lambda columns: _node(columns, groups, meanings), 9, "node"))
    instances = dict(
        _each(instance_lines, lambda columns: _instance(columns, meanings), 10, "instance")
    )
    return make_snapshot(groups, nodes, instances, tags=tags, ipolicy=default)


def _each(
    lines: Iterable[tuple[int, str]],
    read: Callable[[list[str]], tuple[str, Made]],
    least: int,
    what: str,
) -> Iterator[tuple[str, Made]]:
    found: set[str] = set()
    for number, line in lines:
        if not line:
            continue
        columns = line.split(COLUMN_SEPARATOR)
        where = f"line {number}: {what} {columns[0]!r}"
        if len(columns) < least:
            raise GenericError(f"{where}: {len(columns)} columns, {least} are needed")
        if columns[0] in found:
            raise GenericError(f"{where} is on an earlier line already")
        found.add(columns[0])
        try:
            yield read(columns)
        except GenericError as err:
            named = err.message.startswith(f"{what} {columns[0]!r}")
            raise GenericError(
                f"line {number}: {err.message}" if named else f"{where}: {err.message}"
            ) from err


def _int(field: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as err:
        raise GenericError(f"{field} is {text!r}, not a number") from err


def _float(field: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError as err:
        raise GenericError(f"{field} is {text!r}, not a number") from err
    if not isfinite(value):
        raise GenericError(f"{field} is {text!r}, which cannot be")
    return value


def _flag(field: str, text: str) -> bool:
    if text not in _YES_OR_NO:
        raise GenericError(f"{field} is {text!r}, not {' or '.join(_YES_OR_NO)}")
    return _YES_OR_NO[text]


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _column(columns: Sequence[str], place: int, default: str) -> str:
    """Return a column that files of older versions lack."""
    return columns[place] if place < len(columns) else default


def _group(
    columns: Sequence[str], ipolicies: Mapping[str, Any], default: Mapping[str, Any]
) -> tuple[str, Group]:
    name, uuid, policy, tags = columns[:4]
    ipolicy = ipolicies.get(name, default)
    networks = _words(_column(columns, 4, ""))
    return uuid, make_group(uuid, name, policy, ipolicy, networks, _words(tags))


def _node(
    columns: Sequence[str], groups: Mapping[str, Group], meanings: TagMeanings
) -> tuple[str, tuple[Node, Free]]:
    name, *numbers, role, group = columns[:9]
    spindles = _int("total_spindles", _column(columns, 9, "1"))
    is_silent = _UNKNOWN in numbers  # then no number of it counts
    is_offline = role == "Y" or is_silent
    sizes = [
        0 if is_silent else _int(field, text)
        for field, text in zip(RESOURCE_NAMES, numbers, strict=False)
    ]
    own_cpus = 0 if is_silent else _int("reserved_cpus", _column(columns, 13, "1"))
    more = own_cpus, spindles, _int("free_spindles", _column(columns, 12, "0"))
    return name, make_node(
        name,
        groups.get(group),
        Resources._make([*sizes, *more]),
        meanings,
        is_usable=not is_offline,
        is_offline=is_offline,
        is_known=not is_offline,
        group_uuid=group,
        tags=_words(_column(columns, 10, "")),
        cpu_speed=_float("cpu_speed", _column(columns, 14, "1.0")),
        spindle_count=spindles,
        exclusive_storage=_flag("exclusive_storage", _column(columns, 11, "N")),
        is_master=role == "M",
    )


def _instance(columns: Sequence[str], meanings: TagMeanings) -> tuple[str, Instance]:
    name, memory, disk, vcpus, status, auto, primary, secondary, template, tags = columns[:10]
    spindles = _column(columns, 11, _NO_SPINDLES)
    size = _int("disk_space_total", disk)
    if status not in InstanceStatus.__members__.values():
        raise GenericError(f"status is {status!r}, which cannot be")
    if not primary:
        raise GenericError("it has no primary node")
    return name, make_instance(
        name,
        meanings,
        memory=_int("memory", memory),
        vcpus=_int("vcpus", vcpus),
        disk=size,
        spindle_use=_int("spindle_use", _column(columns, 10, "1")),
        disk_template=template,
        nodes=[node for node in (primary, secondary) if node],
        status=InstanceStatus(status),
        tags=_words(tags),
        disk_sizes=(size,) if size else (),
        nic_count=None,
        spindles=None if spindles == _NO_SPINDLES else _int("spindles", spindles),
        is_auto_balanced=_flag("auto_balance", auto),
        is_forthcoming=_flag("forthcoming", _column(columns, 12, "N")),
    )


def _ipolicy(columns: Sequence[str]) -> tuple[str, dict[str, Any]]:
    owner, standard, limits, templates, vcpu_ratio, spindle_ratio = columns[:6]
    specs = [_spec("limits", part) for part in limits.split(";")]
    if len(specs) % 2:
        raise GenericError(f"limits are {len(specs)} specs, not pairs of least and largest")
    return owner, {
        "std": _spec("standard", standard),
        "minmax": [
            {"min": low, "max": high} for low, high in zip(specs[::2], specs[1::2], strict=True)
        ],
        "disk-templates": _words(templates),
        "vcpu-ratio": _float("vcpu-ratio", vcpu_ratio),
        "spindle-ratio": _float("spindle-ratio", spindle_ratio),
    }


def _spec(field: str, text: str) -> dict[str, int]:
    words = text.split(",")
    if len(words) != len(_SPEC):
        raise GenericError(f"{field}: {text!r} has {len(words)} numbers, {len(_SPEC)} are needed")
    return {name: _int(f"{field}, {name}", word) for name, word in zip(_SPEC, words, strict=True)}


# The order in which 3.0 lists them: the first is the usual one.
_TEMPLATES: Final = "diskless,file,sharedfile,plain,blockdev,drbd,rbd,ext,gluster"


def made_up(descriptions: Sequence[str]) -> Snapshot:
    """Return a cluster of empty groups: ``policy,nodes,disk,memory,cpus[,spindles]`` for each.

    Raises:
        GenericError: a description is not understood.
    """
    groups: dict[str, Group] = {}
    nodes: dict[str, tuple[Node, Free]] = {}
    meanings = TagMeanings()
    ipolicy = {**IPOLICY_DEFAULTS, "disk-templates": _TEMPLATES.split(",")}
    for number, description in enumerate(descriptions, 1):
        uuid = f"fake-uuid-{number:02}"
        try:
            policy, count, disk, memory, cpus, *more = description.split(",")
            (spindles,) = map(int, more) if more else (1,)
            groups[uuid] = group = make_group(
                uuid, f"group-{number:02}", _POLICIES[policy], ipolicy
            )
            memory_mib, disk_mib = parse_unit(memory), parse_unit(disk)
            has = Resources(
                *(memory_mib, 0, memory_mib, disk_mib, disk_mib, int(cpus), 1, spindles, 0)
            )
            for each in range(1, int(count) + 1):
                name = f"node-{number:02}-{each:03}"
                nodes[name] = make_node(
                    name,
                    group,
                    has,
                    meanings,
                    is_usable=True,
                    is_offline=False,
                    is_known=True,
                    spindle_count=spindles,
                )
        except (ValueError, KeyError, GenericError) as err:
            raise GenericError(
                f"cannot make up a group from {description!r}; give for example"
                " preferred,20,100g,16g,4,2"
            ) from err
    return make_snapshot(groups, nodes, {}, tags=(), ipolicy=ipolicy)


# Writing.


def to_text(snapshot: Snapshot) -> str:
    """Return a cluster as text.

    Raises:
        GenericError: it cannot hold the name of a node group; older versions allowed any.
    """
    groups = snapshot.groups.values()
    for each in groups:
        if not fits_column(each.name):
            raise GenericError(
                f"a cluster as text cannot hold the name of node group {each.name!r}, which has a"
                f" {COLUMN_SEPARATOR} or a line break; give it another: 'gnt-group rename"
                f" {each.uuid} NAME'"
            )
    sections = (
        [
            _line(each.name, each.uuid, each.alloc_policy, each.tags, sorted(each.networks))
            for each in groups
        ],
        [_node_line(node, snapshot.free[name]) for name, node in snapshot.nodes.items()],
        [_instance_line(each) for each in snapshot.instances.values()],
        snapshot.tags,
        [
            _ipolicy_line("", snapshot.ipolicy),
            *(_ipolicy_line(each.name, each.ipolicy) for each in groups),
        ],
    )
    return "\n".join("".join(f"{line}\n" for line in lines) for lines in sections)


def _line(*columns: object) -> str:
    return COLUMN_SEPARATOR.join(
        ",".join(map(str, column)) if isinstance(column, list | tuple) else str(column)
        for column in columns
    )


def _letter(value: bool) -> str:
    return "Y" if value else "N"


def _node_line(node: Node, free: Free) -> str:
    return _line(
        node.name,
        node.total_memory,
        node.own_memory,
        free.memory,
        node.total_disk,
        free.disk,
        node.cpus,
        "M" if node.is_usable and node.is_master else _letter(not node.is_usable),
        node.group,
        node.spindle_count,
        node.tags,
        _letter(node.exclusive_storage),
        free.spindles,
        node.own_cpus,
        node.cpu_speed,
    )


def _instance_line(each: Instance) -> str:
    return _line(
        each.name,
        each.memory,
        each.disk + each.file_disk or sum(each.spec.disk_sizes_mib),
        each.spec.vcpus,
        each.status,
        _letter(each.is_auto_balanced),
        *[*each.nodes, "", ""][:2],
        each.template,
        each.tags,
        each.spec.spindles,
        _NO_SPINDLES if each.has_unknown_spindles else each.spindles,
        _letter(each.is_forthcoming),
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

"""From what a cluster answers to queries to a snapshot; over LUXI and over the remote API alike.

Every object is a mapping of the fields that LUXI and the remote API name alike.

Source: query_fields.json; rapi.json, "object_fields".
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.allocation.load import Free
from ganeti.allocation.model import Group, Instance, InstanceStatus, Node
from ganeti.allocation.snapshot import (
    Resources,
    Snapshot,
    make_group,
    make_instance,
    make_node,
    make_snapshot,
)
from ganeti.allocation.tags import TagMeanings, meanings_of
from ganeti.base.errors import GenericError
from ganeti.objects.disk_templates import MIXED, binding_template
from ganeti.protocol.luxi import LuxiCalls

GROUP_FIELDS: Final = ("uuid", "name", "alloc_policy", "ipolicy", "tags")
_RESOURCES: Final = (
    *("mtotal", "mnode", "mfree", "dtotal", "dfree", "ctotal", "cnos", "sptotal", "spfree"),
)
NODE_FIELDS: Final = (
    *("name", "offline", "drained", "vm_capable", "role", "ndparams", "group.uuid", "tags", "pip"),
    *_RESOURCES,
)
INSTANCE_FIELDS: Final = (
    *("name", "status", "pnode", "snodes", "disk_template", "disk_usage", "disk.sizes"),
    *("disk.spindles", "beparams", "tags", "nic.networks"),
)
OWN_INSTANCE_FIELDS: Final = (*INSTANCE_FIELDS, "forthcoming", "disk.templates")
"""Those to ask for over LUXI."""

Row = Mapping[str, Any]
_KVM: Final = "kvm"
_MASTER: Final = "M"
_Name = str | None
_Names = list[str] | None
_Links = list[str | None] | None
_Amount = int | float | None
_Amounts = list[int | None] | None


def ask_master(
    luxi: LuxiCalls,
    *,
    more_exclusion: Iterable[str] = (),
    kvm_node_memory: int = 0,
    offline: Sequence[str] = (),
) -> Snapshot:
    """Return the cluster that a master daemon tells; the arguments are those of `from_listings`.

    Raises:
        GenericError: it does not answer, or the answers make no sense.
    """

    def ask(query: Callable[..., Any], fields: Sequence[str]) -> list[dict[str, Any]]:
        return [dict(zip(fields, row, strict=True)) for row in query([], list(fields))]

    return from_listings(
        luxi.query_cluster_info(),
        ask(luxi.query_groups, GROUP_FIELDS),
        ask(luxi.query_nodes, NODE_FIELDS),
        ask(luxi.query_instances, OWN_INSTANCE_FIELDS),
        more_exclusion=more_exclusion,
        kvm_node_memory=kvm_node_memory,
        offline=offline,
    )


def from_listings(
    cluster: Row,
    groups: Sequence[Row],
    nodes: Sequence[Row],
    instances: Sequence[Row],
    *,
    more_exclusion: Iterable[str] = (),
    kvm_node_memory: int = 0,
    offline: Sequence[str] = (),
) -> Snapshot:
    """Return the cluster that answered.

    Args:
        cluster: the answer about the cluster itself.
        more_exclusion: beginnings of exclusion tags besides those of the cluster.
        kvm_node_memory: memory (MiB) that a KVM node uses itself, instead of its report, if not 0.
        offline: whole names, or beginnings up to a dot, of nodes that are taken for offline.

    Raises:
        GenericError: a node does not answer, or a value is missing or cannot be; the text names
            the object and the field.
    """
    tags = _value("the cluster", cluster, "tags", list[str])
    meanings = meanings_of(tags, more_exclusion)
    made_groups = dict(_group(row) for row in groups)
    told = [_instance(row, meanings) for row in instances]
    made = {name: each for name, each in told if each.nodes}  # one that is planned may have none
    hypervisors = _value("the cluster", cluster, "enabled_hypervisors", _Names) or ()
    static = kvm_node_memory if _KVM in hypervisors else 0
    running: dict[str, int] = {}
    for each in made.values():
        running[each.primary] = running.get(each.primary, 0) + each.running_memory
    marked = [{**row, "offline": True} if _is_named(row, offline) else row for row in nodes]
    made_nodes = dict(_node(row, made_groups, meanings, static, running) for row in marked)
    ipolicy = _value("the cluster", cluster, "ipolicy", dict)
    return make_snapshot(made_groups, made_nodes, made, tags=tags, ipolicy=ipolicy)


def _value(what: str, row: Row, field: str, kind: Any) -> Any:
    """Return a value of a type, which may be one of lists.

    Raises:
        GenericError: it is missing, or of another type.
    """
    if not isinstance(row, Mapping):
        raise GenericError(f"{what}: {reprlib.repr(row)} is no object")
    found = row.get(field)
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError:
        problem = "is missing" if found is None else f"is {reprlib.repr(found)}, which cannot be"
        raise GenericError(f"{what}: {field} {problem}") from None


def _is_named(row: Row, words: Sequence[str]) -> bool:
    """Tell whether one of the words is the name of the object, or its beginning up to a dot."""
    name = row.get("name") if words and isinstance(row, Mapping) else None
    return isinstance(name, str) and any(name == w or name.startswith(f"{w}.") for w in words)


def _group(row: Row) -> tuple[str, Group]:
    name = _value("a node group", row, "name", str)
    what = f"node group {name!r}"
    uuid, policy = _value(what, row, "uuid", str), _value(what, row, "alloc_policy", str)
    ipolicy, tags = _value(what, row, "ipolicy", dict), _value(what, row, "tags", list[str])
    return uuid, make_group(uuid, name, policy, ipolicy, (), tags)


def _node(
    row: Row,
    groups: Mapping[str, Group],
    meanings: TagMeanings,
    static_memory: int,
    running: Mapping[str, int],
) -> tuple[str, tuple[Node, Free]]:
    name = _value("a node", row, "name", str)
    what = f"node {name!r}"
    is_offline = _value(what, row, "offline", bool)
    is_known = not is_offline and _value(what, row, "vm_capable", bool)
    params = _value(what, row, "ndparams", dict)
    group = _value(what, row, "group.uuid", str)
    has = Resources._make([_value(what, row, field, _Amount) for field in _RESOURCES])
    if is_known and has.total_memory is has.total_disk is has.cpus is None:
        raise GenericError(
            f"{what} does not answer; mark it offline ('gnt-node modify --offline=yes {name}'), or"
            f" leave it out ('hbal -O {name}')"
        )
    has = has._replace(own_cpus=has.own_cpus or 0, free_spindles=has.free_spindles or 0)
    if static_memory and isinstance(has.total_memory, int):
        free = has.total_memory - static_memory - running.get(name, 0)
        has = has._replace(own_memory=static_memory, free_memory=free)
    return name, make_node(
        name,
        groups.get(group),
        has,
        meanings,
        is_usable=is_known and not _value(what, row, "drained", bool),
        is_offline=is_offline,
        is_known=is_known,
        group_uuid=group,
        tags=_value(what, row, "tags", list[str]),
        cpu_speed=params.get("cpu_speed"),
        spindle_count=params.get("spindle_count"),
        exclusive_storage=params.get("exclusive_storage") is True,
        is_master=row.get("role") == _MASTER,
        address=_value(what, row, "pip", str),
    )


def _template(what: str, row: Row) -> str:
    """Return the template that says where an instance can be, where its disks are of several."""
    found = _value(what, row, "disk_template", str)
    each = _value(what, row, "disk.templates", _Names)
    return binding_template(each) if each and found == MIXED else found


def _instance(row: Row, meanings: TagMeanings) -> tuple[str, Instance]:
    name = _value("an instance", row, "name", str)
    what = f"instance {name!r}"
    status = _value(what, row, "status", str)
    if status not in InstanceStatus.__members__.values():
        raise GenericError(f"{what}: status is {status!r}, which cannot be")
    params = _value(what, row, "beparams", dict)
    nodes = [_value(what, row, "pnode", _Name), *_value(what, row, "snodes", list[str])]
    given = _value(what, row, "disk.spindles", _Amounts) or ()
    spindles = [each for each in given if each is not None]
    networks = _value(what, row, "nic.networks", _Links) or ()
    return name, make_instance(
        name,
        meanings,
        memory=_value(what, params, "maxmem", int),
        vcpus=_value(what, params, "vcpus", int),
        disk=_value(what, row, "disk_usage", int),
        spindle_use=_value(what, params, "spindle_use", int),
        disk_template=_template(what, row),
        nodes=[node for node in nodes if node],
        status=InstanceStatus(status),
        tags=_value(what, row, "tags", list[str]),
        disk_sizes=tuple(_value(what, row, "disk.sizes", list[int])),
        spindles=sum(spindles) if spindles else None,
        nic_count=len(networks),
        networks=frozenset(each for each in networks if each),
        is_forthcoming=row.get("forthcoming") is True,
        is_auto_balanced=params.get("auto_balance") is not False,
    )

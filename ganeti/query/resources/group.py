"""The fields of node groups.

Source: query_fields.json, "group".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ganeti.base.ids import InstanceUuid, NodeUuid
from ganeti.config.tables import name_key
from ganeti.objects.fill import fill_all_diskparams, fill_group_ndparams, fill_ipolicy
from ganeti.objects.model import Cluster, NodeGroup
from ganeti.objects.query_words import QueryResource
from ganeti.query.context import RunContext, sorted_names
from ganeti.query.fields import FieldSpec, Resource, field_table
from ganeti.query.resources.common import (
    count_of,
    instance_names,
    node_param_fields,
    number,
    other,
    stamp_fields,
    text,
)

T = TypeVar("T")


def _nodes(group: NodeGroup, context: RunContext) -> Sequence[NodeUuid]:
    return context.config.group_nodes(group.uuid)


def _node_names(group: NodeGroup, context: RunContext) -> list[str]:
    return sorted_names(context.nodes[uuid].name for uuid in _nodes(group, context))


def _instances(group: NodeGroup, context: RunContext) -> Sequence[InstanceUuid]:
    return context.config.group_instances(group.uuid)


def _filled(fill: Callable[[Cluster, NodeGroup], T]) -> Callable[[NodeGroup, RunContext], T]:
    return lambda group, context: fill(context.cluster, group)


_FIELDS: Final[list[FieldSpec[NodeGroup]]] = [
    text("name", "Group", "Name of the group"),
    text("alloc_policy", "AllocPolicy", "Whether new instances may go here"),
    number("node_cnt", "Nodes", "Number of nodes", count_of(_nodes)),
    other("node_list", "NodeList", "Nodes of the group", _node_names),
    number(
        "pinst_cnt",
        "Instances",
        "Number of instances with a primary node in the group",
        count_of(_instances),
    ),
    other(
        "pinst_list",
        "InstanceList",
        "Instances with a primary node in the group",
        instance_names(_instances),
    ),
    other(
        "ndparams", "NDParams", "Node parameters, defaults filled in", _filled(fill_group_ndparams)
    ),
    other("custom_ndparams", "CustomNDParams", "Node parameters set for this group", "ndparams"),
    *node_param_fields(_filled(fill_group_ndparams)),
    other(
        "diskparams",
        "DiskParameters",
        "Disk parameters, defaults filled in",
        _filled(fill_all_diskparams),
    ),
    other(
        "custom_diskparams",
        "CustomDiskParameters",
        "Disk parameters set for this group",
        "diskparams",
    ),
    other(
        "ipolicy", "InstancePolicy", "Instance policy, defaults filled in", _filled(fill_ipolicy)
    ),
    other(
        "custom_ipolicy", "CustomInstancePolicy", "Instance policy set for this group", "ipolicy"
    ),
    *stamp_fields(NodeGroup, "group"),
]

RESOURCE: Final = Resource(
    name=QueryResource.GROUP,
    fields=field_table(_FIELDS),
    items=lambda context: context.groups,
    name_field="name",
    sort_key=lambda group, _context: name_key(group.name),
)

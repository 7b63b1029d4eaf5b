"""The fields of node groups.

Source: query_fields.json, "group".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ganeti.base.ids import InstanceUuid, NodeUuid
from ganeti.objects.fill import fill_all_diskparams, fill_group_ndparams, fill_ipolicy
from ganeti.objects.model import Cluster, NodeGroup
from ganeti.objects.query_words import QueryResource
from ganeti.query.context import RunContext, sorted_names
from ganeti.query.fields import (
    FieldSpec,
    Resource,
    count_of,
    field_table,
    instance_fields,
    node_param_fields,
    number,
    other,
    settings_fields,
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


def _settings(
    name: str, title: str, what: str, fill: Callable[[Cluster, NodeGroup], object]
) -> list[FieldSpec[NodeGroup]]:
    return settings_fields(name, title, what, _filled(fill), thing="group")


_FIELDS: Final[list[FieldSpec[NodeGroup]]] = [
    text("name", "Group", "Name of the group"),
    text("alloc_policy", "AllocPolicy", "Whether new instances may go here"),
    number("node_cnt", "Nodes", "Number of nodes", count_of(_nodes)),
    other("node_list", "NodeList", "Nodes of the group", _node_names),
    *instance_fields(
        "pinst", ("Instances", "InstanceList"), "with a primary node in the group", _instances
    ),
    *_settings("ndparams", "NDParams", "Node parameters", fill_group_ndparams),
    *node_param_fields(_filled(fill_group_ndparams)),
    *_settings("diskparams", "DiskParameters", "Disk parameters", fill_all_diskparams),
    *_settings("ipolicy", "InstancePolicy", "Instance policy", fill_ipolicy),
    *stamp_fields(NodeGroup, "group"),
]

RESOURCE: Final = Resource(
    QueryResource.GROUP, field_table(_FIELDS), lambda context: context.groups
)

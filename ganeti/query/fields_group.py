"""The fields of node groups.

Source: query_fields.json, "group".
"""

from __future__ import annotations

from typing import Final

from ganeti.objects.fill import fill_all_diskparams, fill_group_ndparams, fill_ipolicy
from ganeti.objects.nodegroup import NodeGroup
from ganeti.objects.query_words import FieldKind, QueryResource
from ganeti.query.context import name_key, sorted_names
from ganeti.query.fields import FieldSpec, Resource, field_table
from ganeti.query.fields_common import node_param_fields, stamp_fields

_K = FieldKind

_FIELDS: Final[list[FieldSpec[NodeGroup]]] = [
    FieldSpec("name", "Group", _K.TEXT, "Name of the group", lambda group, _context: group.name),
    FieldSpec(
        "alloc_policy",
        "AllocPolicy",
        _K.TEXT,
        "Whether new instances may go here",
        lambda group, _context: group.alloc_policy,
    ),
    FieldSpec(
        "node_cnt",
        "Nodes",
        _K.NUMBER,
        "Number of nodes",
        lambda group, context: len(context.group_nodes(group)),
    ),
    FieldSpec(
        "node_list",
        "NodeList",
        _K.OTHER,
        "Nodes of the group",
        lambda group, context: sorted_names(node.name for node in context.group_nodes(group)),
    ),
    FieldSpec(
        "pinst_cnt",
        "Instances",
        _K.NUMBER,
        "Number of instances with a primary node in the group",
        lambda group, context: len(context.group_instances(group)),
    ),
    FieldSpec(
        "pinst_list",
        "InstanceList",
        _K.OTHER,
        "Instances with a primary node in the group",
        lambda group, context: sorted_names(
            instance.name for instance in context.group_instances(group)
        ),
    ),
    FieldSpec(
        "ndparams",
        "NDParams",
        _K.OTHER,
        "Node parameters, defaults filled in",
        lambda group, context: fill_group_ndparams(context.view.cluster, group),
    ),
    FieldSpec(
        "custom_ndparams",
        "CustomNDParams",
        _K.OTHER,
        "Node parameters set for this group",
        lambda group, _context: group.ndparams,
    ),
    *node_param_fields(
        lambda group, context: fill_group_ndparams(context.view.cluster, group),
    ),
    FieldSpec(
        "diskparams",
        "DiskParameters",
        _K.OTHER,
        "Disk parameters, defaults filled in",
        lambda group, context: fill_all_diskparams(context.view.cluster, group),
    ),
    FieldSpec(
        "custom_diskparams",
        "CustomDiskParameters",
        _K.OTHER,
        "Disk parameters set for this group",
        lambda group, _context: group.diskparams,
    ),
    FieldSpec(
        "ipolicy",
        "InstancePolicy",
        _K.OTHER,
        "Instance policy, defaults filled in",
        lambda group, context: fill_ipolicy(context.view.cluster, group),
    ),
    FieldSpec(
        "custom_ipolicy",
        "CustomInstancePolicy",
        _K.OTHER,
        "Instance policy set for this group",
        lambda group, _context: group.ipolicy,
    ),
    *stamp_fields(NodeGroup, "group"),
]

RESOURCE: Final = Resource(
    name=QueryResource.GROUP,
    fields=field_table(_FIELDS),
    items=lambda context: context.view.groups,
    name_field="name",
    sort_key=lambda group, _context: name_key(group.name),
)

"""The fields of resources that only a job can list: cluster, OS definitions, storage providers.

The logical unit makes the rows; here they are described, filtered and sorted.

Source: query_fields.json, "cluster", "os" and "extstorage".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ganeti.config.tables import name_key
from ganeti.objects.query_words import FieldKind, QueryResource
from ganeti.query.context import RunContext
from ganeti.query.fields import (
    UNAVAIL,
    Comparison,
    FieldSpec,
    Resource,
    Source,
    field_table,
    or_unavailable,
)

_K = FieldKind
_HOST: Final = Comparison.HOST_NAME
Row = Mapping[str, object]


def _get(name: str) -> Callable[[Row, RunContext], object]:
    return lambda row, _context: or_unavailable(row[name]) if name in row else UNAVAIL


def _field(
    name: str, title: str, kind: FieldKind, doc: str, comparison: Comparison = Comparison.PLAIN
) -> FieldSpec[Row]:
    return FieldSpec(name, title, kind, doc, _get(name), comparison=comparison)


def _resource(name: QueryResource, fields: list[FieldSpec[Row]]) -> Resource[Row]:
    return Resource(
        name,
        field_table(fields),
        lambda context: dict(enumerate(context.view.rows)),
        sort_key=lambda row, _context: name_key(str(row.get("name", ""))),
        source=Source.ROWS,
    )


_CLUSTER: Final = _resource(
    QueryResource.CLUSTER,
    [
        _field("architecture", "ArchInfo", _K.OTHER, "Architecture of the master node"),
        _field("cluster_name", "Name", _K.TEXT, "Old name of name", _HOST),
        _field("config_version", "ConfigVersion", _K.NUMBER, "Version of the configuration"),
        _field("ctime", "CTime", _K.TIMESTAMP, "When the cluster was made"),
        _field("drain_flag", "QueueDrained", _K.BOOL, "Whether the job queue is drained"),
        _field("export_version", "ExportVersion", _K.NUMBER, "Version of exports"),
        _field("master_node", "Master", _K.TEXT, "Master node", _HOST),
        _field("mtime", "MTime", _K.TIMESTAMP, "When the cluster was last changed"),
        _field("name", "Name", _K.TEXT, "Name of the cluster", _HOST),
        _field("os_api_version", "OsApiVersion", _K.NUMBER, "Newest version of the OS interface"),
        _field("protocol_version", "ProtocolVersion", _K.NUMBER, "Version of the protocols"),
        _field("software_version", "SoftwareVersion", _K.TEXT, "Version of the software"),
        _field("tags", "Tags", _K.OTHER, "Tags of the cluster"),
        _field("vcs_version", "VCSVersion", _K.TEXT, "Version of the source"),
        _field("volume_group_name", "VgName", _K.TEXT, "Name of the volume group"),
        _field("watcher_pause", "WatcherPause", _K.TIMESTAMP, "Until when the watcher pauses"),
    ],
)
_OS: Final = _resource(
    QueryResource.OS,
    [
        _field("name", "Name", _K.TEXT, "Name of the operating system"),
        _field("valid", "Valid", _K.BOOL, "Whether it is usable on all nodes"),
        _field("hidden", "Hidden", _K.BOOL, "Whether it is hidden from lists"),
        _field("blacklisted", "Blacklisted", _K.BOOL, "Whether it must not be installed"),
        _field("variants", "Variants", _K.OTHER, "Variants that all nodes have"),
        _field("api_versions", "ApiVersions", _K.OTHER, "Versions that all nodes have"),
        _field("parameters", "Parameters", _K.OTHER, "Parameters that all nodes have"),
        _field("node_status", "NodeStatus", _K.OTHER, "What each node says"),
        _field("os_hvp", "OsHypervisorParams", _K.OTHER, "Hypervisor parameters for it"),
        _field("osparams", "OsParameters", _K.OTHER, "Default parameters"),
        _field("trusted", "Trusted", _K.BOOL, "Whether its scripts run on the node itself"),
    ],
)
_EXTSTORAGE: Final = _resource(
    QueryResource.EXTSTORAGE,
    [
        _field("name", "Name", _K.TEXT, "Name of the provider"),
        _field("node_status", "NodeStatus", _K.OTHER, "What each node says"),
        _field("nodegroup_status", "NodegroupStatus", _K.OTHER, "Whether a group can use it"),
        _field("parameters", "Parameters", _K.OTHER, "Parameters that it takes"),
    ],
)

RESOURCES: Final = (_CLUSTER, _EXTSTORAGE, _OS)

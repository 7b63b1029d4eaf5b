"""Changes that no running WConfD makes: a new master, and new certificates of the cluster.

Source: ARCHITECTURE, invariants 8 and 9.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw

from ganeti.base.errors import ConfigurationError
from ganeti.base.json import dumps, loads_as
from ganeti.config.config_data import SplitConfig, join_config, split_config
from ganeti.config.overlay import Stored, decode_record
from ganeti.objects.model import Cluster, Node


def with_master(data: bytes, *, master_name: str, serial_no: int, now: float) -> bytes:
    """Return a configuration in which another node is the master; all else stands as it was.

    Args:
        serial_no: of the result; higher than any that is known.

    Raises:
        ConfigurationError: it is not a configuration, or that node cannot be its master.
    """
    split = split_config(data)
    master = _find_node(split, master_name)
    if not master.master_candidate:
        raise ConfigurationError(f"node {master_name} is not a master candidate")
    return _with_cluster(split, {"master_node": master.uuid}, serial_no, now)


def with_only_candidate_cert(data: bytes, *, node_name: str, digest: str, now: float) -> bytes:
    """Return a configuration in which one node's client certificate alone is trusted.

    Raises:
        ConfigurationError: it is not a configuration, or there is no such node.
    """
    split = split_config(data)
    node = _find_node(split, node_name)
    serial_no = loads_as(int, bytes(split.top["serial_no"])) + 1
    return _with_cluster(split, {"candidate_certs": {node.uuid: digest}}, serial_no, now)


def _with_cluster(
    split: SplitConfig, changes: Mapping[str, object], serial_no: int, now: float
) -> bytes:
    """Return the configuration with some fields of the cluster replaced."""
    cluster = Stored(split.cluster)
    count = cluster.decode(Cluster).serial_no + 1
    changed = cluster.with_changes({**changes, "serial_no": count, "mtime": now})
    top = {**split.top, "serial_no": Raw(dumps(serial_no)), "mtime": Raw(dumps(now))}
    return join_config(
        SplitConfig(cluster=Raw(changed.raw), tables=split.tables, top=top, order=split.order)
    )


def _find_node(split: SplitConfig, name: str) -> Node:
    for raw in split.tables["nodes"].values():
        node = decode_record(raw, Node)
        if node.name == name:
            return node
    raise ConfigurationError(f"node {name} is not in the configuration")

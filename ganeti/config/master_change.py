"""The configuration under a new master: the one change that is not made by a running WConfD.

Source: ARCHITECTURE, invariants 8 and 9.
"""

from __future__ import annotations

from msgspec import Raw

from ganeti.base.errors import ConfigurationError
from ganeti.base.json import dumps
from ganeti.objects.cluster import Cluster
from ganeti.objects.node import Node
from ganeti.objects.overlay import Stored, decode_record
from ganeti.objects.split import SplitConfig, join_config, split_config


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
    cluster = Stored(split.cluster)
    old = cluster.decode(Cluster)
    changed = cluster.with_changes(
        {"master_node": master.uuid, "serial_no": old.serial_no + 1, "mtime": now}
    )
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

"""The file ``config.data``: split into one raw value per object, and joined again.

Splitting reads the text once for its brackets and decodes nothing below the objects, so its cost
is a fraction of a full decode; joining copies the raw values.  Untouched parts are written
as they were read: unknown keys, order of keys, form of numbers.  `ConfigData`, everything decoded,
is for making a new configuration and for tools that look at everything; daemons decode single
objects.

Two changes are made while no WConfD runs: a new master, and new certificates of the cluster.

Source: config.json, "file" and object "ConfigData".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Self

import msgspec
from msgspec import Raw

from ganeti.base.errors import ConfigurationError
from ganeti.base.ids import DiskUuid, GroupUuid, InstanceUuid, NetworkUuid, NodeUuid
from ganeti.base.json import dumps, loads_as
from ganeti.config.overlay import Stored, decode_record
from ganeti.objects.model import Cluster, Disk, FilterRule, Instance, Network, Node, NodeGroup
from ganeti.objects.record import Record

TABLES: Final[Mapping[str, type[Record]]] = {
    "nodes": Node,
    "nodegroups": NodeGroup,
    "instances": Instance,
    "networks": Network,
    "disks": Disk,
    "filters": FilterRule,
}
"""Keys of the configuration that hold objects by UUID, and the types of these objects."""


class ConfigData(Record, frozen=True, kw_only=True):
    """Everything in ``config.data``."""

    version: int
    cluster: Cluster
    nodes: Mapping[NodeUuid, Node]
    nodegroups: Mapping[GroupUuid, NodeGroup]
    instances: Mapping[InstanceUuid, Instance]
    networks: Mapping[NetworkUuid, Network]
    disks: Mapping[DiskUuid, Disk]
    filters: Mapping[str, FilterRule]
    ctime: float = 0.0
    mtime: float = 0.0
    serial_no: int

    @classmethod
    def from_wire(cls, wire: Mapping[str, object]) -> Self:
        """Make the configuration from its JSON form; an error names the object it is about."""
        checked = dict(wire)
        for name, kind in TABLES.items():
            table = wire.get(name)
            if isinstance(table, Mapping):
                checked[name] = {key: _record(kind, item) for key, item in table.items()}
        return super().from_wire(checked)


def _record(kind: type[Record], wire: object) -> Record:
    return kind.from_wire(wire if isinstance(wire, Mapping) else {})


CLUSTER_KEY: Final = "cluster"

_decoder: Final = msgspec.json.Decoder(dict[str, Raw])
_encoder: Final = msgspec.json.Encoder()
_BYTE: Final = re.compile(r"\(byte (\d+)\)")


class SplitConfig(msgspec.Struct, frozen=True):
    """The parts of a configuration.

    ``tables`` has every key of `ganeti.config.config_data.TABLES`, each with one raw value per
    UUID; ``top`` has the other keys (version, serial_no, times, and any that we do not know);
    ``order`` is the order in which all of them stood in the file.
    """

    cluster: Raw
    tables: Mapping[str, Mapping[str, Raw]]
    top: Mapping[str, Raw]
    order: tuple[str, ...]


def split_config(data: bytes) -> SplitConfig:
    """Split the bytes of ``config.data``.

    Raises:
        ConfigurationError: it is not JSON (the text names the byte), or not a configuration.
    """
    _check_utf8(data)
    keys = _split_object(data, "the configuration", size_bytes=len(data))
    if CLUSTER_KEY not in keys:
        raise ConfigurationError(f"the configuration has no {CLUSTER_KEY!r}")
    tables = {name: _split_object(keys[name], name) if name in keys else {} for name in TABLES}
    top = {key: value for key, value in keys.items() if key != CLUSTER_KEY and key not in tables}
    return SplitConfig(cluster=keys[CLUSTER_KEY], tables=tables, top=top, order=tuple(keys))


def _check_utf8(data: bytes) -> None:
    if data.isascii():
        return
    try:
        data.decode()
    except UnicodeDecodeError as err:
        raise ConfigurationError(f"the configuration is not UTF-8 at byte {err.start}") from err


def _split_object(data: bytes | Raw, what: str, *, size_bytes: int = 0) -> dict[str, Raw]:
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError as err:
        raise ConfigurationError(f"{what} is not a JSON object") from err
    except msgspec.DecodeError as err:
        found = _BYTE.search(str(err))
        reason = _BYTE.sub("", str(err)).strip()
        place = found.group(1) if found else size_bytes
        raise ConfigurationError(f"{what} is not JSON: {reason} at byte {place}") from err
    except RecursionError as err:
        raise ConfigurationError(f"{what} is nested too deeply") from err


def join_config(split: SplitConfig) -> bytes:
    """Join the parts again; every part stands as it is, keys in the order they had.

    Keys that are new come last; a table that was not there and is empty is not written.
    """
    whole: dict[str, Raw | Mapping[str, Raw]] = {CLUSTER_KEY: split.cluster, **split.top}
    for name, table in split.tables.items():
        if table or name in split.order:
            whole[name] = table
    order = [key for key in split.order if key in whole]
    order += [key for key in whole if key not in split.order]
    return _encoder.encode({key: whole[key] for key in order})


def with_master(data: bytes, *, master_name: str, serial_no: int, now: float) -> bytes:
    """Return a configuration in which another node is the master; all else stands as it was.

    Args:
        serial_no: of the result; higher than any that is known.

    Raises:
        ConfigurationError: it is not a configuration, or that node cannot be its master.
    """
    split = split_config(data)
    master = find_node(split, master_name)
    if not master.master_candidate:
        raise ConfigurationError(f"node {master_name} is not a master candidate")
    return _with_cluster(split, {"master_node": master.uuid}, serial_no, now)


def with_candidate_certs(data: bytes, digests: Mapping[NodeUuid, str], *, now: float) -> bytes:
    """Return a configuration in which these client certificates alone are trusted.

    Args:
        digests: by the UUIDs of their nodes.

    Raises:
        ConfigurationError: it is not a configuration.
    """
    split = split_config(data)
    serial_no = loads_as(int, bytes(split.top["serial_no"])) + 1
    return _with_cluster(split, {"candidate_certs": digests}, serial_no, now)


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


def nodes_of(split: SplitConfig) -> list[Node]:
    """Return all nodes of a configuration."""
    return [decode_record(raw, Node) for raw in split.tables["nodes"].values()]


def find_node(split: SplitConfig, name: str) -> Node:
    """Return the node of that name.

    Raises:
        ConfigurationError: there is none.
    """
    for node in nodes_of(split):
        if node.name == name:
            return node
    raise ConfigurationError(f"node {name} is not in the configuration")

"""Nodes.

Source: config.json, object "Node".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ganeti.base.ids import GroupUuid, NodeUuid
from ganeti.objects.json_value import JsonValue
from ganeti.objects.record import Record


class Node(Record, frozen=True, kw_only=True):
    """A machine of the cluster; candidate, offline and drained exclude each other."""

    LEFT_OUT: ClassVar[Mapping[str, object]] = {"hv_state_static": {}, "disk_state_static": {}}

    name: str
    primary_ip: str
    secondary_ip: str
    master_candidate: bool
    offline: bool
    drained: bool
    group: GroupUuid
    master_capable: bool
    vm_capable: bool
    ndparams: Mapping[str, JsonValue] = {}
    powered: bool
    hv_state_static: Mapping[str, JsonValue] = {}
    disk_state_static: Mapping[str, JsonValue] = {}
    uuid: NodeUuid
    ctime: float = 0.0
    mtime: float = 0.0
    serial_no: int
    tags: list[str] = []

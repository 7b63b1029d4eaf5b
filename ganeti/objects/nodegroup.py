"""Node groups.

Source: config.json, object "NodeGroup".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Final

from ganeti.base.ids import GroupUuid
from ganeti.objects.json_value import JsonValue
from ganeti.objects.record import Record

INITIAL_GROUP_NAME: Final = "default"


class AllocPolicy(StrEnum):
    """Whether new instances may go to a group."""

    PREFERRED = "preferred"
    LAST_RESORT = "last_resort"
    UNALLOCABLE = "unallocable"


class NodeGroup(Record, frozen=True, kw_only=True):
    """Nodes that are alike; ``members`` is written as [], the nodes know their group."""

    LEFT_OUT: ClassVar[Mapping[str, object]] = {"hv_state_static": {}, "disk_state_static": {}}

    name: str
    members: list[str] = []
    ndparams: Mapping[str, JsonValue] = {}
    alloc_policy: AllocPolicy
    ipolicy: Mapping[str, JsonValue] = {}
    diskparams: Mapping[str, Mapping[str, JsonValue]] = {}
    networks: Mapping[str, Mapping[str, JsonValue]] = {}  # network UUID to NIC parameters
    hv_state_static: Mapping[str, JsonValue] = {}
    disk_state_static: Mapping[str, JsonValue] = {}
    uuid: GroupUuid
    ctime: float = 0.0
    mtime: float = 0.0
    serial_no: int
    tags: list[str] = []

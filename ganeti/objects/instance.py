"""Instances.

Source: config.json, object "Instance".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Self

from msgspec import field

from ganeti.base.ids import DiskUuid, InstanceUuid, NodeUuid
from ganeti.objects.admin_state import AdminState, AdminStateSource
from ganeti.objects.json_value import JsonValue
from ganeti.objects.nic import NIC
from ganeti.objects.private import PrivateParams
from ganeti.objects.record import Record

_UNDECIDED: Final[Mapping[str, object]] = {
    "name": "",
    "primary_node": "",
    "os": "",
    "hypervisor": "",
    "admin_state": "down",
    "admin_state_source": "admin",
    "disks_active": False,
}


class Instance(Record, frozen=True, kw_only=True):
    """An instance as stored: only parameters that differ from the defaults."""

    LEFT_OUT: ClassVar[Mapping[str, object]] = {"network_port": None, "forthcoming": False}

    name: str
    primary_node: NodeUuid
    os: str
    hypervisor: str
    hvparams: Mapping[str, JsonValue] = {}
    beparams: Mapping[str, JsonValue] = {}
    osparams: Mapping[str, JsonValue] = {}
    osparams_private: PrivateParams = field(default_factory=PrivateParams)
    admin_state: AdminState
    admin_state_source: AdminStateSource = AdminStateSource.ADMIN
    nics: list[NIC] = []
    disks: list[DiskUuid] = []
    disks_active: bool
    network_port: int | None = None
    uuid: InstanceUuid
    ctime: float = 0.0
    mtime: float = 0.0
    serial_no: int
    tags: list[str] = []
    forthcoming: bool = False  # planned only; what is not decided yet is empty

    @classmethod
    def from_wire(cls, wire: Mapping[str, object]) -> Self:
        """Make the instance from its JSON form; a forthcoming one may lack fields."""
        if wire.get("forthcoming") is True:
            wire = {**_UNDECIDED, **wire}
        return super().from_wire(wire)

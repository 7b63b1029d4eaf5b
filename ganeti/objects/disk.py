"""Disks of instances.

Source: config.json, object "Disk".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Self

from ganeti.base.ids import DiskUuid
from ganeti.objects.disk_templates import DiskMode
from ganeti.objects.json_value import JsonValue
from ganeti.objects.record import Record

_UNDECIDED: Final[Mapping[str, object]] = {"logical_id": [], "dev_type": "", "size": 0}


class Disk(Record, frozen=True, kw_only=True):
    """One device, perhaps with children.

    ``logical_id`` tells the device apart, by type: plain [vg, lv]; drbd [node uuid A, node uuid B,
    port, minor A, minor B, secret]; file, sharedfile, gluster [driver, path]; blockdev ["manual",
    path]; rbd ["rbd", name]; ext [provider, name].  Sizes are MiB.
    """

    LEFT_OUT: ClassVar[Mapping[str, object]] = {
        "name": None,
        "spindles": None,
        "params": None,
        "forthcoming": False,
    }

    logical_id: list[JsonValue]
    dev_type: str
    children: list[Disk] = []
    nodes: list[str] = []  # UUIDs of the nodes that hold the disk
    iv_name: str = ""  # name inside the instance: disk/0
    size: int
    mode: DiskMode = DiskMode.RW
    name: str | None = None
    spindles: int | None = None
    params: Mapping[str, JsonValue] | None = None
    uuid: DiskUuid
    ctime: float = 0.0
    mtime: float = 0.0
    serial_no: int
    forthcoming: bool = False  # planned only; what is not decided yet is empty

    @classmethod
    def from_wire(cls, wire: Mapping[str, object]) -> Self:
        """Make the disk from its JSON form; a forthcoming one may lack fields."""
        if wire.get("forthcoming") is True:
            wire = {**_UNDECIDED, **wire}
        return super().from_wire(wire)

"""Network interfaces of an instance.

Source: config.json, object "NIC".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ganeti.objects.json_value import JsonValue
from ganeti.objects.record import Record


class NIC(Record, frozen=True, kw_only=True):
    """A network interface as stored: parameters that are not set follow the cluster."""

    LEFT_OUT: ClassVar[Mapping[str, object]] = {"ip": None, "network": None, "name": None}

    mac: str
    ip: str | None = None
    nicparams: Mapping[str, JsonValue] = {}
    network: str | None = None  # UUID of the network
    name: str | None = None
    uuid: str

"""Collector "drbd": how the DRBD devices of this node are.

Source: mond.json, collector "drbd"; DRBD User's Guide, "Connection states" and "Disk states".
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from ganeti.collectors import drbd_status
from ganeti.collectors.drbd_status import UNCONFIGURED
from ganeti.collectors.node_view import Collect, NodeView, read_text
from ganeti.collectors.report import FINE, Status, StatusCode, worst

PROC_DRBD: Final = "/proc/drbd"  # constants.json, DRBD_STATUS_FILE

_VERSION_THAT_LISTS_NOTHING: Final = 9

_BAD: Final = StatusCode.BAD
_SOON: Final = StatusCode.TEMPORARILY_BAD
_SYNCING: Final = Status(_SOON, "Synchronising")
_VERIFYING: Final = Status(StatusCode.OK, "Verifying")
_CONNECTING: Final = Status(_SOON, "Trying to establish a network connection")
_LOST: Final = Status(_SOON, "The network connection was lost")

# What is not named here is in order.
_CONNECTIONS: Final[Mapping[str, Status]] = {
    "StandAlone": Status(_BAD, "Not connected, and not trying to be"),
    "Disconnecting": Status(_SOON, "Disconnecting"),
    "Unconnected": _CONNECTING,
    "WFConnection": _CONNECTING,
    "WFReportParams": _CONNECTING,
    "Timeout": _LOST,
    "BrokenPipe": _LOST,
    "NetworkFailure": _LOST,
    "ProtocolError": _LOST,
    "TearDown": _LOST,
    "StartingSyncS": _SYNCING,
    "StartingSyncT": _SYNCING,
    "WFBitMapS": _SYNCING,
    "WFBitMapT": _SYNCING,
    "WFSyncUUID": _SYNCING,
    "SyncSource": _SYNCING,
    "SyncTarget": _SYNCING,
    "PausedSyncS": Status(_SOON, "Synchronisation is paused"),
    "PausedSyncT": Status(_SOON, "Synchronisation is paused"),
    "VerifyS": _VERIFYING,
    "VerifyT": _VERIFYING,
}
_DISKS: Final[Mapping[str, Status]] = {
    "Diskless": Status(_BAD, "The local disk is gone"),
    "Failed": Status(_BAD, "The local disk has failed"),
    "Inconsistent": Status(_BAD, "The local data is not consistent"),
    "Outdated": Status(_BAD, "The local data is outdated"),
    "DUnknown": Status(StatusCode.UNKNOWN, "The state of the local disk is not known"),
}
_REMOTE_DISKS: Final[Mapping[str, Status]] = {
    "Diskless": Status(_BAD, "The other node's disk is gone"),
    "Failed": Status(_BAD, "The other node's disk has failed"),
    "Inconsistent": Status(_BAD, "The other node's data is not consistent"),
}


def status_of_device(device: Mapping[str, Any]) -> Status:
    """Judge one device."""
    connection = device["connectionState"]
    if connection == UNCONFIGURED:
        return FINE
    found = _CONNECTIONS.get(connection, FINE)
    if found is _SYNCING:
        return found  # one of the disks is inconsistent, that is what it is for
    local = _DISKS.get(device.get("localState", ""), FINE)
    remote = _REMOTE_DISKS.get(device.get("remoteState", ""), FINE)
    return max((found, local, remote), key=lambda status: status.code)


def judge(devices: list[dict[str, Any]]) -> Status:
    """Judge all devices together: a line for each one of which there is something to say."""
    judged = [(device["minor"], status_of_device(device)) for device in devices]
    message = "".join(f"\n{minor}: {status.message}" for minor, status in judged if status.message)
    return Status(worst(status for _, status in judged), message)


def parse(text: str, source: str, owners: Mapping[int, str]) -> dict[str, object]:
    """Return the data of a report on /proc/drbd.

    Raises:
        GenericError: it does not look like that file.
    """
    found: dict[str, Any] = drbd_status.parse(text, source, owners)
    status = judge(found["deviceInfos"])
    listed = {device["minor"] for device in found["deviceInfos"]}
    missing = sorted(owners.keys() - listed)
    if missing and not status.message:
        status = _missing(found["versionInfo"], source, missing, owners)
    return {"status": status, **found}


def _missing(
    version: Mapping[str, str], source: str, minors: list[int], owners: Mapping[int, str]
) -> Status:
    """Judge a node that is to have devices which are not listed."""
    major = version["version"].partition(".")[0]
    if major.isdecimal() and int(major) >= _VERSION_THAT_LISTS_NOTHING:
        return Status(
            StatusCode.UNKNOWN, f"DRBD {version['version']} does not list its devices in {source}"
        )
    names = ", ".join(f"{minor} ({owners[minor]})" for minor in minors)
    return Status(_BAD, f"These devices are not there: {names}")


def absent(owners: Mapping[int, str], source: str = PROC_DRBD) -> dict[str, object]:
    """Return the data of a report on a node where DRBD is not loaded."""
    status = Status(StatusCode.OK, f"DRBD is not in use: there is no {source}")
    if owners:
        names = ", ".join(sorted(set(owners.values())))
        status = Status(_BAD, f"there is no {source}, but instances have DRBD disks here: {names}")
    return {"status": status, "versionInfo": {}, "deviceInfos": []}


def make(source: str = PROC_DRBD) -> Collect:
    """Make the collector."""

    def collect(view: NodeView) -> object:
        owners = view.cluster.drbd_owners or {}
        if not os.path.exists(source):
            return absent(owners, source)
        return parse(read_text(source), source, owners)

    return collect

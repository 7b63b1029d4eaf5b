"""Collector "drbd": how the DRBD devices of this node are.

Source: mond.json, collector "drbd"; DRBD User's Guide, "Connection states" and "Disk states".
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ganeti.collectors.collector import (
    Collector,
    Data,
    Metric,
    NodeView,
    Sample,
    Timing,
    counters,
    gauges,
    read_text,
)
from ganeti.collectors.report import FINE, Kind, Status, StatusCode, worst
from ganeti.storage import drbd_status
from ganeti.storage.drbd_status import UNCONFIGURED

_KIB: Final = 1024
PROC_DRBD: Final = "/proc/drbd"  # constants.json, DRBD_STATUS_FILE

_VERSION_THAT_LISTS_NOTHING: Final = 9

_BAD: Final = StatusCode.BAD
_SOON: Final = StatusCode.TEMPORARILY_BAD
_SYNCING: Final = Status(_SOON, "Synchronising")
_VERIFYING: Final = Status(StatusCode.OK, "Verifying")
_CONNECTING: Final = Status(_SOON, "Trying to establish a network connection")
_LOST: Final = Status(_SOON, "The network connection was lost")

# All other states are in order.
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
        return found  # one of the disks is inconsistent, which the synchronisation mends
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
    found: dict[str, Any] = drbd_status.parse(text, source)
    for device in found["deviceInfos"]:
        if "localRole" in device:  # it is configured
            device["instance"] = owners.get(device["minor"])
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


_MINOR: Final = ("minor", "instance")
# key of the report -> (metric, factor)
_SAMPLES: Final[Mapping[str, tuple[str, float]]] = {
    "networkSend": ("ganeti_drbd_network_sent_bytes_total", _KIB),
    "networkReceive": ("ganeti_drbd_network_received_bytes_total", _KIB),
    "diskWrite": ("ganeti_drbd_disk_written_bytes_total", _KIB),
    "diskRead": ("ganeti_drbd_disk_read_bytes_total", _KIB),
    "pending": ("ganeti_drbd_pending_requests", 1),
    "unacknowledged": ("ganeti_drbd_unacknowledged_requests", 1),
    "outOfSync": ("ganeti_drbd_out_of_sync_bytes", _KIB),
}


class Drbd(Collector):
    """Collector "drbd": how the DRBD devices of this node are."""

    name = "drbd"
    summary = "how the DRBD devices are, and to which instance each belongs"
    category = "storage"
    kind = Kind.STATUS
    timing = Timing.AT_ONCE
    empty = {"versionInfo": {}, "deviceInfos": ()}
    metrics = (
        Metric(
            "ganeti_drbd_state",
            "The state of a configured DRBD device, as labels; always 1.",
            (*_MINOR, "connection", "local_role", "remote_role", "local_disk", "remote_disk"),
        ),
        *gauges(
            _MINOR,
            {
                "drbd_connected": "Whether the device is connected to its peer.",
                "drbd_local_up_to_date": "Whether the local data is up to date.",
                "drbd_out_of_sync_bytes": "What differs between the two nodes.",
                "drbd_sync_progress_ratio": (
                    "How much of a synchronisation is done, while one runs."
                ),
                "drbd_pending_requests": "Requests sent to the peer and not answered.",
                "drbd_unacknowledged_requests": "Requests of the peer not yet answered.",
            },
        ),
        *counters(
            _MINOR,
            {
                "drbd_network_sent_bytes_total": "Bytes sent to the peer.",
                "drbd_network_received_bytes_total": "Bytes received from the peer.",
                "drbd_disk_written_bytes_total": "Bytes written to the local disk.",
                "drbd_disk_read_bytes_total": "Bytes read from the local disk.",
            },
        ),
    )

    def __init__(self, source: str = PROC_DRBD) -> None:
        self._source = source

    def collect(self, view: NodeView) -> object:
        """Return the devices and how they are."""
        owners = view.cluster.drbd_owners or {}
        if not os.path.exists(self._source):
            return absent(owners, self._source)
        return parse(read_text(self._source), self._source, owners)

    @classmethod
    def samples(cls, data: Data) -> Iterator[Sample]:
        """Yield the state and the counters of each device that is configured."""
        for device in data["deviceInfos"]:
            if "localRole" not in device:
                continue
            labels = (str(device["minor"]), device["instance"] or "")
            keys = ("connectionState", "localRole", "remoteRole", "localState", "remoteState")
            yield Sample("ganeti_drbd_state", 1, (*labels, *(device[key] for key in keys)))
            is_connected = device["remoteState"] != "DUnknown" and device["remoteRole"] != "Unknown"
            yield Sample("ganeti_drbd_connected", is_connected, labels)
            up_to_date = device["localState"] == "UpToDate"
            yield Sample("ganeti_drbd_local_up_to_date", up_to_date, labels)
            for key, value in device["perfIndicators"].items():
                if key in _SAMPLES:
                    name, factor = _SAMPLES[key]
                    yield Sample(name, value * factor, labels)
            if "syncStatus" in device:
                ratio = device["syncStatus"]["percentage"] / 100
                yield Sample("ganeti_drbd_sync_progress_ratio", ratio, labels)

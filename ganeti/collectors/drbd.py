"""Collector "drbd": how the DRBD devices of this node are.

Source: mond.json, collector "drbd"; DRBD User's Guide 8.4, "Connection states" and "Disk states".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti.base.metrics import Metric, Sample, metrics_of
from ganeti.collectors import collector
from ganeti.collectors.cluster_facts import NodeInstances
from ganeti.collectors.collector import Collector, Data, NodeView, Timing
from ganeti.collectors.report import FINE, Health, Kind, StatusCode, worst
from ganeti.storage.drbd import drbdsetup
from ganeti.storage.drbd.status import (
    PROC_DRBD,
    UNCONFIGURED,
    Device,
    Status,
    Sync,
    look,
    of_this_node,
)

_KIB: Final = 1024
_TIMEOUT_S: Final = 10.0  # of drbdsetup, which only DRBD 9 needs

_UNITS: Final = {"": "Byte", "K": "KiloByte", "M": "MegaByte", "G": "GigaByte", "T": "TeraByte"}
_COUNTERS: Final = {
    "ns": "networkSend",
    "nr": "networkReceive",
    "dw": "diskWrite",
    "dr": "diskRead",
    "al": "activityLog",
    "bm": "bitMap",
    "lo": "localCount",
    "pe": "pending",
    "ua": "unacknowledged",
    "ap": "applicationPending",
    "ep": "epochs",
    "oos": "outOfSync",
    "wo": "writeOrder",
}

_ALONE: Final = "StandAlone"
_BAD: Final = StatusCode.BAD
_SOON: Final = StatusCode.TEMPORARILY_BAD
_SYNCING: Final = Health(_SOON, "Synchronising")
_VERIFYING: Final = Health(StatusCode.OK, "Verifying")
_CONNECTING: Final = Health(_SOON, "Trying to establish a network connection")
_LOST: Final = Health(_SOON, "The network connection was lost")

# All other states are in order.
_CONNECTIONS: Final[Mapping[str, Health]] = {
    _ALONE: Health(_BAD, "Not connected, and not trying to be"),
    "Disconnecting": Health(_SOON, "Disconnecting"),
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
    "PausedSyncS": Health(_SOON, "Synchronisation is paused"),
    "PausedSyncT": Health(_SOON, "Synchronisation is paused"),
    "VerifyS": _VERIFYING,
    "VerifyT": _VERIFYING,
}
_DISKS: Final[Mapping[str, Health]] = {
    "Diskless": Health(_BAD, "The local disk is gone"),
    "Failed": Health(_BAD, "The local disk has failed"),
    "Inconsistent": Health(_BAD, "The local data is not consistent"),
    "Outdated": Health(_BAD, "The local data is outdated"),
    "DUnknown": Health(StatusCode.UNKNOWN, "The state of the local disk is not known"),
}
_REMOTE_DISKS: Final[Mapping[str, Health]] = {
    "Diskless": Health(_BAD, "The other node's disk is gone"),
    "Failed": Health(_BAD, "The other node's disk has failed"),
    "Inconsistent": Health(_BAD, "The other node's data is not consistent"),
}


def _device(device: Device, owners: Mapping[int, str]) -> dict[str, object]:
    found: dict[str, object] = {"minor": device.minor, "connectionState": device.connection}
    if not device.local_role:
        return found
    found |= {
        "localRole": device.local_role,
        "remoteRole": device.remote_role,
        "localState": device.local_disk,
        "remoteState": device.remote_disk,
        "replicationProtocol": device.protocol,
        "ioFlags": device.flags,
        "perfIndicators": _counters(device.counters),
        "instance": owners.get(device.minor),
    }
    if device.sync is not None:
        found["syncStatus"] = _sync(device.sync)
    return found


def _counters(counters: Mapping[str, int | str]) -> dict[str, object]:
    return {_COUNTERS[key]: value for key, value in counters.items() if key in _COUNTERS}


def _sync(sync: Sync) -> dict[str, object]:
    """Return how far a synchronisation is."""
    found: dict[str, object] = {
        "percentage": sync.percent,
        "progress": sync.progress,
        "progressUnit": _UNITS[sync.progress_unit],
    }
    if sync.left_s is None:  # it stands still
        return found
    minutes, seconds = divmod(sync.left_s, 60)
    hours, minutes = divmod(minutes, 60)
    found["timeToFinish"] = f"{hours:02}:{minutes:02}:{seconds:02}"
    found["speed"] = sync.speed
    if sync.speed_wanted is not None:
        found["want"] = sync.speed_wanted
    found["speedUnit"] = f"{_UNITS[sync.speed_unit]}/Second"
    return found


def status_of_device(device: Mapping[str, Any]) -> Health:
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


def judge(devices: list[dict[str, Any]], partings: Mapping[int, str]) -> Health:
    """Judge all devices together: a line for each one of which there is something to say."""
    judged = [(device["minor"], status_of_device(device)) for device in devices]
    judged = [(minor, _told(status, partings.get(minor))) for minor, status in judged]
    message = "".join(f"\n{minor}: {status.message}" for minor, status in judged if status.message)
    return Health(worst(status for _, status in judged), message)


def _told(status: Health, parting: str | None) -> Health:
    """Name the reason why a device is alone, where it is known."""
    is_known = parting is not None and status is _CONNECTIONS[_ALONE]
    return Health(_BAD, parting or "") if is_known else status


def data_of(
    status: Status,
    owners: Mapping[int, str],
    partings: Mapping[int, str],
    idle: Collection[str] = (),
) -> dict[str, object]:
    """Return the data of a report on all devices.

    Args:
        idle: the instances whose disks are not meant to be active: nobody misses their devices.
    """
    devices = [_device(device, owners) for device in status.devices.values()]
    health = judge(devices, partings)
    wanted = {minor for minor, name in owners.items() if name not in idle}
    missing = sorted(wanted - status.devices.keys())
    if missing:
        names = ", ".join(f"{minor} ({owners[minor]})" for minor in missing)
        told = f"{health.message}\n" if health.message else ""
        health = Health(_BAD, f"{told}These devices are not there: {names}")
    return {"status": health, "versionInfo": status.facts, "deviceInfos": devices}


def _idle(known: NodeInstances | None) -> frozenset[str]:
    """Return the instances of the node whose disks are not meant to be active."""
    everyone = () if known is None else (*known.primary, *known.secondary)
    return frozenset(one.name for one in everyone if not one.disks_active)


def absent(owners: Mapping[int, str], source: str = PROC_DRBD) -> dict[str, object]:
    """Return the data of a report on a node where DRBD is not loaded."""
    status = Health(StatusCode.OK, f"DRBD is not in use: there is no {source}")
    if owners:
        names = ", ".join(sorted(set(owners.values())))
        status = Health(_BAD, f"there is no {source}, but instances have DRBD disks here: {names}")
    return {"status": status, "versionInfo": {}, "deviceInfos": []}


_MINOR: Final = ("minor", "instance")
_ROWS: Final[Mapping[str, tuple[str, float, str]]] = {
    "networkSend": ("drbd_network_sent_bytes_total", _KIB, "Bytes sent to the peer."),
    "networkReceive": ("drbd_network_received_bytes_total", _KIB, "Bytes received from the peer."),
    "diskWrite": ("drbd_disk_written_bytes_total", _KIB, "Bytes written to the local disk."),
    "diskRead": ("drbd_disk_read_bytes_total", _KIB, "Bytes read from the local disk."),
    "pending": ("drbd_pending_requests", 1, "Requests sent to the peer and not answered."),
    "unacknowledged": ("drbd_unacknowledged_requests", 1, "Requests of the peer not yet answered."),
    "outOfSync": ("drbd_out_of_sync_bytes", _KIB, "Bytes that differ between the two nodes."),
}
_MEASURES: Final = collector.Measures(_MINOR, _ROWS)


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
        *metrics_of(
            _MINOR,
            {
                "drbd_connected": "Whether the device is connected to its peer.",
                "drbd_local_up_to_date": "Whether the local data is up to date.",
                "drbd_remote_up_to_date": (
                    "Whether the copy on the other node is up to date; 0 where it is not known."
                ),
                "drbd_sync_progress_ratio": (
                    "How much of a synchronisation is done, while one runs."
                ),
            },
        ),
        *_MEASURES.metrics(),
    )

    def __init__(self, source: str = "") -> None:
        self._source = source or of_this_node(PROC_DRBD)

    def collect(self, view: NodeView) -> object:
        """Return the devices and how they are."""
        owners = view.cluster.drbd_owners or {}

        def ask(argv: Sequence[str]) -> bytes:
            return view.run(argv, timeout_s=_TIMEOUT_S).check().stdout

        status = look(ask, self._source)
        if status is None:
            return absent(owners, self._source)
        is_any_alone = any(device.is_alone for device in status.devices.values())
        log = drbdsetup.kernel_log(view.run) if is_any_alone else ""
        idle = _idle(view.cluster.instances)
        return data_of(status, owners, drbdsetup.partings(log), idle)

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
            for side in ("local", "remote"):
                is_newest = device[f"{side}State"] == "UpToDate"
                yield Sample(f"ganeti_drbd_{side}_up_to_date", is_newest, labels)
            yield from _MEASURES.samples(device["perfIndicators"], labels)
            if "syncStatus" in device:
                ratio = device["syncStatus"]["percentage"] / 100
                yield Sample("ganeti_drbd_sync_progress_ratio", ratio, labels)

"""Collector "drbd": how the DRBD devices of this node are, as /proc/drbd tells.

A device takes several lines there; unknown words in them are passed over, as every version of the
driver adds something:

     3: cs:SyncSource ro:Primary/Secondary ds:UpToDate/Inconsistent A r-----
        ns:373888 nr:0 dw:0 dr:374088 al:0 bm:22 lo:7 pe:27 ua:7 ap:0 ep:1 wo:f oos:15358208
            [>....................] sync'ed:  2.4% (14996/15360)M
            finish: 0:04:08 speed: 61,736 (61,736) K/sec

Source: mond.json, collector "drbd"; DRBD User's Guide 8.3 and 8.4, "/proc/drbd", "Connection
states" and "Disk states".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti.base.errors import GenericError
from ganeti.collectors import collector
from ganeti.collectors.collector import Collector, Data, NodeView, Sample, Timing
from ganeti.collectors.report import FINE, Health, Kind, StatusCode, worst

_KIB: Final = 1024
PROC_DRBD: Final = "/proc/drbd"  # constants.json, DRBD_STATUS_FILE

UNCONFIGURED: Final = "Unconfigured"

_VERSION: Final = re.compile(
    r"version: (?P<version>[^\s(]+)(?: \(api:(?P<api>[^/)]+)(?:/proto:(?P<proto>[^)]+))?\))?"
)
_SRCVERSION: Final = re.compile(r"srcversion: (?P<srcversion>\S+)")
_BUILD: Final = re.compile(r"GIT-hash: (?P<gitHash>\S+)(?: build by (?P<buildBy>.+))?")
_HEAD_LINES: Final = (_VERSION, _SRCVERSION, _BUILD)

_DEVICE: Final = re.compile(r"\s*(?P<minor>\d+): cs:(?P<connection>\S+)(?P<rest>.*)")
# The driver before 8.3 says "st" for "ro".
_STATES: Final = re.compile(
    r"\s+(?:ro|st):(?P<local_role>[^/\s]+)/(?P<remote_role>\S+)"
    r"\s+ds:(?P<local_disk>[^/\s]+)/(?P<remote_disk>\S+)"
    r"(?:\s+(?P<protocol>[ABC])\b)?(?:\s+(?P<flags>[^\s:]+))?"
)
_PAIR: Final = re.compile(r"(\w+):(\S+)")
_SYNC: Final = re.compile(
    r"(?:sync'ed|verified):\s*(?P<percentage>\d+(?:\.\d+)?)%\s*\((?P<progress>\d+/\d+)\)(?P<unit>[KMGT]?)"
)
_FINISH: Final = re.compile(
    r"finish:\s*(?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+)"
    r"\s+speed:\s*(?P<speed>[\d,]+)(?:\s*\([^)]*\))?"
    r"(?:\s+want:\s*(?P<want>[\d,]+))?\s+(?P<unit>[KMG]?)/sec"
)
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
}
_WRITE_ORDER: Final = "wo"

_VERSION_THAT_LISTS_NOTHING: Final = 9

_BAD: Final = StatusCode.BAD
_SOON: Final = StatusCode.TEMPORARILY_BAD
_SYNCING: Final = Health(_SOON, "Synchronising")
_VERIFYING: Final = Health(StatusCode.OK, "Verifying")
_CONNECTING: Final = Health(_SOON, "Trying to establish a network connection")
_LOST: Final = Health(_SOON, "The network connection was lost")

# All other states are in order.
_CONNECTIONS: Final[Mapping[str, Health]] = {
    "StandAlone": Health(_BAD, "Not connected, and not trying to be"),
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


def read_status(text: str, source: str) -> dict[str, Any]:
    """Return the keys versionInfo and deviceInfos of the report.

    Raises:
        GenericError: it does not look like /proc/drbd at all.
    """
    lines = text.splitlines()
    version: dict[str, str] = {}
    for line in lines:
        for pattern in _HEAD_LINES:
            if (match := pattern.match(line)) is not None:
                version |= {key: value for key, value in match.groupdict().items() if value}
    if "version" not in version:
        raise GenericError(f"{source} does not begin with the version of DRBD")
    devices = [_device(match, rest) for match, rest in _devices(lines)]
    return {"versionInfo": version, "deviceInfos": devices}


def _devices(lines: Sequence[str]) -> Iterator[tuple[re.Match[str], list[str]]]:
    """Yield the first line of each device, and the lines that belong to it."""
    starts = [(i, match) for i, line in enumerate(lines) if (match := _DEVICE.match(line))]
    for number, (start, match) in enumerate(starts, 1):
        end = starts[number][0] if number < len(starts) else len(lines)
        yield match, list(lines[start + 1 : end])


def _device(first: re.Match[str], rest: list[str]) -> dict[str, object]:
    minor, connection = int(first["minor"]), first["connection"]
    states = _STATES.match(first["rest"])
    if connection == UNCONFIGURED or states is None:
        return {"minor": minor, "connectionState": connection}
    text = "\n".join(rest)
    device: dict[str, object] = {
        "minor": minor,
        "connectionState": connection,
        "localRole": states["local_role"],
        "remoteRole": states["remote_role"],
        "localState": states["local_disk"],
        "remoteState": states["remote_disk"],
        "replicationProtocol": states["protocol"] or "",
        "ioFlags": states["flags"] or "",
        "perfIndicators": _counters(text),
    }
    sync = _sync(text)
    if sync:
        device["syncStatus"] = sync
    return device


def _counters(text: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in _PAIR.findall(text):
        if key in _COUNTERS and value.isdecimal():
            found.setdefault(_COUNTERS[key], int(value))
        elif key == _WRITE_ORDER:
            found["writeOrder"] = value
    return found


def _sync(text: str) -> dict[str, object]:
    """Return how far a synchronisation is; empty when none is under way."""
    progress, finish = _SYNC.search(text), _FINISH.search(text)
    if progress is None:
        return {}
    found: dict[str, object] = {
        "percentage": float(progress["percentage"]),
        "progress": progress["progress"],
        "progressUnit": _UNITS[progress["unit"]],
    }
    if finish is None:  # it stands still
        return found
    found["timeToFinish"] = f"{int(finish['hours']):02}:{finish['minutes']}:{finish['seconds']}"
    found["speed"] = _number(finish["speed"])
    if finish["want"]:
        found["want"] = _number(finish["want"])
    found["speedUnit"] = f"{_UNITS[finish['unit']]}/Second"
    return found


def _number(text: str) -> int:
    return int(text.replace(",", ""))


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


def judge(devices: list[dict[str, Any]]) -> Health:
    """Judge all devices together: a line for each one of which there is something to say."""
    judged = [(device["minor"], status_of_device(device)) for device in devices]
    message = "".join(f"\n{minor}: {status.message}" for minor, status in judged if status.message)
    return Health(worst(status for _, status in judged), message)


def parse(text: str, source: str, owners: Mapping[int, str]) -> dict[str, object]:
    """Return the data of a report on /proc/drbd.

    Raises:
        GenericError: it does not look like that file.
    """
    found = read_status(text, source)
    for device in found["deviceInfos"]:
        if "localRole" in device:  # it is configured
            device["instance"] = owners.get(device["minor"])
    status = judge(found["deviceInfos"])
    listed = {device["minor"] for device in found["deviceInfos"]}
    missing = sorted(owners.keys() - listed)
    if missing and not status.message:
        status = _missing(found["versionInfo"]["version"], source, missing, owners)
    return {"status": status, **found}


def _missing(version: str, source: str, minors: list[int], owners: Mapping[int, str]) -> Health:
    """Judge a node that is to have devices which are not listed."""
    major = version.partition(".")[0]
    if major.isdecimal() and int(major) >= _VERSION_THAT_LISTS_NOTHING:
        return Health(StatusCode.UNKNOWN, f"DRBD {version} does not list its devices in {source}")
    names = ", ".join(f"{minor} ({owners[minor]})" for minor in minors)
    return Health(_BAD, f"These devices are not there: {names}")


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
        collector.Metric(
            "ganeti_drbd_state",
            "The state of a configured DRBD device, as labels; always 1.",
            (*_MINOR, "connection", "local_role", "remote_role", "local_disk", "remote_disk"),
        ),
        *collector.metrics_of(
            _MINOR,
            {
                "drbd_connected": "Whether the device is connected to its peer.",
                "drbd_local_up_to_date": "Whether the local data is up to date.",
                "drbd_sync_progress_ratio": (
                    "How much of a synchronisation is done, while one runs."
                ),
            },
        ),
        *_MEASURES.metrics(),
    )

    def __init__(self, source: str = PROC_DRBD) -> None:
        self._source = source

    def collect(self, view: NodeView) -> object:
        """Return the devices and how they are."""
        owners = view.cluster.drbd_owners or {}
        if not os.path.exists(self._source):
            return absent(owners, self._source)
        return parse(collector.read_text(self._source), self._source, owners)

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
            yield from _MEASURES.samples(device["perfIndicators"], labels)
            if "syncStatus" in device:
                ratio = device["syncStatus"]["percentage"] / 100
                yield Sample("ganeti_drbd_sync_progress_ratio", ratio, labels)

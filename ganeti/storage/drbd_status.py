"""/proc/drbd as data.  Pure.

A device takes several lines; what is not known in them is passed over, as every version of the
driver adds something:

     3: cs:SyncSource ro:Primary/Secondary ds:UpToDate/Inconsistent A r-----
        ns:373888 nr:0 dw:0 dr:374088 al:0 bm:22 lo:7 pe:27 ua:7 ap:0 ep:1 wo:f oos:15358208
            [>....................] sync'ed:  2.4% (14996/15360)M
            finish: 0:04:08 speed: 61,736 (61,736) K/sec

Source: mond.json, collector "drbd"; DRBD User's Guide 8.3 and 8.4, "/proc/drbd".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ganeti.base.errors import GenericError

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


def parse(text: str, source: str) -> dict[str, object]:
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

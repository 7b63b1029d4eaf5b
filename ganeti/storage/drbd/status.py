"""The DRBD devices of this node, all by one look, whatever the version of the driver.

The driver up to 8.4 tells them in /proc/drbd, where a device takes several lines; unknown lines and
words are passed over, as every version adds something:

     3: cs:SyncSource ro:Primary/Secondary ds:UpToDate/Inconsistent A r-----
        ns:373888 nr:0 dw:0 dr:374088 al:0 bm:22 lo:7 pe:27 ua:7 ap:0 ep:1 wo:f oos:15358208
            [>....................] sync'ed:  2.4% (14996/15360)M
            finish: 0:04:08 speed: 61,736 (61,736) K/sec

From 9 on only the version is there, and ``drbdsetup status --json`` tells the rest.  Its words are
turned into those of 8.4.

Source: DRBD User's Guide 8.3, 8.4 and 9, "/proc/drbd", "Connection states" and "Disk states";
drbdsetup(8), "status".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import pyparsing as pp

from ganeti.base.errors import BlockDeviceError, GenericError, failing_as
from ganeti.system import environment
from ganeti.system.files import read_bytes_or_none

PROC_DRBD: Final = "/proc/drbd"  # constants.json, DRBD_STATUS_FILE
HELPER_FILE: Final = "/sys/module/drbd/parameters/usermode_helper"
STATUS_COMMAND: Final = ("drbdsetup", "status", "--json", "--statistics")
UNCONFIGURED: Final = "Unconfigured"
NOT_LOADED: Final = "DRBD is not loaded on this node: type modprobe drbd usermode_helper=/bin/true"

_BYTES_MAX: Final = 16 << 20
_VERSION_THAT_LISTS_NOTHING: Final = 9

_CONNECTED: Final = "Connected"
_UP_TO_DATE: Final = "UpToDate"
_SYNCING: Final = frozenset(
    {
        *("StartingSyncS", "StartingSyncT", "WFBitMapS", "WFBitMapT", "WFSyncUUID"),
        *("SyncSource", "SyncTarget", "PausedSyncS", "PausedSyncT"),
    }
)
_VERIFYING: Final = frozenset({"VerifyS", "VerifyT"})


@dataclass(frozen=True, slots=True)
class Sync:
    """How far a synchronization is, in the words of the driver; None where it does not tell."""

    percent: float
    progress: str = ""
    progress_unit: str = ""  # "", K, M, G or T
    left_s: int | None = None
    speed: int | None = None
    speed_wanted: int | None = None
    speed_unit: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """One minor; without roles and states when it is not configured.

    Attributes:
        connection: the state of the connection, or of the synchronization over it.
        counters: figures by their names in /proc/drbd.
    """

    minor: int
    connection: str
    local_role: str = ""
    remote_role: str = ""
    local_disk: str = ""
    remote_disk: str = ""
    protocol: str = ""
    flags: str = ""
    counters: Mapping[str, int | str] = field(default_factory=dict)
    sync: Sync | None = None

    @property
    def is_configured(self) -> bool:
        """Whether somebody uses the minor, or did and left it half taken down."""
        return self.connection != UNCONFIGURED

    @property
    def is_primary(self) -> bool:
        """Whether it can be written here."""
        return self.local_role == "Primary"

    @property
    def is_writable_there(self) -> bool:
        """Whether it can be written on the other node, as far as that is reached."""
        return self.remote_role == "Primary"

    @property
    def is_alone(self) -> bool:
        """Whether it is not connected and does not try to be."""
        return self.connection == "StandAlone"

    @property
    def is_connected(self) -> bool:
        """Whether the copy is reached, in sync or not."""
        return self.connection == _CONNECTED or self.connection in _SYNCING | _VERIFYING

    @property
    def is_syncing(self) -> bool:
        """Whether data is on its way, or about to be (as after growth), or held back."""
        disks = {self.local_disk, self.remote_disk}
        is_about_to = self.connection == _CONNECTED and disks == {_UP_TO_DATE, "Inconsistent"}
        return self.connection in _SYNCING or is_about_to

    @property
    def is_diskless(self) -> bool:
        """Whether it works without local storage."""
        return self.local_disk in ("Diskless", "Failed", "Detaching")

    @property
    def is_up_to_date(self) -> bool:
        """Whether the data of this node is the newest."""
        return self.local_disk == _UP_TO_DATE

    @property
    def is_paused_here(self) -> bool:
        """Whether this node holds the synchronization back by request."""
        return self.flags[3:4] == "u"

    @property
    def is_degraded(self) -> bool:
        """Whether there is no second good copy at the moment."""
        whole = self.connection == _CONNECTED or self.connection in _VERIFYING
        return not (whole and self.is_up_to_date and self.remote_disk == _UP_TO_DATE)

    def __str__(self) -> str:
        """Tell the state in a message."""
        if not self.local_role:
            return self.connection
        return (
            f"{self.connection}, roles {self.local_role}/{self.remote_role},"
            f" disks {self.local_disk}/{self.remote_disk}"
        )


@dataclass(frozen=True, slots=True)
class Status:
    """All devices, and the facts of the driver's version: version, api, proto, srcversion, ..."""

    facts: Mapping[str, str]
    devices: Mapping[int, Device]

    @property
    def version(self) -> str:
        """The version of the driver, such as 8.4.11."""
        return self.facts["version"]

    @property
    def release(self) -> tuple[int, int]:
        """The first two numbers of the version."""
        major, minor = (*self.version.split("."), "0")[:2]
        return int(major), int(minor) if minor.isdecimal() else 0

    def used_minors(self) -> list[int]:
        """Return the minors that are not free."""
        return sorted(minor for minor, each in self.devices.items() if each.is_configured)


# Lines of /proc/drbd

_number = pp.Word(pp.nums)
_part = pp.Regex(r"[^/\s]+")  # before a slash
_word = pp.Regex(r"\S+")
_amount = pp.Regex(r"\d[\d,]*")
_VERSION: Final = (
    pp.Suppress("version:")
    + pp.Regex(r"\d[^\s(]*")("version")
    + pp.Opt("(api:" + pp.Regex(r"[^/)]+")("api") + pp.Opt("/proto:" + pp.Regex(r"[^)]+")("proto")))
)
_SOURCE: Final = pp.Suppress("srcversion:") + _word("srcversion")
_BUILD: Final = (
    pp.Suppress("GIT-hash:") + _word("gitHash") + pp.Opt("build by" + pp.rest_of_line("buildBy"))
)
_STATES: Final = (
    pp.one_of("ro: st:")  # the driver before 8.3 says "st" for "ro"
    + (_part("local_role") + "/" + _word("remote_role"))
    + "ds:"
    + (_part("local_disk") + "/" + _word("remote_disk"))
    + pp.Opt(pp.Regex(r"[ABC](?!\S)")("protocol"))
    + pp.Opt(pp.Regex(r"[^\s:]+")("flags"))
)
_DEVICE: Final = _number("minor") + ": cs:" + _word("connection") + pp.Opt(_STATES)
_COUNTERS: Final = pp.OneOrMore(pp.Group(pp.Regex(r"\w+") + pp.Suppress(":") + _word))
_PROGRESS: Final = (
    pp.Suppress(pp.Regex(r"\[[^\]]*\]"))
    + pp.one_of("sync'ed: verified:")
    + (pp.Regex(r"\d+(\.\d+)?")("percent") + "%")
    + ("(" + pp.Regex(r"\d+/\d+")("progress") + ")" + pp.Opt(pp.Regex("[KMGT]"))("progress_unit"))
)
_FINISH: Final = (
    "finish:"
    + (_number("hours") + ":" + _number("minutes") + ":" + _number("seconds"))
    + ("speed:" + _amount("speed") + pp.Opt(pp.Regex(r"\([^)]*\)")))
    + pp.Opt("want:" + _amount("speed_wanted"))
    + (pp.Opt(pp.Regex("[KMG]"))("speed_unit") + "/sec")
)
_HEAD: Final = _VERSION("head") | _SOURCE("head") | _BUILD("head")
_OF_DEVICE: Final = (
    pp.Group(_PROGRESS)("sync") | pp.Group(_FINISH)("finish") | pp.Group(_COUNTERS)("counters")
)


def _read(element: pp.ParserElement, line: str) -> pp.ParseResults | None:
    try:
        return element.parse_string(line)
    except pp.ParseBaseException:
        return None


def parse_proc(text: str, source: str = PROC_DRBD) -> Status:
    """Return what /proc/drbd tells.

    Raises:
        GenericError: it does not look like that file.
    """
    facts: dict[str, str] = {}
    devices: dict[int, Device] = {}
    device: Device | None = None
    for line in filter(None, map(str.strip, text.splitlines())):
        if (found := _read(_DEVICE, line)) is not None:
            device = _device(found.as_dict())
            devices[device.minor] = device
        elif device is not None and (found := _read(_OF_DEVICE, line)) is not None:
            device = devices[device.minor] = _with_line(device, found)
        elif device is None and (found := _read(_HEAD, line)) is not None:
            facts |= {name: str(value).strip() for name, value in found.as_dict().items()}
    if "version" not in facts:
        raise GenericError(f"{source} does not begin with the version of DRBD")
    return Status({name: value for name, value in facts.items() if name != "head"}, devices)


def _device(words: Mapping[str, Any]) -> Device:
    known = words if words["connection"] != UNCONFIGURED else {"connection": UNCONFIGURED}
    return Device(**{**known, "minor": int(words["minor"])})


def _with_line(device: Device, found: pp.ParseResults) -> Device:
    """Add one more line to a device."""
    if not device.local_role:
        return device
    if "sync" in found:
        words = found["sync"].as_dict()
        unit = "".join(words.get("progress_unit", ""))
        sync = Sync(float(words["percent"]), words["progress"], unit)
        return replace(device, sync=sync)
    if "finish" in found:
        return device if device.sync is None else replace(device, sync=_end(device.sync, found))
    counters = {
        name: int(value) if value.isdecimal() else value for name, value in found["counters"]
    }
    return replace(device, counters={**counters, **device.counters})


def _end(sync: Sync, found: pp.ParseResults) -> Sync:
    words = found["finish"].as_dict()
    hours, minutes, seconds = (int(words[name]) for name in ("hours", "minutes", "seconds"))
    wanted = words.get("speed_wanted")
    return replace(
        sync,
        left_s=(hours * 60 + minutes) * 60 + seconds,
        speed=_whole(words["speed"]),
        speed_wanted=None if wanted is None else _whole(wanted),
        speed_unit="".join(words.get("speed_unit", "")),
    )


def _whole(text: str) -> int:
    return int(text.replace(",", ""))


# The answer of drbdsetup of DRBD 9

_KIB: Final = 1024


class _Wire(msgspec.Struct, rename="kebab"):
    pass


class _Volume9(_Wire):
    volume: int
    minor: int
    disk_state: str
    read: int = 0
    written: int = 0
    al_writes: int = 0
    bm_writes: int = 0
    upper_pending: int = 0
    lower_pending: int = 0


class _Copy9(_Wire):
    volume: int
    replication_state: str
    peer_disk_state: str
    resync_suspended: str = "no"
    received: int = 0
    sent: int = 0
    out_of_sync: int = 0
    pending: int = 0
    unacked: int = 0
    percent_in_sync: float | None = None
    estimated_seconds_to_finish: float | None = None
    db_dt_mib_s: float | None = msgspec.field(default=None, name="db/dt [MiB/s]")


class _Connection9(_Wire):
    connection_state: str
    peer_role: str = "Unknown"
    peer_devices: list[_Copy9] = msgspec.field(default_factory=list, name="peer_devices")


class _Resource9(_Wire):
    name: str
    role: str
    write_ordering: str = ""
    devices: list[_Volume9] = []
    connections: list[_Connection9] = []


_WORDS_OF_8: Final = {"Connecting": "WFConnection", "Established": _CONNECTED, "Off": _CONNECTED}


def parse_json(text: bytes) -> dict[int, Device]:
    """Return what ``drbdsetup status --json`` of DRBD 9 tells; of several copies, the first.

    Raises:
        GenericError: it cannot be understood.
    """
    try:
        resources = msgspec.json.decode(text, type=list[_Resource9])
    except msgspec.MsgspecError as err:
        shown = " ".join(STATUS_COMMAND)
        raise GenericError(f"cannot understand the output of {shown}: {err}") from err
    return {
        volume.minor: _device_of_9(resource, volume)
        for resource in resources
        for volume in resource.devices
    }


def _device_of_9(resource: _Resource9, volume: _Volume9) -> Device:
    connection = next(iter(resource.connections), _Connection9("StandAlone"))
    copies = {copy.volume: copy for copy in connection.peer_devices}
    copy = copies.get(volume.volume, _Copy9(volume.volume, "Off", "DUnknown"))
    is_connected = connection.connection_state == _CONNECTED
    state = copy.replication_state if is_connected else connection.connection_state
    of_disk = {"dw": volume.written, "dr": volume.read, "al": volume.al_writes}
    of_disk |= {"bm": volume.bm_writes, "lo": volume.lower_pending, "ap": volume.upper_pending}
    of_link = {"ns": copy.sent, "nr": copy.received, "pe": copy.pending, "ua": copy.unacked}
    order = resource.write_ordering[:1]
    found = Device(
        minor=volume.minor,
        connection=_WORDS_OF_8.get(state, state),
        local_role=resource.role,
        remote_role=connection.peer_role,
        local_disk=volume.disk_state,
        remote_disk=copy.peer_disk_state,
        flags="---u--" if "user" in copy.resync_suspended else "",
        counters={**of_disk, **of_link, "wo": order, "oos": copy.out_of_sync},
    )
    if found.is_syncing and copy.percent_in_sync is not None:
        return replace(found, sync=_sync_of_9(copy, copy.percent_in_sync))
    return found


def _sync_of_9(copy: _Copy9, percent: float) -> Sync:
    left_s = copy.estimated_seconds_to_finish
    speed = copy.db_dt_mib_s
    return Sync(
        percent,
        left_s=None if left_s is None else int(left_s),
        speed=None if speed is None else int(speed * _KIB),
        speed_unit="" if speed is None else "K",
    )


# The look


def of_this_node(path: str) -> str:
    """Return the path of something of the kernel's: for a virtual node, below its root."""
    return environment.current_paths().localize(path)


Ask = Callable[[Sequence[str]], bytes]  # runs a command and returns what it printed


def look(ask: Ask, source: str = PROC_DRBD) -> Status | None:
    """Return the state of all devices; None where DRBD is not loaded.

    Args:
        ask: used for DRBD 9 only.

    Raises:
        GenericError: it cannot be found out.
    """
    with failing_as(GenericError, f"cannot read {source}"):
        text = read_bytes_or_none(source, _BYTES_MAX)
    if text is None:
        return None
    found = parse_proc(text.decode("utf-8", "replace"), source)
    if found.release[0] < _VERSION_THAT_LISTS_NOTHING:
        return found
    return replace(found, devices=parse_json(ask(STATUS_COMMAND)))


def usermode_helper(source: str = "") -> str:
    """Return the program that the driver runs at events.

    Raises:
        BlockDeviceError: DRBD is not loaded.
    """
    source = source or of_this_node(HELPER_FILE)
    with failing_as(BlockDeviceError, f"cannot read {source}"):
        text = read_bytes_or_none(source, os.pathconf("/", "PC_PATH_MAX"))
    if text is None:
        raise BlockDeviceError(NOT_LOADED)
    return text.decode("utf-8", "replace").strip()

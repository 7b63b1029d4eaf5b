"""The metrics of the monitoring daemon: a table of their names, and how reports become samples.

The names are a promise: they are documented (doc/metrics.md is made from this table) and stay.
Everything is in base units, bytes and seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from ganeti.base.json import loads
from ganeti.collectors.diagnose import Action
from ganeti.collectors.instance_status import ActualState
from ganeti.collectors.report import Kind, Report
from ganeti.objects.admin_state import AdminState

_SECTOR_BYTES: Final = 512  # of the kernel's counters, whatever the device has
_KIB: Final = 1024
_MS_PER_S: Final = 1000


class MetricKind(StrEnum):
    """How a metric moves."""

    GAUGE = "gauge"
    COUNTER = "counter"


class Origin(StrEnum):
    """Where a metric comes from, beside the collectors."""

    EVERY_COLLECTOR = "every collector"
    DAEMONS = "the daemons of this node"
    CLUSTER = "the configuration, as RConfD tells it"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; ``origin`` is the name of a collector or one of `Origin`."""

    name: str
    origin: str
    help: str
    labels: tuple[str, ...] = ()
    kind: MetricKind = MetricKind.GAUGE


class Sample(NamedTuple):
    """One value of a metric, with the values of its labels."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


def _metrics(
    origin: str, labels: tuple[str, ...], kind: MetricKind, texts: Mapping[str, str]
) -> Iterator[Metric]:
    for name, text in texts.items():
        yield Metric(f"ganeti_{name}", origin, text, labels, kind)


_GAUGE, _COUNTER = MetricKind.GAUGE, MetricKind.COUNTER
_DEVICE: Final = ("device",)
_MINOR: Final = ("minor", "instance")
_INSTANCE: Final = ("instance", "hypervisor")

_TABLE: Final = (
    *_metrics(
        Origin.EVERY_COLLECTOR,
        ("collector",),
        _GAUGE,
        {
            "collector_active": "Whether the collector is switched on and has its hypervisor here.",
            "collector_success": "Whether it did its work the last time.",
            "collector_last_collection_timestamp_seconds": "When it worked last.",
            "collector_duration_seconds": "How long it took the last time.",
            "collector_status_code": (
                "What a status collector says: 0 fine, 1 repairing itself, 2 unknown, 4 bad."
            ),
        },
    ),
    *_metrics(
        Origin.EVERY_COLLECTOR,
        ("collector",),
        _COUNTER,
        {"collector_errors_total": "How often it could not do its work, since the daemon began."},
    ),
    *_metrics(
        "cpu-avg-load",
        ("cpu",),
        _GAUGE,
        {"cpu_load_ratio": "How busy a processor of the node was, on average over 10 minutes."},
    ),
    *_metrics(
        "xen-cpu-avg-load, kvm-cpu-avg-load",
        _INSTANCE,
        _GAUGE,
        {
            "instance_cpu_load": (
                "How many processors an instance kept busy, on average over 10 minutes."
            )
        },
    ),
    *_metrics(
        "diskstats",
        _DEVICE,
        _COUNTER,
        {
            "disk_reads_completed_total": "Reads completed.",
            "disk_reads_merged_total": "Reads joined to others before they were done.",
            "disk_read_bytes_total": "Bytes read.",
            "disk_read_time_seconds_total": "Time that all reads took together.",
            "disk_writes_completed_total": "Writes completed.",
            "disk_writes_merged_total": "Writes joined to others before they were done.",
            "disk_written_bytes_total": "Bytes written.",
            "disk_write_time_seconds_total": "Time that all writes took together.",
            "disk_io_time_seconds_total": "Time in which the device had something to do.",
            "disk_io_time_weighted_seconds_total": "The same, times what was to be done.",
        },
    ),
    *_metrics(
        "diskstats", _DEVICE, _GAUGE, {"disk_io_now": "Reads and writes that are under way."}
    ),
    Metric(
        "ganeti_drbd_state",
        "drbd",
        "The state of a configured DRBD device, as labels; always 1.",
        (*_MINOR, "connection", "local_role", "remote_role", "local_disk", "remote_disk"),
    ),
    *_metrics(
        "drbd",
        _MINOR,
        _GAUGE,
        {
            "drbd_connected": "Whether the device is connected to its peer.",
            "drbd_local_up_to_date": "Whether the local data is up to date.",
            "drbd_out_of_sync_bytes": "What differs between the two nodes.",
            "drbd_sync_progress_ratio": "How much of a synchronisation is done, while one runs.",
            "drbd_pending_requests": "Requests sent to the peer and not answered.",
            "drbd_unacknowledged_requests": "Requests of the peer not yet answered.",
        },
    ),
    *_metrics(
        "drbd",
        _MINOR,
        _COUNTER,
        {
            "drbd_network_sent_bytes_total": "Bytes sent to the peer.",
            "drbd_network_received_bytes_total": "Bytes received from the peer.",
            "drbd_disk_written_bytes_total": "Bytes written to the local disk.",
            "drbd_disk_read_bytes_total": "Bytes read from the local disk.",
        },
    ),
    *_metrics(
        "inst-status-xen, inst-status-kvm",
        _INSTANCE,
        _GAUGE,
        {
            "instance_up": "Whether an instance whose primary node this is runs.",
            "instance_admin_up": "Whether it is meant to.",
            "instance_status_code": "0 fine, 1 repairing itself, 2 unknown, 4 bad.",
        },
    ),
    *_metrics(
        "lv",
        ("vg", "lv", "instance"),
        _GAUGE,
        {
            "lv_size_bytes": "Size of a logical volume.",
            "lv_segments": "In how many pieces it lies.",
        },
    ),
    Metric(
        "ganeti_node_diagnose",
        "diagnose",
        "1 for what the node's diagnose command says is to be done, 0 for everything else.",
        ("status",),
    ),
    *_metrics(
        Origin.DAEMONS,
        ("daemon",),
        _GAUGE,
        {
            "daemon_up": "Whether a daemon runs that this node is to run.",
            "daemon_start_time_seconds": "When it was started.",
            "daemon_resident_memory_bytes": "Its resident memory.",
            "daemon_open_fds": "How many files and sockets it has open.",
            "daemon_threads": "How many threads it has.",
        },
    ),
    *_metrics(
        Origin.DAEMONS,
        ("daemon",),
        _COUNTER,
        {"daemon_cpu_seconds_total": "Processor time that it has used."},
    ),
    Metric(
        "ganeti_node_info",
        Origin.DAEMONS,
        "The node, its cluster and the version of this daemon, as labels; always 1.",
        ("node", "cluster", "version"),
    ),
    *_metrics(
        Origin.CLUSTER,
        (),
        _GAUGE,
        {
            "confd_success": "Whether RConfD answered the last time it was asked.",
            "confd_last_answer_timestamp_seconds": "When it answered last.",
            "config_serial": "Serial number of the configuration.",
            "cluster_instances": "How many instances the cluster has.",
            "cluster_nodes": "How many nodes it has.",
        },
    ),
    Metric(
        "ganeti_node_instances",
        Origin.CLUSTER,
        "How many instances this node has, as primary or secondary node.",
        ("role",),
    ),
)

METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in _TABLE}

Data = Any  # what a report holds; its form is that of the collector


def _cpu_load(data: Data) -> Iterator[Sample]:
    for number, load in enumerate(data["cpus"]):
        yield Sample("ganeti_cpu_load_ratio", load, (str(number),))


def _instance_load(hypervisor: str) -> Callable[[Data], Iterator[Sample]]:
    def samples(data: Data) -> Iterator[Sample]:
        for name, load in data.items():
            yield Sample("ganeti_instance_cpu_load", load, (name, hypervisor))

    return samples


# key of the report -> (metric, factor)
_DISK_VALUES: Final[Mapping[str, tuple[str, float]]] = {
    "readsNum": ("ganeti_disk_reads_completed_total", 1),
    "mergedReads": ("ganeti_disk_reads_merged_total", 1),
    "secRead": ("ganeti_disk_read_bytes_total", _SECTOR_BYTES),
    "timeRead": ("ganeti_disk_read_time_seconds_total", 1 / _MS_PER_S),
    "writes": ("ganeti_disk_writes_completed_total", 1),
    "mergedWrites": ("ganeti_disk_writes_merged_total", 1),
    "secWritten": ("ganeti_disk_written_bytes_total", _SECTOR_BYTES),
    "timeWrite": ("ganeti_disk_write_time_seconds_total", 1 / _MS_PER_S),
    "ios": ("ganeti_disk_io_now", 1),
    "timeIO": ("ganeti_disk_io_time_seconds_total", 1 / _MS_PER_S),
    "wIOmillis": ("ganeti_disk_io_time_weighted_seconds_total", 1 / _MS_PER_S),
}
_DRBD_VALUES: Final[Mapping[str, tuple[str, float]]] = {
    "networkSend": ("ganeti_drbd_network_sent_bytes_total", _KIB),
    "networkReceive": ("ganeti_drbd_network_received_bytes_total", _KIB),
    "diskWrite": ("ganeti_drbd_disk_written_bytes_total", _KIB),
    "diskRead": ("ganeti_drbd_disk_read_bytes_total", _KIB),
    "pending": ("ganeti_drbd_pending_requests", 1),
    "unacknowledged": ("ganeti_drbd_unacknowledged_requests", 1),
    "outOfSync": ("ganeti_drbd_out_of_sync_bytes", _KIB),
}


def _diskstats(data: Data) -> Iterator[Sample]:
    for device in data:
        for key, (name, factor) in _DISK_VALUES.items():
            yield Sample(name, device[key] * factor, (device["name"],))


def _drbd(data: Data) -> Iterator[Sample]:
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
            if key in _DRBD_VALUES:
                name, factor = _DRBD_VALUES[key]
                yield Sample(name, value * factor, labels)
        if "syncStatus" in device:
            ratio = device["syncStatus"]["percentage"] / 100
            yield Sample("ganeti_drbd_sync_progress_ratio", ratio, labels)


_RUNNING: Final = frozenset({ActualState.RUNNING, ActualState.BLOCKED, ActualState.PAUSED})


def _instances(hypervisor: str) -> Callable[[Data], Iterator[Sample]]:
    def samples(data: Data) -> Iterator[Sample]:
        for one in data["instances"]:
            labels = (one["name"], hypervisor)
            yield Sample("ganeti_instance_up", one["actualState"] in _RUNNING, labels)
            yield Sample("ganeti_instance_admin_up", one["adminState"] == AdminState.UP, labels)
            yield Sample("ganeti_instance_status_code", one["status"].code, labels)

    return samples


def _lv(data: Data) -> Iterator[Sample]:
    by_uuid = {row["uuid"]: row for row in data}  # the rows are segments
    for row in by_uuid.values():
        labels = (row["vg_name"], row["name"], row["instance"] or "")
        yield Sample("ganeti_lv_size_bytes", row["size"], labels)
        yield Sample("ganeti_lv_segments", row["seg_count"], labels)


def _diagnose(data: Data) -> Iterator[Sample]:
    if "msg" not in data:
        return
    found: Any = loads(data["msg"])
    for action in Action:
        yield Sample("ganeti_node_diagnose", found["status"] == action, (str(action),))


_FROM_REPORTS: Final[Mapping[str, Callable[[Data], Iterator[Sample]]]] = {
    "cpu-avg-load": _cpu_load,
    "xen-cpu-avg-load": _instance_load("xen"),
    "kvm-cpu-avg-load": _instance_load("kvm"),
    "diskstats": _diskstats,
    "drbd": _drbd,
    "inst-status-xen": _instances("xen"),
    "inst-status-kvm": _instances("kvm"),
    "lv": _lv,
    "diagnose": _diagnose,
}


def samples_of(report: Report) -> Iterator[Sample]:
    """Yield what a report says as values of metrics."""
    if report.kind is Kind.STATUS and "status" in report.data:
        yield Sample("ganeti_collector_status_code", report.data["status"].code, (report.name,))
    yield from _FROM_REPORTS[report.name](report.data)


def document() -> str:
    """Return the page for people, in Markdown."""
    lines = [
        "# Metrics",
        "",
        "`ganeti-mond` serves them at `http://NODE:1815/metrics` in the text format of Prometheus.",
        "The names stay as they are; new ones may be added.  Whatever there is none of has no",
        "samples: a node without DRBD has no `ganeti_drbd_*`.  This page is made from the table in",
        "`ganeti/collectors/metrics.py` (`make docs`).",
    ]
    for origin in dict.fromkeys(metric.origin for metric in _TABLE):
        lines += ["", f"## From {origin}", "", "| metric | kind | labels | what it is |"]
        lines.append("|---|---|---|---|")
        lines += [_row(metric) for metric in _TABLE if metric.origin == origin]
    return "\n".join(lines) + "\n"


def _row(metric: Metric) -> str:
    labels: Sequence[str] = [f"`{label}`" for label in metric.labels]
    return f"| `{metric.name}` | {metric.kind} | {', '.join(labels)} | {metric.help} |"

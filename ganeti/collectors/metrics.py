"""All metrics of the monitoring daemon, and how reports become samples.

The metrics of a collector stand in its own file, those that other daemons tell of themselves in
`ganeti.base.metrics`; here are those of the monitoring daemon itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ganeti.base.metrics import OF_DAEMONS, Metric, MetricKind, Sample, metrics_of
from ganeti.collectors.registry import COLLECTORS
from ganeti.collectors.report import Kind, Report

_OF_COLLECTORS: Final = metrics_of(
    ("collector",),
    {
        "collector_active": "Whether the collector is switched on and has its hypervisor here.",
        "collector_success": "Whether it did its work the last time.",
        "collector_last_collection_timestamp_seconds": "When it worked last.",
        "collector_duration_seconds": "How long it took the last time.",
        "collector_status_code": (
            "Status of a status collector: 0 fine, 1 repairing itself, 2 unknown, 4 bad."
        ),
        "collector_errors_total": "How often it could not do its work, since the daemon began.",
    },
)
_OF_DAEMONS: Final = (
    *metrics_of(
        ("daemon",),
        {
            "daemon_up": "Whether a daemon runs that this node is to run.",
            "daemon_answers": "Whether a daemon of the master told its metrics in time.",
            "daemon_start_time_seconds": "When it was started.",
            "daemon_resident_memory_bytes": "Its resident memory.",
            "daemon_open_fds": "How many files and sockets it has open.",
            "daemon_threads": "How many threads it has.",
            "daemon_cpu_seconds_total": "Processor time that it has used.",
        },
    ),
    Metric(
        "ganeti_node_info",
        "The node, its cluster and the version of this daemon, as labels; always 1.",
        ("node", "cluster", "version"),
    ),
)
_OF_CLUSTER: Final = (
    *metrics_of(
        (),
        {
            "confd_success": "Whether RConfD answered the last time it was asked.",
            "confd_last_answer_timestamp_seconds": "When it answered last.",
            "config_serial": "Serial number of the configuration.",
            "cluster_instances": "How many instances the cluster has.",
            "cluster_nodes": "How many nodes it has.",
        },
    ),
    *metrics_of(
        ("role",),
        {"node_instances": "How many instances this node has, as primary or secondary node."},
    ),
)


def _by_origin() -> dict[str, tuple[Metric, ...]]:
    """Return all metrics; one that several collectors have stands under all their names."""
    names: dict[tuple[Metric, ...], list[str]] = {}
    for name, collector in COLLECTORS.items():
        names.setdefault(collector.metrics, []).append(name)
    return {
        "every collector": _OF_COLLECTORS,
        **{", ".join(several): metrics for metrics, several in names.items() if metrics},
        "the daemons of this node": _OF_DAEMONS,
        "the configuration, as RConfD tells it": _OF_CLUSTER,
    }


METRICS: Final[Mapping[str, Metric]] = {
    metric.name: metric for metrics in _by_origin().values() for metric in metrics
}


def served_names() -> dict[str, tuple[str, ...]]:
    """Return {name: labels} of all that Prometheus finds, three names for each histogram."""
    told = [*METRICS.values(), *(metric for each in OF_DAEMONS.values() for metric in each)]
    names: dict[str, tuple[str, ...]] = {}
    for metric in told:
        if metric.kind is MetricKind.HISTOGRAM:
            names[f"{metric.name}_bucket"] = (*metric.labels, "le")
            names |= dict.fromkeys((f"{metric.name}_sum", f"{metric.name}_count"), metric.labels)
        else:
            names[metric.name] = metric.labels
    return names


def samples_of(report: Report) -> Iterator[Sample]:
    """Yield the values of a report as samples of metrics."""
    if report.kind is Kind.STATUS and "status" in report.data:
        yield Sample("ganeti_collector_status_code", report.data["status"].code, (report.name,))
    yield from COLLECTORS[report.name].samples(report.data)


def document() -> str:
    """Return the page for people, in Markdown."""
    lines = [
        "# Metrics",
        "",
        "`ganeti-mond` serves them at `http://NODE:1815/metrics` in the text format of Prometheus.",
        "The names stay as they are; new ones may be added.  Things that a node does not have have",
        "no samples: a node without DRBD has no `ganeti_drbd_*`.  This page comes from the tables",
        "in `ganeti/collectors` (`make docs`).",
        "",
        "LuxiD and WConfD have no port: MonD of the master node asks them, and serves what they",
        "count.  `ganeti-noded` counts its calls at its own `/metrics` (with the certificate of a",
        "master candidate), `ganeti-rapi` its requests (with the right read or write).  A",
        "histogram is served as `NAME_bucket`, `NAME_sum` and `NAME_count`.",
        "",
        "`ganeti-maintd` serves at `http://MASTER:1816/metrics`, where MASTER is the address on",
        "the master's network device: `ganeti_maintd_on` (1 while maintenance is switched on),",
        "`ganeti_maintd_nodes_unknown` (nodes whose health is not known),",
        "`ganeti_maintd_round_jobs` (jobs of the last round), `ganeti_maintd_incidents` (by",
        "`status`), `ganeti_maintd_rounds_total`, and while",
        "[high availability](high-availability.md) is on, the `ganeti_ha_*` of that page.",
        "",
        "Rules for alerts, targets for Prometheus and a board for Grafana are in",
        "`doc/examples/monitoring`.",
    ]
    for origin, metrics in (_by_origin() | dict(OF_DAEMONS)).items():
        lines += ["", f"## From {origin}", "", "| metric | kind | labels | meaning |"]
        lines.append("|---|---|---|---|")
        lines += [_row(metric) for metric in metrics]
    return "\n".join(lines) + "\n"


def _row(metric: Metric) -> str:
    labels: Sequence[str] = [f"`{label}`" for label in metric.labels]
    return f"| `{metric.name}` | {metric.kind} | {', '.join(labels)} | {metric.help} |"

"""Metrics: how one is described, and those that daemons count of themselves.

The names are a promise: they are documented (doc/metrics.md is made from such tables) and stay.
Everything is in base units, bytes and seconds.  The values of labels come from tables, so they are
few: no metric of a daemon is told by instance, node or job.

Source: prometheus.io, "Metric and label naming" and "Metric types".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple


class MetricKind(StrEnum):
    """How a metric moves."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        bounds: of a histogram: the upper ends of its buckets, in order, the infinite one left out.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: MetricKind = MetricKind.GAUGE
    bounds: tuple[float, ...] = ()


class Sample(NamedTuple):
    """One value of a metric, with the values of its labels."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


def metrics_of(labels: tuple[str, ...], texts: Mapping[str, str]) -> tuple[Metric, ...]:
    """Return metrics from {name without its first word: help}; those named ``_total`` only grow."""
    return tuple(_metric(name, text, *labels) for name, text in texts.items())


def _metric(name: str, text: str, *labels: str) -> Metric:
    kind = MetricKind.COUNTER if name.endswith("_total") else MetricKind.GAUGE
    return Metric(f"ganeti_{name}", text, labels, kind)


def _histogram(name: str, text: str, bounds: tuple[float, ...], *labels: str) -> Metric:
    return Metric(f"ganeti_{name}", text, labels, MetricKind.HISTOGRAM, bounds)


_SHORT_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)
_CALL_S: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 600.0)
_LONG_S: Final = (0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)

OTHER: Final = "other"  # the value of a label that is in no table

LUXID_JOBS: Final = _metric(
    "luxid_jobs", "Jobs in the queue, by the status that is shown; not those archived.", "status"
)
LUXID_DRAINED: Final = _metric("luxid_queue_drained", "Whether the queue takes no new jobs.")
LUXID_JOBS_ENDED: Final = _metric(
    "luxid_jobs_ended_total",
    "Jobs that have ended; opcode is the first one of each.",
    *("status", "opcode"),
)
LUXID_SUBMIT_S: Final = _histogram(
    "luxid_submit_seconds", "From the submission of jobs until all are durable.", _SHORT_S
)
LUXID_JOBS_SUBMITTED: Final = _metric("luxid_jobs_submitted_total", "Jobs taken into the queue.")
LUXID_WAIT_S: Final = _histogram(
    "luxid_job_wait_seconds", "From the submission of a job to its start in a process.", _LONG_S
)
LUXID_RUN_S: Final = _histogram(
    "luxid_job_run_seconds", "From the start of a job to its end, waits for locks too.", _LONG_S
)
LUXID_CALLS: Final = _metric("luxid_calls_total", "Calls of clients.", "call")

WCONFD_CONFIG_BYTES: Final = _metric("wconfd_config_bytes", "Size of the configuration.")
WCONFD_CHANGES: Final = _metric(
    "wconfd_changes_total", "Changes of the configuration; several may share one write."
)
WCONFD_WRITE_S: Final = _histogram(
    "wconfd_write_seconds",
    "Time of a write of the configuration until it is safe on the disk.",
    _SHORT_S,
    "file",
)
WCONFD_WRITTEN_BYTES: Final = _metric("wconfd_written_bytes_total", "Bytes written.", "file")
WCONFD_WRITE_FAILURES: Final = _metric(
    "wconfd_write_failures_total", "Writes of the configuration that failed.", "file"
)
WCONFD_REPLICATION_S: Final = _histogram(
    "wconfd_replication_seconds",
    "From a change on the disk of the master until another candidate that answers has it.",
    _SHORT_S,
)
WCONFD_BEHIND: Final = _metric(
    "wconfd_candidates_behind",
    "Other master candidates, those offline left out, without the newest configuration.",
)
WCONFD_LOCKS_HELD: Final = _metric("wconfd_locks_held", "Locks that are held.", "mode")
WCONFD_LOCK_OWNERS: Final = _metric("wconfd_lock_owners", "Jobs and others that hold locks.")
WCONFD_LOCK_WAITERS: Final = _metric("wconfd_lock_waiters", "Requests that wait for locks.")
WCONFD_LOCK_WAIT_S: Final = _histogram(
    "wconfd_lock_wait_seconds",
    "Time of a request for locks, those included that are granted at once.",
    _LONG_S,
    "outcome",
)
WCONFD_CALLS: Final = _metric("wconfd_calls_total", "Calls of clients.", "call")

NODED_CALLS: Final = _metric("noded_calls_total", "Calls of the master.", "call", "outcome")
NODED_CALLS_SECONDS: Final = _metric(
    "noded_calls_seconds_total", "Calls of the master: their time.", "call", "outcome"
)
NODED_CALL_S: Final = _histogram(
    "noded_call_seconds", "Time of a call of the master.", _CALL_S, "call"
)
NODED_RUNNING: Final = _metric("noded_calls_running", "Calls that are being carried out.")
RAPI_REQUESTS: Final = _metric(
    "rapi_requests_total", "Requests.", *("method", "resource", "status")
)
RAPI_REQUESTS_SECONDS: Final = _metric(
    "rapi_requests_seconds_total", "Requests: their time.", *("method", "resource", "status")
)
RAPI_REQUEST_S: Final = _histogram("rapi_request_seconds", "Time of a request.", _SHORT_S, "method")

OF_DAEMONS: Final[Mapping[str, tuple[Metric, ...]]] = {
    "LuxiD, by MonD of the master node": (
        LUXID_JOBS,
        LUXID_DRAINED,
        LUXID_JOBS_SUBMITTED,
        LUXID_JOBS_ENDED,
        LUXID_SUBMIT_S,
        LUXID_WAIT_S,
        LUXID_RUN_S,
        LUXID_CALLS,
    ),
    "WConfD, by MonD of the master node": (
        WCONFD_CONFIG_BYTES,
        WCONFD_CHANGES,
        WCONFD_WRITE_S,
        WCONFD_WRITTEN_BYTES,
        WCONFD_WRITE_FAILURES,
        WCONFD_REPLICATION_S,
        WCONFD_BEHIND,
        WCONFD_LOCKS_HELD,
        WCONFD_LOCK_OWNERS,
        WCONFD_LOCK_WAITERS,
        WCONFD_LOCK_WAIT_S,
        WCONFD_CALLS,
    ),
    "NodeD, at its own address": (NODED_CALLS, NODED_CALLS_SECONDS, NODED_CALL_S, NODED_RUNNING),
    "RapiD, at its own address": (RAPI_REQUESTS, RAPI_REQUESTS_SECONDS, RAPI_REQUEST_S),
}
"""The metrics that daemons tell of themselves."""

"""The page of metrics: the values of this node and its daemons, and the text format of Prometheus.

The one module that knows Prometheus's client library.

Source: `ganeti.base.daemons`; proc(5); prometheus.io, "Exposition formats".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ganeti.base.daemons import Place
from ganeti.base.errors import ConfigurationError, GenericError
from ganeti.base.paths import Paths
from ganeti.base.versions import RELEASE_VERSION
from ganeti.collectors.collector import Metric, MetricKind, Sample
from ganeti.store import ssconf
from ganeti.system import daemon_control, process_facts
from ganeti.system.process_facts import ProcessFacts

logger = logging.getLogger(__name__)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_FAMILIES: Final = {MetricKind.GAUGE: GaugeMetricFamily, MetricKind.COUNTER: CounterMetricFamily}


@dataclass(frozen=True, slots=True)
class DaemonHealth:
    """One daemon that this node is to run; ``facts`` is None when it does not."""

    name: str
    facts: ProcessFacts | None
    open_files: int | None


def look(paths: Paths, hostname: str) -> list[DaemonHealth]:
    """Look at every daemon that this node is to run."""
    is_master = _value(paths, "master_node") == hostname
    places = frozenset(Place) if is_master else frozenset({Place.NODE})
    try:
        names = [daemon.name for daemon in daemon_control.wanted(paths, places)]
    except GenericError as err:
        logger.warning("Cannot tell which daemons are to run: %s; ignoring", err.message)
        return []
    return [_look_at(paths, name) for name in names]


def _look_at(paths: Paths, name: str) -> DaemonHealth:
    pid = daemon_control.running_pid(paths, name)
    if pid is None:
        return DaemonHealth(name, None, None)
    return DaemonHealth(name, process_facts.read(pid), process_facts.open_files(pid))


def samples_of(daemon: DaemonHealth) -> Iterator[Sample]:
    """Yield the samples of a daemon."""
    labels = (daemon.name,)
    yield Sample("ganeti_daemon_up", daemon.facts is not None, labels)
    if daemon.facts is None:
        return
    facts = daemon.facts
    yield Sample("ganeti_daemon_start_time_seconds", facts.started_s, labels)
    yield Sample("ganeti_daemon_resident_memory_bytes", facts.resident_bytes, labels)
    yield Sample("ganeti_daemon_threads", facts.threads, labels)
    yield Sample("ganeti_daemon_cpu_seconds_total", facts.cpu_s, labels)
    if daemon.open_files is not None:
        yield Sample("ganeti_daemon_open_fds", daemon.open_files, labels)


def node_samples(paths: Paths, hostname: str) -> Iterator[Sample]:
    """Yield the samples that come from the node's own files."""
    cluster = _value(paths, "cluster_name") or ""
    yield Sample("ganeti_node_info", 1, (hostname, cluster, RELEASE_VERSION))
    for metric, key in (
        ("ganeti_cluster_instances", "instance_list"),
        ("ganeti_cluster_nodes", "node_list"),
    ):
        value = _value(paths, key)
        if value is not None:
            yield Sample(metric, len(value.split()))


def _value(paths: Paths, key: str) -> str | None:
    """Return a value of the simple configuration; None if it cannot be had."""
    try:
        return ssconf.read_key_or_none(paths, key)
    except ConfigurationError as err:
        logger.warning("Cannot read %s: %s; ignoring", key, err.message)
        return None


class _Samples(Collector):
    """Hands samples that are there already to the library."""

    def __init__(self, metrics: Mapping[str, Metric], samples: Iterable[Sample]) -> None:
        self._metrics = metrics
        self._samples = samples

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield a family for each metric that has samples."""
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for sample in self._samples:
            family = families.get(sample.name)
            if family is None:
                metric = self._metrics[sample.name]
                family = _FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels)
                families[sample.name] = family
            family.add_metric(sample.labels, float(sample.value))
        yield from families.values()


def encode(metrics: Mapping[str, Metric], samples: Iterable[Sample]) -> bytes:
    """Return the text; every sample is of a metric in the table."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(metrics, samples))
    return generate_latest(registry)

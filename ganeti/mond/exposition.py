"""Samples in the text format of Prometheus.  The one module that knows its client library.

Source: prometheus.io, "Exposition formats".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ganeti.collectors.metrics import Metric, MetricKind, Sample

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_FAMILIES: Final = {
    MetricKind.GAUGE: GaugeMetricFamily,
    MetricKind.COUNTER: CounterMetricFamily,
}


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

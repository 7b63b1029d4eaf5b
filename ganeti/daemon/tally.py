"""What a daemon counts, as text for Prometheus; to count is a few look-ups and an addition.

Source: prometheus.io, "Exposition formats".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from ganeti.base.metrics import Metric
from ganeti.transport.http_message import HttpResponse

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[str, ...]


class Counter:
    """A number that only grows, for each combination of labels that there was."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._values: dict[Labels, float] = {} if metric.labels else {(): 0}

    def add(self, labels: Labels = (), amount: float = 1) -> None:
        """Count."""
        assert len(labels) == len(self._metric.labels), labels
        self._values[labels] = self._values.get(labels, 0) + amount

    def lines(self) -> Iterator[str]:
        """Yield the lines of the page."""
        return written(self._metric, self._values)


class Histogram:
    """How often a value lay between two bounds, and the sum of all values."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._buckets: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        if not metric.labels:
            self._begin(())

    def add(self, value: float, labels: Labels = ()) -> None:
        """Count a value."""
        assert len(labels) == len(self._metric.labels), labels
        buckets = self._buckets.get(labels) or self._begin(labels)
        buckets[bisect_left(self._metric.bounds, value)] += 1
        self._sums[labels] += value

    def _begin(self, labels: Labels) -> list[int]:
        self._sums[labels] = 0
        found = self._buckets[labels] = [0] * (len(self._metric.bounds) + 1)
        return found

    def lines(self) -> Iterator[str]:
        """Yield the lines of the page."""
        metric, ends = self._metric, [f"{bound:g}" for bound in self._metric.bounds]
        yield from _head(metric)
        for labels, buckets in sorted(self._buckets.items()):
            count = 0
            for end, inside in zip([*ends, "+Inf"], buckets, strict=True):
                count += inside
                words = _words((*metric.labels, "le"), (*labels, end))
                yield f"{metric.name}_bucket{words} {count}"
            words = _words(metric.labels, labels)
            yield f"{metric.name}_sum{words} {self._sums[labels]:.15g}"
            yield f"{metric.name}_count{words} {count}"


def written(metric: Metric, values: Mapping[Labels, float]) -> Iterator[str]:
    """Yield the lines of a metric that has a number for each combination of labels."""
    yield from _head(metric)
    for labels, value in sorted(values.items()):
        yield f"{metric.name}{_words(metric.labels, labels)} {value:.15g}"


def page(lines: Iterable[str]) -> str:
    """Return the text of some metrics."""
    return "".join(f"{line}\n" for line in lines)


def _head(metric: Metric) -> tuple[str, str]:
    return f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"


def _words(names: Labels, values: Labels) -> str:
    pairs = [f'{name}="{value}"' for name, value in zip(names, values, strict=True)]
    return f"{{{','.join(pairs)}}}" if pairs else ""


class Tally:
    """Requests by their labels, whose values come from tables of the daemon and are few.

    Args:
        seconds: the sum of their times.
        times: how their times are spread; by the first of the labels.
    """

    def __init__(self, count: Metric, seconds: Metric, times: Metric) -> None:
        self._count = Counter(count)
        self._seconds = Counter(seconds)
        self._times = Histogram(times)
        self._shown = len(times.labels)

    def add(self, values: Labels, seconds: float) -> None:
        """Count one request."""
        self._count.add(values)
        self._seconds.add(values, seconds)
        self._times.add(seconds, values[: self._shown])

    def answer(self, gauges: Mapping[Metric, float] = MappingProxyType({})) -> HttpResponse:
        """Return the page, with some numbers as they are now."""
        lines = [*self._count.lines(), *self._seconds.lines(), *self._times.lines()]
        for metric, value in gauges.items():
            lines += written(metric, {(): value})
        return HttpResponse(body=page(lines).encode(), content_type=CONTENT_TYPE)

"""What a daemon counts, as Prometheus reads it."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ganeti.base.metrics import Metric, MetricKind
from ganeti.daemon.tally import CONTENT_TYPE, Counter, Histogram, Tally, page


def test_prometheus_reads_the_counts() -> None:
    tally = Tally("ganeti_x_calls", "Calls", ("call", "outcome"))
    for seconds in (0.5, 0.25):
        tally.add(("version", "done"), seconds)
    tally.add(("version", "failed"), 2)
    answer = tally.answer({"ganeti_x_running": ("Calls under way.", 3)})
    assert answer.content_type == CONTENT_TYPE
    found = {
        (sample.name, sample.labels.get("outcome")): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }
    assert found == {
        ("ganeti_x_calls_total", "done"): 2,
        ("ganeti_x_calls_total", "failed"): 1,
        ("ganeti_x_calls_seconds_total", "done"): 0.75,
        ("ganeti_x_calls_seconds_total", "failed"): 2,
        ("ganeti_x_running", None): 3,
    }


def test_a_histogram_is_read_with_its_buckets_added_up() -> None:
    metric = Metric("ganeti_x_seconds", "Time.", ("kind",), MetricKind.HISTOGRAM, (0.1, 2.5))
    histogram = Histogram(metric)
    for value in (0.05, 0.1, 0.2, 7.0):
        histogram.add(value, ("a",))
    [family] = text_string_to_metric_families(page(histogram.lines()))
    assert family.type == "histogram"
    assert [(sample.labels.get("le"), sample.value) for sample in family.samples] == [
        ("0.1", 2),  # a bound belongs to its bucket
        ("2.5", 3),
        ("+Inf", 4),
        (None, pytest.approx(7.35)),
        (None, 4),
    ]
    assert {sample.labels["kind"] for sample in family.samples} == {"a"}


def test_what_has_no_labels_begins_at_zero() -> None:
    counter = Counter(Metric("ganeti_x_total", "Xs.", kind=MetricKind.COUNTER))
    histogram = Histogram(Metric("ganeti_x_size", "Sizes.", (), MetricKind.HISTOGRAM, (1.0,)))
    assert list(counter.lines())[-1] == "ganeti_x_total 0"
    assert list(histogram.lines())[-1] == "ganeti_x_size_count 0"
    counter.add(amount=3)
    assert list(counter.lines())[-1] == "ganeti_x_total 3"

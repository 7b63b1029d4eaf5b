"""What a daemon counts, as Prometheus reads it."""

from __future__ import annotations

import pytest
from fakes.metric_page import values_on
from prometheus_client.parser import text_string_to_metric_families

from ganeti.base.metrics import Metric, MetricKind
from ganeti.daemon.tally import CONTENT_TYPE, Counter, Histogram, Tally, page


def test_prometheus_reads_the_counts() -> None:
    labels, counter = ("call", "outcome"), MetricKind.COUNTER
    tally = Tally(
        Metric("ganeti_x_calls_total", "Calls.", labels, counter),
        Metric("ganeti_x_calls_seconds_total", "Their time.", labels, counter),
        Metric("ganeti_x_call_seconds", "Of one.", ("call",), MetricKind.HISTOGRAM, (0.5,)),
    )
    for seconds in (0.5, 0.25):
        tally.add(("version", "done"), seconds)
    tally.add(("version", "failed"), 2)
    answer = tally.answer({Metric("ganeti_x_running", "Calls under way."): 3})
    assert answer.content_type == CONTENT_TYPE
    assert values_on(answer.body.decode()) == {
        ("ganeti_x_calls_total", "version", "done"): 2,
        ("ganeti_x_calls_total", "version", "failed"): 1,
        ("ganeti_x_calls_seconds_total", "version", "done"): 0.75,
        ("ganeti_x_calls_seconds_total", "version", "failed"): 2,
        ("ganeti_x_call_seconds_bucket", "version", "0.5"): 2,
        ("ganeti_x_call_seconds_bucket", "version", "+Inf"): 3,
        ("ganeti_x_call_seconds_sum", "version"): 2.75,
        ("ganeti_x_call_seconds_count", "version"): 3,
        ("ganeti_x_running",): 3,
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

"""Requests that a daemon counts, as Prometheus reads them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from ganeti.daemon.tally import CONTENT_TYPE, Tally


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

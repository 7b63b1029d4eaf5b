"""Reads a page of metrics as Prometheus does."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


def values_on(page: str) -> dict[tuple[str, ...], float]:
    """Return {(name, value of each label): number}."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }

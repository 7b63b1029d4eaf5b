"""The examples for Prometheus and Grafana ask for metrics that there are."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from ganeti.collectors.metrics import served_names
from ganeti.maintd import availability, service

EXAMPLES = Path(__file__).resolve().parents[3] / "doc/examples/monitoring"


def expressions() -> Iterator[str]:
    for group in yaml.safe_load((EXAMPLES / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"]
            yield rule["expr"]
    for panel in json.loads((EXAMPLES / "grafana-board.json").read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def test_every_metric_of_an_example_exists() -> None:
    found, served = list(expressions()), served_names()
    assert len(found) > 20
    for expression in found:
        names = re.findall(r"ganeti_[a-z_]+", expression)
        assert names or expression.startswith("up{"), expression
        assert set(names) <= served.keys(), expression
        for name, label in re.findall(r"(ganeti_[a-z_]+)\{(\w+)", expression):
            assert label in served[name], expression


def test_what_the_maintenance_daemon_serves_is_on_a_page() -> None:
    sources = {
        "maintd": (service, EXAMPLES.parents[1] / "metrics.md"),
        "ha": (availability, EXAMPLES.parents[1] / "high-availability.md"),
    }
    for prefix, (module, page) in sources.items():
        source = inspect.getsource(module)
        names = set(re.findall(r'_gauge\(\s*"(\w+)"', source))
        names |= set(re.findall(rf"TYPE ganeti_{prefix}_(\w+)", source))
        assert len(names) > 4
        text = page.read_text()
        assert [name for name in sorted(names) if f"`ganeti_{prefix}_{name}" not in text] == []


def test_the_loss_of_a_node_is_an_alert() -> None:
    jobs = yaml.safe_load((EXAMPLES / "prometheus.yaml").read_text())["scrape_configs"]
    watched = re.findall(r'up{job="([a-z-]+)"} == 0', " ".join(expressions()))
    assert watched == ["ganeti-mond"]
    assert set(watched) <= {job["job_name"] for job in jobs}


def test_targets_name_the_ports_of_the_daemons() -> None:
    jobs = yaml.safe_load((EXAMPLES / "prometheus.yaml").read_text())["scrape_configs"]
    ports = {
        job["job_name"]: {each.rpartition(":")[2] for each in job["static_configs"][0]["targets"]}
        for job in jobs
    }
    assert ports == {"ganeti-mond": {"1815"}, "ganeti-rapi": {"5080"}, "ganeti-noded": {"1811"}}

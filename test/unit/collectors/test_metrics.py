"""Tests of ganeti/collectors/metrics.py and registry.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from ganeti.collectors import diskstats, drbd, lv, metrics
from ganeti.collectors.metrics import METRICS, samples_of
from ganeti.collectors.registry import COLLECTORS
from ganeti.collectors.report import FINE, Health, Kind, StatusCode
from ganeti.objects.model import DATA_COLLECTORS
from ganeti.storage.drbd.status import parse_proc

DRBD = """\
version: 8.4.11 (api:1/proto:86-101)
 0: cs:SyncSource ro:Primary/Secondary ds:UpToDate/Inconsistent A r-----
    ns:4 nr:0 dw:0 dr:8 al:0 bm:22 lo:7 pe:27 ua:7 ap:0 ep:1 wo:f oos:2
\t[>....................] sync'ed: 25.0% (14996/15360)M
 1: cs:Unconfigured
"""
LV = dict(
    zip(
        lv.COMMAND[-1].removeprefix("--options=").split(","),
        [
            "u",
            "v",
            "a",
            "-1",
            "-1",
            "253",
            "0",
            "1024",
            "2",
            "",
            "",
            "g",
            "xenvg",
            "linear",
            "0",
            "0",
            "1024",
            "",
            "p",
            "d",
        ],
        strict=True,
    )
)
INSTANCE = {
    "name": "i1",
    "actualState": "running",
    "adminState": "down",
    "status": Health(StatusCode.BAD, "x"),
}
# What each collector may find.
DATA: Mapping[str, Any] = {
    "cpu-avg-load": {"cpu_number": 2, "cpus": [0.25, 0.5], "cpu_total": 0.75},
    "xen-cpu-avg-load": {"i1": 1.5},
    "kvm-cpu-avg-load": {"i1": 1.5},
    "diskstats": diskstats.parse("8 0 sda 1 2 3 4000 5 6 7 8000 9 10000 11000 12"),
    "drbd": drbd.data_of(parse_proc(DRBD), {0: "i1"}, {}),
    "lv": lv.segments(json.dumps({"report": [{"lv": [LV, LV]}]}), {("xenvg", "v"): "i1"}),
    "inst-status-xen": {"status": FINE, "instances": [INSTANCE]},
    "inst-status-kvm": {"status": FINE, "instances": [INSTANCE]},
    "diagnose": {"msg": '{"status":"evacuate"}', "salt": "1", "hmac": "x"},
}


def values(name: str) -> dict[tuple[str, ...], float]:
    found = list(samples_of(COLLECTORS[name].report(DATA[name], 1)))
    assert len({(sample.name, sample.labels) for sample in found}) == len(found)
    return {(sample.name.removeprefix("ganeti_"), *sample.labels): sample.value for sample in found}


@pytest.mark.parametrize("name", COLLECTORS)
def test_every_sample_is_of_a_metric_in_the_table(name: str) -> None:
    seen = set()
    for sample in samples_of(COLLECTORS[name].report(DATA[name], 1)):
        metric = METRICS[sample.name]
        assert len(metric.labels) == len(sample.labels)
        seen.add(sample.name)
    promised = {metric.name for metric in COLLECTORS[name].metrics}
    assert promised == seen - {"ganeti_collector_status_code"}


@pytest.mark.parametrize("name", COLLECTORS)
def test_a_collector_that_failed_has_no_samples_but_its_status(name: str) -> None:
    report = COLLECTORS[name].failure("no", 1)
    expected = ["ganeti_collector_status_code"] * (report.kind is Kind.STATUS)
    assert [sample.name for sample in samples_of(report)] == expected


@pytest.mark.parametrize("name", ["lv", "diagnose"])
def test_what_a_command_said_is_shown_in_part(name: str) -> None:
    report = COLLECTORS[name].failure("printed\n\0\x1b[2J" + "x" * 99999, 1)
    status = report.status or report.data["status"]
    assert status.message.startswith("printed\n??[2Jxxx")
    assert len(status.message) < 600


def test_units_are_bytes_and_seconds() -> None:
    disk = values("diskstats")
    assert disk["disk_reads_completed_total", "sda"] == 1
    assert disk["disk_read_bytes_total", "sda"] == 3 * 512
    assert disk["disk_read_time_seconds_total", "sda"] == 4
    assert disk["disk_written_bytes_total", "sda"] == 7 * 512
    assert disk["disk_io_now", "sda"] == 9
    assert disk["disk_io_time_seconds_total", "sda"] == 10
    device = values("drbd")
    assert device["drbd_network_sent_bytes_total", "0", "i1"] == 4096
    assert device["drbd_out_of_sync_bytes", "0", "i1"] == 2048
    assert device["drbd_sync_progress_ratio", "0", "i1"] == 0.25
    assert device["drbd_connected", "0", "i1"] == 1
    assert device["drbd_local_up_to_date", "0", "i1"] == 1
    assert device["drbd_remote_up_to_date", "0", "i1"] == 0
    state = ("SyncSource", "Primary", "Secondary", "UpToDate", "Inconsistent")
    assert device["drbd_state", "0", "i1", *state] == 1


def test_a_volume_of_several_segments_counts_once() -> None:
    assert values("lv") == {
        ("lv_size_bytes", "xenvg", "v", "i1"): 1024,
        ("lv_segments", "xenvg", "v", "i1"): 2,
    }


def test_instances_and_the_diagnose_command() -> None:
    assert values("inst-status-kvm") == {
        ("collector_status_code", "inst-status-kvm"): 0,
        ("instance_up", "i1", "kvm"): 1,
        ("instance_admin_up", "i1", "kvm"): 0,
        ("instance_status_code", "i1", "kvm"): 4,
    }
    assert values("diagnose") == {
        ("node_diagnose", "Ok"): 0,
        ("node_diagnose", "live-repair"): 0,
        ("node_diagnose", "evacuate"): 1,
        ("node_diagnose", "evacuate-failover"): 0,
    }


def test_the_page_names_every_metric() -> None:
    page = metrics.document()
    for metric in METRICS.values():
        assert f"| `{metric.name}` | {metric.kind} |" in page


@pytest.mark.shows("maintd/collector/collector")
def test_collectors_are_those_that_the_configuration_knows() -> None:
    assert list(COLLECTORS) == list(DATA_COLLECTORS)


@pytest.mark.parametrize("name", COLLECTORS)
def test_every_collector_can_be_made(name: str) -> None:
    assert COLLECTORS[name]().summary

"""Tests of ganeti/mond/service.py."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ganeti.base.errors import GenericError
from ganeti.base.metrics import Metric, MetricKind, Sample
from ganeti.base.paths import Paths
from ganeti.collectors.cluster_facts import ClusterFacts, Need, Switch
from ganeti.collectors.collector import NodeView
from ganeti.collectors.metrics import METRICS
from ganeti.collectors.registry import COLLECTORS
from ganeti.mond import sampling, service
from ganeti.mond.cluster_watch import ClusterWatch
from ganeti.mond.sampling import Sampler
from ganeti.mond.service import MonitoringService, encode
from ganeti.protocol.envelope import Request
from ganeti.system.filelock import PidFile
from ganeti.transport.http_message import HttpRequest, HttpResponse
from ganeti.transport.unix_server import Connection, serve_unix

NODE = "node1.example.com"


class Subject:
    """A service whose collectors find what a test says."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.found: dict[str, Any] = {}
        self.service: MonitoringService

    def collect(self, name: str) -> object:
        found = self.found.get(name, GenericError(f"{name} does not work here"))
        if isinstance(found, Exception):
            raise found
        return found

    async def get(self, target: str, method: str = "GET") -> HttpResponse:
        request = HttpRequest(method, target, {}, b"", None, "127.0.0.1")
        return self.service.authorize(request) or await self.service.handle(request)

    async def json(self, target: str) -> Any:
        response = await self.get(target)
        assert response.status == 200, response
        return json.loads(response.body)


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Subject:
    paths = Paths(str(tmp_path))
    for directory in (paths.data_dir, paths.run_dir):
        Path(directory).mkdir(parents=True)
    Path(paths.ssconf_file("master_node")).write_text(f"{NODE}\n")
    Path(paths.ssconf_file("cluster_name")).write_text('the "best"\n')
    Path(paths.ssconf_file("instance_list")).write_text("i1\ni2\n")
    made = Subject(paths)
    monkeypatch.setattr(sampling, "FIRST_WAIT_S", 60.0)
    monkeypatch.setattr(sampling, "WARM_UP_S", 0.01)
    for row in COLLECTORS.values():
        monkeypatch.setattr(row, "collect", lambda self, _view: made.collect(self.name))
    return made


def serve(subject: Subject, test: Coroutine[Any, Any, None], facts: ClusterFacts) -> None:
    """Run a test with a service at work."""

    async def nobody(*_question: object) -> object:
        raise GenericError("nobody answers")

    async def look_around(_needs: frozenset[Need]) -> NodeView:
        return NodeView(subject.paths, NODE, facts)

    async def run() -> None:
        with ThreadPoolExecutor(4) as threads:
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:

                def spawn(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
                    return group.create_task(work, name=name)

                samplers = {
                    name: Sampler(row, look_around, threads, spawn)
                    for name, row in COLLECTORS.items()
                }
                watch = ClusterWatch(subject.paths, NODE, nobody)
                watch.facts = facts
                subject.service = MonitoringService(subject.paths, NODE, watch, samplers, threads)
                subject.service.obey(facts)
                running = [spawn(each.run(), each.name) for each in samplers.values()]
                await test
                for task in running:
                    task.cancel()

    asyncio.run(run())


KVM = ClusterFacts(problem=None, hypervisors=frozenset({"kvm"}))


def test_the_fixed_answers(subject: Subject) -> None:
    async def test() -> None:
        assert await subject.json("/") == [1]
        assert (await subject.get("/1/")).body == b"null"
        for target in ("/1", "/2/", "/1/list", "/1/report/", "/1/report/x", "/1/report/a/b/c", ""):
            response = await subject.get(target)
            assert response.status == 404
            assert response.content_type.startswith("text/plain")

    serve(subject, test(), KVM)


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_only_get_is_understood(subject: Subject, method: str) -> None:
    async def test() -> None:
        for target in ("/", "/1/report/all", "/nothing"):
            response = await subject.get(target, method)
            assert response.status == 405
            assert response.headers == {"Allow": "GET"}

    serve(subject, test(), KVM)


def test_collectors_are_listed_while_they_are_active(subject: Subject) -> None:
    async def test() -> None:
        assert await subject.json("/1/list/collectors") == [
            ["cpu-avg-load", "default", 0],
            ["kvm-cpu-avg-load", "default", 0],
            ["diskstats", "storage", 0],
            ["drbd", "storage", 1],
            ["lv", "storage", 0],
            ["inst-status-kvm", "instance", 1],
            ["diagnose", "node", 1],
        ]
        facts = ClusterFacts(
            hypervisors=frozenset({"xen-hvm"}),
            switches={"lv": Switch(False, 5.0), "inst-status-xen": Switch(True, 1.0)},
        )
        subject.service.obey(facts)
        names = [row[0] for row in await subject.json("/1/list/collectors")]
        assert names == [
            "cpu-avg-load",
            "xen-cpu-avg-load",
            "diskstats",
            "drbd",
            "inst-status-xen",
            "diagnose",
        ]
        response = await subject.get("/1/report/storage/lv")
        assert (response.status, b"not active" in response.body) == (404, True)

    serve(subject, test(), KVM)


def test_what_fails_does_not_keep_the_others_from_reporting(subject: Subject) -> None:
    subject.found["diskstats"] = [{"name": "sda"}]

    async def test() -> None:
        reports = {report["name"]: report for report in await subject.json("/1/report/all")}
        assert reports["diskstats"]["data"] == [{"name": "sda"}]
        assert "status" not in reports["diskstats"]
        assert reports["lv"]["data"] == []
        assert reports["lv"]["status"] == {"code": 2, "message": "lv does not work here"}
        assert reports["drbd"]["data"]["status"]["code"] == 2
        assert reports["drbd"]["data"]["deviceInfos"] == []
        assert "status" not in reports["drbd"]
        one = await subject.json("/1/report/storage/lv")
        assert one["status"]["message"] == "lv does not work here"

    serve(subject, test(), KVM)


def test_the_envelope(subject: Subject) -> None:
    subject.found["diskstats"] = []

    async def test() -> None:
        report = await subject.json("/1/report/storage/diskstats")
        assert report.pop("timestamp") > 10**18
        assert report == {
            "name": "diskstats",
            "version": "B",
            "format_version": 1,
            "category": "storage",
            "kind": 0,
            "data": [],
        }
        report = await subject.json("/1/report/default/cpu-avg-load")
        assert report["category"] is None
        assert (await subject.get("/1/report/storage/cpu-avg-load")).status == 404

    serve(subject, test(), KVM)


def test_metrics_are_understood_by_prometheus(subject: Subject) -> None:
    subject.found["cpu-avg-load"] = {"cpu_number": 1, "cpus": [0.5], "cpu_total": 0.5}
    pid_file = PidFile(subject.paths.pid_file("ganeti-noded"))
    pid_file.acquire()

    async def test() -> None:
        await subject.get("/1/report/all")
        response = await subject.get("/metrics")
        assert response.content_type == "text/plain; version=0.0.4; charset=utf-8"
        text = response.body.decode()
        families = {each.name: each for each in text_string_to_metric_families(text)}
        values = {
            (sample.name, *sample.labels.values()): sample.value
            for family in families.values()
            for sample in family.samples
        }
        assert values["ganeti_cpu_load_ratio", "0"] == 0.5
        assert values["ganeti_cluster_instances",] == 2
        assert values["ganeti_confd_success",] == 1
        assert values["ganeti_daemon_up", "ganeti-noded"] == 1
        assert values["ganeti_daemon_up", "ganeti-luxid"] == 0
        assert values["ganeti_daemon_resident_memory_bytes", "ganeti-noded"] > 1 << 20
        assert values["ganeti_collector_success", "lv"] == 0
        assert values["ganeti_collector_errors_total", "lv"] >= 1
        assert values["ganeti_collector_status_code", "drbd"] == 2
        assert values["ganeti_collector_active", "xen-cpu-avg-load"] == 0
        info = families["ganeti_node_info"].samples[0].labels
        assert (info["node"], info["cluster"]) == (NODE, 'the "best"')

    try:
        serve(subject, test(), KVM)
    finally:
        pid_file.release()
    assert not os.path.exists(subject.paths.pid_file("ganeti-noded"))


def test_the_page_of_the_master_has_that_of_luxid(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="mond") as base:  # short: socket paths have 107 bytes
        subject = Subject(Paths(base))
        for directory in (subject.paths.data_dir, subject.paths.run_dir, subject.paths.socket_dir):
            Path(directory).mkdir(parents=True, exist_ok=True)
        master_file = Path(subject.paths.ssconf_file("master_node"))
        master_file.write_text(f"{NODE}\n")
        asked: list[str] = []

        async def hang() -> str:
            await asyncio.Event().wait()
            return ""

        def answer(request: Request, _connection: Connection) -> object:
            asked.append(request.method)
            return "ganeti_luxid_calls_total 7\n" if len(asked) == 1 else hang()

        async def page() -> list[str]:
            text = (await subject.get("/metrics")).body.decode()
            return [line for line in text.splitlines() if "luxid" in line and line[0] != "#"]

        async def test() -> None:
            async with serve_unix(subject.paths.query_socket, 0o600, answer):
                lines = await page()
                assert 'ganeti_daemon_answers{daemon="ganeti-luxid"} 1.0' in lines
                assert lines[-1] == "ganeti_luxid_calls_total 7"
                assert asked == ["QueryMetrics"]
                monkeypatch.setattr(service, "_ANSWER_S_MAX", 0.05)
                lines = await page()
                assert lines[-1] == 'ganeti_daemon_answers{daemon="ganeti-luxid"} 0.0'
                master_file.write_text("node2.example.com\n")
                assert await page() == []
                assert len(asked) == 2

        serve(subject, test(), ClusterFacts())


def test_any_text_may_be_a_label() -> None:
    metrics = {"m": Metric("m", 'with "quotes"\nand \\', ("label",), MetricKind.GAUGE)}
    label = 'a"b\\c\nd{}=, ä'
    text = encode(metrics, [Sample("m", 1.5, (label,))]).decode()
    [family] = text_string_to_metric_families(text)
    assert family.samples[0].labels == {"label": label}
    assert family.samples[0].value == 1.5


def test_names_are_valid_and_say_what_they_count() -> None:
    for metric in METRICS.values():
        assert metric.name.startswith("ganeti_")
        assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)

"""The answers of the monitoring daemon, by address: reports in JSON, and the page of metrics.

The one module that knows Prometheus's client library.  On the master node the page has what LuxiD
and WConfD tell as well, which have no port: they are asked for their pages, which are handed on.

Source: mond.json, "transport" and "urls"; `ganeti.base.daemons`; proc(5); prometheus.io,
"Exposition formats".
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from typing import Final

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from ganeti.base.daemons import Place
from ganeti.base.errors import ConfigurationError, GenericError
from ganeti.base.json import dumps
from ganeti.base.metrics import Metric, MetricKind, Sample
from ganeti.base.paths import Paths
from ganeti.base.versions import RELEASE_VERSION
from ganeti.clients.async_services import AsyncLuxiClient, AsyncWConfClient
from ganeti.collectors import metrics
from ganeti.collectors.cluster_facts import ClusterFacts, Need, Switch
from ganeti.collectors.collector import Collector
from ganeti.collectors.history import NODE, History
from ganeti.collectors.metrics import METRICS
from ganeti.collectors.report import DEFAULT_CATEGORY, Report
from ganeti.mond.cluster_watch import ClusterWatch
from ganeti.mond.sampling import Sampler
from ganeti.protocol.luxi import LuxiCalls
from ganeti.protocol.wconfd import ClientId, WConfCalls
from ganeti.store import ssconf
from ganeti.system import daemon_control, process_facts
from ganeti.transport.http_message import HttpRequest, HttpResponse

logger = logging.getLogger(__name__)

API_VERSIONS: Final = (1,)
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_REPORT: Final = "/1/report/"
_HISTORY: Final = "/1/history/instance/"
_ANSWER_S_MAX: Final = 3.0  # they answer from memory; Prometheus waits for ten seconds
_FAMILIES: Final = {MetricKind.GAUGE: GaugeMetricFamily, MetricKind.COUNTER: CounterMetricFamily}


class MonitoringService:
    """The answers of one node."""

    def __init__(
        self,
        paths: Paths,
        hostname: str,
        watch: ClusterWatch,
        samplers: Mapping[str, Sampler],
        threads: Executor,
    ) -> None:
        self._paths = paths
        self._hostname = hostname
        self._watch = watch
        self._samplers = samplers
        self._threads = threads
        self.history = History()

    def authorize(self, request: HttpRequest) -> HttpResponse | None:
        """Refuse all requests but GET; bodies are not even read."""
        if request.method == "GET":
            return None
        refusal = HttpResponse.text(405, "only GET is understood here", close=True)
        refusal.headers = {"Allow": "GET"}
        return refusal

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer one request."""
        match request.path:
            case "/":
                return _json(API_VERSIONS)
            case "/1/":
                return _json(None)
            case "/1/list/collectors":
                rows = [each.row for each in self._active()]
                return _json([(row.name, _category(row), row.kind) for row in rows])
            case "/1/report/all":
                return _json(await self._reports())
            case "/metrics":
                return await self._metrics()
            case "/1/history/node":
                return _json(self.history.of(NODE))
            case path if path.startswith(_HISTORY):
                return _json(self.history.of(path.removeprefix(_HISTORY)))
            case path if path.startswith(_REPORT):
                return await self._one_report(path.removeprefix(_REPORT))
            case _:
                return _not_found()

    def obey(self, facts: ClusterFacts) -> None:
        """Switch collectors on and off as the configuration says."""
        for name, sampler in self._samplers.items():
            switch = facts.switches.get(name, Switch())
            wanted = sampler.row.hypervisors
            is_possible = not wanted or bool(wanted & facts.hypervisors)
            command = facts.diagnose_command if Need.SETTINGS in sampler.row.needs else None
            is_active = switch.is_active and is_possible
            sampler.set_switch(Switch(is_active, switch.interval_s, command))

    def _active(self) -> list[Sampler]:
        return [each for each in self._samplers.values() if each.switch.is_active]

    async def _reports(self) -> list[Report]:
        return await asyncio.gather(*(each.report() for each in self._active()))

    async def _one_report(self, place: str) -> HttpResponse:
        category, _, name = place.partition("/")
        sampler = self._samplers.get(name)
        if sampler is None or category != _category(sampler.row):
            return _not_found()
        if not sampler.switch.is_active:
            return HttpResponse.text(404, f"collector {name} is not active on this node")
        if Need.SETTINGS in sampler.row.needs:
            self.obey(await self._watch.recent_settings())
        return _json(await sampler.report())

    async def _metrics(self) -> HttpResponse:
        reports, loop = await self._reports(), asyncio.get_running_loop()
        looks = loop.run_in_executor(self._threads, _daemon_samples, self._paths, self._hostname)
        pages = await self._pages()
        text = encode(METRICS, self._samples(reports, await looks, pages))
        return HttpResponse(body=b"".join([text, *pages.values()]), content_type=CONTENT_TYPE)

    async def _pages(self) -> dict[str, bytes]:
        """Return the pages of the daemons of the master; empty ones of those that do not answer."""
        if not _is_master(self._paths, self._hostname):
            return {}
        asked = {"ganeti-luxid": _ask_luxid, "ganeti-wconfd": _ask_wconfd}
        pages = await asyncio.gather(*(_page(ask, self._paths) for ask in asked.values()))
        return dict(zip(asked, pages, strict=True))

    def _samples(
        self, reports: list[Report], of_daemons: list[Sample], pages: Mapping[str, bytes]
    ) -> Iterator[Sample]:
        yield from _node_samples(self._paths, self._hostname)
        yield from of_daemons
        for name, text in pages.items():
            yield Sample("ganeti_daemon_answers", bool(text), (name,))
        yield from _cluster_samples(self._watch.facts)
        for sampler in self._samplers.values():
            yield from _tally_samples(sampler)
        for report in reports:
            yield from metrics.samples_of(report)


async def _ask_luxid(paths: Paths) -> str:
    async with AsyncLuxiClient(paths) as luxi:
        return await luxi.ask(LuxiCalls.query_metrics)


async def _ask_wconfd(paths: Paths) -> str:
    nobody = ClientId("mond", "", os.getpid())  # owns nothing, and no question names it
    async with AsyncWConfClient(paths, nobody) as wconfd:
        return await wconfd.ask(WConfCalls.get_metrics)


async def _page(ask: Callable[[Paths], Awaitable[str]], paths: Paths) -> bytes:
    """Return what a daemon tells of itself; nothing if it does not answer soon."""
    try:
        async with asyncio.timeout(_ANSWER_S_MAX):
            return (await ask(paths)).encode()
    except (GenericError, TimeoutError) as err:
        logger.debug("No answer: %s", err)
        return b""


def _json(value: object) -> HttpResponse:
    return HttpResponse(body=dumps(value))


def _not_found() -> HttpResponse:
    return HttpResponse.text(404, "there is nothing at this address")


def _category(row: type[Collector]) -> str:
    return row.category or DEFAULT_CATEGORY


def _cluster_samples(facts: ClusterFacts) -> Iterator[Sample]:
    yield Sample("ganeti_confd_success", facts.problem is None)
    if facts.answered_s is not None:
        yield Sample("ganeti_confd_last_answer_timestamp_seconds", facts.answered_s)
    if facts.config_serial is not None:
        yield Sample("ganeti_config_serial", facts.config_serial)
    if facts.instances is not None:
        yield Sample("ganeti_node_instances", len(facts.instances.primary), ("primary",))
        yield Sample("ganeti_node_instances", len(facts.instances.secondary), ("secondary",))


def _tally_samples(sampler: Sampler) -> Iterator[Sample]:
    labels, tally = (sampler.name,), sampler.tally
    last_s = tally.collected_s
    yield Sample("ganeti_collector_active", sampler.switch.is_active, labels)
    yield Sample("ganeti_collector_errors_total", tally.errors, labels)
    if last_s is not None and sampler.switch.is_active:
        yield Sample("ganeti_collector_success", tally.failure is None, labels)
        yield Sample("ganeti_collector_last_collection_timestamp_seconds", last_s, labels)
        yield Sample("ganeti_collector_duration_seconds", tally.took_s, labels)


def _daemon_samples(paths: Paths, hostname: str) -> list[Sample]:
    """Look at every daemon that this node is to run."""
    places = frozenset(Place) if _is_master(paths, hostname) else frozenset({Place.NODE})
    try:
        names = [daemon.name for daemon in daemon_control.wanted(paths, places)]
    except GenericError as err:
        logger.warning("Cannot tell which daemons are to run: %s; ignoring", err.message)
        return []
    return [sample for name in names for sample in _look_at(paths, name)]


def _look_at(paths: Paths, name: str) -> Iterator[Sample]:
    """Yield the samples of a daemon."""
    labels = (name,)
    pid = daemon_control.running_pid(paths, name)
    facts = None if pid is None else process_facts.read(pid)
    yield Sample("ganeti_daemon_up", facts is not None, labels)
    if pid is None or facts is None:
        return
    yield Sample("ganeti_daemon_start_time_seconds", facts.started_s, labels)
    yield Sample("ganeti_daemon_resident_memory_bytes", facts.resident_bytes, labels)
    yield Sample("ganeti_daemon_threads", facts.threads, labels)
    yield Sample("ganeti_daemon_cpu_seconds_total", facts.cpu_s, labels)
    open_files = process_facts.open_files(pid)
    if open_files is not None:
        yield Sample("ganeti_daemon_open_fds", open_files, labels)


def _node_samples(paths: Paths, hostname: str) -> Iterator[Sample]:
    """Yield the samples that come from the node's own files."""
    cluster = _value(paths, "cluster_name") or ""
    yield Sample("ganeti_node_info", 1, (hostname, cluster, RELEASE_VERSION))
    for what in ("instance", "node"):
        listed = _value(paths, f"{what}_list")
        if listed is not None:
            yield Sample(f"ganeti_cluster_{what}s", len(listed.split()))


def _is_master(paths: Paths, hostname: str) -> bool:
    return _value(paths, "master_node") == hostname


def _value(paths: Paths, key: str) -> str | None:
    """Return a value of the simple configuration; None if it cannot be had."""
    try:
        return ssconf.read_key_or_none(paths, key)
    except ConfigurationError as err:
        logger.warning("Cannot read %s: %s; ignoring", key, err.message)
        return None


class _Samples(prometheus_client.registry.Collector):
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
    registry = prometheus_client.CollectorRegistry(auto_describe=False)
    registry.register(_Samples(metrics, samples))
    return prometheus_client.generate_latest(registry)

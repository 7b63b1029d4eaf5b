"""The answers of the monitoring daemon, by address.

Source: mond.json, "transport" and "urls".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Executor
from typing import Final

from ganeti.base.json import dumps
from ganeti.base.paths import Paths
from ganeti.collectors import metrics
from ganeti.collectors.cluster_facts import ClusterFacts, Switch
from ganeti.collectors.collector import Sample
from ganeti.collectors.metrics import METRICS
from ganeti.collectors.report import DEFAULT_CATEGORY, Report
from ganeti.mond import exposition
from ganeti.mond.cluster_watch import ClusterWatch
from ganeti.mond.sampling import Sampler
from ganeti.transport.http_message import HttpRequest, HttpResponse

API_VERSIONS: Final = (1,)
_REPORT: Final = "/1/report/"
_ALL: Final = "/1/report/all"

Answer = Callable[[], Awaitable[HttpResponse]]


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
        self._routes: Mapping[str, Answer] = {
            "/": self._versions,
            "/1/": self._nothing,
            "/1/list/collectors": self._list,
            _ALL: self._all_reports,
            "/metrics": self._metrics,
        }

    def authorize(self, request: HttpRequest) -> HttpResponse | None:
        """Refuse all requests but GET; bodies are not even read."""
        if request.method == "GET":
            return None
        refusal = HttpResponse.text(405, "only GET is understood here", close=True)
        refusal.headers = {"Allow": "GET"}
        return refusal

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer one request."""
        answer = self._routes.get(request.path)
        if answer is not None:
            return await answer()
        if request.path.startswith(_REPORT):
            return await self._one_report(request.path.removeprefix(_REPORT))
        return _not_found()

    def obey(self, facts: ClusterFacts) -> None:
        """Switch collectors on and off as the configuration says."""
        for name, sampler in self._samplers.items():
            switch = facts.switches.get(name, Switch())
            wanted = sampler.row.hypervisors
            is_possible = not wanted or bool(wanted & facts.hypervisors)
            sampler.set_switch(Switch(switch.is_active and is_possible, switch.interval_s))

    def _active(self) -> list[Sampler]:
        return [each for each in self._samplers.values() if each.switch.is_active]

    async def _versions(self) -> HttpResponse:
        return HttpResponse(body=dumps(API_VERSIONS))

    async def _nothing(self) -> HttpResponse:
        return HttpResponse(body=dumps(None))

    async def _list(self) -> HttpResponse:
        rows = [each.row for each in self._active()]
        return HttpResponse(
            body=dumps([(row.name, row.category or DEFAULT_CATEGORY, row.kind) for row in rows])
        )

    async def _all_reports(self) -> HttpResponse:
        return HttpResponse(body=dumps(await self._reports()))

    async def _reports(self) -> list[Report]:
        return await asyncio.gather(*(each.report() for each in self._active()))

    async def _one_report(self, place: str) -> HttpResponse:
        category, _, name = place.partition("/")
        sampler = self._samplers.get(name)
        if sampler is None or category != (sampler.row.category or DEFAULT_CATEGORY):
            return _not_found()
        if not sampler.switch.is_active:
            return HttpResponse.text(404, f"collector {name} is not active on this node")
        return HttpResponse(body=dumps(await sampler.report()))

    async def _metrics(self) -> HttpResponse:
        reports = await self._reports()
        daemons = await asyncio.get_running_loop().run_in_executor(
            self._threads, exposition.look, self._paths, self._hostname
        )
        text = exposition.encode(METRICS, self._samples(reports, daemons))
        return HttpResponse(body=text, content_type=exposition.CONTENT_TYPE)

    def _samples(
        self, reports: list[Report], daemons: list[exposition.DaemonHealth]
    ) -> Iterator[Sample]:
        yield from exposition.node_samples(self._paths, self._hostname)
        for daemon in daemons:
            yield from exposition.samples_of(daemon)
        yield from _cluster_samples(self._watch.facts)
        for sampler in self._samplers.values():
            yield from _tally_samples(sampler)
        for report in reports:
            yield from metrics.samples_of(report)


def _not_found() -> HttpResponse:
    return HttpResponse.text(404, "there is nothing at this address")


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
    yield Sample("ganeti_collector_active", sampler.switch.is_active, labels)
    yield Sample("ganeti_collector_errors_total", tally.errors, labels)
    if tally.collected_s is not None and sampler.switch.is_active:
        yield Sample("ganeti_collector_success", tally.failure is None, labels)
        yield Sample(
            "ganeti_collector_last_collection_timestamp_seconds", tally.collected_s, labels
        )
        yield Sample("ganeti_collector_duration_seconds", tally.took_s, labels)

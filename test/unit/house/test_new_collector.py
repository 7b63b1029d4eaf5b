"""A data collector is one file and one row: the recipe of doc/development.md, followed."""

from __future__ import annotations

import json
from pathlib import Path

from fakes.grown_tree import GrownTree

COLLECTOR = '''
"""Collector "dummy": how long the name of the node is."""

from ganeti.base.metrics import Sample, metrics_of
from ganeti.collectors.collector import Collector, Timing


class Dummy(Collector):
    """The collector."""

    name = "dummy"
    summary = "how long the name of the node is"
    timing = Timing.AT_ONCE
    metrics = (*metrics_of((), {"name_length": "How long the name of the node is."}),)

    def collect(self, view):
        return {"length": len(view.hostname)}

    @classmethod
    def samples(cls, data):
        yield Sample("ganeti_name_length", data["length"])
'''
ROW = '    "dummy": DataCollector("ganeti.collectors.dummy:Dummy"),\n'
SCRIPT = """
import asyncio, json, sys
from concurrent.futures import ThreadPoolExecutor

from ganeti.base.json import loads
from ganeti.base.paths import Paths
from ganeti.collectors import metrics
from ganeti.collectors.cluster_facts import ClusterFacts, Switch
from ganeti.collectors.collector import NodeView
from ganeti.collectors.registry import COLLECTORS
from ganeti.mond.cluster_watch import ClusterWatch
from ganeti.mond.sampling import Sampler
from ganeti.mond.service import MonitoringService
from ganeti.objects.model import DATA_COLLECTORS
from ganeti.transport.http_message import HttpRequest

paths = Paths(sys.argv[1])


async def look_around(needs):
    return NodeView(paths, "node1")


async def main():
    with ThreadPoolExecutor(2) as threads:
        async with asyncio.TaskGroup() as group:
            spawn = lambda work, name: group.create_task(work, name=name)
            samplers = {
                name: Sampler(row, look_around, threads, spawn) for name, row in COLLECTORS.items()
            }
            watch = ClusterWatch(paths, "node1", None)
            watch.facts = ClusterFacts(
                switches={name: Switch(name == "dummy") for name in COLLECTORS}
            )
            service = MonitoringService(paths, "node1", watch, samplers, threads)
            service.obey(watch.facts)

            async def get(path):
                request = HttpRequest("GET", path, {}, b"", None, "127.0.0.1")
                return (await service.handle(request)).body

            print(json.dumps({
                "listed": loads(await get("/1/list/collectors")),
                "report": loads(await get("/1/report/default/dummy")),
                "metric": "ganeti_name_length 5.0" in (await get("/metrics")).decode(),
                "page": "ganeti_name_length" in metrics.document(),
                "can be switched": "dummy" in DATA_COLLECTORS,
            }))


asyncio.run(main())
"""


def test_a_collector_is_one_file_and_one_row(tmp_path: Path) -> None:
    tree = GrownTree(tmp_path)
    tree.add_file("ganeti/collectors/dummy.py", COLLECTOR)
    tree.add_row("ganeti/objects/model.py", '    "diagnose": DataCollector(', ROW)
    told = json.loads(tree.run(SCRIPT, str(tmp_path / "node1")))
    assert told["listed"] == [["dummy", "default", 0]]
    assert (told["report"]["name"], told["report"]["data"]) == ("dummy", {"length": 5})
    assert told["metric"]
    assert told["page"]
    assert told["can be switched"]

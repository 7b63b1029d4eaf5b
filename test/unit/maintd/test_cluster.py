"""Tests of ganeti/maintd/cluster.py: which instances can leave their node; searches end."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fakes.fake_records import uuid_of
from fakes.shell_scripts import write_script
from fakes.waiting import until

from ganeti.base.paths import Paths
from ganeti.maintd.balance import Question
from ganeti.maintd.cluster import LiveCluster, events_of
from ganeti.maintd.rounds import InstanceFacts
from ganeti.objects.disk_templates import traits_of
from ganeti.objects.model import AdminState
from ganeti.protocol.maintenance.stored import REASON_SOURCE
from ganeti.system import process

ONE, TWO = uuid_of("node1"), uuid_of("node2")


class Answers:
    """WConfD of two nodes with one instance, which has a disk of each template."""

    def __init__(self, *templates: str) -> None:
        disks = [
            SimpleNamespace(
                uuid=f"disk{index}",
                dev_type=template,
                traits=traits_of(template),
                nodes=[ONE, TWO] if template == "drbd" else [ONE],
            )
            for index, template in enumerate(templates)
        ]
        instance = SimpleNamespace(
            name="web",
            primary_node=ONE,
            disks=[disk.uuid for disk in disks],
            forthcoming=False,
            admin_state=AdminState.UP,
        )
        nodes = [
            SimpleNamespace(
                name=name, uuid=uuid, primary_ip="", tags=(), offline=False, drained=False
            )
            for name, uuid in (("n1", ONE), ("n2", TWO))
        ]
        self.answers = {
            "get_cluster": SimpleNamespace(master_node=TWO, data_collectors={}),
            "get_nodes": nodes,
            "get_node_instances": [[["web"], []], [[], ["web"]]],
            "get_instances": [instance],
            "get_disks": disks,
        }

    async def ask(self, call: Any, *_args: object) -> Any:
        return self.answers[call.__name__]


def facts_of(*templates: str) -> InstanceFacts:
    async def asked() -> InstanceFacts:
        cluster = LiveCluster(Paths(), cast("Any", None), cast("Any", Answers(*templates)))
        [found] = await cluster.instances(list((await cluster.nodes()).values()))
        return found

    return asyncio.run(asked())


@pytest.mark.parametrize(
    ("templates", "can_leave", "secondary"),
    [
        (["drbd"], True, "n2"),
        (["drbd", "rbd"], True, "n2"),
        (["rbd"], True, None),
        (["plain"], False, None),
        (["rbd", "plain"], False, None),
        ([], True, None),
    ],
)
def test_an_instance_can_leave_where_its_disks_or_a_copy_are_reached(
    templates: list[str], can_leave: bool, secondary: str | None
) -> None:
    found = facts_of(*templates)
    assert (found.can_leave, found.secondary) == (can_leave, secondary)
    assert (found.primary, found.is_up) == ("n1", True)


def test_a_search_that_nobody_waits_for_any_more_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the daemon could not end before it."""
    program, started = tmp_path / "search", tmp_path / "pid"
    write_script(program, f"echo $$ > {started}.new; mv {started}.new {started}; exec sleep 3600")
    monkeypatch.setattr(sys, "executable", str(program))
    paths = Paths(str(tmp_path))

    async def begin_and_leave() -> None:
        cluster = LiveCluster(paths, cast(Any, None), cast(Any, None))
        task = asyncio.create_task(cluster.search(Question()))
        await until(started.exists, "the search runs")
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(begin_and_leave())  # which waits for all threads
    assert process.wait_gone(int(started.read_text()), 0)


def test_reasons_of_clients_may_have_any_shape() -> None:
    """One with a list in the place of the event ended the daemon, again and again."""
    trail = [[], 5, "ab", [REASON_SOURCE], [REASON_SOURCE, ["x"]], ["gnt:user", "z", 1]]
    assert events_of({"reason": [*trail, [REASON_SOURCE, "event", 1]]}) == ["event"]
    assert events_of({"reason": None}) == []

"""Tests of ganeti/maintd/lost_guests.py: one question tells all of the queue."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from fakes.fake_records import make_node
from msgspec import structs

from ganeti.base.ids import NodeUuid
from ganeti.base.paths import Paths
from ganeti.maintd.losses import LossJob
from ganeti.maintd.lost_guests import StrickenCluster
from ganeti.objects.model import Disk, Node
from ganeti.protocol.maintenance.stored import REASON_SOURCE
from ganeti.protocol.wconfd import WConfCalls


class Answers:
    """LuxiD, which notes the questions."""

    def __init__(self, rows: list[list[object]]) -> None:
        self.rows = rows
        self.questions: list[tuple[object, ...]] = []

    async def ask(self, call: Any, *args: object) -> Any:
        self.questions.append((call.__name__, *args))
        return self.rows


def cluster(luxi: Answers) -> StrickenCluster:
    return StrickenCluster(Paths(), cast("Any", luxi), cast("Any", None))


def op(instance: str | None, event: str = "") -> dict[str, object]:
    found: dict[str, object] = {
        "OP_ID": "OP_X",
        "reason": [[REASON_SOURCE, event, 1], ["me", "", 1]],
    }
    return found | ({"instance_name": instance} if instance else {})


def test_the_queue_is_asked_once() -> None:
    luxi = Answers(
        [
            [1, "success", [op("old", "ha:u1:b")]],
            [2, "running", [op("web", "ha:u1:b")]],
            [3, "error", [op(None, "ha:u2:x")]],
            [4, "queued", [op("other"), op(None)]],
            [5, "error", [op("web", "ha:another:b")]],
            ["6", "waiting", [op(None, "2f6b")]],
            [7, None, None],
        ]
    )
    jobs, busy = asyncio.run(cluster(luxi).queue({"u1", "u2"}))
    assert jobs == [
        LossJob(1, "u1", "b", "old"),  # type: ignore[arg-type]
        LossJob(2, "u1", "b", "web", is_running=True),  # type: ignore[arg-type]
        LossJob(3, "u2", "x", None, is_bad=True),  # type: ignore[arg-type]
    ]
    assert busy == {"web", "other"}
    assert len(luxi.questions) == 1


def test_the_nodes_with_copies_are_told_by_the_port_of_their_disk() -> None:
    disk = Disk.from_wire(
        {
            "uuid": "d",
            "size": 100,
            "serial_no": 1,
            "dev_type": "drbd",
            "logical_id": ["uuid1", "uuid2", 11000, 0, 3, "secret"],
        }
    )

    class Configuration:
        async def ask(self, call: Any) -> list[Any]:
            nodes = [Node.from_wire(make_node(number)) for number in (1, 2)]
            given = [structs.replace(n, uuid=NodeUuid(f"uuid{i}")) for i, n in enumerate(nodes, 1)]
            return [disk, None] if call is WConfCalls.get_disks else given

    found = StrickenCluster(Paths(), cast("Any", None), cast("Any", Configuration()))
    names = {"node1.example.com", "node2.example.com"}
    assert asyncio.run(found.copies()) == {11000: names}


def test_memory_is_asked_of_the_named_nodes_only() -> None:
    rows: list[list[object]] = [
        ["a", 100, False, False, True],
        ["b", None, False, False, True],
        ["c", 100, True, False, True],
        ["d", 100, False, True, True],
        ["e", 100, False, False, False],
    ]
    luxi = Answers(rows)
    assert asyncio.run(cluster(luxi).free_memory({"c", "a"})) == {"a": 100}
    [(_, names, _)] = luxi.questions
    assert names == ["a", "c"]
    assert asyncio.run(cluster(luxi).free_memory(())) == {}
    assert len(luxi.questions) == 1

"""Tests of ganeti/rapid/capacity.py: the room that is left, as the remote API tells it."""

from __future__ import annotations

import pytest

from ganeti.allocation.sources.text_data import made_up
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.protocol.luxi import Week
from ganeti.protocol.rapi import questions
from ganeti.protocol.rapi.questions import Wanted
from ganeti.rapid.capacity import room

CLUSTER = made_up(["p,2,200g,16g,8,4"])
WEEKS = [Week(0, created=3, removed=1, memory=4096, disk=4096)] * 4


def plain(memory: int = 2048, disk: int = 2048, weeks: list[Week] = WEEKS) -> Wanted:
    template = DiskTemplate.PLAIN
    return Wanted(disk_template=template, memory=memory, disk=disk, vcpus=1, weeks=weeks)


def test_the_answer_has_what_its_schema_requires() -> None:
    route = next(each for each in questions.NEW if each.path == "/2/capacity")
    found = room(CLUSTER, plain())
    assert list(found) == route.result["required"]
    growth = route.result["properties"]["growth"]["anyOf"][1]
    assert sorted(found["growth"]) == sorted(growth["required"])


def test_room_growth_and_what_is_lacking_first() -> None:
    found = room(CLUSTER, plain())
    size = {"memory": 2048, "disk": 2048, "vcpus": 1}
    growth = {"count": 14, "lacking": "memory", **size, "per-week": 2.0, "weeks": 7.0}
    assert found == {
        "disk-template": "plain",
        "count": 14,
        "lacking": "memory",
        **size,
        "growth": growth,
    }
    large = room(CLUSTER, plain(memory=128, disk=100 << 10))
    assert (large["count"], large["lacking"]) == (2, "disk")
    assert large["growth"]["count"] == 14, "the size that was asked for is not that of the growth"


def test_a_cluster_that_does_not_grow_tells_no_weeks() -> None:
    assert room(CLUSTER, plain(weeks=[Week(0)]))["growth"] is None


def test_the_policy_says_what_nobody_asked_for() -> None:
    found, policy = room(CLUSTER, Wanted()), CLUSTER.ipolicy
    assert found["disk-template"] == policy["disk-templates"][0]
    assert (found["memory"], found["disk"], found["vcpus"]) == tuple(
        policy["std"][name] for name in ("memory-size", "disk-size", "cpu-count")
    )


def test_more_than_can_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ganeti.rapid.capacity.ROOM_MAX", 3)
    found = room(CLUSTER, plain())
    assert (found["count"], found["lacking"], found["growth"]["count"]) == (3, None, 3)

"""Tests of ganeti/mond/cluster_watch.py."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from fakes.loop import run_in_virtual_time

from ganeti.base.errors import ConfdClientError, TransportError
from ganeti.base.paths import Paths
from ganeti.collectors.cluster_facts import ClusterFacts, Need, Switch
from ganeti.mond.cluster_watch import RECENT_S, REFRESH_S, ClusterWatch
from ganeti.protocol.confd_queries import QueryType

NODE = "node1.example.com"
INSTANCE = {"name": "i1", "uuid": "u1", "admin_state": "up", "hypervisor": "kvm", "disks": ["d1"]}
DISK = {"dev_type": "plain", "logical_id": ["xenvg", "d1.disk0"]}


class FakeConfd:
    """Answers from a table; an exception in it is raised."""

    def __init__(self) -> None:
        self.answers: dict[Any, Any] = {
            QueryType.DATA_COLLECTORS: {"lv": {"active": False, "interval": 9_000_000}},
            (QueryType.CONFIG_QUERY, "/serial_no"): 42,
            (QueryType.CONFIG_QUERY, "/cluster/diagnose_data_collector_filename"): None,
            (QueryType.NODE_INSTANCES, NODE): [[INSTANCE], []],
            (QueryType.NODE_DRBD, NODE): [[NODE, 3, "i1", "disk/0", "primary", "node2"]],
            (QueryType.INSTANCE_DISKS, "u1"): [DISK],
        }
        self.asked: list[QueryType] = []

    async def __call__(self, query_type: QueryType, query: object = None) -> object:
        self.asked.append(query_type)
        key = query_type if query is None else (query_type, query)
        answer = self.answers[key]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(str(tmp_path))
    Path(found.data_dir).mkdir(parents=True)
    Path(found.ssconf_file("hypervisor_list")).write_text("kvm\nfake\n")
    return found


@pytest.mark.shows("2.12/mond/from-rconfd")
def test_everything_is_asked_again_and_again(paths: Paths) -> None:
    confd = FakeConfd()
    seen: list[ClusterFacts] = []

    async def test() -> None:
        watch = ClusterWatch(paths, NODE, confd)
        assert watch.facts.instances is None
        task = asyncio.ensure_future(watch.run(seen.append))
        await asyncio.sleep(REFRESH_S / 2)
        assert len(seen) == 1
        confd.answers[QueryType.DATA_COLLECTORS] = {}
        await asyncio.sleep(REFRESH_S)
        task.cancel()

    run_in_virtual_time(test())
    first, second = seen
    assert first.switches == {"lv": Switch(False, 9.0)}
    assert first.config_serial == 42
    assert first.diagnose_command == ""
    assert first.instances is not None
    assert [one.name for one in first.instances.primary] == ["i1"]
    assert first.drbd_owners == {3: "i1"}
    assert first.volume_owners is None  # costs a question for each instance
    assert first.hypervisors == {"kvm", "fake"}
    assert (first.problem, second.switches) == (None, {})
    assert QueryType.INSTANCE_DISKS not in confd.asked


def test_who_needs_something_waits_for_the_first_answers(paths: Paths) -> None:
    confd = FakeConfd()

    async def test() -> None:
        watch = ClusterWatch(paths, NODE, confd)
        assert (await watch.look(frozenset())).instances is None
        looking = asyncio.ensure_future(watch.look(frozenset({Need.SETTINGS})))
        await asyncio.sleep(1)
        assert not looking.done()
        task = asyncio.ensure_future(watch.run(lambda _facts: None))
        assert (await looking).diagnose_command == ""
        confd.asked.clear()
        await watch.look(frozenset({Need.SETTINGS, Need.DRBD}))
        assert confd.asked == [QueryType.NODE_DRBD]
        task.cancel()

    run_in_virtual_time(test())


def test_settings_are_asked_again_for_whoever_depends_on_them(paths: Paths) -> None:
    confd = FakeConfd()
    command = (QueryType.CONFIG_QUERY, "/cluster/diagnose_data_collector_filename")

    async def test() -> None:
        watch = ClusterWatch(paths, NODE, confd)
        assert (await watch.recent_settings()).diagnose_command is None
        task = asyncio.ensure_future(watch.run(lambda _facts: None))
        await asyncio.sleep(RECENT_S / 2)
        confd.answers[command] = "check"
        assert (await watch.recent_settings()).diagnose_command == ""  # asked just now
        await asyncio.sleep(RECENT_S)
        assert (await watch.recent_settings()).diagnose_command == "check"
        confd.answers[command] = TransportError("nobody answered")
        await asyncio.sleep(RECENT_S)
        assert (await watch.recent_settings()).diagnose_command == "check"
        task.cancel()

    run_in_virtual_time(test())


def test_volumes_are_looked_up_when_they_are_needed(paths: Paths) -> None:
    async def test() -> None:
        watch = ClusterWatch(paths, NODE, FakeConfd())
        facts = await watch.refresh([Need.VOLUMES])
        assert facts.volume_owners == {("xenvg", "d1.disk0"): "i1"}

    asyncio.run(test())


def test_a_problem_of_a_question_that_nobody_asks_any_more_is_forgotten(paths: Paths) -> None:
    confd = FakeConfd()
    confd.answers[QueryType.INSTANCE_DISKS, "u1"] = TransportError("nobody answered")

    async def test() -> None:
        watch = ClusterWatch(paths, NODE, confd)
        task = asyncio.ensure_future(watch.run(lambda _facts: None))
        await asyncio.sleep(1)
        assert (await watch.look(frozenset({Need.VOLUMES}))).problem == "nobody answered"
        await asyncio.sleep(300)
        assert watch.facts.problem == "nobody answered"
        await asyncio.sleep(600)
        assert watch.facts.problem is None
        task.cancel()

    run_in_virtual_time(test())


def test_drbd_devices_that_no_datagram_holds_are_found_by_the_disks(paths: Paths) -> None:
    confd = FakeConfd()
    mirror = {"dev_type": "drbd", "logical_id": ["n1", "n2", 11000, 3, 7, "secret"]}
    whole = {"dev_type": "plain", "logical_id": ["xenvg", "x"], "children": [mirror]}
    here = {**INSTANCE, "primary_node": "n1"}
    there = {**INSTANCE, "name": "i2", "uuid": "u2", "primary_node": "n1"}
    confd.answers |= {
        (QueryType.NODE_DRBD, NODE): ConfdClientError("the answer has 99999 bytes"),
        (QueryType.NODE_INSTANCES, NODE): [[here], [there]],
        (QueryType.INSTANCE_DISKS, "u1"): [whole, DISK],
        (QueryType.INSTANCE_DISKS, "u2"): [mirror],
    }

    async def test() -> None:
        facts = await ClusterWatch(paths, NODE, confd).refresh([Need.DRBD])
        assert (facts.problem, facts.drbd_owners) == (None, {3: "i1", 7: "i2"})

    asyncio.run(test())


def test_an_instance_that_has_just_gone_has_no_volumes(paths: Paths) -> None:
    confd = FakeConfd()
    confd.answers[QueryType.INSTANCE_DISKS, "u1"] = None

    async def test() -> None:
        facts = await ClusterWatch(paths, NODE, confd).refresh([Need.VOLUMES])
        assert (facts.problem, facts.volume_owners) == (None, {})

    asyncio.run(test())


def test_what_was_known_stays_while_nobody_answers(
    paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    confd = FakeConfd()

    async def test() -> None:
        watch = ClusterWatch(paths, NODE, confd)
        known = await watch.refresh([Need.INSTANCES, Need.DRBD])
        confd.answers[QueryType.NODE_INSTANCES, NODE] = TransportError("nobody answered")
        for _ in range(3):
            facts = await watch.refresh([Need.INSTANCES, Need.DRBD])
            assert facts.instances == known.instances
            assert facts.problem == "nobody answered"
        confd.answers[QueryType.NODE_INSTANCES, NODE] = [[], []]
        assert (await watch.refresh([Need.INSTANCES])).problem is None

    with caplog.at_level(logging.INFO):
        asyncio.run(test())
    assert [record.getMessage() for record in caplog.records] == [
        "Cannot look up the instances of this node: nobody answered",
        "Can look up the instances of this node again",
    ]


@pytest.mark.parametrize("answer", [None, 5, [[1], []], {"a": "b"}])
def test_nonsense_is_a_problem_and_no_knowledge(paths: Paths, answer: object) -> None:
    confd = FakeConfd()
    for key in confd.answers:
        confd.answers[key] = answer

    async def test() -> None:
        facts = await ClusterWatch(paths, NODE, confd).refresh(list(Need))
        assert "cannot be understood" in (facts.problem or "")
        assert facts.instances is None

    asyncio.run(test())


def test_a_node_without_simple_configuration_has_no_hypervisors(tmp_path: Path) -> None:
    watch = ClusterWatch(Paths(str(tmp_path)), NODE, FakeConfd())
    watch.read_hypervisors()
    assert watch.facts.hypervisors == frozenset()

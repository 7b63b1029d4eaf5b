"""Tests of ganeti/collectors/node_lookup.py."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from fakes.loop import run_in_virtual_time

from ganeti.base.errors import ConfdClientError, GenericError, ProtocolError, TransportError
from ganeti.collectors.cluster_facts import NodeInstances
from ganeti.collectors.node_lookup import NodeLookup
from ganeti.protocol.confd_queries import QueryType

NODE = "node1.example.com"
MANY = 300


class LargeNode:
    """Answers for a node with so many instances that no datagram holds them."""

    def __init__(self, primary: int = MANY, secondary: int = 3) -> None:
        self.serials = {f"u{number}": 1 for number in range(primary + secondary)}
        self.primary = primary
        self.asked: Counter[QueryType] = Counter()
        self.under_way = self.most_under_way = 0
        self.fails: GenericError | None = None
        self.delay_s = 0.01
        self.gone = ""

    async def __call__(self, query_type: QueryType, query: object = None) -> object:
        self.asked[query_type] += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(self.delay_s)
        self.under_way -= 1
        return self._answer(query_type, query)

    def _answer(self, query_type: QueryType, query: object) -> object:
        if query_type is QueryType.NODE_INSTANCES:
            raise ConfdClientError("the answer has 99999 bytes")
        if query_type is QueryType.NODE_INSTANCE_SERIALS:
            rows = list(self.serials.items())
            return [rows[: self.primary], rows[self.primary :]]
        if self.fails is not None:
            raise self.fails
        assert query_type is QueryType.CONFIG_QUERY
        uuid = str(query).removeprefix("/instances/")
        if uuid == self.gone:
            return None
        serial = self.serials[uuid]
        return {"name": f"{uuid}.{serial}", "uuid": uuid, "admin_state": "up", "serial_no": serial}


def names(found: NodeInstances) -> list[str]:
    return [one.name for one in found.primary]


def test_many_instances_are_asked_for_one_by_one_but_not_all_at_once() -> None:
    confd = LargeNode()
    lookup = NodeLookup(NODE, confd)

    async def test() -> None:
        found = await lookup.instances()
        assert names(found) == [f"u{number}.1" for number in range(MANY)]
        assert [one.uuid for one in found.secondary] == ["u300", "u301", "u302"]

    run_in_virtual_time(test())
    assert confd.asked[QueryType.CONFIG_QUERY] == MANY + 3
    assert confd.most_under_way == 16


def test_only_what_has_changed_is_asked_for_again() -> None:
    confd = LargeNode()
    lookup = NodeLookup(NODE, confd)

    async def test() -> None:
        await lookup.instances()
        confd.asked.clear()
        confd.serials["u7"] = 2
        del confd.serials["u0"]
        confd.serials["new"] = 5
        found = await lookup.instances()
        assert found.primary[6].name == "u7.2"
        assert found.secondary[-1].name == "new.5"
        assert len(lookup._known) == MANY + 3
        assert confd.asked[QueryType.CONFIG_QUERY] == 2

    run_in_virtual_time(test())


def test_several_that_ask_at_once_share_what_they_learn() -> None:
    confd = LargeNode()
    lookup = NodeLookup(NODE, confd)

    async def test() -> None:
        found = await asyncio.gather(*(lookup.instances() for _ in range(3)))
        assert all(each == found[0] for each in found)

    run_in_virtual_time(test())
    assert confd.asked[QueryType.CONFIG_QUERY] == MANY + 3


def test_a_large_answer_that_comes_meanwhile_takes_nothing_away() -> None:
    confd = LargeNode()

    async def ask(query_type: QueryType, query: object = None) -> object:
        if query_type is QueryType.NODE_INSTANCES and confd.asked[QueryType.CONFIG_QUERY]:
            return [[], []]
        return await confd(query_type, query)

    async def test() -> None:
        lookup = NodeLookup(NODE, ask)
        first = asyncio.ensure_future(lookup.instances())
        await asyncio.sleep(5 * confd.delay_s)
        assert names(await lookup.instances()) == []
        assert len(names(await first)) == MANY

    run_in_virtual_time(test())


def test_an_instance_that_has_just_gone_is_left_out() -> None:
    confd = LargeNode()
    confd.gone = "u5"
    lookup = NodeLookup(NODE, confd)

    async def test() -> None:
        assert "u5.1" not in names(await lookup.instances())

    run_in_virtual_time(test())


@pytest.mark.parametrize("error", [TransportError("nobody"), ProtocolError("nonsense")])
def test_the_first_failure_ends_it(error: GenericError) -> None:
    confd = LargeNode()
    confd.fails = error
    lookup = NodeLookup(NODE, confd)

    async def test() -> None:
        with pytest.raises(type(error), match=error.message):
            await lookup.instances()

    run_in_virtual_time(test())
    assert confd.asked[QueryType.CONFIG_QUERY] == 16


def test_when_time_is_over_what_came_is_kept() -> None:
    confd = LargeNode()
    confd.delay_s = 4.0
    lookup = NodeLookup(NODE, confd)

    async def test() -> None:
        with pytest.raises(TransportError, match="did not answer 303 questions within 20 s"):
            await lookup.instances()
        confd.delay_s = 0.0
        assert len((await lookup.instances()).primary) == MANY

    run_in_virtual_time(test())
    assert confd.asked[QueryType.CONFIG_QUERY] < MANY + 3 + 2 * 16


def test_a_failure_of_ours_is_not_hidden() -> None:
    async def confd(query_type: QueryType, query: object = None) -> object:
        if query_type is QueryType.NODE_INSTANCES:
            raise ConfdClientError("refused")
        if query_type is QueryType.NODE_INSTANCE_SERIALS:
            return [[["u1", 1]], []]
        raise ZeroDivisionError

    async def test() -> None:
        with pytest.raises(BaseExceptionGroup):
            await NodeLookup(NODE, confd).instances()

    asyncio.run(test())


def test_a_node_that_nobody_knows_is_named() -> None:
    async def confd(_query_type: QueryType, _query: object = None) -> object:
        return None

    async def test() -> None:
        with pytest.raises(GenericError, match=f"RConfD knows no node {NODE}"):
            await NodeLookup(NODE, confd).instances()

    asyncio.run(test())

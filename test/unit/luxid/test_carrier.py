"""How versions of a job's file are carried to candidates that come, go and hang."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest

from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.node_rpc import Target
from ganeti.luxid import carrier as carrier_module
from ganeti.luxid.carrier import Carrier
from ganeti.luxid.quorum import Quorum
from ganeti.luxid.replication import Replicator
from ganeti.luxid.tasks import Tasks

N2, N3 = Target("n2", "192.0.2.2"), Target("n3", "192.0.2.3")


class FakeReplicator:
    """Candidates of which some have it at once, some refuse, and some hang."""

    def __init__(self) -> None:
        self.targets = [N2, N3]
        self.up: set[str] = set()
        self.hanging: dict[str, asyncio.Event] = {}
        self.sent: list[tuple[str, bytes]] = []
        self.tasks: list[asyncio.Task[bool]] = []
        self.quorum = Quorum(self.others, cast("AsyncNodeRpcClient", None), cast("Tasks", None))

    def others(self) -> list[Target]:
        return self.targets

    def send(self, target: Target, _path: str, data: bytes) -> asyncio.Task[bool]:
        self.sent.append((target.name, data))
        self.tasks.append(asyncio.get_running_loop().create_task(self._answer(target.name)))
        return self.tasks[-1]

    async def _answer(self, name: str) -> bool:
        if name in self.hanging:
            await self.hanging[name].wait()
            return True
        return name in self.up


@pytest.fixture(autouse=True)
def _impatient() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(carrier_module, "CARRY_S_MAX", 0.02)
        yield


def make() -> tuple[FakeReplicator, Carrier]:
    fake = FakeReplicator()
    return fake, Carrier(cast("Replicator", fake), "/queue/job-5")


def test_it_answers_once_enough_have_it() -> None:
    async def scene() -> None:
        fake, carry = make()
        fake.up = {"n3"}
        fake.hanging["n2"] = asyncio.Event()
        assert await carry(b"1") == (("n2", "n3"), ("n3",))
        fake.hanging["n2"].set()
        await asyncio.gather(*fake.tasks)

    asyncio.run(scene())


def test_what_is_under_way_or_there_is_not_sent_again() -> None:
    async def scene() -> None:
        fake, carry = make()
        fake.hanging["n2"] = asyncio.Event()
        assert await carry(b"1") == (("n2", "n3"), ())
        waiting = asyncio.ensure_future(carry(b"1", 30.0))
        await asyncio.sleep(0)
        fake.hanging["n2"].set()
        assert await waiting == (("n2", "n3"), ("n2",))
        assert fake.sent.count(("n2", b"1")) == 1
        assert await carry(b"2") == (("n2", "n3"), ("n2",))
        assert fake.sent.count(("n2", b"2")) == 1

    asyncio.run(scene())


def test_news_ends_the_wait_even_if_it_came_between_two_tries() -> None:
    async def scene() -> None:
        fake, carry = make()
        assert await carry(b"1") == (("n2", "n3"), ())
        fake.up = {"n2"}
        fake.quorum.tell_news()
        assert await carry(b"1", 30.0) == (("n2", "n3"), ("n2",))

    asyncio.run(scene())


def test_fewer_copies_are_enough_once_there_are_fewer_candidates() -> None:
    async def scene() -> None:
        fake, carry = make()
        assert await carry(b"1") == (("n2", "n3"), ())
        waiting = asyncio.ensure_future(carry(b"1", 30.0))
        await asyncio.sleep(0)
        fake.targets = [N3]
        fake.quorum.tell_news()
        assert await waiting == (("n3",), ())

    asyncio.run(scene())

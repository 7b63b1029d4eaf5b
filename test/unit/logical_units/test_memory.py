"""Memory of a node that several jobs want at once: never given out twice, whatever the order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, make_node, uuid_of
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.clients.node_rpc import NodeClient, RpcResult, Target
from ganeti.config.reservations import Reservations
from ganeti.logical_units.instance.guest import reserve_memory
from ganeti.objects.model import Node
from ganeti.protocol.node_rpc import NodeCall
from ganeti.protocol.wconfd import ClientId
from ganeti.store.availability import State, write_state
from ganeti.system import clock

NODE_MIB = 1000
PATIENCE_S = 60.0
NOWHERE = Paths("/nowhere")


class Turns:
    """Lets one thread go on at a time, in an order given beforehand."""

    def __init__(self, order: Sequence[int], jobs: int) -> None:
        self._order = list(order)
        self._alive = set(range(jobs))
        self._changed = threading.Condition()

    def wait(self, job: int) -> None:
        """Wait until it is this job's turn, and take the turn."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._next() == job, PATIENCE_S)
            if self._order:
                self._order.pop(0)
            self._changed.notify_all()

    def end(self, job: int) -> None:
        """Take part no longer."""
        with self._changed:
            self._alive.discard(job)
            self._changed.notify_all()

    def _next(self) -> int | None:
        while self._order and self._order[0] not in self._alive:
            self._order.pop(0)
        return self._order[0] if self._order else min(self._alive, default=None)


class World:
    """A node, the reservations of all jobs, and what runs."""

    def __init__(self) -> None:
        self.reserved = Reservations()
        self.running_mib = 0

    def job(self, number: int, needed_mib: int, turns: Turns) -> Callable[[], None]:
        """Return what a job does: reserve, start, give back; each step in its turn."""

        def run() -> None:
            try:
                turns.wait(number)
                reserve_memory(
                    View(self, number, turns),  # type: ignore[arg-type]  # what is used of it
                    [NODE],
                    "instance 'x'",
                    needed_mib,
                    "fake",
                    {},
                )
                turns.wait(number)
                self.running_mib += needed_mib
            except OpPrereqError as err:
                assert err.ecode in (ErrorCode.NORES, ErrorCode.TEMP_NORES)  # noqa: PT017
            finally:
                turns.wait(number)
                self.reserved.remove_owner(ClientId(number, "", 1))
                turns.end(number)

        return run


class View(NodeClient):
    """The world as one job sees it; it waits for its turn before each call."""

    def __init__(self, world: World, number: int, turns: Turns) -> None:
        self._world, self._turns, self._number = world, turns, number
        self.owner = ClientId(number, "", 1)

    @property
    def paths(self) -> Paths:
        return NOWHERE

    @property
    def config(self) -> View:
        return self

    @property
    def nodes(self) -> View:
        return self

    def reserve_node_resources(self, wanted: Any, free: Any) -> None:
        self._turns.wait(self._number)
        self._world.reserved.reserve_amounts(
            self.owner, {n: (m, d) for n, m, d in wanted}, {n: (m, d) for n, m, d in free}
        )

    def list_node_reservations(self) -> list[Any]:
        self._turns.wait(self._number)
        found = self._world.reserved.listed_amounts()
        return [[owner.to_wire(), *rest] for owner, *rest in found]

    def perform(
        self, call: NodeCall, targets: Mapping[Target, Sequence[object]]
    ) -> dict[str, RpcResult[Any]]:
        self._turns.wait(self._number)
        free_mib = NODE_MIB - self._world.running_mib
        payload = ["boot", [], [{"memory_free": free_mib}]]
        return {target.name: RpcResult(target.name, payload) for target in targets}


NODE = Node.from_wire(make_node(1))
ORDERS = st.lists(st.integers(0, 2), max_size=36)


@pytest.mark.shows("2.12/aims/reserve")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([300, 400, 500, 700]), min_size=3, max_size=3), ORDERS)
def test_no_order_of_events_gives_memory_out_twice(needed: list[int], order: list[int]) -> None:
    turns, world = Turns(order, len(needed)), World()
    threads = [
        threading.Thread(target=world.job(number, mib, turns)) for number, mib in enumerate(needed)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    assert min(needed) <= world.running_mib <= NODE_MIB  # and the first to reserve is never refused
    assert world.reserved.listed_amounts() == []


def test_who_comes_too_late_is_told_who_was_first(cluster: FakeCluster) -> None:
    other = ClientId(8, "/other", 1)
    cluster.config.reserved.reserve_amounts(other, {uuid_of("node2"): (4000, 0)}, {})
    with pytest.raises(OpPrereqError, match="other jobs have reserved 4000 MiB") as caught:
        cluster.add_instance(pnode="node2")
    assert caught.value.ecode == "temp_insufficient_resources"
    assert not cluster.leftovers()


def test_nothing_starts_on_a_node_that_may_be_proved_dead(cluster: FakeCluster) -> None:
    paths = cluster.context.paths
    for path in (paths.high_availability, paths.ha_state):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(paths.high_availability).write_text("{}")
    write_state(paths, State(time=clock.monotonic(), absent=["node2.example.com"]))
    with pytest.raises(
        OpPrereqError, match=r"'node2\.example\.com' is not present in high availability"
    ) as caught:
        cluster.add_instance(pnode="node2")
    assert caught.value.ecode == "wrong_state"
    assert not cluster.leftovers()
    cluster.add_instance(pnode="node1")

"""After a power loss: who starts when."""

from __future__ import annotations

import heapq
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ganeti.availability.restarts import Limits
from ganeti.opcodes.opcode import FinalStatus
from ganeti.watcher.planning import Facts, InstanceSeen, Step, Work
from ganeti.watcher.staggering import Place, dependencies, in_order, kept_down

DOWN = InstanceSeen("ERROR_down", "up")
FACTS = Facts({}, {"web": DOWN, "db": DOWN, "well": InstanceSeen("running", "up")}, {}, 0.0)
PLACES = {"web": Place("n1"), "db": Place("n1", ("ha:priority:7",)), "well": Place("n2")}


def test_nothing_starts_until_most_nodes_are_back() -> None:
    kept = kept_down(FACTS, PLACES, seen=2, nodes=5, pause="")
    assert kept == dict.fromkeys(("web", "db"), "only 2 of 5 nodes are back")
    assert kept_down(FACTS, PLACES, seen=3, nodes=5, pause="") == {}
    assert kept_down(FACTS, PLACES, seen=5, nodes=5, pause="paused") == dict.fromkeys(
        ("web", "db"), "paused"
    )
    never = {**PLACES, "web": Place("n1", ("ha:priority:never",))}
    kept = kept_down(FACTS, never, seen=5, nodes=5, pause="")
    assert kept == {"web": "it is never to be restarted by itself"}


def test_nothing_starts_on_a_node_that_may_be_proved_dead() -> None:
    kept = kept_down(FACTS, PLACES, seen=5, nodes=5, pause="", absent=["n1", "n2"])
    why = (
        "node n1 answers, but its agent is not present in etcd, or its loss is not dealt with; see"
        " 'gnt-cluster ha-status', and ganeti-ha there"
    )
    assert kept == dict.fromkeys(("web", "db"), why)
    assert kept_down(FACTS, PLACES, seen=5, nodes=5, pause="", absent=["n2"]) == {}


def test_important_ones_come_first_and_other_work_last() -> None:
    steps = [Step(Work.ACTIVATE, "a"), Step(Work.RESTART, "web"), Step(Work.RESTART, "db")]
    assert [step.instance for step in in_order(steps, PLACES)] == ["db", "web", "a"]


@given(
    nodes=st.lists(st.sampled_from(["n1", "n2", "n3", "n4", "n5", "n6"]), max_size=40),
    starts_max=st.integers(1, 8),
    per_node_max=st.integers(1, 3),
    chance=st.randoms(),
)
def test_no_more_start_at_a_time_than_may(nodes, starts_max, per_node_max, chance) -> None:  # type: ignore[no-untyped-def]
    limits = Limits(starts_max, per_node_max)
    places = {f"i{number}": Place(node) for number, node in enumerate(nodes)}
    steps = [Step(Work.RESTART, name) for name in places]
    found = dependencies(steps, places, limits)
    assert all(set(ends) == set(FinalStatus) for each in found for _, ends in each)
    before = [{turn + number for number, _ in each} for turn, each in enumerate(found)]
    ended: set[int] = set()
    running: list[tuple[float, int]] = []
    begun: set[int] = set()
    now = 0.0
    while len(ended) < len(steps):
        for turn in range(len(steps)):
            if turn not in begun and before[turn] <= ended:
                begun.add(turn)
                heapq.heappush(running, (now + chance.random(), turn))
        assert running, "each of them comes"
        assert len(running) <= starts_max
        assert max(Counter(nodes[turn] for _, turn in running).values()) <= per_node_max
        now, turn = heapq.heappop(running)
        ended.add(turn)

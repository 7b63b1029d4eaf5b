"""Nodes that do not answer, and those that do again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.watcher.silent_nodes import (
    NodeAnswer,
    NodesMemory,
    NodesPlan,
    NodeWork,
    SilentRecord,
    plan_nodes,
)

FINE, SILENT = NodeAnswer(False), NodeAnswer(False, "connection refused")
OFFLINE, BACK = NodeAnswer(True, "timed out"), NodeAnswer(True)


def run(
    memory: NodesMemory, node: NodeAnswer, *, others: NodeAnswer = FINE, busy: tuple[str, ...] = ()
) -> NodesPlan:
    """One run in a cluster of four: the master, two others, and node x."""
    return plan_nodes(memory, {"x": node, "n2": others, "n3": others}, 3, busy)


def remembered(**record: object) -> NodesMemory:
    return NodesMemory({"x": SilentRecord(**record)})  # type: ignore[arg-type]


@pytest.mark.shows("2.0/offline/watcher")
def test_a_silent_node_is_tried_three_times_and_then_set_offline() -> None:
    memory, work = NodesMemory(), []
    for _ in range(5):
        plan = run(memory, SILENT)
        memory = plan.memory
        work.append(plan.work["x"])
    assert work == [*[NodeWork.TRY] * 3, NodeWork.SET_OFFLINE, NodeWork.SET_OFFLINE]
    assert "still silent after 3 tries: setting it offline" in plan.notes[0][1]


def test_a_node_that_answers_in_between_begins_anew() -> None:
    plan = run(remembered(tries=3), FINE)
    assert (plan.work, plan.memory) == ({}, NodesMemory())
    assert plan.notes[0][1] == "Node x answers again"


def test_half_of_the_nodes_silent_may_mean_that_the_master_is_cut_off() -> None:
    plan = plan_nodes(remembered(tries=3), {"x": SILENT, "n2": SILENT, "n3": FINE}, 3)
    assert plan.work == {"x": NodeWork.TRY, "n2": NodeWork.TRY}
    assert "2 of 4 nodes are silent: setting none of them offline" in plan.notes[-1][1]


def test_in_a_cluster_of_two_nobody_is_set_offline() -> None:
    assert plan_nodes(remembered(tries=9), {"x": SILENT}, 3).work == {"x": NodeWork.TRY}


def test_under_high_availability_nobody_is_set_offline_as_that_would_end_the_proof() -> None:
    plan = plan_nodes(
        remembered(tries=3), {"x": SILENT, "n2": BACK, "n3": FINE}, 3, is_available=True
    )
    assert plan.work == {"x": NodeWork.TRY, "n2": NodeWork.OFFER}


def test_nothing_is_done_to_a_node_that_a_job_is_about() -> None:
    assert run(remembered(tries=3), SILENT, busy=("x",)).work == {"x": NodeWork.TRY}


@pytest.mark.shows("2.0/offline/watcher")
def test_an_offline_node_that_answers_is_offered_once_and_never_taken_back() -> None:
    plan = run(NodesMemory(), BACK)
    assert plan.work == {"x": NodeWork.OFFER}
    assert "gnt-node modify --offline=no x" in plan.notes[0][1]
    assert run(plan.memory, BACK).work == {}
    assert run(plan.memory, OFFLINE).work == {"x": NodeWork.WITHDRAW}
    assert run(plan.memory, FINE).work == {"x": NodeWork.WITHDRAW}


def test_an_offline_node_that_stays_silent_is_nothing_to_speak_of() -> None:
    assert run(NodesMemory(), OFFLINE) == NodesPlan({}, NodesMemory(), ())


ANSWER = st.sampled_from([FINE, SILENT, OFFLINE, BACK])


@given(st.lists(st.fixed_dictionaries(dict.fromkeys("abcde", ANSWER)), max_size=20))
def test_only_a_minority_is_ever_set_offline_and_only_after_all_tries(
    worlds: list[dict[str, NodeAnswer]],
) -> None:
    memory = NodesMemory()
    tries = dict.fromkeys("abcde", 0)
    for nodes in worlds:
        plan = plan_nodes(memory, nodes, 2)
        memory = plan.memory
        online = [each for each in nodes.values() if not each.is_offline]
        for name, node in nodes.items():
            work = plan.work.get(name)
            if work is NodeWork.SET_OFFLINE:
                assert tries[name] >= 2
                assert node == SILENT
                assert 2 * sum(bool(each.silence) for each in online) < len(online) + 1
            tries[name] = tries[name] + 1 if work is NodeWork.TRY else tries[name]
            if node != SILENT:
                tries[name] = 0

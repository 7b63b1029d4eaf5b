"""Undo steps: in reverse, all of them, and told only if they fail twice."""

from __future__ import annotations

from functools import partial

import pytest
from fakes.fake_cluster import FakeCluster

from ganeti.base.errors import GenericError, JobCanceled, NodeNotReachedError, OpExecError
from ganeti.logical_units.undo import NODE_BACK_S_MAX, Undo


class Steps:
    """Steps that take notes; some fail the first few times."""

    def __init__(self, failures: dict[str, int], kind: type[GenericError] = GenericError) -> None:
        self.done: list[str] = []
        self._failures = failures
        self._kind = kind

    def run(self, name: str) -> None:
        if self._failures.get(name, 0) > 0:
            self._failures[name] -= 1
            raise self._kind("no room")
        self.done.append(name)


def fail_with(cluster: FakeCluster, steps: Steps, names: str) -> None:
    def work() -> None:
        with Undo(cluster.context) as undo:
            for name in names:
                undo.push(f"do {name}", partial(steps.run, name))
            raise OpExecError("stop")

    with pytest.raises(OpExecError):
        work()


def test_steps_run_in_reverse_after_an_error(cluster: FakeCluster) -> None:
    steps = Steps({})
    fail_with(cluster, steps, "abc")
    assert steps.done == ["c", "b", "a"]
    assert cluster.messages == []


def test_nothing_runs_without_an_error(cluster: FakeCluster) -> None:
    steps = Steps({})
    with Undo(cluster.context) as undo:
        undo.push("do a", lambda: steps.run("a"))
    assert steps.done == []


def test_a_step_that_fails_is_tried_again_after_the_others(cluster: FakeCluster) -> None:
    steps = Steps({"c": 1})
    fail_with(cluster, steps, "abc")
    assert steps.done == ["b", "a", "c"]
    assert cluster.messages == []


def test_a_step_that_keeps_failing_is_told_once(cluster: FakeCluster) -> None:
    steps = Steps({"b": 9})
    fail_with(cluster, steps, "abc")
    assert steps.done == ["c", "a"]
    [message] = cluster.messages
    assert "cannot do b: no room; ignoring" in message


def test_a_node_that_is_back_soon_is_waited_for(cluster: FakeCluster) -> None:
    steps = Steps({"b": 9, "c": 12}, NodeNotReachedError)
    fail_with(cluster, steps, "abc")
    assert steps.done == ["a", "c", "b"]
    assert cluster.messages == []


def test_a_node_that_stays_away_is_waited_for_once(cluster: FakeCluster) -> None:
    before = cluster.clock
    fail_with(cluster, Steps({"a": 999, "b": 999}, NodeNotReachedError), "ab")
    assert NODE_BACK_S_MAX <= cluster.clock - before < NODE_BACK_S_MAX + 1
    assert len(cluster.messages) == 2


def test_nobody_who_cancels_waits_for_a_node(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def canceled(_seconds: float) -> None:
        raise JobCanceled("job was canceled")

    monkeypatch.setattr(cluster.context, "wait", canceled)
    fail_with(cluster, Steps({"a": 999}, NodeNotReachedError), "a")
    [message] = cluster.messages
    assert "cannot do a: no room; ignoring" in message

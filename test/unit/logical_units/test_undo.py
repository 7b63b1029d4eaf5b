"""Undo steps: in reverse, all of them, and told only if they fail twice."""

from __future__ import annotations

from functools import partial

import pytest
from fakes.fake_cluster import FakeCluster

from ganeti.base.errors import GenericError, OpExecError
from ganeti.logical_units.undo import Undo


class Steps:
    """Steps that take notes; some fail the first few times."""

    def __init__(self, failures: dict[str, int]) -> None:
        self.done: list[str] = []
        self._failures = failures

    def run(self, name: str) -> None:
        if self._failures.get(name, 0) > 0:
            self._failures[name] -= 1
            raise GenericError("no room")
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

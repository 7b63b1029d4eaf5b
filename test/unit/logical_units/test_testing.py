"""Jobs that stop to be looked at."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster

from ganeti.base.errors import OpExecError, OpPrereqError
from ganeti.logical_units import testing
from ganeti.transport.rendezvous import visit


class Visitor:
    """Takes the job's log, and visits every notification; `held` tells the locks held then."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.notifications: list[list[Any]] = []
        self.held: list[bool] = []
        self._cluster = cluster
        cluster.context.feedback = self

    def __call__(self, message: Any, kind: str = "message") -> None:
        if kind == "message":
            self._cluster.messages.append(message)
            return
        assert kind in ("jqueue-test", "delay-test")
        path, *rest = message
        self.notifications.append(rest)
        self.held.append(bool(self._cluster.config.held))
        threading.Thread(target=self._visit, args=(path,)).start()

    @staticmethod
    def _visit(path: str) -> None:
        with visit(path, 60):
            pass


def test_notifications_come_in_their_order(cluster: FakeCluster) -> None:
    visitor = Visitor(cluster)
    assert cluster.execute(
        "OP_TEST_JQUEUE", notify_waitlock=True, notify_exec=True, log_messages=["a", "b"]
    )
    assert visitor.notifications == [
        ["expandnames", None],
        ["exec", None],
        ["startmsg", 2],
        ["logmsg", 1],
        ["logmsg", 2],
    ]
    assert visitor.held == [False, True, True, True, True]
    assert cluster.messages == ["TESTMSG=a", "TESTMSG=b"]


def test_nobody_comes(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "CLIENT_COMES_S", 0.01)
    with pytest.raises(OpExecError, match="no client came for notification 'exec'"):
        cluster.execute("OP_TEST_JQUEUE", notify_exec=True)


def test_a_delay_ends_when_somebody_comes(cluster: FakeCluster) -> None:
    visitor = Visitor(cluster)
    cluster.execute("OP_TEST_DELAY", duration=60, interruptible=True)
    assert visitor.notifications == [[]]
    assert cluster.waits == []


@pytest.mark.parametrize("duration", [-1.0, float("nan")])
def test_a_delay_is_not_negative(cluster: FakeCluster, duration: float) -> None:
    with pytest.raises(OpPrereqError, match="duration must be at least 0"):
        cluster.execute("OP_TEST_DELAY", duration=duration)


def test_secret_parameters_do_not_show_themselves(cluster: FakeCluster) -> None:
    cluster.execute("OP_TEST_OS_PARAMS", osparams_secret={"password": "x1y2z3"})
    assert cluster.said("password")
    assert not cluster.said("x1y2z3")
    with pytest.raises(OpExecError, match="password"):
        cluster.execute("OP_TEST_OS_PARAMS", osparams_secret={"password": "<redacted>"})

"""The copies of a job's file without LuxiD: the job process calls the candidates itself."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ganeti.base.paths import Paths
from ganeti.clients.node_rpc import NodeRpcClient, RpcResult, Target
from ganeti.jobexec.job_file import JobCopies, MasterRoleLostError
from ganeti.jobexec.luxid_link import LuxidLink
from ganeti.protocol.node_rpc import NodeCall
from ganeti.store.ssconf import NodeAddress


class FakeRpc(NodeRpcClient):
    """Candidates of which some are down, and some refuse."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.refusing: set[str] = set()
        self.sent: list[tuple[str, object]] = []

    def perform(
        self, call: NodeCall, targets: Mapping[Target, Sequence[Any]]
    ) -> dict[str, RpcResult[Any]]:
        assert call.name == "jobqueue_update"
        self.sent += [(target.name, args[1].content) for target, args in targets.items()]
        return {target.name: self._answer(target.name) for target in targets}

    def _answer(self, name: str) -> RpcResult[Any]:
        if name in self.down:
            return RpcResult(name, error="connection refused", address="192.0.2.1:1811")
        if name in self.refusing:
            return RpcResult(name, error="disk full")
        return RpcResult(name)


@pytest.fixture
def rpc() -> FakeRpc:
    return FakeRpc()


@pytest.fixture(autouse=True)
def master(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three candidates; the list has the name of the master."""
    names = ["n1"]
    nodes = [NodeAddress(f"n{number}", f"192.0.2.{number}") for number in (1, 2, 3)]
    monkeypatch.setattr("ganeti.system.environment.own_hostname", lambda: "n1")
    monkeypatch.setattr("ganeti.store.ssconf.master_node", lambda _paths: names[0])
    monkeypatch.setattr("ganeti.store.ssconf.master_candidates", lambda _paths: nodes)
    monkeypatch.setattr("ganeti.store.ssconf.offline_nodes", lambda _paths: set())
    return names


def make(rpc: FakeRpc, *lagging: str) -> JobCopies:
    ours, theirs = socket.socketpair()
    theirs.close()
    link = LuxidLink(ours)
    path = "/var/lib/ganeti/queue/job-5"
    return JobCopies(Paths(""), path, link, rpc, lagging, lambda _seconds: None)


def test_what_a_candidate_has_is_not_sent_again(rpc: FakeRpc) -> None:
    send = make(rpc)
    rpc.down, rpc.refusing = {"n2"}, {"n3"}
    assert send(b"1", 0.0)().missing == {"n2", "n3"}
    rpc.refusing = set()
    assert send(b"1", 0.5)().missing == {"n2"}
    rpc.down = set()
    rpc.sent.clear()
    assert send(b"1", 0.5)().missing == {"n2"}, "what was sent before may arrive later"
    assert not send(b"1", 0.5)().missing
    assert rpc.sent == [("n2", b"1"), ("n2", b"1")]
    send(b"2", 0.0)()
    assert rpc.sent[2:] == [("n2", b"2"), ("n3", b"2")]


def test_a_candidate_that_may_get_an_older_version_counts_from_the_second_time(
    rpc: FakeRpc,
) -> None:
    send = make(rpc, "n3")
    assert send(b"1", 0.0)().missing == {"n3"}
    assert not send(b"1", 0.5)().missing


def test_another_master_is_noticed(rpc: FakeRpc, master: list[str]) -> None:
    master[0] = "n2"
    with pytest.raises(MasterRoleLostError):
        make(rpc)(b"1", 0.0)()
    assert rpc.sent == []


def test_without_luxid_progress_is_sent_to_those_that_answer(rpc: FakeRpc) -> None:
    copies = make(rpc)
    rpc.down = {"n2"}
    copies.spread(b"1")
    assert rpc.sent[-1] == ("n3", b"1")
    before = len(rpc.sent)
    copies.spread(b"2")
    assert rpc.sent[before:] == [("n3", b"2")], "nobody waits for the other one again"
    rpc.down = set()
    copies(b"3", 0.0)()
    assert not copies(b"3", 0.0)().missing

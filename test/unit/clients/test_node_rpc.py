"""Tests of ganeti/clients/node_rpc.py: what is sent and what is made of answers, no connections.

The clients themselves are tested in test/daemon/test_https_clients.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ganeti.base.errors import ErrorCode, NodeNotReachedError, OpExecError, OpPrereqError
from ganeti.clients.node_rpc import NodeClient, RpcResult, Target, read_answer, results, to_be_asked
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import NodeCall, encode_broken_off, encode_failure
from ganeti.protocol.service import call_of
from ganeti.transport.curl_pool import CurlResponse

NODE1 = Target("node1", "192.0.2.1")
NODE2 = Target("node2", "2001:db8::2", 1234, offline=True)
NODE3 = Target("node3", "192.0.2.3")
INSTANCE: Any = object()
_ENDS = ((encode_failure, "refuses"), (encode_broken_off, "was killed"))


@pytest.mark.shows("backend/masterd/rpc")
def test_urls() -> None:
    assert NODE1.url("version") == "https://192.0.2.1:1811/version"
    assert NODE2.url("version") == "https://[2001:db8::2]:1234/version"


class Calls(NodeClient):
    """Keeps what it is to do; every node but node3 answers."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str, list[object]]] = []

    def perform(
        self, call: NodeCall, targets: Mapping[Target, Sequence[object]]
    ) -> dict[str, RpcResult[Any]]:
        self.made += [(call.name, each.name, list(args)) for each, args in targets.items()]
        return {
            each.name: RpcResult(each.name, "answer", "broken" if each == NODE3 else None)
            for each in targets
        }


def test_one_node_is_called_by_a_method_that_returns_its_answer() -> None:
    calls = Calls()
    assert calls.on(NODE1, "move it").accept_instance(INSTANCE, "info", target="a") == "answer"
    assert calls.made == [("accept_instance", "node1", [INSTANCE, "info", "a"])]


def test_its_failure_is_an_error_that_names_step_node_and_call() -> None:
    words = "cannot ask: node 'node3', call : broken"
    with pytest.raises(OpExecError, match=words):
        Calls().on(NODE3, "ask").version()
    with pytest.raises(OpPrereqError, match=words) as caught:
        Calls().check(NODE3, "ask", ErrorCode.STATE).version()
    assert caught.value.ecode == ErrorCode.STATE


def test_many_nodes_are_called_by_a_reference() -> None:
    calls = Calls()
    found = calls.call_all(NodeCalls.node_ensure_daemon, [NODE1, NODE3], "mond", run=True)
    assert {name: result.error for name, result in found.items()} == {
        "node1": None,
        "node3": "broken",
    }
    assert calls.made == [
        ("node_ensure_daemon", name, ["mond", True]) for name in ("node1", "node3")
    ]
    assert calls.call_one(NodeCalls.version, NODE1).payload == "answer"  # type: ignore[comparison-overlap]
    calls.made.clear()
    calls.call_each(NodeCalls.bridges_exist, {NODE1: (["a"],), NODE3: (["b"],)})
    assert [args for _, _, args in calls.made] == [[["a"]], [["b"]]]


def test_an_answer_of_a_wrong_type_is_a_failure() -> None:
    call = NodeCalls.calls["version"]
    answered = [(NODE1, CurlResponse(200, b'[true, "x"]'))]
    [result] = results(call, [NODE1], answered).values()
    assert result.error == "unexpected answer to version: Expected `int`, got `str`"


@pytest.mark.shows(
    "backend/roles/offline-harmless", "2.0/offline/not-called", "2.0/offline/rpc-skips"
)
def test_offline_nodes_are_asked_only_what_they_must_be() -> None:
    assert to_be_asked(NodeCalls.calls["node_info"], [NODE1, NODE2]) == [NODE1]
    assert to_be_asked(NodeCalls.calls["version"], [NODE1, NODE2]) == [NODE1, NODE2]


@pytest.mark.shows("2.0/offline/instant")
def test_results_of_answered_failed_and_offline_nodes() -> None:
    answered = [
        (NODE1, CurlResponse(200, b"[true, 5]\n")),
        (NODE3, CurlResponse(error="connection refused")),
    ]
    assert results(NodeCalls.calls["version"], [NODE1, NODE2, NODE3], answered) == {
        "node1": RpcResult("node1", payload=5, call="version"),
        "node2": RpcResult("node2", error="node is marked offline", offline=True, call="version"),
        "node3": RpcResult(
            "node3", error="connection refused", address="192.0.2.3:1811", call="version"
        ),
    }


def test_of_a_node_that_is_not_reached_it_is_said_what_helps() -> None:
    silent = RpcResult("n3", error="connection refused", address="192.0.2.1:1811", call="version")
    text = silent.explain("look at n3")
    assert text.startswith("cannot look at n3: node 'n3', call version: connection refused; ")
    assert "is ganeti-noded running there?" in text
    assert "'gnt-node modify --offline=yes n3'" in text
    assert "gnt-node" not in RpcResult("n3", error="no space", call="version").explain("look")


def test_a_result_is_checked() -> None:
    assert RpcResult("node1", payload=[1]).check("cannot look") == [1]
    failed = RpcResult("node1", error="no space", address="192.0.2.1:1811")
    with pytest.raises(
        OpExecError, match=r"cannot write: node 'node1' \(192\.0\.2\.1:1811\): no space"
    ):
        failed.check("cannot write")


def test_a_call_that_broke_off_may_have_done_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    call = call_of(NodeCalls.version)
    answers = [encode(f"it {what}") for encode, what in _ENDS]
    refused, broken = (read_answer(call, "node1", answer) for answer in answers)
    assert (refused.is_open, broken.is_open) == (False, True)
    assert RpcResult("node1", error="connection reset", address="192.0.2.1").is_open
    calls = Calls()
    monkeypatch.setattr(calls, "perform", lambda _call, _targets: {"node1": broken})
    with pytest.raises(NodeNotReachedError, match="it was killed; it may have done its work"):
        calls.on(NODE1, "ask").version()

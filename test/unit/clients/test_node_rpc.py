"""Tests of ganeti/clients/node_rpc.py: what is sent and what is made of answers, no connections.

The clients themselves are tested in test/daemon/test_https_clients.py.
"""

from __future__ import annotations

import pytest

from ganeti.base.errors import OpExecError, ProtocolError
from ganeti.clients.node_rpc import (
    RpcResult,
    Target,
    call_named,
    encode_values,
    results,
    to_be_asked,
)
from ganeti.protocol.node_rpc import NODE_RPC
from ganeti.protocol.node_rpc_values import FileDetails, decode_file_details, decompress
from ganeti.transport.curl_pool import CurlResponse

NODE1 = Target("node1", "192.0.2.1")
NODE2 = Target("node2", "2001:db8::2", 1234, offline=True)


class Thing:
    def to_wire(self) -> dict[str, object]:
        return {"name": "thing"}


def test_urls() -> None:
    assert NODE1.url("version") == "https://192.0.2.1:1811/version"
    assert NODE2.url("version") == "https://[2001:db8::2]:1234/version"


def test_values_are_encoded_as_the_table_says() -> None:
    path, content = encode_values(NODE_RPC["jobqueue_update"], ["/x", b"y" * 1000])
    assert path == "/x"
    assert decompress(content) == b"y" * 1000


def test_objects_are_asked_for_their_form() -> None:
    found = encode_values(NODE_RPC["blockdev_close"], ["inst", [Thing(), {"size": 1}]])
    assert found == ["inst", [{"name": "thing"}, {"size": 1}]]
    found = encode_values(NODE_RPC["instance_shutdown"], [Thing(), 60, []])
    assert found == [{"name": "thing"}, 60, []]
    table = {"uuid-1": [Thing()]}
    assert encode_values(NODE_RPC["blockdev_getmirrorstatus_multi"], [table]) == [
        {"uuid-1": [{"name": "thing"}]}
    ]


def test_a_file_is_encoded_with_its_details() -> None:
    details = FileDetails("/x", b"content", 0o640, "root", "root", 1.5, 2.5)
    [found] = encode_values(NODE_RPC["upload_file"], [details])
    assert decode_file_details(found) == details


def test_what_has_the_form_for_the_wire_stays() -> None:
    assert encode_values(NODE_RPC["jobqueue_update"], ["/x", [0, "y"]]) == ["/x", [0, "y"]]
    assert encode_values(NODE_RPC["hooks_runner"], ["p", "pre", {"A": "b"}]) == [
        "p",
        "pre",
        {"A": "b"},
    ]


def test_an_unknown_call_is_named() -> None:
    with pytest.raises(ProtocolError, match="no node call 'nonsense'"):
        call_named("nonsense")


def test_offline_nodes_are_asked_only_what_they_must_be() -> None:
    assert to_be_asked(NODE_RPC["node_info"], [NODE1, NODE2]) == [NODE1]
    assert to_be_asked(NODE_RPC["version"], [NODE1, NODE2]) == [NODE1, NODE2]


def test_results_of_answered_failed_and_offline_nodes() -> None:
    node3 = Target("node3", "192.0.2.3")
    answered = [
        (NODE1, CurlResponse(200, b"[true, 5]\n")),
        (node3, CurlResponse(error="connection refused")),
    ]
    assert results([NODE1, NODE2, node3], answered) == {
        "node1": RpcResult("node1", payload=5),
        "node2": RpcResult("node2", error="node is marked offline", offline=True),
        "node3": RpcResult("node3", error="connection refused", address="192.0.2.3:1811"),
    }


def test_a_result_is_checked() -> None:
    assert RpcResult("node1", payload=[1]).check("cannot look") == [1]
    failed = RpcResult("node1", error="no space", address="192.0.2.1:1811")
    with pytest.raises(
        OpExecError, match=r"cannot write: node 'node1' \(192\.0\.2\.1:1811\): no space"
    ):
        failed.check("cannot write")

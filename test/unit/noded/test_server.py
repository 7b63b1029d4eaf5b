"""Where a call runs, how long it may take, what it shares its slots with."""

import pytest

from ganeti.noded import main
from ganeti.noded.child import RequestHead
from ganeti.protocol.node_calls import NodeCalls
from ganeti.transport.http_message import HttpRequest
from ganeti.transport.tls import PeerCertificate

PEER = PeerCertificate("AA:BB", "node1.example.com", 0.0, 1.0)


def request(**headers: str) -> HttpRequest:
    return HttpRequest("POST", "/version", headers, b"[]", PEER, "127.0.0.5")


@pytest.mark.parametrize(
    ("headers", "job_id"),
    [({}, None), ({"x-ganeti-job": "12"}, 12), ({"x-ganeti-job": "-1"}, None)]
    + [({"x-ganeti-job": text}, None) for text in ("", "twelve", "1.5")],
)
def test_the_head_names_the_peer_and_the_job(headers: dict[str, str], job_id: int | None) -> None:
    head = main._request_head(request(**headers), NodeCalls.calls["version"])
    name = "node1.example.com"
    assert head == RequestHead("version", f"127.0.0.5 ({name})", job_id, peer_name=name)


@pytest.mark.parametrize(
    ("name", "body", "limit_s"),
    [
        ("instance_shutdown", b'[{"name": "web1"}, 1800, []]', 2700.0),
        ("version", b"[]", 60.0),
        ("test_delay", b"[10]", 15.0),
        ("test_delay", b"nonsense", 5.0),
        ("instance_os_add", b"nonsense", 86400.0),
    ],
)
def test_the_limit_is_the_table_s(name: str, body: bytes, limit_s: float) -> None:
    assert main._limit_s(NodeCalls.calls[name], body) == limit_s


@pytest.mark.parametrize(
    ("name", "speed"),
    [
        ("version", "quick"),
        ("os_diagnose", "quick"),
        ("instance_start", "normal"),
        ("instance_os_add", "slow"),
        ("instance_migrate", "slow"),
    ],
)
def test_slow_calls_never_keep_quick_ones_waiting(name: str, speed: str) -> None:
    assert main._speed(NodeCalls.calls[name]) == speed

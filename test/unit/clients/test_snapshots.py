"""Clusters that a remote API tells of: where it is, and who asks; reports of monitoring daemons."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import pytest

from ganeti.allocation.model import Node
from ganeti.base.errors import GenericError
from ganeti.clients import snapshots
from ganeti.clients.rapi import Password, RapiRefusedError
from ganeti.transport.curl_pool import CurlRequest, CurlResponse


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, Password | None]]:
    """Let no remote API answer; return where they were sought, and by whom."""
    found: list[tuple[str, int, Password | None]] = []

    class Refusing:
        def __init__(self, host: str, port: int, *, login: Password | None, trust: object) -> None:
            found.append((host, port, login))

        def __enter__(self) -> Refusing:
            return self

        def __exit__(
            self, kind: type[BaseException] | None, err: object, trace: TracebackType | None
        ) -> None:
            pass

        def __getattr__(self, name: str) -> Any:
            raise RapiRefusedError(f"GET {name}: who are you?", 401)

    monkeypatch.setattr(snapshots, "RapiClient", Refusing)
    return found


@pytest.mark.parametrize(
    ("address", "host", "port", "login"),
    [
        ("cluster", "cluster", 5080, None),
        ("cluster:15080", "cluster", 15080, None),
        ("https://[2001:db8::1]", "2001:db8::1", 5080, None),
        ("https://joe:a%2fb%40@cluster:15080", "cluster", 15080, Password("joe", "a/b@")),
        ("joe:secret@cluster", "cluster", 5080, Password("joe", "secret")),
        ("https://joe@cluster", "cluster", 5080, Password("joe", "")),
    ],
)
def test_an_address_tells_where_and_who(
    address: str,
    host: str,
    port: int,
    login: Password | None,
    asked: list[tuple[str, int, Password | None]],
) -> None:
    with pytest.raises(GenericError) as caught:
        snapshots.from_rapi(address)
    assert asked == [(host, port, login)]
    assert "who are you?" in caught.value.message
    assert "cluster" in caught.value.message or "2001:db8::1" in caught.value.message
    assert "joe" not in caught.value.message


def test_a_password_is_in_no_message_about_an_address_that_is_none() -> None:
    with pytest.raises(GenericError) as caught:
        snapshots.from_rapi("https://joe:secret@cluster:none")
    assert "cluster:none' is no address" in caught.value.message
    assert "secret" not in caught.value.message


ANSWERS = {
    "good": b'[{"name": "cpu-avg-load", "data": {"cpu_total": 1.5}}]',
    "odd": b'{"error": "of another version"}',
    "cut": b'[{"name": "cpu-avg',
}


class Answering:
    """Answers as the monitoring daemons would."""

    def __init__(self, _identity: object) -> None:
        pass

    def perform(self, requests: list[CurlRequest]) -> list[CurlResponse]:
        hosts = [request.url.split("/")[2].partition(":")[0] for request in requests]
        return [CurlResponse(status=200, body=ANSWERS[host]) for host in hosts]

    def close(self) -> None:
        pass


def test_a_monitoring_daemon_that_tells_something_else_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshots, "CurlPool", Answering)
    nodes = [Node(name, "g", is_usable=True) for name in ANSWERS]
    assert list(snapshots.reports_of(nodes)) == ["good"]

"""The cluster's address at the start of LuxiD, while the node daemon starts, too."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ganeti.clients.node_rpc import RpcResult
from ganeti.luxid import daemon as luxid

SILENT = RpcResult[object]("node1", error="no connection within 5 s", address="192.0.2.1:1811")
DONE = RpcResult[object]("node1")
FAILED = RpcResult[object]("node1", error="no such device")


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([DONE], []),
        ([SILENT, SILENT, SILENT, DONE], ["trying again"]),
        ([SILENT, FAILED], ["trying again", "going on without"]),
        ([FAILED], ["going on without"]),
    ],
)
def test_a_node_that_is_not_up_is_asked_until_it_answers(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    answers: list[RpcResult[object]],
    said: list[str],
) -> None:
    left = list(answers)

    async def ask(_self: luxid.LuxiDaemon) -> RpcResult[object]:
        return left.pop(0)

    monkeypatch.setattr(luxid, "ADDRESS_PAUSE_S", 0.0)
    monkeypatch.setattr(luxid.LuxiDaemon, "_ask_for_master_ip", ask)
    daemon = object.__new__(luxid.LuxiDaemon)
    with caplog.at_level(logging.WARNING):
        asyncio.run(daemon._take_master_ip())
    assert left == []
    assert [record.message.rpartition("; ")[2] for record in caplog.records] == said

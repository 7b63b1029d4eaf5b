"""What the template of job processes does once for them, with a real node daemon."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from fakes.noded_node import NodedNode, short_directory

from ganeti.clients import node_rpc
from ganeti.jobexec import rehearsal
from ganeti.jobexec.template import run
from ganeti.store import ssconf
from ganeti.transport.curl_pool import CurlPool, CurlRequest, CurlResponse


class Recorded(CurlPool):
    """Keeps what was answered."""

    responses: list[CurlResponse]

    def perform(self, requests: Sequence[CurlRequest]) -> list[CurlResponse]:
        found = super().perform(requests)
        self.responses += found
        return found


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def rehearsed(node: NodedNode, monkeypatch: pytest.MonkeyPatch) -> list[CurlResponse]:
    """Rehearse on a node; returns what was answered."""
    monkeypatch.setattr(Recorded, "responses", [], raising=False)
    monkeypatch.setattr(node_rpc, "CurlPool", Recorded)
    monkeypatch.setattr(rehearsal, "_CALL_S_MAX", 60.0)
    list(rehearsal.rehearse(node.paths, run))
    return Recorded.responses


def test_the_own_node_is_called_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with short_directory() as base, NodedNode(base) as node:
        values = {"master_node": node.name, "node_primary_ips": f"{node.name} {node.address}"}
        ssconf.write_values(node.paths, values)
        rehearsed(node, monkeypatch)  # what is imported on first use
        gc.collect()  # descriptors of other tests may wait for it
        before = descriptors(), threading.active_count()
        responses = rehearsed(node, monkeypatch)
        assert [response.status for response in responses] == [200] * rehearsal._PLAYS
        assert (descriptors(), threading.active_count()) == before


def test_a_node_that_knows_nothing_calls_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rehearsed(NodedNode(tmp_path), monkeypatch) == []

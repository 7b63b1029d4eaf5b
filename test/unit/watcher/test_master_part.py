"""Tests of ganeti/watcher/master_part.py: silent nodes under high availability."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from ganeti.base.paths import Paths
from ganeti.clients.luxi import LuxiClient
from ganeti.jobs.votes import Poll
from ganeti.opcodes.node import OpNodeSetParams
from ganeti.opcodes.opcode import OpCode
from ganeti.protocol.luxi import QueryResponse
from ganeti.watcher import master_part


class Luxi:
    """A cluster in which a silent node is tried once."""

    def __init__(self) -> None:
        self.submitted: list[OpCode] = []

    def query_cluster_info(self) -> dict[str, Any]:
        return {"silent_node_tries": 1}

    def query(self, _what: str, _fields: Sequence[str], _filter: object) -> QueryResponse:
        return QueryResponse([], [])

    def submit_many_jobs(self, jobs: Sequence[Sequence[OpCode]]) -> list[tuple[bool, Any]]:
        self.submitted += [opcode for job in jobs for opcode in job]
        return [(True, 1) for _ in jobs]


@pytest.mark.parametrize("is_on", [False, True])
def test_a_silent_node_is_set_offline_unless_high_availability_has_to_prove_it_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_on: bool
) -> None:
    paths, luxi, tried = Paths(str(tmp_path)), Luxi(), list[str]()
    os.makedirs(paths.data_dir)
    Path(paths.ssconf_file("offline_nodes")).write_text("")
    if is_on:
        Path(paths.high_availability).touch()

    async def attempt(_paths: Paths, names: Sequence[str]) -> None:
        tried.extend(names)

    monkeypatch.setattr(master_part, "_try_over_ssh", attempt)
    poll = Poll("n1", ["n1", "n2", "n3", "n4"], {}, {"n2": "timed out"})
    for _ in range(2):
        assert master_part._look_after_nodes(cast(LuxiClient, luxi), paths, poll)
    assert tried == (["n2", "n2"] if is_on else ["n2"])
    found = [each.offline for each in luxi.submitted if isinstance(each, OpNodeSetParams)]
    assert found == ([] if is_on else [True])

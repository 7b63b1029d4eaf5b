"""Tests of ganeti/watcher/master_part.py: silent nodes under high availability."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from ganeti.base.errors import CommandError, JobQueueDrainError
from ganeti.base.paths import Paths
from ganeti.clients.luxi import LuxiClient
from ganeti.jobs.votes import Poll
from ganeti.opcodes.node import OpNodeSetParams
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.tags import OpTagsSet
from ganeti.protocol.luxi import QueryResponse
from ganeti.system.process import CommandResult
from ganeti.watcher import master_part
from ganeti.watcher.silent_nodes import OFFER_TAG


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

    def attempt(_paths: Paths, names: Sequence[str]) -> None:
        tried.extend(names)

    monkeypatch.setattr(master_part, "_try_over_ssh", attempt)
    poll = Poll("n1", ["n1", "n2", "n3", "n4"], {}, {"n2": "timed out"})
    for _ in range(2):
        assert master_part._look_after_nodes(cast(LuxiClient, luxi), paths, poll)
    assert tried == (["n2", "n2"] if is_on else ["n2"])
    found = [each.offline for each in luxi.submitted if isinstance(each, OpNodeSetParams)]
    assert found == ([] if is_on else [True])


def test_an_offer_that_a_drained_queue_refuses_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was noted as made: the node was never offered."""
    paths, luxi, tried = Paths(str(tmp_path)), Luxi(), list[str]()
    os.makedirs(paths.data_dir)
    Path(paths.ssconf_file("offline_nodes")).write_text("n2\n")

    def attempt(_paths: Paths, names: Sequence[str]) -> None:
        tried.extend(names)

    def refuse(_jobs: object) -> list[tuple[bool, Any]]:
        raise JobQueueDrainError("the queue is drained")

    monkeypatch.setattr(master_part, "_try_over_ssh", attempt)
    poll = Poll("n1", ["n1", "n2", "n3", "n4"], {}, {"n3": "timed out"})
    with monkeypatch.context() as drained:
        drained.setattr(luxi, "submit_many_jobs", refuse)
        assert not master_part._look_after_nodes(cast(LuxiClient, luxi), paths, poll)
    assert tried == ["n3"]
    poll = Poll("n1", ["n1", "n2", "n3", "n4"], {}, {})
    assert master_part._look_after_nodes(cast(LuxiClient, luxi), paths, poll)
    [offer] = luxi.submitted
    assert isinstance(offer, OpTagsSet)
    assert (offer.name, offer.tags) == ("n2", [OFFER_TAG])


def test_all_silent_nodes_are_tried_however_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those behind the first sixteen counted as tried, and were set offline."""
    paths, tried = Paths(str(tmp_path)), list[str]()
    os.makedirs(paths.data_dir)
    Path(paths.ssconf_file("cluster_name")).write_text("cluster.example.com\n")

    class Transport:
        def __init__(self, _paths: Paths, name: str, **_how: object) -> None:
            self._name = name

        def run(self, *_argv: object, **_how: object) -> CommandResult:
            tried.append(self._name)
            raise CommandError("no route to host")

    monkeypatch.setattr(master_part, "transport_to", Transport)
    names = [f"n{number}" for number in range(2, 22)]
    master_part._try_over_ssh(paths, names)
    assert sorted(tried) == sorted(names)

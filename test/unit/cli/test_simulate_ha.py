"""``gnt-debug simulate-ha``: a cluster as LuxiD lists it is played."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ganeti.base.errors import GenericError
from ganeti.cli.debug.simulate_ha import simulate

NODES = [
    ["node2", "C", 1000, 100, ""],
    ["node1", "M", 1000, 100, ""],
    ["node3", "C", 1000, 100, "/usr/lib/oob"],
    ["node4", "R", None, None, ""],
    ["node5", "O", None, None, ""],
]
INSTANCES = [
    ["shared", "node3", [], "sharedfile", 500, "up", ["ha:priority:1"]],
    ["pair", "node3", ["node2"], "drbd", 500, "up", []],
    ["local", "node3", [], "plain", 10, "up", []],
    ["never", "node3", [], "sharedfile", 10, "up", ["ha:priority:never"]],
    ["stopped", "node3", [], "sharedfile", 10, "down", []],
]


def run(path: Path, unguarded: list[str] | None = None) -> tuple[int, list[str]]:
    lines: list[str] = []
    client = SimpleNamespace(
        query_nodes=lambda _names, _fields: NODES, query_instances=lambda _names, _fields: INSTANCES
    )
    context: Any = SimpleNamespace(client=client, write=lines.append)
    options: Any = SimpleNamespace(unguarded=unguarded)
    return simulate(context, options, [str(path)]), lines


@pytest.fixture
def night(tmp_path: Path) -> Path:
    path = tmp_path / "night"
    path.write_text("10 lose node3\n100 end\n", encoding="ascii")
    return path


def test_what_happens_when_a_node_is_lost(night: Path) -> None:
    status, lines = run(night)
    assert status == 0
    text = "\n".join(lines)
    assert "node3 is proved dead: fenced" in text
    assert "shared runs on node4" in text  # the one with the most memory
    assert "pair runs on node2" in text
    assert "local does not run: no node that is alive has its disks" in lines
    assert "never does not run: it is never to be restarted by itself" in lines
    assert "stopped" not in text
    assert "node1 runs 0 instances, is the master" in lines
    assert "node3 is off" in lines
    assert "node5" not in text


def test_without_a_proof_the_end_says_what_to_type(night: Path) -> None:
    night.write_text("0 helper none node3\n10 lose node3\n", encoding="ascii")
    status, lines = run(night, ["node3"])
    assert status == 0
    assert any("ha-confirm-dead" in line for line in lines)


def test_what_is_not_there_is_refused(night: Path) -> None:
    with pytest.raises(GenericError, match="'node5' is no node that is online"):
        run(night, ["node5"])
    with pytest.raises(GenericError, match="cannot read"):
        run(night.parent)

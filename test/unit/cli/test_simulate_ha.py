"""``gnt-debug simulate-ha``: a cluster as LuxiD lists it is played."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.confd_config import DB, WEB, confd_config, encoded
from fakes.confd_config import NODES as NODE_UUIDS

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
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
    context: Any = SimpleNamespace(client=client, write=lines.append, paths=Paths("/nowhere"))
    options: Any = SimpleNamespace(unguarded=unguarded, config=None, memory=None, lease_disk=False)
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


def played(path: Path, config: dict[str, Any], memory: int | None = None) -> list[str]:
    """Play a scenario on the cluster of a configuration; there is no master daemon."""
    lines: list[str] = []
    file = path.with_name("config.data")
    file.write_bytes(encoded(config))
    context: Any = SimpleNamespace(write=lines.append)
    options: Any = SimpleNamespace(
        unguarded=None, config=str(file), memory=memory, lease_disk=False
    )
    assert simulate(context, options, [str(path)]) == 0
    return lines


@pytest.fixture
def config() -> dict[str, Any]:
    """Return five nodes, of which the third is offline; db on node2 has a copy on node1."""
    found = confd_config()
    found["instances"][DB]["admin_state"] = "up"
    found["instances"][WEB]["admin_state"] = "down"
    return found


def test_any_configuration_can_be_played(night: Path, config: dict[str, Any]) -> None:
    names = [config["nodes"][uuid]["name"] for uuid in NODE_UUIDS]
    night.write_text(f"10 lose {names[1]}\n100 return {names[1]}\n200 end\n", encoding="ascii")
    lines = played(night, config)
    text = "\n".join(lines)
    assert f"{names[1]} is proved dead: watchdog" in text
    assert f"db.example.com runs on {names[0]}" in text
    assert f"{names[0]} runs 1 instances, is the master" in lines
    assert f"{names[1]} has booted" in text
    assert names[2] not in text
    assert "web.example.com" not in text
    assert "TWICE" not in text


def test_what_has_no_room_there_is_named(night: Path, config: dict[str, Any]) -> None:
    names = [config["nodes"][uuid]["name"] for uuid in NODE_UUIDS]
    config["cluster"]["ndparams"] = {"oob_program": "/etc/ganeti/oob-helper"}
    night.write_text(f"10 lose {names[1]}\n", encoding="ascii")
    lines = played(night, config, 1)
    assert any(f"{names[1]} is proved dead: fenced" in line for line in lines)
    [why] = [line for line in lines if line.startswith("db.example.com does not run")]
    assert "MiB of memory" in why


def test_a_partition_and_its_end(night: Path, config: dict[str, Any]) -> None:
    names = [config["nodes"][uuid]["name"] for uuid in NODE_UUIDS]
    night.write_text(f"10 part {names[1]}\n90 heal\n300 end\n", encoding="ascii")
    lines = played(night, config)
    text = "\n".join(lines)
    assert f"the watchdog resets {names[1]}" in text
    reset = text.index(f"the watchdog resets {names[1]}")
    assert reset < text.index(f"db.example.com runs on {names[0]}")


def test_a_file_that_is_no_configuration_is_refused(night: Path, tmp_path: Path) -> None:
    context: Any = SimpleNamespace(write=print)
    for text in ("{", "[]", None):
        file = tmp_path / "broken"
        if text is None:
            file.unlink()
        else:
            file.write_text(text, encoding="ascii")
        options: Any = SimpleNamespace(unguarded=None, config=str(file), memory=None)
        with pytest.raises(GenericError):
            simulate(context, options, [str(night)])

"""What is written on a node that becomes the master, while it is being made so."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fakes.large_config import large_config_bytes

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.bootstrap.failover import Failover, FailoverOptions, Outlook
from ganeti.clients.node_rpc import NodeRpcClient
from ganeti.jobs.votes import Answer, Poll, Takeover
from ganeti.protocol.node_rpc_values import NodeFacts
from ganeti.store import config_file

OWN, OTHER = "node2.example.com", "node3.example.com"
SERIAL = 50_000


def config(serial: int, tag: str) -> bytes:
    data = json.loads(large_config_bytes(nodes=3, instances=0))
    data["serial_no"] = serial
    data["cluster"]["tags"] = [tag]
    for node in data["nodes"].values():
        node["master_candidate"] = True
    return json.dumps(data).encode()


def outlook(taken: bytes, own_serial: int, config_from: str) -> Outlook:
    serials = {OWN: own_serial, OTHER: json.loads(taken)["serial_no"]}
    answers = {
        name: Answer(OWN, NodeFacts(master_name=OWN, config_serial=serial))
        for name, serial in serials.items()
    }
    plan = Takeover(
        config_from=config_from,
        serial_no=SERIAL,
        hand_over=(),
        queue_from=(OWN, OTHER),
        is_complete=True,
    )
    return Outlook(Poll(OWN, [OWN, OTHER], answers), plan, taken, {})


@pytest.fixture
def failover(tmp_path: Path) -> Failover:
    paths = Paths(str(tmp_path))
    for directory in (paths.data_dir, paths.lock_dir):
        os.makedirs(directory, exist_ok=True)
    return Failover(paths, OWN, NodeRpcClient(paths), FailoverOptions(), lambda _text: None)


@pytest.mark.parametrize(
    ("own_before", "own_now", "taken", "expected"),
    [
        (7, 7, 7, "first"),
        (7, 7, 9, "taken"),  # another node has more
        (7, 8, 7, "own"),  # the old master reaches this node
        (7, 9, 8, "own"),
        (7, 8, 9, "taken"),
        (900, 900, 9, "taken"),  # this node wrote apart from the others, and nobody since
    ],
)
def test_the_newest_is_written_as_that_of_the_new_master(
    failover: Failover, own_before: int, own_now: int, taken: int, expected: str
) -> None:
    first = config(7, "first")
    config_file.write_config(failover._paths, config(own_now, "own"))
    found = first if taken == 7 else config(taken, "taken")
    before = outlook(first, own_before, OWN)
    now = outlook(found, own_before, OWN if taken == 7 else OTHER)
    written = failover._write_config(now, before, failover._next_config(before))
    assert written == config_file.read_config(failover._paths)
    data = json.loads(written)
    assert (data["cluster"]["tags"], data["serial_no"]) == ([expected], SERIAL)


def test_the_configuration_of_a_master_that_was_faster_stays(failover: Failover) -> None:
    config_file.write_config(failover._paths, config(SERIAL + 10_000, "theirs"))
    before = outlook(config(7, "first"), 7, OWN)
    with pytest.raises(OpPrereqError, match="another node has become the master"):
        failover._write_config(before, before, failover._next_config(before))
    assert json.loads(config_file.read_config(failover._paths))["cluster"]["tags"] == ["theirs"]


def test_a_disk_that_is_full_is_named(failover: Failover, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(paths: Paths, _data: bytes) -> None:
        raise OSError(28, "No space left on device", paths.config_data)

    before = outlook(config(7, "first"), 7, OWN)
    monkeypatch.setattr(config_file, "write_config", full)
    with pytest.raises(GenericError, match=r"config.data: No space left .*; put that right"):
        failover._write_config(before, before, failover._next_config(before))

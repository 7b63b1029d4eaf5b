"""What WConfD looks at before it serves: mastership and the state of its files."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.waiting import wait_until
from fakes.wconfd_node import DEADLINE_S, WconfdNode

from ganeti.store import ssconf
from ganeti.system import clock, files
from ganeti.system.filelock import LiveLock

EXIT_FAILURE, EXIT_CONFIGURATION, EXIT_NOTMASTER = 1, 2, 11


@pytest.fixture
def node() -> Iterator[WconfdNode]:
    with WconfdNode() as node:
        yield node


def refusal(node: WconfdNode, *options: str) -> tuple[int, str]:
    """Start WConfD, which is to end by itself; returns exit status and what it said."""
    status = node.spawn(*options).wait(DEADLINE_S)
    return status, node.stderr()


@pytest.mark.shows(
    "backend/roles/master-holds", "backend/masterd/confirms", "2.0/startup/designated"
)
def test_a_node_that_is_not_the_master_is_refused(node: WconfdNode) -> None:
    ssconf.write_values(node.paths, {"master_node": "node2.example.com"})
    status, text = refusal(node)
    assert status == EXIT_NOTMASTER
    assert "node2.example.com" in text


@pytest.mark.shows("2.0/startup/override")
def test_voting_can_be_overridden_with_confirmation(node: WconfdNode) -> None:
    ssconf.write_values(node.paths, {"master_node": "node2.example.com"})
    status, text = refusal(node, "--no-voting")
    assert status == EXIT_FAILURE
    assert "--yes-do-it" in text
    node.start("--no-voting", "--yes-do-it")


def test_a_second_one_is_refused(node: WconfdNode) -> None:
    first = node.start().process
    status, text = refusal(node)
    assert status == EXIT_FAILURE
    assert "already running" in text
    node.process = first


@pytest.mark.parametrize("cut", [0, 1, 1000, -1])
def test_a_truncated_configuration_is_refused_with_place_and_way_back(
    node: WconfdNode, cut: int
) -> None:
    path = node.paths.config_data
    data = files.read_bytes(path)
    broken = data[:cut]
    files.write_durable(path, broken)
    files.write_durable(f"{path}.backup-1", data)
    ssconf.write_values(
        node.paths,
        {
            "master_candidates": "node1.example.com\nnode2.example.com",
            "master_candidates_ips": "127.0.0.1\n127.0.0.2",
        },
    )
    status, text = refusal(node)
    assert status == EXIT_CONFIGURATION
    assert f"byte {len(broken)}" in text
    assert f"{path}.backup-1" in text
    assert "node2.example.com" in text
    assert files.read_bytes(path) == broken


def test_wrong_types_are_refused_with_the_name_of_the_object(node: WconfdNode) -> None:
    config = node.config()
    next(iter(config["instances"].values()))["nics"] = 5
    files.write_durable(node.paths.config_data, json.dumps(config).encode())
    status, text = refusal(node)
    assert status == EXIT_CONFIGURATION
    assert "inst0.example.com" in text
    assert "nics" in text


def test_no_configuration_is_refused(node: WconfdNode) -> None:
    os.unlink(node.paths.config_data)
    status, text = refusal(node)
    assert status == EXIT_CONFIGURATION
    assert "does not exist" in text


def test_a_configuration_from_the_future_is_refused_by_its_version(node: WconfdNode) -> None:
    config = {**node.config(), "version": 4020000}
    files.write_durable(node.paths.config_data, json.dumps(config).encode())
    status, text = refusal(node)
    assert status == EXIT_CONFIGURATION
    assert "4.2" in text


def test_an_old_configuration_is_upgraded_after_a_backup(node: WconfdNode) -> None:
    config = node.config()
    config["version"] = 2160000
    del config["cluster"]["ssh_key_bits"]
    files.write_durable(node.paths.config_data, json.dumps(config).encode())
    node.start()
    assert node.config()["version"] == 3000000
    assert "ssh_key_bits" in node.config()["cluster"]
    backups = [name for name in os.listdir(node.paths.data_dir) if "backup" in name]
    assert len(backups) == 1
    node.owner().client.verify_config()


BROKEN: list[Any] = [b"", b"[[", b"{}", b'[[[["x"],[]]],[]]', b"\xff"]


@pytest.mark.parametrize("content", BROKEN)
@pytest.mark.parametrize(
    "name", ["locks.data", "locks-own.data", "tempres.data", "tempres-own.data"]
)
def test_broken_state_files_begin_anew_when_nobody_lives(
    node: WconfdNode, name: str, content: bytes
) -> None:
    """After a power cut these may hold anything, and all owners are dead."""
    files.write_atomic(f"{node.paths.data_dir}/{name}", content)
    node.start()
    assert node.owner().client.list_all_locks() == []


def test_a_port_in_use_does_not_return_to_the_pool_with_its_reservation(node: WconfdNode) -> None:
    """WConfD was killed after the change that used the port, before it dropped the reservation."""
    config = node.config()
    instance = next(iter(config["instances"].values()))
    instance["network_port"] = config["cluster"]["highest_used_port"] = 11005
    files.write_durable(node.paths.config_data, json.dumps(config).encode())
    dead = [7, f"{node.paths.livelock_dir}/job_000007_1", 1]
    own = {"ids": [], "ports": [[dead, [11004, 11005]]], "minors": [], "amounts": []}
    files.write_atomic(node.paths.tempres_own_data, json.dumps(own).encode())
    client = node.start().owner().hold().client
    client.add_tags("cluster", "", ["x"])
    assert client.get_cluster().tcpudp_port_pool == [11004]
    client.verify_config()


def test_broken_locks_are_refused_while_an_owner_lives(node: WconfdNode) -> None:
    files.write_atomic(node.paths.locks_data, b"[[]")
    with LiveLock.create(f"{node.paths.livelock_dir}/job_000007_1"):
        status, text = refusal(node)
    assert status == EXIT_CONFIGURATION
    assert node.paths.locks_data in text
    assert "job_000007_1" in text
    assert "truncated" in text


@pytest.mark.shows("2.12/death/stale")
def test_stale_lock_files_go(node: WconfdNode) -> None:
    stale = f"{node.paths.livelock_dir}/job_000007_1"
    files.write_atomic(stale, b"")
    os.utime(stale, (0, 0))
    lost = f"{node.paths.livelock_dir}/.job_000008_1.99.tmp"
    files.write_atomic(lost, b"")
    os.utime(lost, (0, 0))
    living = LiveLock.create(f"{node.paths.livelock_dir}/job_000009_1")
    client = node.start().owner().client
    wait_until(lambda: not os.path.exists(stale), "the stale file to go")
    wait_until(lambda: not os.path.exists(lost), "the lost one to go")
    assert os.path.exists(living.path)
    assert client.echo("x") == "x"
    living.release()


def test_a_lock_file_in_the_making_goes_with_its_process(node: WconfdNode) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = f"{node.paths.livelock_dir}/.luxi-daemon_1.{ended.pid}.tmp"
    kept = f"{node.paths.livelock_dir}/.luxi-daemon_2.{os.getpid()}.tmp"
    for path in (left, kept):
        files.write_atomic(path, b"")
        os.utime(path, (clock.now() - 60, clock.now() - 60))
    node.start()
    wait_until(lambda: not os.path.exists(left), "the file of a dead process to go")
    assert os.path.exists(kept), "its process lives"

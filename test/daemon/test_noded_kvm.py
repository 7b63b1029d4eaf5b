"""Real QEMU processes, ordered over the node RPC: they outlive the node daemon, and move."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.noded_node import NodedNode, short_directory
from guests.images import boot_sector_image
from guests.instances import make_instance

from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.system import clock, process

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="needs QEMU"),
]
NAME = "inst1.example.com"
DISK = "/srv/ganeti/shared-file-storage/inst1/disk0"
BOOT_TIMEOUT_S = 60.0


@pytest.fixture
def nodes() -> Iterator[list[NodedNode]]:
    with short_directory() as base:
        (base / "shared").mkdir()
        nodes = [NodedNode(base, f"node{number}.example.com") for number in (1, 2)]
        for node in nodes:
            target = Path(node.paths.shared_file_storage_dir)
            target.parent.mkdir(parents=True)
            target.symlink_to(base / "shared")
        with nodes[0], nodes[1]:
            try:
                yield nodes
            finally:
                for node in nodes:
                    node.start() if node.pid == 0 else None
                    node.call("instance_shutdown", instance(), 0, [])


def instance(**changes: Any) -> dict[str, Any]:
    wire = make_instance(
        NAME, kernel_path="", kvm_flag="disabled", vnc_bind_address="", serial_console=True
    ).to_wire()
    wire["disks_info"] = [
        {
            "dev_type": "sharedfile",
            "logical_id": ["loop", DISK],
            "size": 1,
            "iv_name": "disk/0",
            "uuid": "ee8b6d3b-9c9e-48f4-9373-1b4a3fd556cd",
            "serial_no": 1,
            "params": {},
            "dynamic_params": {},
        }
    ]
    wire["disks"] = ["ee8b6d3b-9c9e-48f4-9373-1b4a3fd556cd"]
    return {**wire, **changes}


def make_disk(node: NodedNode) -> None:
    node.payload("blockdev_create", instance()["disks_info"][0], 1, NAME, True, "", False)
    boot_sector_image(node.paths.localize(DISK))


def wait_for_console(node: NodedNode, text: str) -> None:
    path = Path(MachineFiles(node.paths, NAME).serial_log)
    deadline = clock.monotonic() + BOOT_TIMEOUT_S
    while not (path.exists() and text in path.read_text(errors="replace")):
        assert clock.monotonic() < deadline, f"no {text!r} on the console"
        os.sched_yield()


@pytest.mark.shows("backend/noded/stopped", "2.12/noded/restart-noded")
def test_a_guest_outlives_the_node_daemon(nodes: list[NodedNode]) -> None:
    node = nodes[0]
    make_disk(node)
    node.payload("instance_start", instance(), False, [])
    wait_for_console(node, "start 1")
    for stop in (node.stop, lambda: os.kill(node.pid, 9)):
        stop()
        assert process.wait_gone(node.pid, 60) if node.pid else True
        node.start()
        assert node.payload("instance_info", NAME, "kvm", {})["state"] == 0
    assert node.payload("instance_list", ["kvm"], {}) == [NAME]
    node.payload("instance_shutdown", instance(), 60, [])
    assert node.payload("instance_list", ["kvm"], {}) == []


def arrive(source: NodedNode, target: NodedNode) -> None:
    """Move a guest as far as it runs on the target."""
    make_disk(source)
    source.payload("instance_start", instance(), False, [])
    wait_for_console(source, "start 1")
    info = source.payload("migration_info", instance())
    address = target.payload("accept_instance", instance(), info, target.address)
    assert target.payload("instance_list", ["kvm"], {}) == []
    source.payload("instance_migrate", "c.example.com", instance(), address, True)
    status = {"status": "active"}
    while status["status"] == "active":
        status = source.payload("instance_get_migration_status", instance())
    assert status["status"] == "completed", status
    target.payload("instance_finalize_migration_dst", instance(), info, True)


def test_a_guest_moves_alive(nodes: list[NodedNode]) -> None:
    source, target = nodes
    arrive(source, target)
    source.payload("instance_finalize_migration_src", instance(), True, True)
    assert source.payload("instance_list", ["kvm"], {}) == []
    assert target.payload("instance_info", NAME, "kvm", {})["state"] == 0
    target.payload("instance_shutdown", instance(), 60, [])


def test_a_guest_that_has_moved_is_not_started_where_it_was(nodes: list[NodedNode]) -> None:
    """So it is while the master does not know that it has moved: its job died then."""
    source, target = nodes
    arrive(source, target)
    for text in (
        source.failure("instance_start", instance(), False, []),
        source.failure("instance_shutdown", instance(), 60, []),
    ):
        assert "gnt-instance migrate --cleanup" in text
    assert target.payload("instance_info", NAME, "kvm", {})["state"] == 0
    source.payload("instance_finalize_migration_src", instance(), True, True)
    target.payload("instance_shutdown", instance(), 60, [])
    source.payload("instance_start", instance(), False, [])


def test_what_qemu_says_when_it_dies_is_in_the_error(nodes: list[NodedNode]) -> None:
    node = nodes[0]
    make_disk(node)
    broken = instance()
    broken["hvparams"] = {**broken["hvparams"], "machine_version": "no-such-machine"}
    text = node.failure("instance_start", broken, False, [])
    assert "unsupported machine type" in text
    assert node.payload("instance_list", ["kvm"], {}) == []
    assert not os.path.lexists(f"{node.paths.disk_links_dir}/{NAME}:0")

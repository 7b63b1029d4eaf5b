"""Guests that run as somebody else (root)."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from guests.instances import make_instance
from guests.nodes import QEMU, KvmNode, KvmNodes, kvm_nodes

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.hypervisor.interface import Instant
from ganeti.hypervisor.kvm.qemu import boot_sector
from ganeti.hypervisor.user_ids import uids_in_use
from ganeti.storage.nbd import NbdImage
from ganeti.store.ssconf import write_values

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.root,
    pytest.mark.skipif(QEMU is None, reason="needs qemu-system-x86_64"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user"),
]


@pytest.fixture
def nodes() -> Iterator[KvmNodes]:
    with kvm_nodes() as found:
        yield found


def uids(node: KvmNode, name: str) -> set[int]:
    """Return the real, effective, saved and file system user id of a guest's process."""
    process = node.process(name)
    assert process is not None
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (found,) = [line.split()[1:] for line in lines if line.startswith("Uid:")]
    return set(map(int, found))


@pytest.mark.shows("2.1/uid/own-id", "2.1/uid-locks/file-stays")
def test_each_guest_has_an_id_of_the_pool(nodes: KvmNodes) -> None:
    node = nodes.nodes[0]
    paths = node.env.paths
    free = next(uid for uid in range(60_100, 60_500) if uid not in uids_in_use())
    os.makedirs(paths.data_dir)
    os.makedirs(paths.lock_dir)
    write_values(paths, {"uid_pool": str(free)})
    options = {"kernel_path": "", "kvm_flag": "disabled", "security_model": "pool"}
    first, second = (
        make_instance(
            f"g{n}.example.com", uuid=f"d57ad28d-8ef1-47df-9747-d09279cc835{n}", **options
        )
        for n in (1, 2)
    )
    node.driver.check_on_node(first.hvparams)
    node.driver.start(first, [nodes.boot_disk()])
    node.wait_serial(first.name, "guest up")
    assert uids(node, first.name) == {free}
    late = nodes.boot_disk(1)  # which only root may open
    os.chmod(late.dev_path, 0o600)
    assert node.driver.hotplug.add_disk(first, late).startswith("pci.0/")
    node.driver.snapshots.take(first, str(nodes.base / "exports"), Instant())
    found = node.driver.snapshots.address(first.name, late.uuid)
    with closing(NbdImage(found.socket_path, found.export)) as image:
        assert image.read(0, 512) == boot_sector()
    node.driver.snapshots.drop(first.name)
    with pytest.raises(OpPrereqError, match="all 1 user ids of the pool are in use"):
        node.driver.start(second, [])
    assert os.listdir(paths.uid_pool_dir) == [str(free)]
    node.driver.stop(first.name, force=True)
    assert os.listdir(paths.uid_pool_dir) == []
    node.driver.start(second, [])
    assert uids(node, second.name) == {free}


@pytest.mark.shows("2.1/uid-locks/failed")
def test_an_id_is_free_again_after_a_start_that_failed(nodes: KvmNodes) -> None:
    node = nodes.nodes[0]
    paths = node.env.paths
    free = next(uid for uid in range(60_100, 60_500) if uid not in uids_in_use())
    for directory in (paths.data_dir, paths.lock_dir):
        os.makedirs(directory, exist_ok=True)
    write_values(paths, {"uid_pool": str(free)})
    options = {"kernel_path": "", "kvm_flag": "disabled", "security_model": "pool"}
    instance = make_instance("failing.example.com", **options)
    disk = nodes.boot_disk()
    os.unlink(disk.dev_path)
    with pytest.raises(GenericError):
        node.driver.start(instance, [disk])
    assert os.listdir(paths.uid_pool_dir) == []


def test_a_guest_runs_as_a_user(nodes: KvmNodes) -> None:
    node, user = nodes.nodes[0], pwd.getpwnam("nobody")
    instance = make_instance(
        kernel_path="", kvm_flag="disabled", security_model="user", security_domain=user.pw_name
    )
    node.driver.check_on_node(instance.hvparams)
    node.driver.start(instance, [])
    assert uids(node, instance.name) == {user.pw_uid}

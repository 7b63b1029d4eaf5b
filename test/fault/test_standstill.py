"""A process is killed while it lets a real guest stand still: whoever comes next lets it go on."""

from __future__ import annotations

import os
import select
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.noded_node import NodedNode, short_directory
from fakes.waiting import wait_until
from guests.counting import INSTANCE, Counting
from guests.images import boot_sector_image
from guests.instances import make_instance
from guests.nodes import QEMU, kvm_nodes
from msgspec.structs import replace

from ganeti.hypervisor.interface import Hypervisor, NodeEnv, get_hypervisor, mend
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.monitor import Monitor
from ganeti.objects.rpc_instance import RpcDisk, RpcInstance

pytestmark = [pytest.mark.qemu, pytest.mark.skipif(QEMU is None, reason="needs qemu-system-x86_64")]
NAME = INSTANCE.name
DEADLINE_S = 60.0


def with_disks(instance: RpcInstance, uuids: list[str]) -> RpcInstance:
    """Return the instance with disks that keep their snapshots beside them."""
    wire = {"dev_type": "plain", "logical_id": ["vg", "x"], "size": 4, "serial_no": 1}
    found = [RpcDisk.from_wire({**wire, "uuid": uuid, "params": {}}) for uuid in uuids]
    return replace(instance, disks_info=found)


class Keeper:
    """A process that has let the guest stand still and takes for ever to do its work."""

    def __init__(self, driver: Hypervisor, instance: RpcInstance) -> None:
        self._told, theirs = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._keep(driver, instance, theirs)
            finally:
                os._exit(1)
        os.close(theirs)
        ready, _, _ = select.select([self._told], [], [], DEADLINE_S)
        assert ready, "the guest was not stopped"
        assert os.read(self._told, 1) == b"!"

    @staticmethod
    def _keep(driver: Hypervisor, instance: RpcInstance, told: int) -> None:
        def beside() -> None:
            os.write(told, b"!")
            signal.pause()

        assert driver.snapshots is not None
        driver.snapshots.keep(instance, "s1", quiesce=False, beside=beside)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._told)


def status(files: MachineFiles) -> str:
    with Monitor.connect(files.name, files.socket_path("info")) as monitor:
        return monitor.status()


@pytest.fixture
def running() -> Iterator[Counting]:
    with kvm_nodes() as nodes:
        yield Counting(nodes)


def look(driver: Hypervisor, _instance: RpcInstance, _env: NodeEnv) -> None:
    assert driver.instance_info(NAME) is not None


def look_at_all(driver: Hypervisor, _instance: RpcInstance, _env: NodeEnv) -> None:
    assert [info.name for info in driver.all_instances_info()] == [NAME]


def forget(driver: Hypervisor, instance: RpcInstance, _env: NodeEnv) -> None:
    assert driver.snapshots is not None
    driver.snapshots.forget(instance, "s1")


def start_daemon(_driver: Hypervisor, _instance: RpcInstance, env: NodeEnv) -> None:
    mend(env)


@pytest.mark.parametrize("come", [look, look_at_all, forget, start_daemon])
def test_whoever_comes_next_lets_it_go_on(
    running: Counting, come: Callable[[Hypervisor, RpcInstance, NodeEnv], None]
) -> None:
    instance = with_disks(INSTANCE, [disk.uuid for disk in running.disks])
    files, env = running.node.files(NAME), running.driver.env
    keeper = Keeper(running.driver, instance)
    assert status(files) == "paused"
    look(running.driver, instance, env)
    mend(env)
    assert status(files) == "paused", "who is at work is not disturbed"
    keeper.kill()
    assert status(files) == "paused"
    before = running.counter()
    come(running.driver, instance, env)
    assert status(files) == "running"
    assert not os.path.exists(files.standstill)
    wait_until(lambda: running.counter() > before, "the guest to go on")


def test_a_guest_that_somebody_else_paused_stays_so(running: Counting) -> None:
    files = running.node.files(NAME)
    with running.monitor() as monitor:
        monitor.execute("stop")
    look(running.driver, INSTANCE, running.driver.env)
    assert status(files) == "paused"
    with pytest.raises(ZeroDivisionError):
        running.driver.snapshots.keep(
            with_disks(INSTANCE, [disk.uuid for disk in running.disks]),
            "s1",
            quiesce=False,
            beside=lambda: 1 // 0,
        )
    assert status(files) == "paused"
    assert not os.path.exists(files.standstill)


@pytest.mark.shows("2.12/noded/restart-noded")
def test_a_node_daemon_that_starts_lets_guests_go_on() -> None:
    disk: dict[str, Any] = {
        "dev_type": "sharedfile",
        "logical_id": ["loop", "/srv/ganeti/shared-file-storage/inst1/disk0"],
        "size": 1,
        "iv_name": "disk/0",
        "uuid": "ee8b6d3b-9c9e-48f4-9373-1b4a3fd556cd",
        "serial_no": 1,
        "params": {},
        "dynamic_params": {},
    }
    made = make_instance(NAME, kernel_path="", kvm_flag="disabled", vnc_bind_address="")
    wire = {**made.to_wire(), "disks_info": [disk], "disks": [disk["uuid"]]}
    with short_directory() as base, NodedNode(base, "node1.example.com") as node:
        Path(node.paths.shared_file_storage_dir).mkdir(parents=True)
        node.payload("blockdev_create", disk, 1, NAME, True, "", False)
        boot_sector_image(node.paths.localize(disk["logical_id"][1]))
        node.payload("instance_start", wire, False, [])
        env = NodeEnv(node.paths, "node1.example.com", node.address)
        driver, files = get_hypervisor("kvm", env, {}), MachineFiles(node.paths, NAME)
        try:
            keeper = Keeper(driver, with_disks(made, [disk["uuid"]]))
            os.kill(node.pid, signal.SIGKILL)  # together, as systemd does it
            keeper.kill()
            assert status(files) == "paused"
            node.start()
            wait_until(lambda: status(files) == "running", "the guest to go on")
        finally:
            node.call("instance_shutdown", wire, 0, [])
        shutil.rmtree(Path(node.paths.shared_file_storage_dir))

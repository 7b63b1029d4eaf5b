"""Snapshots of the disks of a real QEMU whose guest goes on writing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.waiting import wait_until
from guests import counters
from guests.instances import make_instance
from guests.nodes import QEMU, KvmNode, KvmNodes, kvm_nodes

from ganeti.base.errors import HypervisorError, StorageError
from ganeti.hypervisor.interface import AssembledDisk
from ganeti.hypervisor.kvm import snapshot
from ganeti.hypervisor.kvm.monitor import Monitor, MonitorError
from ganeti.storage.nbd import NbdImage

pytestmark = [pytest.mark.qemu, pytest.mark.skipif(QEMU is None, reason="needs qemu-system-x86_64")]
INSTANCE = make_instance(kernel_path="", kvm_flag="disabled")
NAME = INSTANCE.name
SIZE_MIB = 4


class Running:
    """A node on which the guest with two disks runs."""

    def __init__(self, nodes: KvmNodes) -> None:
        self.node: KvmNode = nodes.nodes[0]
        self.driver = self.node.driver
        self.directory = str(nodes.base / "exports")
        self.paths = counters.disk_images(nodes.base, SIZE_MIB)
        self.disks = [
            AssembledDisk(
                index=index,
                uuid=f"ee8b6d3b-9c9e-48f4-9373-{index:012}",
                dev_path=str(path),
                size_mib=SIZE_MIB,
            )
            for index, path in enumerate(self.paths)
        ]
        self.driver.start(INSTANCE, self.disks)
        self.node.wait_serial(NAME, counters.UP_TEXT)
        self.goes_on()

    def counter(self) -> int:
        """Return how far the guest is."""
        return counters.live_counter(self.paths[1])

    def goes_on(self, rounds: int = 1) -> None:
        """Wait until the guest has written so many rounds more."""
        wanted = self.counter() + rounds
        wait_until(lambda: self.counter() >= wanted, f"counter {wanted}")

    def take(self) -> None:
        self.driver.snapshots.take(INSTANCE, self.directory)

    def image(self, index: int) -> NbdImage:
        found = self.driver.snapshots.address(NAME, self.disks[index].uuid)
        return NbdImage(found.socket_path, found.export)

    def read(self, index: int) -> bytes:
        """Return what the snapshot of a disk holds."""
        image = self.image(index)
        try:
            data = bytearray(image.size)
            for begin, end in image.areas():
                data[begin:end] = image.read(begin, end - begin)
            return bytes(data)
        finally:
            image.close()

    def monitor(self) -> Monitor:
        return Monitor.connect(NAME, self.node.files(NAME).socket_path("control"))

    def is_clean(self) -> bool:
        """Tell whether nothing of snapshots is in QEMU or among the files."""
        with self.monitor() as monitor:
            nodes = monitor.query_list("query-named-block-nodes")
            left = [str(row["node-name"]) for row in nodes]
            left += [str(row["id"]) for row in monitor.query_list("query-jobs")]
            exports = monitor.query_list("query-block-exports")
            state = monitor.status()
        return (
            not any(name.startswith("snapshot") for name in left)
            and not exports
            and state == "running"
            and not os.path.exists(self.node.files(NAME).socket_path("nbd"))
            and not os.path.lexists(self.node.files(NAME).link("nbd"))
            and (not os.path.exists(self.directory) or not os.listdir(self.directory))
        )


@pytest.fixture
def running() -> Iterator[Running]:
    with kvm_nodes() as nodes:
        yield Running(nodes)


def test_all_disks_are_of_one_instant_while_the_guest_goes_on(running: Running) -> None:
    running.goes_on(counters.LOG_SECTORS + 8)
    before = running.counter()
    running.take()
    assert not os.listdir(running.directory), "overlays have no name"
    first = running.read(0)
    # All that the guest wrote is written over before the second disk is read.
    running.goes_on(counters.LOG_SECTORS + 8)
    images = [first, running.read(1)]
    taken = counters.check_one_instant(images)
    assert before <= taken < running.counter() - counters.LOG_SECTORS
    assert images == [running.read(0), running.read(1)], "it stays as it was"
    running.driver.snapshots.drop(NAME)
    assert running.is_clean()
    running.goes_on()


def test_what_was_left_is_replaced_by_the_next(running: Running) -> None:
    running.take()
    held = counters.counter(running.read(0))
    running.goes_on(10)
    running.take()
    assert counters.counter(running.read(0)) > held
    # Whoever changes a disk finds nothing in the way.
    running.driver.resize_disk(INSTANCE, running.disks[0])
    assert running.is_clean()


def test_a_reader_that_is_in_the_midst_is_no_obstacle(running: Running) -> None:
    running.take()
    image = running.image(0)
    running.driver.snapshots.drop(NAME)
    with pytest.raises(StorageError, match="is gone"):
        image.read(0, 1024)
    image.close()
    assert running.is_clean()


def test_snapshots_go_with_their_machine(running: Running) -> None:
    running.take()
    running.driver.stop(NAME, force=True)
    left = [path for path in Path(running.directory).parent.rglob("*") if path.is_socket()]
    assert not left
    running.driver.snapshots.drop(NAME)
    with pytest.raises(StorageError, match="cannot be reached"):
        running.image(0)
    with pytest.raises(HypervisorError, match=r"runtime is missing|does not run"):
        running.take()


def test_no_room_is_told_before_anything_is_made(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "overlay_bytes", lambda _size: 1 << 60)
    with pytest.raises(HypervisorError, match=r"no room .* MiB are needed, \d+ MiB are free"):
        running.take()
    assert running.is_clean()


class Cut(BaseException):
    """Whoever gave orders to QEMU is gone."""


def cut_at(monkeypatch: pytest.MonkeyPatch, running: Running, step: int, error: type) -> bool:
    """Take snapshots and fail at one order; tells whether there were so many orders.

    After `Cut` no order comes any more, after `MonitorError` all others do.
    """
    execute = Monitor.execute
    orders = 0

    def execute_or_fail(self: Monitor, command: str, *args: Any, **given: Any) -> object:
        nonlocal orders
        orders += not command.startswith("query")
        if orders == step or (orders > step and error is Cut):
            orders += 1
            raise error("cut")
        return execute(self, command, *args, **given)

    with monkeypatch.context() as patched:
        patched.setattr(Monitor, "execute", execute_or_fail)
        try:
            running.take()
        except (Cut, MonitorError):
            return True
    return False


def test_a_failure_at_any_step_leaves_nothing(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = 1
    while cut_at(monkeypatch, running, step, MonitorError):
        assert running.is_clean(), f"order {step}"
        step += 1
    assert step > 10
    running.goes_on()


def test_who_is_killed_at_any_step_leaves_what_the_next_call_removes(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = 1
    while cut_at(monkeypatch, running, step, Cut):
        assert not os.listdir(running.directory)
        running.driver.snapshots.drop(NAME)
        assert running.is_clean(), f"order {step}"
        step += 1
    assert step > 10
    running.goes_on()


def test_the_guest_is_what_its_source_says(tmp_path: Path) -> None:
    if not (shutil.which("as") and shutil.which("ld")):
        pytest.skip("needs as and ld to assemble the guest")
    source = Path(counters.__file__).with_name("two_counters.S")
    subprocess.run(["as", "--32", source, "-o", tmp_path / "guest.o"], check=True)
    link = ["ld", "-m", "elf_i386", "-Ttext", "0x7c00", "--oformat", "binary"]
    subprocess.run([*link, tmp_path / "guest.o", "-o", tmp_path / "guest.bin"], check=True)
    assert (tmp_path / "guest.bin").read_bytes().rstrip(b"\0") == counters.code().rstrip(b"\0")

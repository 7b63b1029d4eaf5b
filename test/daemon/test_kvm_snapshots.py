"""Snapshots of the disks of a real QEMU whose guest goes on writing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guests import counters
from guests.counting import INSTANCE, Counting
from guests.nodes import QEMU, kvm_nodes

from ganeti.base.errors import HypervisorError, StorageError
from ganeti.hypervisor.kvm import snapshot
from ganeti.hypervisor.kvm.monitor import Monitor, MonitorError

pytestmark = [pytest.mark.qemu, pytest.mark.skipif(QEMU is None, reason="needs qemu-system-x86_64")]
NAME = INSTANCE.name


@pytest.fixture
def running() -> Iterator[Counting]:
    with kvm_nodes() as nodes:
        yield Counting(nodes)


def test_all_disks_are_of_one_instant_while_the_guest_goes_on(running: Counting) -> None:
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


def test_what_was_left_is_replaced_by_the_next(running: Counting) -> None:
    running.take()
    held = counters.counter(running.read(0))
    running.goes_on(10)
    running.take()
    assert counters.counter(running.read(0)) > held
    # Whoever changes a disk finds nothing in the way.
    running.driver.resize_disk(INSTANCE, running.disks[0])
    assert running.is_clean()


def test_a_reader_that_is_in_the_midst_is_no_obstacle(running: Counting) -> None:
    running.take()
    image = running.image(0)
    running.driver.snapshots.drop(NAME)
    with pytest.raises(StorageError, match="is gone"):
        image.read(0, 1024)
    image.close()
    assert running.is_clean()


def test_snapshots_go_with_their_machine(running: Counting) -> None:
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
    running: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "overlay_bytes", lambda _size: 1 << 60)
    with pytest.raises(HypervisorError, match=r"no room .* MiB are needed, \d+ MiB are free"):
        running.take()
    assert running.is_clean()


class Cut(BaseException):
    """Whoever gave orders to QEMU is gone."""


def cut_at(monkeypatch: pytest.MonkeyPatch, running: Counting, step: int, error: type) -> bool:
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
    running: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = 1
    while cut_at(monkeypatch, running, step, MonitorError):
        assert running.is_clean(), f"order {step}"
        step += 1
    assert step > 10
    running.goes_on()


def test_who_is_killed_at_any_step_leaves_what_the_next_call_removes(
    running: Counting, monkeypatch: pytest.MonkeyPatch
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

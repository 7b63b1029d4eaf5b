"""Records of what a guest writes, in the dirty bitmaps of a real QEMU."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from guests import counters
from guests.counting import INSTANCE, Counting
from guests.nodes import QEMU, KvmNodes, kvm_nodes

from ganeti.hypervisor.interface import MigrationState
from ganeti.hypervisor.kvm.monitor import Monitor, MonitorError
from ganeti.objects.disk_templates import DiskFormat
from ganeti.protocol.export_description import BLOCK_BYTES
from ganeti.system.process import wait_gone

pytestmark = [pytest.mark.qemu, pytest.mark.skipif(QEMU is None, reason="needs qemu-system-x86_64")]
NAME = INSTANCE.name
WRITTEN = [(0, BLOCK_BYTES)]  # the counter and its log lie at the beginning of both disks


@pytest.fixture
def nodes() -> Iterator[KvmNodes]:
    with kvm_nodes(2) as found:
        yield found


@pytest.fixture
def counting(nodes: KvmNodes) -> Counting:
    return Counting(nodes)


def uuids(counting: Counting) -> list[str]:
    return [disk.uuid for disk in counting.disks]


def begin(counting: Counting) -> None:
    """Begin a record, as a full export does."""
    assert counting.take(point="a") == []
    counting.driver.snapshots.drop(NAME)
    counting.driver.snapshots.record_since(NAME, "a")
    assert counting.records() == {"since-a"}


def test_it_tells_where_the_guest_wrote_until_that_instant(counting: Counting) -> None:
    begin(counting)
    counting.goes_on()
    assert counting.take("a", "b") == uuids(counting)
    assert [counting.written(index) for index in (0, 1)] == [WRITTEN, WRITTEN]
    counters.check_one_instant([counting.read(0), counting.read(1)])
    counting.driver.snapshots.drop(NAME)
    counting.driver.snapshots.record_since(NAME, "b")
    assert counting.records() == {"since-b"}
    assert counting.is_clean()


def test_a_guest_that_stands_still_writes_nothing(counting: Counting) -> None:
    with counting.monitor() as monitor:
        monitor.execute("stop")
    begin(counting)
    assert counting.take("a", "b") == uuids(counting)
    assert counting.written(0) == counting.written(1) == []


def test_a_reader_that_fails_loses_no_record(counting: Counting) -> None:
    begin(counting)
    counting.goes_on()
    assert counting.take("a", "b") == uuids(counting)
    counting.driver.snapshots.drop(NAME)
    with counting.monitor() as monitor:
        monitor.execute("stop")
    # Nobody said that b is there; what was written since a still counts.
    assert counting.take("a", "c") == uuids(counting)
    assert counting.written(0) == WRITTEN
    counting.driver.snapshots.drop(NAME)
    assert counting.records() == {"since-a", "since-c"}
    assert counting.take("b", "d") == [], "that record was given up"


class Cut(BaseException):
    """Whoever gave orders to QEMU is gone."""


_execute = Monitor.execute


class Orders:
    """Orders to QEMU, which fail at one; after `Cut` no order comes any more."""

    def __init__(self, step: int, error: type) -> None:
        self._step, self._error = step, error
        self.given = 0

    @property
    def execute(self) -> Callable[..., object]:
        """Return what stands in for the monitor's method."""

        def execute_or_fail(monitor: Monitor, command: str, *args: Any, **given: Any) -> object:
            self.given += not command.startswith("query")
            if self.given == self._step or (self.given > self._step and self._error is Cut):
                self.given += 1
                raise self._error("cut")
            return _execute(monitor, command, *args, **given)

        return execute_or_fail


@pytest.mark.parametrize("error", [Cut, MonitorError])
def test_whatever_breaks_off_the_last_record_goes_on(
    counting: Counting, monkeypatch: pytest.MonkeyPatch, error: type
) -> None:
    begin(counting)
    for step in itertools.count(1):
        with monkeypatch.context() as patched:
            orders = Orders(step, error)
            patched.setattr(Monitor, "execute", orders.execute)
            with contextlib.suppress(Cut, MonitorError):
                counting.take("a", f"b{step}")
        if orders.given < step:
            break
        counting.driver.snapshots.drop(NAME)
        assert counting.is_clean(), f"order {step}"
        assert {"since-a"} <= counting.records() <= {"since-a", f"since-b{step}"}
    assert step > 10
    assert counting.take("a", "z") == uuids(counting)
    assert counting.written(0) == WRITTEN


@pytest.mark.parametrize("fmt", list(DiskFormat))
def test_it_moves_along_with_the_guest(nodes: KvmNodes, fmt: DiskFormat) -> None:
    counting = Counting(nodes, fmt)
    begin(counting)
    source, target = nodes.nodes
    info = source.driver.migration.describe(INSTANCE)
    address = target.driver.migration.accept(INSTANCE, info, target.env.address, counting.disks)
    source.driver.migration.send(INSTANCE, address, live=True)
    while (found := source.driver.migration.status(INSTANCE)).status is MigrationState.ACTIVE:
        continue
    assert found.status is MigrationState.COMPLETED, found
    target.driver.migration.finish_target(INSTANCE, info, success=True)
    source.driver.migration.finish_source(INSTANCE, success=True, live=True)
    counting.node, counting.driver = target, target.driver
    assert counting.records() == {"since-a"}
    assert counting.take("a", "b") == uuids(counting)
    assert WRITTEN[0] in counting.written(0)
    assert WRITTEN[0] in counting.written(1)
    counters.check_one_instant([counting.read(0), counting.read(1)])


def test_it_ends_with_qemu_for_a_disk_that_cannot_keep_it(counting: Counting) -> None:
    begin(counting)
    counting.driver.stop(NAME, force=True)
    counting.start()
    assert counting.take("a", "b") == []


@pytest.mark.parametrize("is_killed", [False, True])
def test_an_image_keeps_it_unless_qemu_is_killed(nodes: KvmNodes, *, is_killed: bool) -> None:
    counting = Counting(nodes, DiskFormat.QCOW2)
    begin(counting)
    if is_killed:
        process = counting.node.process(NAME)
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        wait_gone(process.pid, 10)
    counting.driver.stop(NAME, force=True)
    counting.start()
    if is_killed:
        assert counting.take("a", "b") == [], "what was in its memory is unknown"
        assert counting.records() == {"since-b"}
    else:
        assert counting.take("a", "b") == uuids(counting)
        assert WRITTEN[0] in counting.written(0)
        counters.check_one_instant([counting.read(0), counting.read(1)], restarts=1)

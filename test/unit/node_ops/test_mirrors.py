"""Calls for disks with a copy on another node, with disks in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakes.memory_storage import Memory, MemoryStorage, MemoryVolume
from msgspec import structs

from ganeti.base.errors import BlockDeviceError, GenericError
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.disks import mirrors
from ganeti.node_ops.disks.block_devices import BlockDevices
from ganeti.node_ops.disks.mirrors import Mirrors
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.rpc_instance import RpcDisk
from ganeti.protocol.node_rpc_values import CopySide
from ganeti.storage import registry


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    made = Memory()
    monkeypatch.setattr(MemoryVolume, "memory", made)
    driver = f"{MemoryStorage.__module__}:{MemoryStorage.__name__}"
    for template in (DiskTemplate.PLAIN, DiskTemplate.DRBD):
        monkeypatch.setattr(template, "traits", structs.replace(template.traits, driver=driver))
    registry._driver.cache_clear()
    yield made
    registry._driver.cache_clear()


def disk(number: int = 0, template: str = "drbd") -> RpcDisk:
    return RpcDisk.from_wire(
        {
            "uuid": f"u{number}-{template}",
            "dev_type": template,
            "logical_id": ["memory", f"{template}{number}"],
            "iv_name": f"disk/{number}",
            "size": 4,
            "params": {},
            "serial_no": 1,
        }
    )


@pytest.fixture
def calls(context: NodeContext) -> Mirrors:
    blocks = BlockDevices(context)
    for each in (disk(0), disk(1), disk(0, "plain"), disk(1, "plain")):
        blocks.blockdev_create(each, 4, "web1", on_primary=False, info="", exclusive_storage=False)
    return Mirrors(context)


def test_a_new_copy_is_assembled_at_once_on_both_nodes(calls: Mirrors, memory: Memory) -> None:
    assert memory.disks["drbd0"].is_assembled
    assert not memory.disks["plain0"].is_assembled


def test_disks_are_connected_then_waited_for(calls: Mirrors, memory: Memory) -> None:
    both = [disk(0), disk(1)]
    assert calls.drbd_needs_activation(both) == ["u0-drbd", "u1-drbd"]
    with pytest.raises(
        BlockDeviceError, match=r"disk disk/0 on node node1\.example\.com: not conn"
    ):
        calls.drbd_wait_sync(both)
    calls.drbd_attach_net(both, multimaster=False)
    assert calls.drbd_needs_activation(both) == []
    assert calls.drbd_wait_sync(both) == (True, 100.0)
    calls.drbd_disconnect_net(both)
    assert not memory.disks["drbd1"].is_connected


def test_a_disk_that_is_gone_needs_to_be_activated(calls: Mirrors) -> None:
    calls.drbd_attach_net([disk(0)], multimaster=False)
    assert calls.drbd_needs_activation([disk(0), disk(7)]) == ["u7-drbd"]
    with pytest.raises(BlockDeviceError, match="disk disk/7 is not active on node"):
        calls.drbd_wait_sync([disk(0), disk(7)])


def test_sync_is_paused_where_it_can_be(calls: Mirrors, memory: Memory) -> None:
    answers = calls.blockdev_pause_resume_sync([disk(0), disk(7)], pause=True)
    assert answers[0] == (True, None)
    assert answers[1][0] is False
    assert not memory.disks["drbd0"].is_syncing
    [(refused, text)] = calls.blockdev_pause_resume_sync([disk(0, "plain")], pause=True)
    assert not refused
    assert text == "disk disk/0 of template plain has no copy on another node"


def test_local_storage_is_taken_and_given(calls: Mirrors, memory: Memory) -> None:
    children = [disk(0, "plain"), disk(1, "plain")]
    calls.drbd_attach_net([disk(0)], multimaster=False)
    calls.blockdev_removechildren(disk(0), children)
    assert calls.drbd_needs_activation([disk(0)]) == ["u0-drbd"]
    calls.blockdev_addchildren(disk(0), children)
    assert memory.disks["plain0"].is_assembled  # before it is put under the disk
    assert calls.drbd_needs_activation([disk(0)]) == []


def test_sides_are_told_and_an_outdated_one_can_be_accepted(calls: Mirrors, memory: Memory) -> None:
    calls.drbd_attach_net([disk(0)], multimaster=False)
    connected, alone, missing = calls.drbd_sides([disk(0), disk(1), disk(7)])
    assert connected == CopySide(True, False, False)
    assert alone == CopySide(False, False, False, False, ["1"])
    assert missing is None
    with pytest.raises(BlockDeviceError, match="drbd0 is connected"):
        calls.drbd_outdate([disk(1), disk(0)])
    assert memory.disks["drbd1"].is_outdated
    calls.drbd_accept([disk(1)])
    assert not memory.disks["drbd1"].is_outdated
    assert not memory.disks["drbd1"].is_open


def test_a_node_without_drbd_has_no_helper(calls: Mirrors, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise GenericError("DRBD is not loaded")

    monkeypatch.setattr(mirrors, "usermode_helper", missing)
    with pytest.raises(GenericError, match="not loaded"):
        calls.drbd_helper()


def test_a_new_disk_that_cannot_be_used_is_taken_apart_and_removed(
    context: NodeContext, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_volume: MemoryVolume, _text: str) -> None:
        raise BlockDeviceError("no room for a note")

    monkeypatch.setattr(MemoryVolume, "set_info", full)
    monkeypatch.setattr(MemoryVolume, "remove", _remove_unused)
    create = BlockDevices(context).blockdev_create
    new = disk(0, "plain")
    with pytest.raises(BlockDeviceError, match=r"no room for a note$"):
        create(new, 4, "web1", on_primary=True, info="", exclusive_storage=False)
    assert not memory.disks
    monkeypatch.setattr(MemoryVolume, "shutdown", lambda _volume: None)
    with pytest.raises(BlockDeviceError, match="note; nor was it removed again: it is in use"):
        create(new, 4, "web1", on_primary=True, info="", exclusive_storage=False)


def _remove_unused(volume: MemoryVolume) -> None:
    if volume._stored().is_assembled:
        raise BlockDeviceError("it is in use")
    del volume.memory.disks[volume._name]

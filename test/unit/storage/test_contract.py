"""The promises that every storage driver keeps: the real ones, and the one in memory.

A driver joins by a row of `DRIVERS`: how a disk of it is named, and what has to be there before.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import lvm_programs
from fakes.memory_storage import Memory, MemoryStorage, MemoryVolume
from fakes.network_storage import FakeCeph, FakeGluster
from fakes.storage_records import Disk, Node
from msgspec import structs

from ganeti.base.errors import (
    BlockDeviceError,
    GenericError,
    NotSupportedError,
    OpPrereqError,
    StorageError,
)
from ganeti.base.paths import Paths
from ganeti.objects.disk_templates import DiskTemplate, StorageType, supported_templates
from ganeti.storage import registry
from ganeti.storage.interface import BlockDevStatus, bottom_up, top_down
from ganeti.storage.network import gluster, rbd

MIB = 1 << 20
EXAMPLE = Path(__file__).parents[3] / "doc" / "examples" / "extstorage" / "files"
FILES = {
    "file": "/srv/ganeti/file-storage",
    "gluster": "/var/run/ganeti/gluster",
    "sharedfile": "/srv/ganeti/shared-file-storage",
}
POOL = "rbd"
DEVICE = "/dev/disk/by-id/contract"
IN_MEMORY = ("drbd",)  # played by the driver in memory


DRIVERS: dict[str, Callable[[str], Sequence[object]]] = {
    "blockdev": lambda _name: ["manual", DEVICE],
    "drbd": lambda name: ["memory", name],
    "ext": lambda name: ["files", name],
    "file": lambda name: ["loop", f"{FILES['file']}/web1/{name}"],
    "gluster": lambda name: ["loop", f"ganeti/{name}"],
    "plain": lambda name: ["xenvg", name],
    "rbd": lambda name: ["rbd", name],
    "sharedfile": lambda name: ["loop", f"{FILES['sharedfile']}/web1/{name}"],
}
MADE = sorted(DRIVERS.keys() - {"blockdev"})  # by Ganeti itself


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node with the example provider, an adoptable device, and drivers in memory."""
    found = Node(Paths(str(tmp_path)))
    provider = Path(found.paths.es_search_path[0]) / "files"
    shutil.copytree(EXAMPLE, provider)
    (provider / "volumes").mkdir()
    lvm_programs.install(tmp_path / "programs")
    lvm_programs.make_group(tmp_path, "xenvg", {"/dev/none/sda1": 1000})
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_LVM", str(tmp_path))
    monkeypatch.setattr(MemoryVolume, "memory", Memory())
    driver = f"{MemoryStorage.__module__}:{MemoryStorage.__name__}"
    for template in map(DiskTemplate, IN_MEMORY):
        monkeypatch.setattr(template, "traits", structs.replace(template.traits, driver=driver))
    registry._driver.cache_clear()
    volumes = FakeGluster()
    monkeypatch.setattr(gluster, "run_tool", volumes.run_tool)
    monkeypatch.setattr(gluster.mounts, "at", volumes.at)
    monkeypatch.setattr(rbd, "run_tool", FakeCeph(tmp_path).run_tool)
    os.makedirs(found.paths.run_dir)
    real, real_open = os.stat, os.open
    device = os.stat_result(
        (stat.S_IFBLK | 0o660, 0, 0, 1, 0, 0, 0, 0, 0, 0), {"st_rdev": os.makedev(4000, 1)}
    )
    monkeypatch.setattr(
        os, "stat", lambda path, **options: device if path == DEVICE else real(path, **options)
    )
    monkeypatch.setattr(
        os,
        "open",
        lambda path, *rest, **options: real_open(
            "/dev/null" if path == DEVICE else path, *rest, **options
        ),
    )
    return found


@pytest.fixture(autouse=True)
def _forget_drivers() -> object:
    yield
    registry._driver.cache_clear()


def disk_of(template: str, name: str = "disk0", **changes: object) -> Disk:
    return replace(Disk(template, DRIVERS[template](name)), **changes)  # type: ignore[arg-type]


def test_every_supported_template_has_a_row() -> None:
    assert {*DRIVERS} == {*supported_templates(), *IN_MEMORY} - {"diskless"}


@pytest.mark.shows("backend/templates/same-drive")
@pytest.mark.parametrize("template", MADE)
def test_a_whole_life(node: Node, template: str) -> None:
    volume = registry.volume_of(disk_of(template), node)
    assert volume.find() is None
    assert volume.dimensions() is None
    with pytest.raises(BlockDeviceError):
        volume.assemble()
    assert volume.create(4) is None
    volume.set_info("originstname+web1")
    path = volume.assemble().dev_path
    assert volume.assemble().dev_path == path  # may be repeated
    volume.open()
    volume.open(exclusive=False)
    assert isinstance(volume.find(), BlockDevStatus)
    size = volume.dimensions()
    assert size is not None
    assert size.size_bytes == 4 * MIB
    volume.close()
    volume.shutdown()
    volume.shutdown()
    volume.remove()
    volume.remove()
    assert volume.find() is None


@pytest.mark.parametrize("template", MADE)
def test_a_disk_that_exists_is_not_made_again(node: Node, template: str) -> None:
    volume = registry.volume_of(disk_of(template), node)
    volume.create(4)
    with pytest.raises(BlockDeviceError):
        volume.create(2)
    size = volume.dimensions()
    assert size is not None
    assert size.size_bytes == 4 * MIB


@pytest.mark.parametrize("template", sorted(DRIVERS))
def test_a_disk_can_be_found_by_another_process(node: Node, template: str) -> None:
    disk = disk_of(template)
    registry.volume_of(disk, node).create(4)
    assert registry.volume_of(disk, node).find() is not None


@pytest.mark.parametrize("template", sorted(DRIVERS))
def test_growth_follows_the_trait(node: Node, template: str) -> None:
    volume = registry.volume_of(disk_of(template), node)
    volume.create(4)
    if not volume.traits.can_grow:
        with pytest.raises(NotSupportedError):
            volume.grow(2)
        return
    volume.grow(2, dryrun=True)
    volume.grow(2)
    size = volume.dimensions()
    assert size is not None
    assert size.size_bytes == 6 * MIB
    for amount_mib in (0, -1):
        with pytest.raises(BlockDeviceError):
            volume.grow(amount_mib)


@pytest.mark.parametrize("template", sorted(DRIVERS))
def test_snapshots_follow_the_trait(node: Node, template: str) -> None:
    volume = registry.volume_of(disk_of(template), node)
    volume.create(4)
    if not volume.traits.has_snapshots:
        with pytest.raises(NotSupportedError, match=r"disks of template|was adopted"):
            volume.snapshot("snap", 4)
        return
    snapshot = replace(disk_of(template), logical_id=volume.snapshot("snap", 4))
    assert registry.volume_of(snapshot, node).find() is not None


@pytest.mark.parametrize("template", sorted(DRIVERS))
def test_a_logical_id_must_have_the_form_of_the_template(node: Node, template: str) -> None:
    for logical_id in ([], ["x"], ["x", 5], ["x", "y", "z"]):
        with pytest.raises(BlockDeviceError, match=r"disk d1: the logical id .* is not \["):
            registry.volume_of(Disk(template, logical_id), node)


@pytest.mark.parametrize("template", sorted(DRIVERS))
def test_many_disks_are_looked_at_in_one_pass(node: Node, template: str) -> None:
    disks = [disk_of(template, f"disk{index}", uuid=f"d{index}") for index in range(3)]
    broken = Disk(template, [], uuid="broken")
    is_made = template in MADE
    for disk in disks[:2]:
        registry.volume_of(disk, node).create(1)
    states = registry.look([*disks[:2], broken, disks[2]], node)
    assert [isinstance(state, BlockDevStatus) for state in states[:2]] == [True, True]
    assert isinstance(states[2], GenericError)
    assert (states[3] is None) == is_made
    sizes = registry.dimensions(disks, node) if is_made else []
    assert [size and size.size_bytes for size in sizes] == ([MIB, MIB, None] if is_made else [])


@pytest.mark.shows("2.0/scalability/many-devices")
def test_one_question_is_enough_for_many_disks(node: Node) -> None:
    disks = [disk_of("drbd", f"disk{index}") for index in range(50)]
    files = [disk_of("file", "disk0"), disk_of("sharedfile", "disk0")]
    states = registry.look([*disks, *files], node)
    assert states == [None] * 52
    assert MemoryVolume.memory.questions == 1


def test_children_come_first_and_go_last(node: Node) -> None:
    data, meta = disk_of("plain", "data"), disk_of("plain", "meta")
    volume = registry.volume_of(disk_of("drbd", "mirror", children=(data, meta)), node)
    order = [list(part._disk.logical_id)[1] for part in bottom_up(volume)]
    assert order == ["data", "meta", "mirror"]
    assert [list(part._disk.logical_id)[1] for part in top_down(volume)] == [
        "mirror",
        "data",
        "meta",
    ]


@pytest.mark.parametrize("template", sorted(DRIVERS))
def test_a_mirror_follows_the_trait(node: Node, template: str) -> None:
    volume = registry.volume_of(disk_of(template), node)
    assert (volume.mirror is not None) == volume.traits.mirrored
    if volume.mirror is not None:
        volume.create(1)
        volume.mirror.connect(dual_primary=False)
        volume.mirror.wait_connected(1)
        volume.mirror.pause_sync(pause=True)
        volume.mirror.pause_sync(pause=False)
        volume.mirror.disconnect()
        volume.remove()


@pytest.mark.shows("2.1/storage/others", "2.1/storage/status")
@pytest.mark.parametrize("kind", StorageType)
def test_units_follow_the_kind(node: Node, kind: StorageType) -> None:
    has_driver = any(
        each.traits.storage is kind and each.traits.driver is not None for each in DiskTemplate
    ) or bool(kind.units and kind.units.driver)
    storage = registry.storage_of_kind(kind, node)
    name = FILES.get(kind, POOL if kind is StorageType.RADOS else "xenvg")
    if name.startswith("/"):
        os.makedirs(node.paths.localize(name))
    space = storage.space(name)
    assert (space.size_mib is not None) == (has_driver and kind.units is not None)
    if not has_driver or kind.units is None:
        with pytest.raises(NotSupportedError):
            storage.units([name])
        return
    if kind is StorageType.LVM_PV:
        name = "/dev/none/sda1"
    [unit] = storage.units([name])
    assert unit.fields()["name"] == name
    if kind.units.is_directory:
        with pytest.raises(StorageError, match="/nowhere"):
            storage.space("/nowhere")
        for change in (lambda: storage.modify_unit(name, {}), lambda: storage.repair_unit(name)):
            with pytest.raises(NotSupportedError, match=name):
                change()


@pytest.mark.shows("2.0/obsolete/gone")
def test_what_has_no_driver_is_refused(node: Node) -> None:
    for template in DiskTemplate:
        if template.traits.is_supported or template in IN_MEMORY:
            continue
        with pytest.raises(NotSupportedError, match=f"{template}.*not supported; use one of"):
            registry.volume_of(Disk(template, []), node)
    for template in ("diskless", "floppy"):
        with pytest.raises(OpPrereqError):
            registry.volume_of(Disk(template, []), node)
    with pytest.raises(NotSupportedError):
        registry.storage_of_kind("floppy", node)

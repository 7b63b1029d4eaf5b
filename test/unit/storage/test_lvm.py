"""Disks that are logical volumes, with programs of LVM that keep their groups in a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from fakes import lvm_programs
from fakes.storage_records import Disk, Node

from ganeti.base.errors import BlockDeviceError, GenericError, StorageError
from ganeti.base.paths import Paths
from ganeti.objects.disk_templates import LocalDiskStatus
from ganeti.storage import holders, lvm, lvm_reports, registry
from ganeti.storage.interface import BlockDevStatus
from ganeti.storage.lvm import PlainVolume, tag_of

MIB = 1 << 20
PHYSICAL = {"/dev/none/sda1": 1000, "/dev/none/sdb1": 900, "/dev/none/sdc1": 800}


new_disk = partial(Disk, "plain")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    programs = tmp_path / "programs"
    lvm_programs.install(programs)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_LVM", str(tmp_path))
    lvm_programs.make_group(tmp_path, "xenvg", PHYSICAL)
    return Node(Paths(str(tmp_path)))


def volume_of(node: Node, name: str = "disk0", owner: str = "", **changes: object) -> PlainVolume:
    made = PlainVolume(replace(new_disk(["xenvg", name]), **changes), node)  # type: ignore[arg-type]
    made.owner = owner
    return made


def physical_of(node: Node, name: str) -> set[str]:
    state = lvm_programs._load(node.paths.root)
    return {device for device, _size in state["volumes"][f"xenvg/{name}"]["pieces"]}


def made(node: Node, name: str, size_mib: int, **options: object) -> set[str]:
    """Make a disk as a node does, and return the physical volumes that it got."""
    volume = volume_of(node, name, **options)  # type: ignore[arg-type]
    volume.create(size_mib)
    volume.set_info(f"originstname+{volume.owner}")
    return physical_of(node, name)


@pytest.mark.shows(
    "2.0/lvm-allocation/close", "2.0/lvm-allocation/spill", "2.0/disks/same-physical"
)
def test_the_disks_of_an_instance_are_kept_together(node: Node) -> None:
    assert made(node, "a0", 300, owner="a") == {"/dev/none/sda1"}
    assert made(node, "b0", 300, owner="b") == {"/dev/none/sdb1"}  # most room
    assert made(node, "a1", 300, owner="a") == {"/dev/none/sda1"}  # there is more room elsewhere
    assert made(node, "a2", 600, owner="a") == {"/dev/none/sdc1"}  # no room there: another one
    assert len(made(node, "a3", 900, owner="a")) > 1  # it fits on none: spilled over


def test_what_fits_nowhere_is_refused_with_the_room_that_is_left(node: Node) -> None:
    lvm_programs.change_physical(node.paths.root, "/dev/none/sda1", attr="---")
    with pytest.raises(
        BlockDeviceError,
        match=r"cannot create logical volume xenvg/disk0: volume group 'xenvg' has 1700 MiB of"
        r" 2700 MiB left \(1000 MiB more where nothing may be put\), and 2000 MiB are needed",
    ):
        volume_of(node).create(2000)
    assert volume_of(node).find() is None


def test_a_missing_group_is_named_with_the_next_command(node: Node) -> None:
    volume = PlainVolume(new_disk(["myvg", "disk0"]), node)
    for action in (lambda: volume.create(4), volume.assemble, lambda: volume.grow(4)):
        with pytest.raises(
            BlockDeviceError, match=r"no volume group 'myvg' \(there is: xenvg\).*vgcreate myvg"
        ):
            action()
    with pytest.raises(BlockDeviceError, match=r"no logical volume xenvg/disk0.*recreate-disks"):
        volume_of(node).assemble()


def test_there_are_not_more_stripes_than_physical_volumes_with_room(node: Node) -> None:
    assert len(made(node, "two", 100, params={"stripes": 2})) == 2
    assert len(made(node, "many", 100, params={"stripes": 9})) == 3
    lvm_programs.change_physical(node.paths.root, "/dev/none/sda1", attr="---")
    lvm_programs.change_physical(node.paths.root, "/dev/none/sdb1", attr="---")
    assert made(node, "one", 100, params={"stripes": 2}) == {"/dev/none/sdc1"}


def test_a_disk_of_exclusive_storage_has_its_physical_volumes_for_itself(node: Node) -> None:
    volume_of(node, "a").create(950, exclusive_storage=True)
    assert physical_of(node, "a") == {"/dev/none/sda1"}
    volume_of(node, "b", spindles=2).create(100, exclusive_storage=True)
    sizes = volume_of(node, "b").dimensions()
    assert sizes is not None
    assert (sizes.size_bytes, sizes.spindles) == (100 * MIB, 1)  # its data fits on one of the two
    with pytest.raises(BlockDeviceError, match=r"1 empty physical volume\(s\), with 800 MiB"):
        volume_of(node, "c", spindles=2).create(10, exclusive_storage=True)
    with pytest.raises(BlockDeviceError, match="exclusive storage needs enough of them"):
        volume_of(node, "c").create(801, exclusive_storage=True)
    full = volume_of(node, "a")
    full.exclusive_storage = True
    with pytest.raises(BlockDeviceError, match="on the physical volumes of this disk"):
        full.grow(100)
    full.exclusive_storage = False
    full.grow(100)
    assert len(physical_of(node, "a")) > 1


def test_it_grows_where_it_lies_while_there_is_room(node: Node) -> None:
    volume = volume_of(node)
    volume.create(500)
    volume.grow(400)
    assert physical_of(node, "disk0") == {"/dev/none/sda1"}
    volume.grow(400, dryrun=True)
    volume.grow(400)
    assert physical_of(node, "disk0") > {"/dev/none/sda1"}
    with pytest.raises(BlockDeviceError, match=r"cannot grow .* xenvg/disk0.*needed"):
        volume.grow(4000, dryrun=True)
    assert (size := volume.dimensions()) is not None
    assert size.size_bytes == 1300 * MIB


def test_a_striped_volume_grows_in_one_stripe_where_no_more_have_room(node: Node) -> None:
    volume = volume_of(node, params={"stripes": 3})
    volume.create(2400)
    volume.grow(200)
    assert (size := volume.dimensions()) is not None
    assert size.size_bytes == 2600 * MIB


def test_the_tag_of_the_instance_is_replaced(node: Node) -> None:
    volume = volume_of(node)
    volume.create(4)
    for text in ("", "originstname+web1", "originstname+web1", "originstname+web 2,ä", ""):
        volume.set_info(text)
    state = lvm_programs._load(node.paths.root)
    assert state["volumes"]["xenvg/disk0"]["tags"] == ["originstname+web_2__"]
    assert tag_of("x" * 5000) == "x" * 1024


def test_a_volume_without_one_of_its_physical_volumes_is_faulty(node: Node) -> None:
    volume = volume_of(node)
    volume.create(4)
    lvm_programs.change_physical(node.paths.root, "/dev/none/sda1", attr="a-m")
    found = volume.find()
    assert found is not None
    assert (found.is_degraded, found.ldisk_status) == (True, LocalDiskStatus.FAULTY)
    with pytest.raises(BlockDeviceError, match=r"partial LV.*physical volume of it is missing"):
        volume.assemble()


def test_a_volume_in_use_is_named_with_its_holder(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = volume_of(node)
    volume.create(4)
    report = lvm.lvm_reports.logical_volumes
    monkeypatch.setattr(
        lvm.lvm_reports,
        "logical_volumes",
        lambda: [replace(each, attributes="-wi-ao----", major=1, minor=3) for each in report()],
    )
    with pytest.raises(
        BlockDeviceError, match=r"xenvg/disk0: it is in use by process \d+ \(.*; end that"
    ):
        volume.remove()  # /dev/null is what this process has open


def test_holders_are_named_once_and_not_too_many() -> None:
    found = holders.holders(1, 3)
    assert 1 <= len(found) <= holders.HOLDERS_MAX
    assert len(set(found)) == len(found)
    assert holders.holders(4000, 4000) == []


def test_snapshots_keep_their_origin_from_being_removed(node: Node) -> None:
    volume = volume_of(node)
    volume.create(100)
    assert volume.snapshot("copy", 100) == ["xenvg", "copy"]
    with pytest.raises(BlockDeviceError, match=r"snapshot\(s\) xenvg/copy, which would be lost"):
        volume.remove()
    with pytest.raises(BlockDeviceError, match="xenvg/copy exists already"):
        volume.snapshot("copy", 100)
    volume_of(node, "copy").remove()
    volume.remove()


LEFT = "0b6c8f1e-5a86-4b0e-9a5e-2f6f0f6f2b11.snap0"  # as an earlier version named it
OWN = "8e3bf0f6-4b2c-4a84-9d5e-3b5d2e4f6a01.snap"


def volumes_of(node: Node) -> list[str]:
    return sorted(lvm_programs._load(node.paths.root)["volumes"])


@pytest.mark.parametrize("left", [LEFT, OWN])
@pytest.mark.parametrize("pool", ["", "pool"])
def test_snapshots_that_exports_left_go_with_the_next_one_or_the_disk(
    node: Node, left: str, pool: str
) -> None:
    lvm_programs.main("lvcreate", "--type=thin-pool", "--name=pool", "--size=500m", "xenvg")
    volume, other = (volume_of(node, name, params={"thin-pool": pool}) for name in ("d0", "d1"))
    for each in (volume, other):
        each.create(100)
    lvm_programs.main("lvcreate", f"--name={left}", "--size=100m", "--snapshot", "xenvg/d0")
    foreign = LEFT.replace("0b", "0c")
    other.snapshot(foreign, 100)
    if not pool:
        with pytest.raises(BlockDeviceError, match=f"remove it first with 'lvremove xenvg/{left}'"):
            volume.grow(4)
    volume.snapshot("copy", 100)
    assert f"xenvg/{left}" in volumes_of(node), "that was for nothing else"
    volume_of(node, "copy").remove()
    volume.snapshot(OWN, 100)
    disks = ["xenvg/d0", "xenvg/d1", f"xenvg/{foreign}", "xenvg/pool"]
    assert volumes_of(node) == sorted([*disks, f"xenvg/{OWN}"])
    volume.remove()
    assert volumes_of(node) == sorted(disks[1:])
    other.keep("first")
    other.remove()
    assert volumes_of(node) == ["xenvg/pool"]


def test_a_snapshot_of_an_export_that_is_still_read_is_not_replaced(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = volume_of(node)
    volume.create(100)
    volume.snapshot(OWN, 100)

    def held(found: lvm.LogicalVolume) -> None:
        raise StorageError(f"{found.name} is in use by process 7")

    monkeypatch.setattr(lvm.LogicalVolume, "is_open", True)
    monkeypatch.setattr(lvm, "_check_not_held", held)
    with pytest.raises(BlockDeviceError, match="snap is in use by process 7"):
        volume.snapshot(OWN, 100)
    assert volumes_of(node) == sorted(["xenvg/disk0", f"xenvg/{OWN}"])


def test_a_snapshot_has_what_room_there_is(node: Node) -> None:
    volume = volume_of(node)
    volume.create(1900)
    volume.snapshot("copy", 1900)
    state = lvm_programs._load(node.paths.root)
    assert sum(size for _, size in state["volumes"]["xenvg/copy"]["pieces"]) == 800 * MIB
    with pytest.raises(BlockDeviceError, match="0 MiB left; a snapshot needs at least 64 MiB"):
        volume.snapshot("more", 1900)


def test_changes_are_kept_through_a_power_cut(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path / "device"
    device.touch()
    lvm_programs.make_group(tmp_path, "vg", {str(device): 100, "/dev/none/gone": 1})
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda it: synced.append(os.readlink(f"/proc/self/fd/{it}")))
    volume = PlainVolume(new_disk(["vg", "disk0"]), node)
    for action in (
        lambda: volume.create(4),
        lambda: volume.set_info("originstname+web1"),
        lambda: volume.grow(4),
        lambda: volume.rename(["vg", "disk1"]),
        lambda: volume.snapshot("copy", 4),
        PlainVolume(new_disk(["vg", "copy"]), node).remove,
    ):
        synced.clear()
        action()
        assert synced == [str(device)]


def test_many_volumes_are_looked_at_by_one_call(node: Node) -> None:
    volume_of(node, "disk3").create(4)
    before = len(lvm_programs.calls(node.paths.root))
    disks = [new_disk(["xenvg", f"disk{index}"], uuid=f"d{index}") for index in range(50)]
    states = registry.look(disks, node)
    assert [index for index, state in enumerate(states) if isinstance(state, BlockDevStatus)] == [3]
    assert len(lvm_programs.calls(node.paths.root)) == before + 1
    registry.dimensions(disks, node)
    assert len(lvm_programs.calls(node.paths.root)) == before + 2


def test_a_volume_that_lvm_does_not_tell_of_may_exist(node: Node, tmp_path: Path) -> None:
    volume_of(node).create(4)
    (tmp_path / "programs" / "lvs").write_text("#!/bin/sh\necho '  devices busy' >&2\nexit 5\n")
    for action in (volume_of(node).find, volume_of(node).dimensions):
        with pytest.raises(BlockDeviceError, match="devices busy"):
            action()
    (tmp_path / "programs" / "lvs").write_text(
        '#!/bin/sh\necho \'{"report": [{"lv": []}]}\'; echo "  one is locked" >&2\nexit 5\n'
    )
    [state] = registry.look([new_disk(["xenvg", "disk0"])], node)
    assert isinstance(state, GenericError)
    assert "one is locked" in state.message


def test_without_lvm_the_package_is_named(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(lvm.lvm_reports, "_SYSTEM_PATH", "/nowhere")
    with pytest.raises(BlockDeviceError, match="install LVM"):
        volume_of(node).find()


@pytest.mark.parametrize("name", ["-f", "..", ".", "a/b", "a b", "", "ä"])
def test_names_that_lvm_does_not_have_are_refused(node: Node, name: str) -> None:
    for logical_id in (["xenvg", name], [name, "disk0"]):
        with pytest.raises(BlockDeviceError, match="the logical id"):
            PlainVolume(new_disk(logical_id), node)


def test_it_is_renamed_within_its_group(node: Node) -> None:
    volume = volume_of(node)
    volume.create(4)
    volume.rename(["xenvg", "other"])
    volume.rename(["xenvg", "other"])
    assert volume.find() is not None
    assert volume_of(node).find() is None
    with pytest.raises(BlockDeviceError, match="cannot be moved to volume group 'myvg'"):
        volume.rename(["myvg", "other"])


def test_a_part_is_wiped(node: Node) -> None:
    volume = volume_of(node)
    volume.create(4)
    path = Path(volume.assemble().dev_path)
    path.write_bytes(b"x" * 4 * MIB)
    volume.wipe(1, 2)
    assert path.read_bytes() == b"x" * MIB + bytes(2 * MIB) + b"x" * MIB
    with pytest.raises(BlockDeviceError, match="has 4 MiB: cannot wipe 2 MiB from 3"):
        volume.wipe(3, 2)


def test_a_creation_that_hangs_leaves_nothing(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = lvm.run

    def slow(argv: Sequence[str]) -> object:
        result = real(argv)
        return replace(result, timed_out=True, status=-9) if argv[0] == "lvcreate" else result

    monkeypatch.setattr(lvm, "run", slow)
    with pytest.raises(BlockDeviceError, match="did not end in time"):
        volume_of(node).create(4)
    assert volume_of(node).find() is None


def test_a_thin_volume_takes_its_space_from_a_pool(node: Node) -> None:
    volume = volume_of(node, params={"stripes": 1, "thin-pool": "pool"})
    with pytest.raises(
        BlockDeviceError, match=r"has no thin pool 'pool'; make it there with 'lvcreate"
    ):
        volume.create(5000)
    lvm_programs.main("lvcreate", "--type=thin-pool", "--name=pool", "--size=500m", "xenvg")
    volume.create(5000)  # more than the group has
    assert (size := volume.dimensions()) is not None
    assert (size.size_bytes, size.spindles) == (5000 * MIB, None)
    [made] = [call for call in lvm_programs.calls(node.paths.root) if "--type=thin" in call]
    assert "--virtualsize=5000m" in made
    assert "--thinpool=xenvg/pool" in made
    assert volume.snapshot("copy", 5000) == ["xenvg", "copy"]
    volume.remove()  # a thin snapshot does not need its origin
    assert volume_of(node, "copy").find() is not None


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"data_percent": "100.00"}, "pool is full; give it space with 'lvextend --size=+... xen"),
        ({"metadata_percent": "100.00"}, "no room for more metadata; .*--poolmetadatasize=+..."),
        ({"health": "M"}, "no room for more metadata"),
        ({"health": "D"}, "is full"),
        ({"health": "F"}, "has failed; see .*'lvconvert --repair xenvg/pool'"),
    ],
)
def test_a_pool_without_space_is_named(node: Node, state: dict[str, str], text: str) -> None:
    lvm_programs.main("lvcreate", "--type=thin-pool", "--name=pool", "--size=500m", "xenvg")
    lvm_programs.change_volume(node.paths.root, "xenvg/pool", **state)
    volume = volume_of(node, params={"thin-pool": "pool"})
    with pytest.raises(BlockDeviceError, match=text.replace("+", r"\+")):
        volume.create(4)
    assert volume.find() is None


def test_a_thin_volume_grows_within_its_pool(node: Node) -> None:
    lvm_programs.main("lvcreate", "--type=thin-pool", "--name=pool", "--size=500m", "xenvg")
    volume = volume_of(node, params={"thin-pool": "pool"})
    volume.create(100)
    volume.grow(4000, dryrun=True)
    volume.grow(4000)
    assert (size := volume.dimensions()) is not None
    assert size.size_bytes == 4100 * MIB
    free = lvm_reports.volume_groups()["xenvg"].free_mib
    assert free == sum(PHYSICAL.values()) - 500, "it takes nothing from the group"


def bytes_of(volume: PlainVolume) -> bytes:
    return Path(volume.device).read_bytes()[:3]


def write(volume: PlainVolume, data: bytes) -> None:
    with open(volume.device, "r+b") as file:
        file.write(data)


@pytest.mark.parametrize("pool", ["", "pool"])
def test_snapshots_are_kept_restored_and_removed(
    node: Node, monkeypatch: pytest.MonkeyPatch, pool: str
) -> None:
    lvm_programs.main("lvcreate", "--type=thin-pool", "--name=pool", "--size=500m", "xenvg")
    monkeypatch.setattr(lvm.clock, "now", lambda: 1_700_000_000.4)
    volume = volume_of(node, params={"thin-pool": pool})
    volume.create(100)
    volume.set_info("originstname+web1")
    assert volume.snapshots() == []
    write(volume, b"one")
    volume.keep("first")
    monkeypatch.setattr(lvm.clock, "now", lambda: 1_700_000_060.0)
    write(volume, b"two")
    volume.keep("second")
    write(volume, b"six")
    kept = [("first", 1_700_000_000.4), ("second", 1_700_000_060.0)]
    assert volume.snapshots() == kept
    with pytest.raises(BlockDeviceError, match="exists already"):
        volume.keep("first")
    for name, data in (("first", b"one"), ("second", b"two"), ("first", b"one")):
        assert bytes_of(volume.as_kept(name)) == data
        volume.restore(name)
        assert bytes_of(volume) == data
        assert volume.snapshots() == kept, "it stays, with its time"
        assert lvm_programs._load(node.paths.root)["volumes"]["xenvg/disk0"]["tags"] == [
            "originstname+web1"
        ]
    with pytest.raises(BlockDeviceError, match=r"there is no .* xenvg/disk0\.kept\.nix"):
        volume.restore("nix")
    volume.forget("first")
    volume.forget("first")
    assert volume.snapshots() == kept[1:]
    if pool:
        volume.grow(100)
        volume.restore("second")
        assert (size := volume.dimensions()) is not None
        assert size.size_bytes == 200 * MIB
    else:
        with pytest.raises(BlockDeviceError, match=r"snapshot\(s\) second, so LVM does not enlarg"):
            volume.grow(100)
    lvm_programs.main("lvcreate", "--name=disk0.kept", "--size=4m", "xenvg")
    volume.remove()
    left = list(lvm_programs._load(node.paths.root)["volumes"])
    assert left == ["xenvg/pool", "xenvg/disk0.kept"], "snapshots go with their disk"


@pytest.fixture
def cut_off(node: Node) -> PlainVolume:
    """A thin volume whose restore of snapshot "first" was ended before the copy had its name."""
    lvm_programs.main("lvcreate", "--type=thin-pool", "--name=pool", "--size=500m", "xenvg")
    volume = volume_of(node, params={"thin-pool": "pool"})
    volume.create(100)
    volume.set_info("originstname+web1")
    for name in ("first", "second"):
        write(volume, name[:3].encode())
        volume.keep(name)
    volume.grow(20)
    volume.restore("first")
    write(volume, b"new")  # tells this copy from another one
    lvm_programs.main("lvrename", "xenvg", "disk0", "disk0.restored")
    return volume


@pytest.mark.parametrize(("name", "data"), [("first", b"new"), ("second", b"sec")])
def test_a_restore_that_was_ended_midway_is_not_taken_for_another_one(
    node: Node, cut_off: PlainVolume, name: str, data: bytes
) -> None:
    cut_off.restore(name)
    assert bytes_of(cut_off) == data
    found = lvm_programs._load(node.paths.root)["volumes"]
    assert "xenvg/disk0.restored" not in found
    assert found["xenvg/disk0"]["tags"] == ["originstname+web1"]
    assert found["xenvg/disk0"]["size"] == 120 * MIB


@pytest.mark.parametrize("has_its_name", [True, False])
def test_what_a_restore_has_left_goes_with_the_disk(
    node: Node, cut_off: PlainVolume, has_its_name: bool
) -> None:
    if has_its_name:
        cut_off.restore("first")
        lvm_programs.main(
            "lvcreate", "--name=disk0.restored", "--snapshot", "xenvg/disk0.kept.first"
        )
    cut_off.remove()
    assert list(lvm_programs._load(node.paths.root)["volumes"]) == ["xenvg/pool"]


def test_a_volume_of_somebody_else_stays_whatever_its_name(node: Node) -> None:
    volume = volume_of(node)
    volume.create(4)
    volume_of(node, "disk0.restored").create(4)
    volume.remove()
    assert list(lvm_programs._load(node.paths.root)["volumes"]) == ["xenvg/disk0.restored"]


def test_a_snapshot_that_is_kept_has_room_for_all_changes(node: Node) -> None:
    volume = volume_of(node)
    volume.create(2000)
    with pytest.raises(BlockDeviceError, match=r"700 MiB left; a snapshot .* its disk, 2000 MiB"):
        volume.keep("first")


def test_many_volumes_tell_their_snapshots_by_one_run(node: Node) -> None:
    for index in range(3):
        volume_of(node, f"disk{index}").create(10)
    volume_of(node, "disk1").keep("first")
    before = len(lvm_programs.calls(node.paths.root))
    disks = [new_disk(["xenvg", f"disk{index}"]) for index in range(3)]
    found = registry.snapshots(disks, node)
    assert [[each.name for each in own] for own in found] == [[], ["first"], []]
    assert len(lvm_programs.calls(node.paths.root)) == before + 1


def test_stripes_have_the_size_that_is_asked_for(node: Node) -> None:
    for name, params in (("a", {"stripes": 2, "stripe-size": 256}), ("b", {"stripe-size": 256})):
        volume_of(node, name, params=params).create(8)
    striped, whole = (call for call in lvm_programs.calls(node.paths.root) if call[0] == "lvcreate")
    assert "--stripesize=256k" in striped
    assert not any(word.startswith("--stripe") for word in whole), "one stripe has no such size"

"""The life of mirrored disks, on two nodes whose DRBD driver is in memory.

test/real/test_drbd.py lives it with the real driver.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from fakes.drbd_kernel import JUST_CREATED, Kernel
from fakes.storage_records import Disk

from ganeti.base.errors import BlockDeviceError, NotSupportedError
from ganeti.base.paths import Paths
from ganeti.logical_units.instance.storage.generations import Age, compare
from ganeti.objects.disk_templates import LocalDiskStatus, StorageType
from ganeti.storage.drbd import drbdsetup
from ganeti.storage.drbd.volume import DrbdStorage, DrbdVolume
from ganeti.storage.interface import Assembled, BlockDevStatus, Dimensions, Link, Volume
from ganeti.storage.registry import storage_of, storage_of_kind
from ganeti.system import clock

META_BYTES = 128 << 20
LOGICAL_ID = ("a", "b", 11000, 0, 0, "5ecret")


@dataclass(frozen=True)
class Env:
    paths: Paths = field(default_factory=Paths)


class Half(Volume):
    """A file in the place of a logical volume."""

    def _locate(self, logical_id: list[object]) -> None:
        self.path = str(logical_id[1])
        self.grown: list[tuple[int, bool]] = []

    @property
    def device(self) -> str:
        return self.path

    def create(self, size_mib: int, *, exclusive_storage: bool = False) -> None:
        raise AssertionError

    def remove(self) -> None:
        os.unlink(self.path)

    def find(self) -> BlockDevStatus | None:
        return BlockDevStatus(self.path)

    def assemble(self) -> Assembled:
        if not os.path.exists(self.path):
            raise BlockDeviceError(f"{self.path} does not exist")
        return Assembled(self.path)

    def dimensions(self) -> Dimensions | None:
        return None

    def grow(self, amount_mib: int, *, dryrun: bool = False, backingstore: bool = True) -> None:
        self.grown.append((amount_mib, dryrun))

    def snapshot(self, name: str, size_mib: int) -> list[object]:
        return ["xenvg", name]


class Node:
    """One of two nodes: its kernel, and its side of disks."""

    def __init__(self, number: int, directory: Path, wire: list[Kernel]) -> None:
        self.number, self.directory = number, directory
        directory.mkdir()
        self.kernel = Kernel(directory, wire)

    def volume(
        self, name: str = "web", minor: int = 0, port: int = 11000, **changes: object
    ) -> DrbdVolume:
        ips = [f"10.0.0.{self.number}", f"10.0.0.{3 - self.number}"]
        dynamic = {"local-ip": ips[0], "remote-ip": ips[1], "port": port, "local-minor": minor}
        disk = replace(
            Disk("drbd", LOGICAL_ID, uuid=name, size=256, dynamic_params=dynamic), **changes
        )  # type: ignore[arg-type]
        return DrbdVolume(disk, Env(), self.halves(name))

    def halves(self, name: str) -> list[Half]:
        made = []
        for part in ("data", "meta"):
            path = self.directory / f"{name}_{part}"
            if not path.exists():
                path.touch()
                os.truncate(path, META_BYTES)
            made.append(Half(Disk("plain", ["xenvg", str(path)]), Env()))
        return made

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(drbdsetup.process, "run", self.kernel.run)
        monkeypatch.setattr(drbdsetup, "PROC_DRBD", str(self.directory / "drbd"))


class Pair:
    """Both nodes; the code runs on one at a time."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        wire: list[Kernel] = []
        self.nodes = [Node(number, directory / f"node{number}", wire) for number in (1, 2)]
        self._monkeypatch = monkeypatch

    def on(self, number: int) -> Node:
        node = self.nodes[number - 1]
        node.use(self._monkeypatch)
        return node

    def make(self, **changes: object) -> tuple[DrbdVolume, DrbdVolume]:
        """Create a disk as `blockdev_create` does: on the secondary node, then on the primary."""
        second = self.on(2).volume(**changes)  # type: ignore[arg-type]
        second.create(256)
        second.assemble()
        first = self.on(1).volume(**changes)  # type: ignore[arg-type]
        first.create(256)
        first.assemble()
        first.open_new()
        return first, second

    def in_sync(self) -> tuple[DrbdVolume, DrbdVolume]:
        made = self.make()
        self.nodes[1].kernel.finish_sync()
        return made


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    return Pair(tmp_path, monkeypatch)


def status(volume: DrbdVolume) -> BlockDevStatus:
    found = volume.find()
    assert found is not None
    assert found.mirror is not None
    return found


@pytest.mark.shows("backend/templates/drbd")
def test_a_new_disk_takes_its_data_from_the_primary_node(pair: Pair) -> None:
    first, second = pair.make()
    found = status(first)
    assert found.mirror is not None
    assert (found.dev_path, found.major, found.minor) == ("/dev/drbd0", 147, 0)
    assert (found.sync_percent, found.estimated_time_s) == (25.0, 12)
    assert found.is_degraded
    assert found.ldisk_status == LocalDiskStatus.OKAY
    assert found.mirror.link is Link.CONNECTED
    pair.on(2)
    assert status(second).ldisk_status == LocalDiskStatus.SYNC
    pair.nodes[1].kernel.finish_sync()
    found = status(second)
    assert (found.sync_percent, found.is_degraded, found.ldisk_status) == (None, False, 1)


@pytest.mark.shows(
    "2.0/minors/cost", "2.0/drbd-auth/secret", "2.0/disks/peers", "backend/noded/lvm-drbd"
)
def test_the_commands_of_a_creation(pair: Pair) -> None:
    pair.make()
    said = [" ".join(argv[1:]) for argv in pair.nodes[0].kernel.commands if "show" not in argv]
    data, meta = (str(pair.nodes[0].directory / f"web_{part}") for part in ("data", "meta"))
    assert said == [
        f"--force 0 v08 {meta} 0 create-md",
        "new-resource resource0",
        "new-minor resource0 0 0",
        f"--force 0 v08 {meta} 0 get-gi",
        f"--force 0 v08 {meta} 0 apply-al",
        (
            f"attach 0 {data} {meta} 0 --on-io-error=detach --disk-barrier=no --disk-flushes=yes"
            " --disk-drain=yes --md-flushes=yes --c-plan-ahead=0 --resync-rate=61440k --size=256m"
        ),
        (
            "connect resource0 ipv4:10.0.0.1:11000 ipv4:10.0.0.2:11000 --protocol=C"
            " --after-sb-0pri=discard-zero-changes --after-sb-1pri=consensus --cram-hmac-alg=md5"
            " --shared-secret=5ecret --allow-two-primaries=no"
        ),
        "primary 0 --force",
    ]


def test_repetition_changes_nothing(pair: Pair) -> None:
    first, _second = pair.in_sync()
    pair.on(1).kernel.commands.clear()
    first.assemble()
    first.open()
    assert pair.nodes[0].kernel.changes == []


def test_it_is_not_made_again(pair: Pair) -> None:
    first, _second = pair.in_sync()
    pair.on(1)
    with pytest.raises(
        BlockDeviceError, match=r"DRBD minor 0 is in use: resource resource0: .*web_"
    ):
        first.create(256)
    generation = pair.nodes[0].kernel.generations[first.children[1].device]
    assert generation != JUST_CREATED


@pytest.mark.parametrize("commands", range(12))
def test_what_was_cut_short_is_completed(pair: Pair, commands: int) -> None:
    first = pair.on(1).volume()
    first.create(256)
    kernel = pair.nodes[0].kernel
    kernel.commands.clear()
    kernel.fails_after = commands
    with contextlib.suppress(BlockDeviceError):
        first.assemble()
        assert commands > 7
    kernel.fails_after = None
    first.assemble()
    [found] = kernel.resources.values()
    assert (found.data, found.local) == (first.children[0].device, "ipv4:10.0.0.1:11000")
    assert found.disk["resync-rate"] == "61440k"
    assert status(first).mirror.link is Link.WAITING  # type: ignore[union-attr]


@pytest.mark.shows("2.0/minors/activation")
def test_a_stranger_is_left_alone(pair: Pair) -> None:
    pair.in_sync()
    other = pair.on(1).volume("other")
    before = repr(pair.nodes[0].kernel.resources)
    pair.nodes[0].kernel.commands.clear()
    for action in (lambda: other.create(256), other.assemble, other.open, other.find):
        with pytest.raises(BlockDeviceError, match=r"web_data and .*web_meta, connection from"):
            action()
    other.close()
    other.shutdown()
    assert pair.nodes[0].kernel.changes == []
    assert repr(pair.nodes[0].kernel.resources) == before


@pytest.mark.shows("2.0/minors/activation", "2.0/disk-caveats/takeover")
def test_a_minor_that_nobody_uses_any_more_is_taken(pair: Pair) -> None:
    kernel = pair.on(1).kernel
    kernel._drbdsetup(["new-resource", "old"])
    kernel._drbdsetup(["new-minor", "old", "0", "0"])
    kernel.tell()
    first = pair.on(1).volume()
    assert first.find() is None
    first.create(256)
    first.assemble()
    assert [*kernel.resources] == ["resource0"]
    assert "down" in kernel.changes


def test_the_name_of_its_resource_may_be_in_use(pair: Pair) -> None:
    kernel = pair.on(1).kernel
    kernel._drbdsetup(["new-resource", "resource0"])
    kernel._drbdsetup(["new-minor", "resource0", "9", "0"])
    kernel.tell()
    first = pair.on(1).volume()
    first.create(256)
    with pytest.raises(BlockDeviceError, match="the name resource0 of DRBD minor 0 is in use by"):
        first.assemble()
    assert kernel.resources["resource0"].minor == 9


def test_parameters_reach_a_running_device_and_are_read_back(pair: Pair) -> None:
    pair.in_sync()
    kernel = pair.on(1).kernel
    kernel.commands.clear()
    params = {"resync-rate": 100, "disabled-barriers": "f", "protocol": "A"}
    pair.on(1).volume(params=params).assemble()
    assert kernel.resources["resource0"].disk["resync-rate"] == "100k"
    assert [" ".join(argv) for argv in kernel.commands if "options" in argv[1]] == [
        "drbdsetup disk-options 0 --disk-flushes=no --resync-rate=100k",
        "drbdsetup net-options ipv4:10.0.0.1:11000 ipv4:10.0.0.2:11000 --protocol=A",
    ]
    kernel._disk_options = lambda *_args, **_options: None  # type: ignore[method-assign]
    with pytest.raises(BlockDeviceError, match="did not take: resync-rate is 100k, not 200k"):
        pair.on(1).volume(params={**params, "resync-rate": 200}).assemble()


def test_a_copy_that_does_not_come_is_not_waited_for_for_ever(pair: Pair) -> None:
    first = pair.on(1).volume()
    first.create(256)
    first.assemble()
    with pytest.raises(BlockDeviceError, match=r"/dev/drbd0: WFConnection, .*DUnknown$"):
        first.wait_connected(0.5)


@pytest.mark.parametrize("params", [{"protocol": "Z"}, {"disk-custom": "--no-such=1"}])
def test_a_wrong_parameter_leaves_nothing(pair: Pair, params: dict[str, object]) -> None:
    pair.on(1).volume().create(256)
    first = pair.on(1).volume(params=params)
    with pytest.raises(BlockDeviceError, match=r"'Z' is not one of|unrecognized option '--no-such"):
        first.assemble()
    assert pair.nodes[0].kernel.resources == {}


def test_the_primary_role_changes_sides(pair: Pair) -> None:
    first, second = pair.in_sync()
    pair.on(2)
    with pytest.raises(BlockDeviceError, match=r"cannot be written on this node: .*Multiple prim"):
        second.open()
    pair.on(1).kernel.held.add(0)  # by a process that is about to end
    first.close()
    pair.on(2)
    second.open()
    assert pair.nodes[1].kernel.resources["resource0"].is_primary


def test_both_nodes_write_only_while_a_migration_allows_it(pair: Pair) -> None:
    first, second = pair.in_sync()
    for number, volume in ((1, first), (2, second)):
        pair.on(number)
        volume.connect(dual_primary=True)
        volume.wait_connected(1)
    pair.on(2)
    second.assemble()  # as the node does that accepts the instance
    assert pair.nodes[1].kernel.resources["resource0"].net["allow-two-primaries"] == "yes"
    second.open(exclusive=False)
    pair.on(1)
    first.assemble()  # two primaries stay allowed while there are two
    assert pair.nodes[0].kernel.resources["resource0"].net["allow-two-primaries"] == "yes"
    first.close()
    for number, volume in ((1, first), (2, second)):
        pair.on(number)
        volume.connect(dual_primary=False)
    pair.on(1)
    with pytest.raises(BlockDeviceError, match="Multiple primaries"):
        first.open()


def test_it_goes_on_without_its_copy_and_finds_it_again(pair: Pair) -> None:
    first, _second = pair.in_sync()
    pair.on(1)
    first.disconnect()
    first.disconnect()
    found = status(first)
    assert found.mirror is not None
    assert found.is_degraded
    assert found.mirror.link is Link.NONE
    assert found.mirror.needs_activation
    assert "type: gnt-instance activate-disks" in found.mirror.text
    with pytest.raises(BlockDeviceError, match=r"/dev/drbd0: StandAlone, .*: not connected"):
        first.wait_connected(1)
    first.assemble()
    first.wait_connected(1)
    assert not status(first).is_degraded


def test_a_side_tells_which_of_two_has_the_newer_data(pair: Pair) -> None:
    first, second = pair.in_sync()
    pair.on(2)
    second.disconnect()
    here = pair.on(1)
    [old, *_] = first.side().generations  # type: ignore[union-attr]
    here.kernel.write(here.kernel.resources["resource0"])
    here.kernel.log = "[  61.5] drbd resource0: peer( Secondary -> Unknown ) conn( Connected -> X )"
    writer = first.side()
    assert writer is not None
    assert (writer.is_connected, writer.is_open, writer.is_outdated) == (False, True, False)
    assert writer.generations[1] == old != writer.generations[0]
    assert writer.alone_since == pytest.approx(clock.now() - clock.monotonic() + 61.5, abs=5)
    pair.on(2)
    left = second.side()
    assert left is not None
    assert (left.generations[0], left.alone_since) == (old, None)
    assert compare(left, writer) is Age.OLDER
    second.outdate()
    assert second.side().is_outdated  # type: ignore[union-attr]
    assert status(second).ldisk_status == LocalDiskStatus.FAULTY
    with pytest.raises(BlockDeviceError, match="Need access to UpToDate data"):
        second.open()
    second.open_new()
    assert not second.side().is_outdated  # type: ignore[union-attr]
    second.shutdown()
    assert second.side() is None


def test_a_connected_side_does_not_become_outdated(pair: Pair) -> None:
    _first, second = pair.in_sync()
    pair.on(2)
    second.outdate()
    side = second.side()
    assert side is not None
    assert (side.is_connected, side.is_outdated) == (True, False)


def test_what_is_shut_down_has_no_connection_to_give_up(pair: Pair) -> None:
    first, _second = pair.in_sync()
    pair.on(1)
    first.close()
    first.shutdown()
    first.disconnect()
    assert first.find() is None


def test_a_split_brain_is_told_and_not_decided(pair: Pair) -> None:
    first, second = pair.in_sync()
    ids = []
    for number, volume in ((1, first), (2, second)):
        node = pair.on(number)
        volume.disconnect()
        node.kernel.write(node.kernel.resources["resource0"])
        ids.append(node.kernel.generations[volume.children[1].device])
    for number, volume in ((1, first), (2, second)):
        pair.on(number)
        volume.connect(dual_primary=False)
    with pytest.raises(BlockDeviceError, match=f"split brain: .* {ids[1]}, .* {ids[0]}; .*none is"):
        second.wait_connected(1)
    text = status(second).mirror.text  # type: ignore[union-attr]
    assert "'gnt-instance replace-disks -s INSTANCE' keeps the data of the primary node" in text
    kernel = pair.nodes[1].kernel
    assert kernel.generations[second.children[1].device] == ids[1]


def test_the_storage_of_a_side_without_a_connection_is_replaced(pair: Pair) -> None:
    _first, second = pair.in_sync()
    node = pair.on(2)
    second.disconnect()
    second.detach(second.children)
    new = node.halves("new")
    second.attach(new)
    resource = node.kernel.resources["resource0"]
    assert (resource.meta, bool(resource.local)) == (new[1].device, True)
    assert new[1].device in node.kernel.syncing


def test_local_storage_is_replaced(pair: Pair) -> None:
    first, _second = pair.in_sync()
    node = pair.on(1)
    first.detach(first.children)
    first.detach(first.children)
    found = status(first)
    assert found.mirror is not None
    assert found.ldisk_status == LocalDiskStatus.FAULTY
    assert found.mirror.needs_activation
    assert "type: gnt-instance replace-disks -p" in found.mirror.text
    new = node.halves("new")
    first.attach(new)
    kernel = node.kernel
    assert kernel.resources["resource0"].meta == new[1].device
    assert new[1].device in kernel.syncing
    renewed = DrbdVolume(first._disk, Env(), new)
    with pytest.raises(BlockDeviceError, match="has local storage already"):
        renewed.attach(new)
    with pytest.raises(BlockDeviceError, match=r"does not have .*web_data and"):
        renewed.detach(first.children)


def test_the_last_good_copy_cannot_be_detached(pair: Pair) -> None:
    first, _second = pair.make()
    pair.on(1)
    with pytest.raises(BlockDeviceError, match="Need access to UpToDate data"):
        first.detach(first.children)


def test_without_its_half_it_works_by_the_copy(pair: Pair) -> None:
    first, _second = pair.in_sync()
    pair.on(1)
    first.close()
    first.shutdown()
    os.unlink(first.children[0].device)
    first.assemble()
    first.open()
    found = status(first)
    assert found.mirror is not None
    assert not found.mirror.is_attached
    assert found.mirror.link is Link.CONNECTED


def test_a_device_that_lost_disk_and_connection_is_completed_or_taken_down(pair: Pair) -> None:
    first, _second = pair.in_sync()
    pair.on(1)
    for end in (first.assemble, first.shutdown):
        first.detach(first.children)
        first.disconnect()
        assert status(first).ldisk_status == LocalDiskStatus.FAULTY
        end()
    assert pair.nodes[0].kernel.resources == {}


def test_growth_is_of_the_halves_first_then_of_the_device(pair: Pair) -> None:
    first, _second = pair.in_sync()
    kernel = pair.on(1).kernel
    data = first.children[0]
    assert isinstance(data, Half)
    first.grow(64, dryrun=True)
    first.grow(64)
    assert data.grown == [(64, True), (64, False)]
    assert kernel.resources["resource0"].size == "256m"
    first.grow(64, backingstore=False)
    assert data.grown == [(64, True), (64, False)]
    assert kernel.resources["resource0"].size == "320m"
    first.disconnect()
    with pytest.raises(BlockDeviceError, match="cannot grow while its copy is not connected"):
        first.grow(64, backingstore=False)
    with pytest.raises(BlockDeviceError, match="cannot grow by 0 MiB"):
        first.grow(0)


def test_sync_is_paused_on_this_side(pair: Pair) -> None:
    first, _second = pair.make()
    pair.on(1)
    for pause in (True, True, False, False):
        first.pause_sync(pause=pause)
        assert pair.nodes[0].kernel.resources["resource0"].is_paused is pause
    first.pause_sync(pause=True)
    assert status(first).sync_percent == 0.0  # the size is not known here
    assert status(first).is_degraded
    first.pause_sync(pause=True)
    first.assemble()  # whoever paused it has gone
    assert status(first).sync_percent == 25.0


def test_it_is_taken_down_and_removed(pair: Pair) -> None:
    first, _second = pair.in_sync()
    kernel = pair.on(1).kernel
    first.close()
    first.shutdown()
    first.shutdown()
    assert first.find() is None
    first.remove()
    assert kernel.resources == {}
    assert first.children[1].device not in kernel.generations


def test_one_that_is_up_is_taken_down_to_be_removed(pair: Pair) -> None:
    first, _second = pair.in_sync()
    kernel = pair.on(1).kernel
    first.remove()
    first.remove()
    assert kernel.resources == {}
    assert first.children[1].device not in kernel.generations


def test_a_device_in_use_is_not_taken_down(pair: Pair) -> None:
    first, _second = pair.in_sync()
    pair.on(1).kernel.held.add(0)
    with pytest.raises(
        BlockDeviceError, match=r"'drbdsetup down resource0' .*held open by someone"
    ):
        first.shutdown()


def test_metadata_must_have_room(pair: Pair) -> None:
    first = pair.on(1).volume()
    os.truncate(first.children[1].device, META_BYTES - 1)
    with pytest.raises(BlockDeviceError, match="web_meta is smaller than 128 MiB"):
        first.create(256)


def test_the_secret_is_in_no_message(pair: Pair) -> None:
    kernel = pair.on(1).kernel
    first = pair.on(1).volume()
    first.create(256)
    kernel.commands.clear()
    kernel._drbdsetup(["new-resource", "x"])
    kernel._connect("x", "ipv4:10.0.0.1:11000", "ipv4:10.0.0.9:11000", options={})
    with pytest.raises(
        BlockDeviceError, match=r"--shared-secret=\*\*\* .*already in use"
    ) as caught:
        first.assemble()
    assert "5ecret" not in caught.value.message


def test_a_disk_without_a_place_here_or_of_another_form(pair: Pair) -> None:
    with pytest.raises(BlockDeviceError, match="this node is none of the two that hold it"):
        DrbdVolume(Disk("drbd", LOGICAL_ID), Env())
    with pytest.raises(BlockDeviceError, match=r"the logical id .* is not \[node_a, node_b"):
        DrbdVolume(Disk("drbd", ["a"]), Env())
    node = pair.on(1)
    without_port = {**node.volume()._disk.dynamic_params, "port": None}  # type: ignore[attr-defined]
    with pytest.raises(BlockDeviceError, match="disk web has no port for the connection"):
        node.volume(dynamic_params=without_port)
    dynamic = {**node.volume()._disk.dynamic_params, "local-ip": "nonsense"}  # type: ignore[attr-defined]
    with pytest.raises(BlockDeviceError, match="disk web: 'nonsense' does not appear to be an IP"):
        node.volume(dynamic_params=dynamic)
    with pytest.raises(BlockDeviceError, match="has 0 children instead of data and metadata"):
        DrbdVolume(node.volume()._disk, Env()).find()


def test_it_has_snapshots_of_its_half_and_no_other_name(pair: Pair) -> None:
    first = pair.on(1).volume()
    assert first.snapshot("snap", 256) == ["xenvg", "snap"]
    with pytest.raises(NotSupportedError, match="cannot be renamed"):
        first.rename(["a", "b", 11001, 1, 1, "x"])


def test_many_disks_are_looked_at_by_one_look(pair: Pair) -> None:
    pair.in_sync()
    node = pair.on(1)
    stranger, absent = node.volume("other"), node.volume("third", minor=7)
    node.kernel.commands.clear()
    storage = DrbdStorage(StorageType.LVM_VG, Env())
    states = storage.look([node.volume(), stranger, absent])
    assert len(node.kernel.commands) == 1
    assert isinstance(states[0], BlockDevStatus)
    assert isinstance(states[1], BlockDeviceError)
    assert states[2] is None


def test_a_parameter_that_cannot_be_keeps_nothing_up(pair: Pair) -> None:
    pair.in_sync()
    first = pair.on(1).volume(params={"protocol": "Z"})  # 3.0 takes that
    assert not status(first).is_degraded
    first.close()
    first.shutdown()
    assert pair.nodes[0].kernel.resources == {}


def test_a_node_without_drbd_says_what_to_type(pair: Pair) -> None:
    node = pair.on(1)
    (node.directory / "drbd").unlink()
    for end in (node.volume().close, node.volume().shutdown):
        end()  # there is nothing
    with pytest.raises(BlockDeviceError, match="type modprobe drbd"):
        node.volume().assemble()
    with pytest.raises(BlockDeviceError, match="type modprobe drbd"):
        node.volume().find()


def test_drbd_9_is_only_looked_at(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    node = pair.on(1)
    (node.directory / "drbd").write_text("version: 9.1.7 (api:2/proto:110-121)\n")
    recorded = Path(__file__).parents[3] / "data" / "drbd" / "drbd9-status.json"
    monkeypatch.setattr(drbdsetup, "run", lambda *_args, **_options: recorded.read_bytes())
    monkeypatch.setattr(drbdsetup.show, "parse", lambda _text: pytest.fail("asked for 8.4"))
    found = status(node.volume(minor=1))
    assert (found.sync_percent, found.ldisk_status) == (45.78, LocalDiskStatus.SYNC)
    assert node.volume(minor=5).find() is None
    with pytest.raises(BlockDeviceError, match=r"DRBD 9\.1\.7 can only be looked at"):
        node.volume(minor=1).assemble()


def test_the_row_names_the_driver(pair: Pair) -> None:
    assert isinstance(storage_of(pair.on(1).volume()._disk, Env()), DrbdStorage)
    found = storage_of_kind("lvm-vg", Env())
    assert not isinstance(found, DrbdStorage)  # its space is that of LVM

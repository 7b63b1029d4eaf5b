"""Chains of exports on a node: points that appear in one step, and merges that break off anywhere."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import chance
from fakes.rpc_instances import rpc_instance

from ganeti.base.errors import GenericError, StorageError
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.disks import chains
from ganeti.node_ops.disks.exports import Exports
from ganeti.node_ops.transfers.ends import End, open_sink, open_source
from ganeti.node_ops.transfers.increments import ChangesSource, IncrementSink
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.protocol.export_description import sums_name
from ganeti.protocol.node_rpc_values import StreamForm
from ganeti.storage.stream import DiskWriter, FrameReader, framed
from ganeti.store import swap_file
from ganeti.system import files

MIB = 1 << 20
SIZE = 2 * MIB
UUID = "8e3bf0f6-4b2c-4a84-9d5e-3b5d2e4f6a01"
WIRE_DISK = {
    "logical_id": ["loop", "/srv/ganeti/file-storage/inst1/disk0"],
    "dev_type": "file",
    "size": 2,
    "uuid": UUID,
    "serial_no": 1,
    "iv_name": "disk/0",
}
INSTANCE = RpcInstance.from_wire(rpc_instance(disks=[UUID], disks_info=[WIRE_DISK]))


class Chain:
    """A disk that changes, and its chain of exports on a node."""

    def __init__(self, context: NodeContext, disk: Path) -> None:
        self.calls = Exports(context)
        self.directory = Path(context.paths.export_dir)
        self.final, self.partial = (self.directory / f"{INSTANCE.name}{s}" for s in ("", "+new"))
        self.rng = random.Random(chance.seed())
        self.disk = disk
        disk.write_bytes(self.rng.randbytes(SIZE // 2) + bytes(SIZE // 2))
        self.kept: dict[int, bytes] = {}

    def change(self) -> None:
        """Write somewhere to the disk."""
        with self.disk.open("r+b") as file:
            file.seek(self.rng.randrange(SIZE - 100_000))
            file.write(self.rng.randbytes(self.rng.randrange(1, 100_000)))

    def send(self, number: int) -> None:
        """Bring what changed into the directory that is to be a point."""
        self.calls.export_note(self.partial.name, "stopped", f"point-{number}", number)
        sums, root = "", ""
        if number:
            last = chains.points_of(str(self.final))[-1]
            sums = f"{last.directory}/{sums_name(UUID)}"
            root = last.description.disks[0].root
        path = self.partial / (f"{UUID}.diff" if number else f"{UUID}.dump")
        source = open_source(
            End(kind="changes", path=str(self.disk), scratch=str(self.directory)), StreamForm.FRAMES
        )
        assert isinstance(source, ChangesSource)
        asked = IncrementSink(str(path), sums, root, io.BytesIO())
        source.learn(FrameReader(io.BytesIO(b"".join(framed(asked.known())))))
        stream = io.BytesIO(b"".join(framed(source.pieces())))
        source.close()
        sink = End(kind="increment", path=str(path), sums=sums, root=root)
        for _ in open_sink(sink, FrameReader(stream), StreamForm.FRAMES).run():
            pass

    def export(self, number: int) -> None:
        self.kept[number] = self.disk.read_bytes()
        self.send(number)
        self.calls.finalize_export(INSTANCE, [WIRE_DISK])

    def grow(self, count: int) -> None:
        """Add so many points."""
        first = max(self.kept, default=-1) + 1
        for number in range(first, first + count):
            self.export(number)
            self.change()

    def restored(self, number: int) -> bytes:
        points = chains.points_of(str(self.final))
        [dump] = [p.description.disks[0].dump for p in points if p.number == number]
        layers, root = chains.layers_of(points, number, dump)
        source = open_source(
            End(kind="chain", path="", layers=layers, root=root), StreamForm.FRAMES
        )
        target = self.disk.with_name("restored")
        target.write_bytes(b"old" * (SIZE // 3) + b"!!")
        stream = io.BytesIO(b"".join(source.pieces()))
        for _ in DiskWriter(str(target), stream).run():
            pass
        return target.read_bytes()

    def check(self, *numbers: int) -> None:
        """Check that these are the points, and that each comes back as it was."""
        assert [point.number for point in chains.points_of(str(self.final))] == [*numbers]
        for number in numbers:
            assert self.restored(number) == self.kept[number], f"point {number}"


@pytest.fixture
def chain(context: NodeContext, tmp_path: Path) -> Chain:
    return Chain(context, tmp_path / "disk")


def test_each_point_comes_back(chain: Chain) -> None:
    chain.grow(4)
    chain.check(0, 1, 2, 3)
    [(name, points)] = chain.calls.export_chains([])
    assert (name, [point.number for point in points]) == (INSTANCE.name, [0, 1, 2, 3])
    assert [point.with_sums for point in points] == [[], [], [], [UUID]]
    assert points[0].size > MIB > points[1].size > 0
    dumped = chain.final / f"{UUID}.dump"
    noted = hashlib.sha256(dumped.read_bytes()).hexdigest()
    assert noted in (chain.final / "config.ini").read_text(), "as other versions read it"


def test_the_description_has_the_size_that_was_dumped(chain: Chain) -> None:
    """The device of a disk may be larger than recorded, by extents or parts of a MiB."""
    sizes = []
    for number, more in enumerate([0, MIB, MIB + 512, -MIB]):
        os.truncate(chain.disk, SIZE + more)
        chain.export(number)
        [point] = [p for p in chains.points_of(str(chain.final)) if p.number == number]
        sizes.append(point.description.disks[0].size_mib)
    assert sizes == [2, 3, 4, 2]


def test_an_export_of_another_version_is_a_chain_of_one(chain: Chain) -> None:
    chain.grow(1)
    config = chain.final / "config.ini"
    own = ("point", "number", "instance_uuid", "disk0_root")
    lines = config.read_text().splitlines()
    config.write_text("\n".join(x for x in lines if not x.startswith(own)))
    assert [point.number for point in chain.calls.export_chains([])[0][1]] == [0]
    config.write_text("damaged")
    assert chain.calls.export_chains([]) == [(INSTANCE.name, [])]


def test_an_export_that_cannot_be_read_hides_no_others(chain: Chain) -> None:
    """All of the node counted as missing: full ones were begun elsewhere."""
    chain.grow(1)
    (chain.directory / "broken.example.com" / "config.ini").mkdir(parents=True)
    found = dict(chain.calls.export_chains([]))
    assert [point.number for point in found[INSTANCE.name]] == [0]
    assert found["broken.example.com"] == []
    with pytest.raises(OSError, match="directory"):
        chain.calls.export_chains(["broken.example.com"])


def test_a_chain_that_grows_while_it_is_looked_at_is_looked_at_again(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its older points lose their checksums in that moment."""
    chain.grow(2)
    room_of, looks = chains.room_of, list[str]()

    def changing(directory: str) -> int:
        looks.append(directory)
        if len(looks) == 1:
            raise FileNotFoundError(directory)
        return room_of(directory)

    monkeypatch.setattr(chains, "room_of", changing)
    [(_, points)] = chain.calls.export_chains([INSTANCE.name])
    assert [point.number for point in points] == [0, 1]


def test_a_whole_export_replaces_the_chain(chain: Chain) -> None:
    chain.grow(3)
    chain.kept.clear()
    chain.grow(1)
    chain.check(0)
    assert os.listdir(chain.directory) == [INSTANCE.name]


def test_a_point_that_does_not_follow_the_last_one_is_refused(chain: Chain) -> None:
    chain.grow(2)
    chain.send(2)
    shutil.copytree(chain.partial, chain.directory / "kept")
    chain.calls.finalize_export(INSTANCE, [WIRE_DISK])
    shutil.move(chain.directory / "kept", chain.partial)
    with pytest.raises(GenericError, match="does not end with point 1 any more"):
        chain.calls.finalize_export(INSTANCE, [WIRE_DISK])


def test_a_gap_ends_the_chain_and_is_filled(chain: Chain) -> None:
    chain.grow(4)
    shutil.rmtree(chain.final / "increments/0002")
    chain.check(0, 1)
    with pytest.raises(GenericError, match=r"has no point 3; it has 0, 1$"):
        chains.layers_of(chains.points_of(str(chain.final)), 3, f"{UUID}.diff")
    (chain.final / "increments/0001" / f"{UUID}.diff").unlink()
    with pytest.raises(GenericError, match="missing in point 1"):
        chain.check(0, 1)


def test_checksums_of_another_point_are_refused(chain: Chain) -> None:
    chain.grow(2)
    sums = chain.final / "increments/0001" / sums_name(UUID)
    data = bytearray(sums.read_bytes())
    data[-3] ^= 1
    sums.write_bytes(data)
    with pytest.raises(StorageError, match="so it cannot be continued"):
        chain.send(2)


def test_a_file_of_another_chain_is_noticed(chain: Chain) -> None:
    chain.grow(2)
    other = chain.directory / "other"
    shutil.copytree(chain.final, other)
    chain.kept.clear()
    chain.disk.write_bytes(chain.rng.randbytes(SIZE))
    chain.grow(1)
    shutil.copyfile(chain.final / f"{UUID}.dump", other / f"{UUID}.dump")
    chain.final = other
    with pytest.raises(StorageError, match="differs from the one exported"):
        chain.check(0, 1)


class PowerCut(BaseException):
    """Nothing happens any more."""


CHANGES = [(os, name) for name in ("rename", "unlink", "mkdir", "link", "rmdir", "fsync")]
CHANGES += [(swap_file, "exchange"), (files, "write_durable")]


class Power:
    """Goes off after some changes of files."""

    def __init__(self, changes: int) -> None:
        self._left = changes
        self.is_off = False

    def counted(self, change: Any) -> Any:
        def do(*args: Any, **named: Any) -> Any:
            if not self._left:
                self.is_off = True
                raise PowerCut
            self._left -= 1
            return change(*args, **named)

        return do


def steps_cut(monkeypatch: pytest.MonkeyPatch, chain: Chain, action: Any) -> Iterator[int]:
    """Carry an action out again and again, each time on the same chain, cut one step later."""
    before = chain.directory.with_name("before")
    shutil.copytree(chain.directory, before)
    for step in itertools.count():
        power = Power(step)
        with monkeypatch.context() as patched, contextlib.suppress(PowerCut):
            for module, name in CHANGES:
                patched.setattr(module, name, power.counted(getattr(module, name)))
            action()
        yield step
        if not power.is_off:
            return
        shutil.rmtree(chain.directory)
        shutil.copytree(before, chain.directory)


def test_a_power_cut_leaves_the_chain_with_or_without_the_new_point(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain.grow(2)
    chain.kept[2] = chain.disk.read_bytes()
    chain.send(2)
    seen = set()
    for _ in steps_cut(
        monkeypatch, chain, lambda: chain.calls.finalize_export(INSTANCE, [WIRE_DISK])
    ):
        numbers = [point.number for point in chains.points_of(str(chain.final))]
        chain.check(*numbers)
        seen.add(len(numbers))
        shutil.rmtree(chain.partial, ignore_errors=True)  # as the next export does first
        kept = dict(chain.kept)
        chain.export(len(numbers))
        chain.check(*range(len(numbers) + 1))
        chain.kept = kept
    assert seen == {2, 3}


def never_swaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play a file system, as NFS, that cannot swap two names."""
    monkeypatch.setattr(swap_file, "exchange", lambda _one, _other: False)


@pytest.mark.parametrize("swaps", [False, True])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_merge_can_be_cut_anywhere_and_repeated(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, number: int, *, swaps: bool
) -> None:
    if not swaps:
        never_swaps(monkeypatch)
    chain.grow(4)

    def merge() -> None:
        for _ in chains.merge(str(chain.final), str(chain.partial), number):
            pass

    steps = 0
    for _ in steps_cut(monkeypatch, chain, merge):
        steps += 1
        assert chain.calls.export_list()[:1] == [INSTANCE.name]
        numbers = [point.number for point in chains.points_of(str(chain.final))]
        assert numbers in ([0, 1, 2, 3], [*range(number, 4)])
        chain.check(*numbers)
        if numbers[0] != number:
            merge()
        chain.check(*range(number, 4))
        kept = dict(chain.kept)
        shutil.rmtree(chain.partial, ignore_errors=True)
        chain.export(4)
        chain.check(*range(number, 5))
        chain.kept = kept
    assert steps > 10
    assert os.listdir(chain.directory) == [INSTANCE.name]


@pytest.mark.parametrize("swaps", [False, True])
@pytest.mark.parametrize("looks", [False, True])
def test_a_new_export_replaces_the_chain_or_does_not(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, *, swaps: bool, looks: bool
) -> None:
    """The next export begins by removing what is not in place; somebody looks before, or nobody."""
    if not swaps:
        never_swaps(monkeypatch)
    chain.grow(3)
    old, new = dict(chain.kept), {0: chain.disk.read_bytes()}
    chain.send(0)
    seen = set()
    for _ in steps_cut(
        monkeypatch, chain, lambda: chain.calls.finalize_export(INSTANCE, [WIRE_DISK])
    ):
        if looks:
            assert INSTANCE.name in chain.calls.export_list()
        with contextlib.suppress(GenericError):
            chain.calls.export_remove(chain.partial.name)
        [(_name, points)] = chain.calls.export_chains([INSTANCE.name])
        chain.kept = new if len(points) == 1 else old
        chain.check(*(point.number for point in points))
        seen.add(len(points))
        chain.kept = {}
        chain.export(0)
        chain.check(0)
        assert chain.calls.export_list() == [INSTANCE.name]
        assert not [name for name in os.listdir(chain.directory) if name.endswith("+old")]
    assert seen == {1, 3}
    chain.calls.export_remove(INSTANCE.name)
    assert chain.calls.export_list() == []


@pytest.mark.parametrize("swaps", [False, True])
def test_remains_of_an_old_export_that_cannot_be_removed_are_told(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, caplog: Any, *, swaps: bool
) -> None:
    """On NFS a file that somebody has open leaves another name in its directory."""
    if not swaps:
        never_swaps(monkeypatch)
    chain.grow(2)

    def remove(path: str) -> None:
        for name in os.listdir(path):
            if os.path.isfile(f"{path}/{name}"):
                os.unlink(f"{path}/{name}")
        raise OSError(39, "Directory not empty", path)

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", remove)
        chain.kept.clear()
        chain.export(0)
    assert "Directory not empty" in caplog.text
    chain.check(0)
    with contextlib.suppress(GenericError):
        chain.calls.export_remove(chain.partial.name)  # as the job does when it fails
    chain.check(0)
    chain.change()
    chain.export(1)
    chain.check(0, 1)
    for _ in chains.merge(str(chain.final), str(chain.partial), 1):
        pass
    chain.check(1)


@pytest.mark.parametrize("swaps", [False, True])
def test_a_merge_that_goes_on_while_its_remains_are_removed_changes_nothing(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, *, swaps: bool
) -> None:
    if not swaps:
        never_swaps(monkeypatch)
    chain.grow(3)
    merge = chains.merge(str(chain.final), str(chain.partial), 1)
    next(merge)
    unlink = os.unlink

    def merge_and_unlink(*args: Any, **named: Any) -> None:
        monkeypatch.setattr(os, "unlink", unlink)
        with contextlib.suppress(OSError):
            list(merge)
        unlink(*args, **named)

    monkeypatch.setattr(os, "unlink", merge_and_unlink)
    chain.calls.export_remove(chain.partial.name)
    assert os.listdir(chain.directory) == [INSTANCE.name]
    chain.check(0, 1, 2)


def test_an_export_that_was_moved_aside_is_removed_with_the_other(chain: Chain) -> None:
    chain.grow(1)
    aside = chain.directory / f".{INSTANCE.name}+old"
    shutil.copytree(chain.final, aside)
    chain.calls.export_remove(INSTANCE.name)
    assert os.listdir(chain.directory) == []
    chain.export(0)
    os.rename(chain.final, aside)
    chain.calls.export_remove(INSTANCE.name)
    assert os.listdir(chain.directory) == []


def test_a_merge_to_a_point_that_is_not_there_changes_nothing(chain: Chain) -> None:
    chain.grow(2)
    with pytest.raises(GenericError, match="no point 7"):
        list(chains.merge(str(chain.final), str(chain.partial), 7))
    chain.check(0, 1)

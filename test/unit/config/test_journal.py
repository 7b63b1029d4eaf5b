"""A journal cut anywhere, or of another file, leaves a configuration that is right."""

from __future__ import annotations

import json
import random

import pytest
from fakes.large_config import large_config_bytes, uuid_of

from ganeti.config import changes
from ganeti.config.config_data import split_config
from ganeti.config.deltas.following import ConfigFollower
from ganeti.config.deltas.journal import (
    SYNCED,
    JournalDamaged,
    Record,
    intact_records,
    record_of,
    records_in,
    replay,
    version_of,
)
from ganeti.config.index import CLUSTER_ID, DISKS, INSTANCES
from ganeti.config.state import ConfigState
from ganeti.config.tables import Tables
from ganeti.config.transaction import Transaction

COUNT = 70


class Life:
    """A configuration that changes: the file of each version, and the records between them."""

    def __init__(self, seed: int, changes_made: int) -> None:
        chance = random.Random(seed)
        state = ConfigState(large_config_bytes(COUNT))
        self.files = [b"".join(state.pieces)]
        self.records: list[Record] = []
        for turn in range(changes_made):
            change = state.begin(1800000000.5 + turn)
            self._change(change, chance, turn)
            change.check()
            state.accept(change)
            flush = state.start_flush(1800000001.25 + turn)
            state.flush_done()
            self.files.append(b"".join(flush.pieces))
            self.records.append(record_of(flush.base, flush.version, flush.changed))
        self.data = b"".join(record.line for record in self.records)
        self.ends = [0]
        for record in self.records:
            self.ends.append(self.ends[-1] + len(record.line))

    def _change(self, change: Transaction, chance: random.Random, turn: int) -> None:
        number = chance.randrange(COUNT)
        identity = (INSTANCES, uuid_of("instance", number))
        kind = chance.choice(["tag", "touch", "remove"])
        if kind == "tag" or change.stored(identity) is None:
            changes.add_tags(change, "cluster", "", [f"tü{turn}"])
        elif kind == "touch":
            change.touch(identity)
        else:
            change.delete(identity)
            change.delete((DISKS, uuid_of("disk", number)))


def same(one: bytes | None, other: bytes) -> bool:
    assert one is not None
    return bool(json.loads(one) == json.loads(other))


@pytest.mark.parametrize("seed", range(3))
def test_every_prefix_has_every_change_whose_record_is_whole(seed: int) -> None:
    life = Life(seed, 6)
    cuts = {0, len(life.data)} | {end + near for end in life.ends for near in (-1, 0, 1, 19, 21)}
    chance = random.Random(seed)
    cuts |= {chance.randrange(len(life.data)) for _ in range(40)}
    for cut in sorted(cut for cut in cuts if 0 <= cut <= len(life.data)):
        whole = sum(end <= cut for end in life.ends) - 1
        records = records_in(life.data[:cut])
        assert len(records) == whole
        assert same(replay(life.files[0], records), life.files[whole])


def test_damage_anywhere_ends_the_journal_there() -> None:
    life = Life(7, 4)
    chance = random.Random(7)
    for _ in range(60):
        at = chance.randrange(len(life.data))
        damaged = bytearray(life.data)
        damaged[at] ^= 1 << chance.randrange(8)
        before = sum(end <= at for end in life.ends) - 1
        found = records_in(bytes(damaged))
        assert found[:before] == life.records[:before]


def synced(data: bytes, starts: list[int]) -> bytes:
    """Return a journal in which these records are known to be on the disk."""
    made = bytearray(data)
    for start in starts:
        made[start : start + 1] = SYNCED
    return bytes(made)


def test_no_acknowledged_record_is_lost_by_damage_without_a_word() -> None:
    life = Life(7, 4)
    data = synced(life.data, life.ends[:-1])
    records = intact_records(data, "j")
    assert [each.change for each in records] == [each.change for each in life.records]
    chance = random.Random(7)
    places = {*life.ends[:-1], *(end - 1 for end in life.ends[1:])}
    places |= {chance.randrange(len(data)) for _ in range(60)}
    for at in places - {life.ends[-2]}:  # the sign of the last one: nothing else tells of it
        damaged = bytearray(data)
        damaged[at] ^= 1 << chance.randrange(8)
        before = life.ends[sum(end <= at for end in life.ends) - 1]
        found = records_in(bytes(damaged))
        if [each.change for each in found] == [each.change for each in records]:
            continue  # another spelling of a number
        told = rf"^/x/j is damaged at byte {before}: .* truncate --size={before} /x/j$"
        with pytest.raises(JournalDamaged, match=told):
            intact_records(bytes(damaged), "/x/j")


@pytest.mark.parametrize("acknowledged", range(4))
def test_what_a_power_cut_leaves_behind_the_acknowledged_records_is_no_damage(
    acknowledged: int,
) -> None:
    """Of those that were not synced each part is there or not, in any order."""
    life = Life(3, 4)
    start = life.ends[acknowledged]
    data = synced(life.data, life.ends[:acknowledged])
    chance = random.Random(acknowledged)
    for _ in range(40):
        left = bytearray(data[: chance.randint(start, len(data))])
        for _ in range(chance.randint(0, 2)):
            hole = chance.randint(start, len(left))
            left[hole : hole + 300] = bytes(len(left[hole : hole + 300]))
        assert len(intact_records(bytes(left), "j")) >= acknowledged


def test_a_file_of_any_version_goes_on_from_there() -> None:
    life = Life(1, 5)
    for file in life.files:
        assert same(replay(file, records_in(life.data)), life.files[-1])
    assert replay(life.files[-1], records_in(life.data)) is life.files[-1]
    assert replay(life.files[0], []) is life.files[0]


def test_a_journal_that_others_left_behind_is_not_applied() -> None:
    life, others = Life(1, 5), ConfigState(Life(1, 2).files[-1])
    change = others.begin(1900000000.0)
    changes.add_tags(change, "cluster", "", ["by-another"])
    others.accept(change)
    others.start_flush(1900000000.0)
    others.flush_done()
    file = b"".join(others.pieces)
    assert (
        version_of(split_config(file)).serial_no
        == version_of(split_config(life.files[3])).serial_no
    )
    assert replay(file, records_in(life.data)) is None


def test_new_objects_go_through_a_journal() -> None:
    state = ConfigState(large_config_bytes(1))
    before = b"".join(state.pieces)
    change = state.begin(1800000000.5)
    change.create(("nodegroups", "g2"), {"name": "g2", "alloc_policy": "preferred", "networks": {}})
    change.touch(CLUSTER_ID)
    state.accept(change)
    flush = state.start_flush(1800000001.0)
    line = record_of(flush.base, flush.version, flush.changed).line
    assert same(replay(before, records_in(line)), b"".join(flush.pieces))


@pytest.mark.parametrize("seed", range(3))
def test_followers_of_file_and_journal_see_each_version(seed: int) -> None:
    life = Life(seed, 9)
    chance = random.Random(seed)
    follower = ConfigFollower()
    first = follower.read(life.files[0])
    assert first is not None
    follower.take(first)
    for _ in first.prepared():
        pass
    at, file = 0, 0
    while at < len(life.records):
        at = min(at + chance.randint(1, 3), len(life.records))
        is_new_file = chance.random() < 0.4
        file = chance.randint(file, at) if is_new_file else file
        tables = follower.read(
            life.files[file] if is_new_file else None, life.records[min(file, 2) : at]
        )
        assert tables is not None
        wanted = Tables(split_config(life.files[at]), Tables(follower.tables.split))
        for name, table in tables.by_name.items():
            assert dict(table.items()) == dict(wanted.by_name[name].items())
            assert table.changed == wanted.by_name[name].changed
            assert sorted(table.order) == sorted(wanted.by_name[name].order)
        assert tables.cluster == wanted.cluster
        assert tables.serial_no == wanted.serial_no
        follower.take(tables)
    assert follower.read(None, life.records[:1]) is None, "these end before what it has"

"""Readers of ``config.data`` take over what stayed the same from one file to the next."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from fakes.large_config import disk, instance, large_config, uuid_of
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.base.errors import ConfigurationError
from ganeti.config.config_data import split_config
from ganeti.config.deltas.following import RUN_OBJECTS, ConfigFollower
from ganeti.config.tables import Tables

COUNT = 2 * RUN_OBJECTS
NODE = uuid_of("node", 1)


def encoded(config: dict[str, Any]) -> bytes:
    return json.dumps(config, separators=(",", ":")).encode()


def add(config: dict[str, Any], number: int) -> None:
    one = disk(number + COUNT, NODE)
    config["disks"][one["uuid"]] = one
    made = instance(number + COUNT, NODE, [one["uuid"]])
    config["instances"][made["uuid"]] = made


def change(config: dict[str, Any], number: int) -> None:
    for made in config["instances"].values():
        if made["name"] == f"inst{number}.example.com":
            made["tags"] = [*made["tags"], "\x7frun 0"]


def rename(config: dict[str, Any], number: int) -> None:
    for made in config["instances"].values():
        if made["name"] == f"inst{number}.example.com":
            made["name"] = f"other{number}.example.com"


def remove(config: dict[str, Any], number: int) -> None:
    for table, kind in (("instances", "instance"), ("disks", "disk")):
        config[table].pop(uuid_of(kind, number), None)


def remove_run(config: dict[str, Any], number: int) -> None:
    for each in range(number, number + RUN_OBJECTS):
        remove(config, each)


def set_tag(config: dict[str, Any], number: int) -> None:
    config["cluster"]["tags"] = [f"tag{number}"]


def move_last(config: dict[str, Any], number: int) -> None:
    uuid = uuid_of("instance", number)
    if uuid in config["instances"]:
        config["instances"][uuid] = config["instances"].pop(uuid)


def move_table(config: dict[str, Any], _number: int) -> None:
    config["disks"] = config.pop("disks")


def empty(config: dict[str, Any], _number: int) -> None:
    config["instances"], config["disks"] = {}, {}


EDITS = [add, change, rename, remove, remove_run, set_tag, move_last, move_table]


def everything(tables: Tables) -> object:
    return (
        bytes(tables.split.cluster),
        tables.serial_no,
        {name: dict(table.items()) for name, table in tables.by_name.items()},
        {name: list(table.order) for name, table in tables.by_name.items()},
        [sorted(tables.primary_instances(node)) for node in tables.nodes],
    )


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from([*EDITS, empty]), st.integers(0, COUNT - 1)), max_size=3
        ),
        min_size=1,
        max_size=4,
    )
)
def test_each_version_is_as_if_read_anew(rounds: list[list[tuple[Any, int]]]) -> None:
    config = large_config(COUNT)
    follower = ConfigFollower()
    follower.take(follower.read(encoded(config)))
    for edits in rounds:
        before = follower.tables
        config = copy.deepcopy(config)
        config["serial_no"] += 1
        for edit, number in edits:
            edit(config, number)
        data = encoded(config)
        follower.take(follower.read(data))
        assert everything(follower.tables) == everything(Tables(split_config(data)))
        compared = Tables(split_config(data), Tables(before.split))
        for name, table in follower.tables.by_name.items():
            assert table.changed == compared.by_name[name].changed


def test_the_text_of_a_change_is_all_that_is_split() -> None:
    config = large_config(COUNT)
    follower = ConfigFollower()
    follower.take(follower.read(encoded(config)))
    set_tag(config, 1)
    follower.take(follower.read(encoded(config)))  # from now on it knows runs
    known = follower.tables.instances.raw
    set_tag(config, 2)
    follower.take(follower.read(encoded(config)))
    assert follower.tables.cluster.tags == ["tag2"]
    assert follower.tables.instances.raw is known
    change(config, 5)
    follower.take(follower.read(encoded(config)))
    other = uuid_of("instance", 5 + RUN_OBJECTS)
    assert follower.tables.instances.raw[other] is known[other]
    assert follower.tables.instances.changed == {uuid_of("instance", 5)}


def test_a_version_that_is_not_taken_leaves_the_one_before() -> None:
    config = large_config(COUNT)
    follower = ConfigFollower()
    follower.take(follower.read(encoded(config)))
    before = everything(follower.tables)
    remove(config, 3)
    follower.read(encoded(config))
    assert everything(follower.tables) == before
    change(config, 4)
    follower.take(follower.read(encoded(config)))
    assert everything(follower.tables) == everything(Tables(split_config(encoded(config))))


@pytest.mark.parametrize("size", [0, 1, 500, -2])
def test_half_a_file_is_refused_with_the_place(size: int) -> None:
    data = encoded(large_config(COUNT))
    follower = ConfigFollower()
    follower.take(follower.read(data))
    with pytest.raises(ConfigurationError) as whole:
        split_config(data[:size])
    with pytest.raises(ConfigurationError) as followed:
        follower.read(data[:size])
    assert str(followed.value) == str(whole.value)


def test_a_file_with_blanks_is_read_too() -> None:
    config = large_config(COUNT)
    follower = ConfigFollower()
    follower.take(follower.read(json.dumps(config, indent=1).encode()))
    set_tag(config, 7)
    follower.take(follower.read(json.dumps(config, indent=1).encode()))
    assert follower.tables.cluster.tags == ["tag7"]
    assert everything(follower.tables)[2:] == everything(Tables(split_config(encoded(config))))[2:]

"""What is taken over from one version of the configuration to the next is as if made anew."""

from __future__ import annotations

import copy
import json
import os
from collections import deque
from typing import Any

import pytest
from fakes.large_config import disk, instance, large_config, uuid_of
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.base.json import dumps
from ganeti.base.paths import Paths
from ganeti.base.text import natural_sorted
from ganeti.config import tables
from ganeti.config.tables import Table
from ganeti.luxid.config_view import ConfigView
from ganeti.objects.model import Cluster, Network, Node, NodeGroup
from ganeti.query.engine import prepare, resource_of
from ganeti.query.fields import Source
from ganeti.query.kept_rows import LISTS_KEPT_MAX, SHOWN_OF_OTHERS, KeptRows
from ganeti.query.view import View

FIELDS = ["name", "pnode", "pnode.group", "disk.sizes", "disk_template", "be/vcpus", "tags"]


class Followed:
    """A configuration file and a view that follows it."""

    def __init__(self, root: str) -> None:
        self.paths = Paths(root)
        self.config = copy.deepcopy(large_config(6))
        os.makedirs(self.paths.data_dir, exist_ok=True)
        self.view = ConfigView(self.paths)
        self.write()

    def write(self) -> None:
        with open(self.paths.config_data, "w") as file:
            json.dump(self.config, file)
        self.view.on_file_event("config.data", "moved_to")
        self.view.refresh()

    def fresh(self) -> ConfigView:
        """Return a view that has seen nothing before."""
        view = ConfigView(self.paths)
        view.refresh()
        return view


def answer(view: ConfigView, qfilter: object = None) -> bytes:
    return dumps(prepare("instance", FIELDS, qfilter).run_encoded(view.snapshot()))


def node_answer(view: ConfigView) -> bytes:
    fields = ["name", "group", "pinst_cnt", "pinst_list", "sinst_list"]
    return dumps(prepare("node", fields).run_encoded(view.snapshot()))


def rename_instance(config: dict[str, Any], number: int) -> None:
    found = config["instances"].get(uuid_of("instance", number))
    if found:
        found["name"] = f"renamed{number}.example.com"


def tag_instance(config: dict[str, Any], number: int) -> None:
    found = config["instances"].get(uuid_of("instance", number))
    if found:
        found["tags"].append(f"t{len(found['tags'])}")


def remove_instance(config: dict[str, Any], number: int) -> None:
    config["instances"].pop(uuid_of("instance", number), None)
    config["disks"].pop(uuid_of("disk", number), None)


def add_instance(config: dict[str, Any], number: int) -> None:
    node = next(iter(config["nodes"]))
    made = disk(number, node)
    config["disks"][made["uuid"]] = made
    config["instances"][uuid_of("instance", number)] = instance(number, node, [made["uuid"]])


def grow_disk(config: dict[str, Any], number: int) -> None:
    found = config["disks"].get(uuid_of("disk", number))
    if found:
        found["size"] += 7


def rename_node(config: dict[str, Any], number: int) -> None:
    nodes = list(config["nodes"].values())
    nodes[number % len(nodes)]["name"] += "x"


def rename_group(config: dict[str, Any], number: int) -> None:
    next(iter(config["nodegroups"].values()))["name"] = f"group{number}"


def tag_node(config: dict[str, Any], number: int) -> None:
    nodes = list(config["nodes"].values())
    nodes[number % len(nodes)]["serial_no"] += 1
    nodes[number % len(nodes)]["tags"] = [f"t{number}"]


def take_port(config: dict[str, Any], number: int) -> None:
    config["cluster"]["highest_used_port"] += number
    config["cluster"]["serial_no"] += 1


def change_defaults(config: dict[str, Any], number: int) -> None:
    config["cluster"]["beparams"]["default"]["vcpus"] = number + 1


CHANGES = [
    rename_instance,
    tag_instance,
    remove_instance,
    add_instance,
    grow_disk,
    rename_node,
    rename_group,
    tag_node,
    take_port,
    change_defaults,
]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(0, 9)), max_size=5))
def test_whatever_changed_the_answer_is_that_of_a_new_view(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[Any, int]]
) -> None:
    followed = Followed(str(tmp_path_factory.mktemp("config")))
    by_name = ["&", ["==", "name", "inst3"]]
    for change, number in changes:
        answer(followed.view)  # so that there is something to take over
        answer(followed.view, by_name)
        node_answer(followed.view)
        change(followed.config, number)
        followed.write()
        assert answer(followed.view) == answer(followed.fresh())
        assert node_answer(followed.view) == node_answer(followed.fresh())
        assert answer(followed.view, by_name) == answer(followed.fresh(), by_name)
        names = [
            followed.view.tables.instances[uuid].name
            for uuid in followed.view.tables.instances.order
        ]
        assert names == natural_sorted(names)
        assert len(names) == len(followed.view.tables.instances)


def test_rows_of_what_did_not_change_are_kept(tmp_path: object) -> None:
    followed = Followed(str(tmp_path))
    answer(followed.view)
    before = dict(followed.view.kept_rows.of(tuple(FIELDS)))
    tag_instance(followed.config, 1)
    grow_disk(followed.config, 2)
    followed.write()
    after = followed.view.kept_rows.of(tuple(FIELDS))
    assert before.keys() - after.keys() == {uuid_of("instance", 1), uuid_of("instance", 2)}
    assert all(after[uuid] is before[uuid] for uuid in after)
    change_defaults(followed.config, 5)
    followed.write()
    assert followed.view.kept_rows.of(tuple(FIELDS)) == {}


def test_lists_asked_for_last_are_made_again_ahead_of_need(tmp_path: object) -> None:
    followed = Followed(str(tmp_path))
    answer(followed.view)
    change_defaults(followed.config, 5)
    followed.write()
    deque(followed.view.prepared(), maxlen=0)
    rows = followed.view.kept_rows.of(tuple(FIELDS))
    assert rows.keys() == followed.view.tables.instances.keys()
    assert answer(followed.view) == answer(followed.fresh())
    tag_instance(followed.config, 1)
    followed.write()
    assert len(list(followed.view.prepared())) == 1, "one row is one step"


def test_rows_are_kept_when_nothing_that_they_show_changed(tmp_path: object) -> None:
    followed = Followed(str(tmp_path))
    answer(followed.view)
    for change in (tag_node, take_port):
        change(followed.config, 1)
        followed.write()
        rows = followed.view.kept_rows.of(tuple(FIELDS))
        assert len(rows) == len(followed.view.tables.instances)


class Watched:
    """Stands in for an object, and takes note of what is looked at."""

    def __init__(self, real: object, seen: set[str]) -> None:
        self._real, self._seen = real, seen

    def __getattr__(self, name: str) -> Any:
        self._seen.add(name)
        return getattr(self._real, name)


class WatchedTable(dict[str, Watched]):
    """Objects that are watched."""

    def quick(self) -> WatchedTable:
        return self


def test_fields_of_instances_show_nothing_else_of_other_objects(tmp_path: object) -> None:
    followed = Followed(str(tmp_path))
    view = followed.view.snapshot()
    seen: dict[type, set[str]] = {kind: set() for kind in SHOWN_OF_OTHERS}

    def watched(kind: type, table: Table[Any, Any]) -> Any:
        return WatchedTable({uuid: Watched(real, seen[kind]) for uuid, real in table.items()})

    shown: Any = copy.copy(view.config)
    shown.cluster = Watched(view.config.cluster, seen[Cluster])
    shown.nodes = watched(Node, view.config.nodes)
    shown.groups = watched(NodeGroup, view.config.groups)
    shown.networks = watched(Network, view.config.networks)
    shown.by_name = view.config.by_name
    view = View(config=shown)
    fields = resource_of("instance").fields
    static = [name for name, field in fields.items() if field.source is Source.CONFIG]
    prepare("instance", static).run(view)
    assert seen[Cluster]
    for kind, shown in SHOWN_OF_OTHERS.items():
        assert seen[kind] - {"uuid"} <= set(shown), kind


def test_what_is_prepared_needs_no_decoding_any_more(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = Followed(str(tmp_path))
    wanted = answer(followed.fresh())
    assert list(followed.view.prepared())
    monkeypatch.delattr(tables, "decode_record")
    assert answer(followed.view) == wanted
    assert answer(followed.view, ["==", "name", "inst3"])
    assert not list(followed.view.prepared()), "nothing is left to do"


def test_a_wrong_object_leaves_the_view_as_it_was(tmp_path: object) -> None:
    followed = Followed(str(tmp_path))
    before = answer(followed.view)
    answer(followed.view, ["==", "name", "inst3"])
    for table in ("instances", "nodes"):
        wrong = next(iter(followed.config[table].values()))
        wrong["name"] = 7
        followed.write()
        assert answer(followed.view) == before
        wrong["name"] = "right.example.com"
    followed.write()
    assert answer(followed.view) == answer(followed.fresh())


def test_an_old_snapshot_stays_as_it_was(tmp_path: object) -> None:
    followed = Followed(str(tmp_path))
    old = followed.view.snapshot()
    plan = prepare("instance", FIELDS)
    before = dumps(plan.run_encoded(old))
    rename_instance(followed.config, 2)
    remove_instance(followed.config, 3)
    followed.write()
    answer(followed.view)
    assert dumps(plan.run_encoded(old)) == before


def test_only_the_last_lists_are_kept() -> None:
    cache = KeptRows()
    lists = [(str(number),) for number in range(LISTS_KEPT_MAX + 1)]
    kept = [cache.of(fields) for fields in lists[:LISTS_KEPT_MAX]]
    assert cache.of(lists[0]) is kept[0]  # and so it is the last
    cache.of(lists[-1])
    assert cache.of(lists[0]) is kept[0]
    assert cache.of(lists[1]) is not kept[1]

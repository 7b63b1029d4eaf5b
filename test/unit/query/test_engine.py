"""Queries from fields and filter to rows."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from fakes.own_fields import OWN_FIELDS
from fakes.sample_config import CONFIG, load_sample, only
from msgspec import Raw
from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError, ParameterError
from ganeti.base.ids import InstanceUuid, JobId, NodeUuid
from ganeti.base.json import dumps
from ganeti.config.config_data import split_config
from ganeti.config.index import By
from ganeti.config.tables import Tables
from ganeti.jobs.record import QueuedJob, QueuedOp
from ganeti.objects.query_words import QueryResource
from ganeti.protocol.node_rpc_values import ChainPoint
from ganeti.query import limits
from ganeti.query.engine import fields_of, finish, prepare
from ganeti.query.fields import Source
from ganeti.query.kept_rows import KeptRows
from ganeti.query.limits import REPEATS_MAX, Budget
from ganeti.query.live import questions, questions_to_running, with_answers
from ganeti.query.view import (
    HypervisorInfo,
    InstanceLive,
    JobItem,
    LockState,
    NodeLive,
    StorageInfo,
    View,
)

GOLDEN = load_sample("query_fields")
NODE1 = NodeUuid(only("nodes", "node1")["uuid"])
NODE2 = NodeUuid(only("nodes", "node2")["uuid"])


def make_view(changes: dict[str, Any] | None = None, **live: Any) -> View:
    """The sample configuration; ``changes`` are laid over objects, by table and name."""
    config = json.loads(json.dumps(CONFIG))
    for place, change in (changes or {}).items():
        table, name = place.split("/")
        found = next(item for item in config[table].values() if item["name"] == name)
        found.update(change)
    return View(config=Tables(split_config(dumps(config))), **live)


def expected_fields(resource: str) -> dict[str, tuple[str, str]]:
    fields: dict[str, tuple[str, str]] = {}
    for name, title, kind, *ranges in GOLDEN["resources"][resource]:
        numbers = range(ranges[0][0], ranges[0][1] + 1) if ranges else [None]
        for number in numbers:
            index = str(number)
            fields[name.replace("<index>", index)] = (title.replace("<index>", index), kind)
    return fields


@pytest.mark.shows("2.0/interaction/in-list", "2.1/uuid-one/queried")
@pytest.mark.parametrize("resource", list(QueryResource))
def test_names_titles_and_kinds_are_as_specified(resource: str) -> None:
    described = fields_of(resource)["fields"]
    assert isinstance(described, list)
    described = [field for field in described if field["name"] not in OWN_FIELDS.get(resource, ())]
    assert len(described) == GOLDEN["counts"][resource]
    found = {field["name"]: (field["title"], field["kind"]) for field in described}
    assert found == expected_fields(resource)
    assert all(field["doc"] for field in described)


@pytest.mark.shows("2.0/opcodes/query")
@pytest.mark.parametrize("resource", ["instance", "node", "group", "network", "filter"])
def test_every_field_has_a_value_that_json_can_hold(resource: str) -> None:
    names = list(expected_fields(resource))
    answer = prepare(resource, names).run(make_view())
    data = json.loads(dumps(answer))["data"]
    assert len(data) == (2 if resource == "node" else 1)
    assert all(len(row) == len(names) for row in data)
    assert all(value is None for row in data for status, value in row if status != 0)


def values(resource: str, fields: list[str], view: View, qfilter: object = None) -> Any:
    return json.loads(dumps(prepare(resource, fields, qfilter).run(view)["data"]))


@pytest.mark.shows("2.0/opcodes/query")
def test_configuration_fields_of_an_instance() -> None:
    fields = ["name", "pnode", "be/maxmem", "disk.sizes", "nic.networks.names", "ip", "sdb_size"]
    assert values("instance", fields, make_view()) == [
        [
            [0, "inst1"],
            [0, "node1"],
            [0, 128],
            [0, [128]],
            [0, ["net1"]],
            [0, "10.9.0.2"],
            [3, None],
        ]
    ]


def test_configuration_fields_of_a_network() -> None:
    fields = ["map", "free_count", "external_reservations", "group_list", "inst_list"]
    assert values("network", fields, make_view()) == [
        [
            [0, "XXX............X"],
            [0, 12],
            [0, "10.9.0.0, 10.9.0.1, 10.9.0.15"],
            [0, [["default", "bridged", "xen-br0", ""]]],
            [0, ["inst1"]],
        ]
    ]


def test_an_unknown_field_is_shown_as_such_in_every_row() -> None:
    plan = prepare("node", ["name", "foo"])
    assert plan.unknown_fields == ["foo"]
    answer = plan.run(make_view())
    assert answer["fields"][1] == {  # type: ignore[index]
        "name": "foo",
        "title": "<unknown>",
        "kind": "unknown",
        "doc": "Unknown field",
    }
    assert answer["data"] == [[[0, "node1"], [1, None]], [[0, "node2"], [1, None]]]


def test_rows_are_sorted_naturally() -> None:
    view = make_view({"nodes/node2": {"name": "node10"}, "nodes/node1": {"name": "node9"}})
    assert values("node", ["name"], view) == [[[0, "node9"]], [[0, "node10"]]]


LIVE = NodeLive(
    boot_id="boot",
    storage=[
        StorageInfo(type="lvm-pv", name="vg", storage_size=4, storage_free=None),
        StorageInfo(type="lvm-vg", name="vg", storage_size=1000, storage_free=400),
    ],
    hypervisors=[HypervisorInfo(memory_total=4096, cpu_total=2)],
)
NODE_FIELDS = ["bootid", "mtotal", "mfree", "dtotal", "dfree", "sptotal", "spfree"]


def test_live_fields_of_nodes() -> None:
    offline = make_view({"nodes/node2": {"offline": True}}, node_live={NODE1: LIVE})
    assert values("node", NODE_FIELDS, offline) == [
        [[0, "boot"], [0, 4096], [2, None], [0, 1000], [0, 400], [0, 4], [3, None]],
        [[4, None]] * 7,
    ]
    silent = make_view({"nodes/node2": {"vm_capable": False}}, node_live={NODE1: None})
    assert values("node", NODE_FIELDS, silent) == [[[2, None]] * 7, [[3, None]] * 7]


def test_an_answer_of_a_node_is_understood() -> None:
    payload = [
        "boot",
        [None, {"type": "lvm-vg", "name": "vg", "storage_free": 1, "storage_size": None}],
        [{"memory_total": 1, "hv_version": [4, 1]}],
    ]
    live = NodeLive.from_rpc(payload)
    assert [info.storage_free for info in live.storage] == [1]
    assert live.hypervisors[0].memory_total == 1
    assert NodeLive.from_rpc(["boot", None, None]) == NodeLive(
        boot_id="boot", storage=[], hypervisors=[]
    )


def test_only_the_nodes_that_matter_are_asked() -> None:
    view = make_view()
    assert prepare("node", ["name"]).targets(view).node_info == ()
    assert list(prepare("node", ["mfree"]).targets(view).node_info) == [NODE1, NODE2]
    one = prepare("node", ["mfree"], ["==", "name", "node2"])
    assert list(one.targets(view).node_info) == [NODE2]
    both = prepare("node", ["name"], ["&", ["!", ["?", "master"]], [">", "mfree", 5]])
    assert both.needs == {Source.NODE_LIVE}
    assert list(both.targets(view).node_info) == [NODE2]
    # What is not known yet rules nothing out, negated or not.
    negated = prepare("node", ["name"], ["!", [">", "mfree", 5]])
    assert len(negated.targets(view).node_info) == 2
    offline = make_view({"nodes/node2": {"offline": True}})
    assert list(prepare("node", ["mfree"]).targets(offline).node_info) == [NODE1]
    status = prepare("instance", ["status", "console"]).targets(view)
    assert list(status.instance_info) == [NODE1]
    assert status.consoles == []  # nobody said yet that it runs
    # One instance is looked at alone, where others may be many.
    (alone,) = questions(view.config, status)
    assert (alone.call.name, alone.asked[NODE1][:2]) == ("instance_info", ["inst1", "fake"])
    found = {"memory": 5, "vcpus": 1, "state": 0}
    assert alone.decode(found) == {"inst1": InstanceLive(memory=5, vcpus=1, state=0)}
    assert alone.decode({}) == {}
    (together,) = questions(view.config, replace(status, only=None))
    assert (together.call.name, together.decode({"i": found})["i"].memory) == (
        "all_instances_info",
        5,
    )
    nobody = ["&", ["==", "name", "x"], ["?", "admin_up"]]
    assert prepare("instance", ["status"], nobody).targets(view).instance_info == []


def test_console() -> None:
    instance = only("instances")
    running = {NODE1: {"inst1": InstanceLive(memory=1, vcpus=1, state=0)}}
    uuid = InstanceUuid(instance["uuid"])
    assert values("instance", ["console"], make_view(instance_live={NODE1: {}})) == [[[3, None]]]
    assert list(prepare("instance", ["console"]).targets(make_view()).consoles) == []
    known = prepare("instance", ["console"]).targets(make_view(instance_live=running))
    assert list(known.consoles) == [uuid]
    no_console = make_view(instance_live=running, consoles={uuid: None})
    assert values("instance", ["console"], no_console) == [[[3, None]]]


def test_guests_are_asked_for_where_instances_run() -> None:
    uuid = InstanceUuid(only("instances")["uuid"])
    running = {NODE1: {"inst1": InstanceLive(memory=1, vcpus=1, state=0)}}
    plan = prepare("instance", ["guest"])
    assert list(plan.targets(make_view(instance_live={NODE1: {}})).guests) == []
    targets = plan.targets(make_view(instance_live=running))
    assert (list(targets.guests), list(targets.consoles)) == ([uuid], [])
    view = make_view(instance_live=running)
    (question,) = questions_to_running(view, targets)
    assert question.call.name == "instance_guest_info"
    answer = question.decode({"inst1": {"agent": True, "addresses": ["192.0.2.5"]}})
    [[[status, guest]]] = values(
        "instance", ["guest"], with_answers(view, question, {NODE1: answer})
    )
    assert (status, guest["agent"], guest["addresses"]) == (0, True, ["192.0.2.5"])
    silent = with_answers(view, question, {NODE1: None})
    assert values("instance", ["guest"], silent) == [[[3, None]]]


def test_short_names_match_and_groups_need_the_full_one() -> None:
    view = make_view(
        {"nodes/node1": {"name": "node1.example.com"}, "nodegroups/default": {"name": "a.b"}}
    )
    assert values("node", ["name"], view, ["==", "name", "node1"]) == [[[0, "node1.example.com"]]]
    assert values("instance", ["name"], view, ["==", "pnode", "node1"]) == [[[0, "inst1"]]]
    with pytest.raises(OpPrereqError, match="node group 'a' is not known; see 'gnt-group list'"):
        values("group", ["name"], view, ["==", "name", "a"])
    assert values("group", ["name"], view, ["==", "name", "a.b"]) == [[[0, "a.b"]]]


def test_capitals_mean_small_letters_in_names_of_nodes_and_instances() -> None:
    view = make_view({"nodes/node1": {"name": "node1.example.com"}})
    for wanted in ("NODE1", "Node1.Example.com"):
        assert values("node", ["name"], view, ["==", "name", wanted]) == [
            [[0, "node1.example.com"]]
        ]
    assert values("instance", ["name"], view, ["==", "name", "INST1"]) == [[[0, "inst1"]]]
    assert values("instance", ["name"], view, ["==", "pnode", "NODE1"]) == [[[0, "inst1"]]]
    with pytest.raises(OpPrereqError, match="node group 'DEFAULT' is not known"):
        values("group", ["name"], view, ["==", "name", "DEFAULT"])


def test_names_are_looked_up() -> None:
    names = [["==", "name", "node2"], ["=", "name", "node1"], ["==", "name", "node2"]]
    view = make_view()
    assert values("node", ["name"], view, ["|", *names]) == [[[0, "node2"]], [[0, "node1"]]]
    assert view.config.nodes.find_all(By.SHORT_NAME, "node2") == (NODE2,)
    with pytest.raises(OpPrereqError, match="nodes 'no', 'none' are not known") as caught:
        values("node", ["name"], view, ["|", *names, *(["=", "name", it] for it in ("no", "none"))])
    assert caught.value.ecode == ErrorCode.NOENT
    # Among other conditions a name is one of them, and rows are sorted.
    both = ["&", ["|", *names, ["=", "name", "no"]], ["=~", "name", "."]]
    assert values("node", ["name"], view, both) == [[[0, "node1"]], [[0, "node2"]]]


@pytest.mark.parametrize("resource", ["instance", "node", "group", "network"])
def test_a_uuid_is_a_name(resource: str) -> None:
    view = make_view()
    [[[_, name], [_, uuid]], *_] = values(resource, ["name", "uuid"], view)
    by_uuid: list[Any] = ["=", "name", uuid]
    assert values(resource, ["name"], view, by_uuid) == [[[0, name]]]
    assert values(resource, ["name"], view, ["&", ["=~", "name", "."], by_uuid]) == [[[0, name]]]
    assert [[0, name]] not in values(resource, ["name"], view, ["!=", "name", uuid])
    assert [[0, name]] not in values(resource, ["name"], view, ["!", by_uuid])


def test_the_order_is_that_of_the_table() -> None:
    view = make_view()
    cast("list[Any]", view.config.nodes.order).reverse()
    assert values("node", ["name"], view) == [[[0, "node2"]], [[0, "node1"]]]
    qfilter = ["=~", "name", "."]
    assert values("node", ["name"], view, qfilter) == [[[0, "node2"]], [[0, "node1"]]]


@pytest.mark.parametrize("qfilter", [None, ["&", ["==", "name", "node2"]], ["=~", "name", "1"]])
@pytest.mark.parametrize("resource", ["node", "instance", "group", "network", "filter"])
def test_encoded_answers_say_the_same(resource: str, qfilter: Any) -> None:
    names = [*expected_fields(resource), "nonsense"]
    if resource == "filter":
        qfilter = None
    plan = prepare(resource, names, qfilter)
    encoded = dumps(plan.run_encoded(make_view()))
    assert json.loads(encoded) == json.loads(dumps(plan.run(make_view())))


def test_rows_of_instances_that_are_known_are_not_made_again() -> None:
    kept = KeptRows()
    view = View(config=make_view().config, kept_rows=kept)
    plan = prepare("instance", ["name", "pnode"])
    before = dumps(plan.run_encoded(view))
    rows = kept.of(("name", "pnode"))
    assert set(rows) == set(view.config.instances)
    rows[next(iter(rows))] = Raw(b'"kept"')
    assert "kept" in json.loads(dumps(plan.run_encoded(view)))["data"]
    rows.clear()
    assert dumps(plan.run_encoded(view)) == before


def test_rows_with_live_or_unknown_values_are_made_each_time() -> None:
    kept = KeptRows()
    view = View(config=make_view().config, kept_rows=kept)
    for fields in (["name", "oper_ram"], ["name", "nonsense"]):
        prepare("instance", fields).run_encoded(view)
    prepare("node", ["name"]).run_encoded(view)
    assert kept.lists == ()


def test_old_style_queries_take_uuids_and_leave_out_what_is_not_there() -> None:
    view = make_view()
    plan = prepare("node", ["name", "foo", "pip"], names=[NODE2, "node1", "nobody"])
    assert plan.run_plain(view) == [["node2", None, "192.0.2.11"], ["node1", None, "192.0.2.10"]]
    assert prepare("node", ["name"], names=[]).run_plain(view) == [["node1"], ["node2"]]


def test_jobs() -> None:
    job = QueuedJob(
        id=JobId(7),
        ops=(QueuedOp({"OP_ID": "OP_TEST_DELAY", "duration": 1.0}),),
        received_timestamp=(100, 5),
    )
    view = make_view(jobs={7: JobItem(job), 12: JobItem(QueuedJob(JobId(12), job.ops), True)})
    fields = ["id", "status", "summary", "received_ts", "end_ts", "archived"]
    rows = [
        [[0, 7], [0, "queued"], [0, ["TEST_DELAY(1.0)"]], [0, [100, 5]], [3, None], [0, False]],
        [[0, 12], [0, "queued"], [0, ["TEST_DELAY(1.0)"]], [3, None], [3, None], [0, True]],
    ]
    assert values("job", fields, view) == rows
    assert values("job", fields, view, ["==", "id", 7]) == rows[:1]
    assert values("job", fields, view, ["<=", "received_ts", 100]) == rows  # no data passes
    assert values("job", fields, view, ["<", "received_ts", 100]) == rows[1:]
    plan = prepare("job", ["id"], ["|", ["==", "id", 7], ["==", "id", 8]])
    assert plan.names == (7, 8)
    assert plan.needs == {Source.JOBS}
    of_unknown = [[0, 8], *[[3, None]] * 5]
    asked = make_view(jobs={8: JobItem(JobId(8), None), 7: JobItem(job)})
    either = ["|", ["==", "id", 8], ["==", "id", 7]]
    assert values("job", fields, asked, either) == [of_unknown, rows[0]]


def test_chains_of_exports() -> None:
    fields = ["export", "points", "sizes", "size", "newest"]
    plan = prepare("export", fields)
    asked = plan.targets(make_view())
    assert asked.chains == asked.exports == sorted([NODE1, NODE2])
    assert not prepare("export", ["export"]).targets(make_view()).chains
    points = [ChainPoint(3, 1000, 5 << 20), ChainPoint(4, 2000, 100)]
    view = make_view(exports={NODE1: ["e1", "e2"]}, chains={NODE1: {"e1": points}})
    assert values("export", fields, view, ["==", "node", "node1"]) == [
        [[0, "e1"], [0, [3, 4]], [0, [5, 1]], [0, 6], [0, [2000, 0]]],
        [[0, "e2"], *[[2, None]] * 4],
    ]
    for least, names in ((1999, ["e1", "e2"]), (2001, ["e2"])):  # no data passes
        node1 = ["&", ["==", "node", "node1"], [">", "newest", least]]
        assert values("export", ["export"], view, node1) == [[[0, name]] for name in names]


def test_locks_and_exports() -> None:
    locks = [
        LockState(name="node/b", mode="shared", owners=["3"], pending=[("exclusive", ["4"])]),
        LockState(name="cluster/BGL"),
    ]
    view = make_view(locks=locks, exports={NODE1: ["e10", "e9"], NODE2: None})
    assert values("lock", ["name", "mode", "owner", "pending"], view) == [
        [[0, "cluster/BGL"], [0, None], [0, None], [0, []]],
        [[0, "node/b"], [0, "shared"], [0, ["3"]], [0, [["exclusive", ["4"]]]]],
    ]
    assert values("export", ["node", "export"], view) == [
        [[0, "node1"], [0, "e9"]],
        [[0, "node1"], [0, "e10"]],
        [[0, "node2"], [2, None]],
    ]
    assert values("export", ["export"], view, ["==", "node", "node1"]) == [
        [[0, "e9"]],
        [[0, "e10"]],
    ]
    none = make_view(exports={NODE1: [], NODE2: ["e1"]})
    rows = values("export", ["node", "export"], none)
    assert rows == [[[0, "node1"], [2, None]], [[0, "node2"], [0, "e1"]]]
    in_order = ["|", ["==", "node", "node2"], ["==", "node", NODE1]]
    assert values("export", ["export"], view, in_order) == [[[2, None]], [[0, "e9"]], [[0, "e10"]]]
    assert prepare("export", ["node"]).targets(view).exports == sorted([NODE1, NODE2])


def test_fields_are_listed_in_natural_order() -> None:
    described = fields_of("instance")["fields"]
    names = [field["name"] for field in cast("list[dict[str, str]]", described)]
    assert names.index("disk.name/2") + 1 == names.index("disk.name/3")
    assert names.index("disk.name/9") < names.index("disk.name/10") < names.index("disk.names")


def test_rows_made_by_a_job() -> None:
    view = make_view(rows=[{"name": "debian", "valid": True, "variants": None}])
    assert values("os", ["name", "valid", "variants", "hidden"], view) == [
        [[0, "debian"], [0, True], [3, None], [3, None]]
    ]


def test_what_cannot_be_asked() -> None:
    with pytest.raises(OpPrereqError, match="nothing called 'vm' can be queried"):
        prepare("vm", ["name"])
    with pytest.raises(OpPrereqError, match="at most 1000 fields"):
        prepare("node", ["name"] * 1001)
    with pytest.raises(OpPrereqError, match="at most 1000 fields"):
        fields_of("node", ["name"] * 1001)
    with pytest.raises(ParameterError, match="unknown field 'foo'"):
        prepare("node", ["name"], ["==", "foo", "x"])


def test_a_field_may_be_asked_for_a_few_times_only() -> None:
    few = ["name"] * REPEATS_MAX
    assert values("node", few, make_view()) == [
        [[0, name]] * REPEATS_MAX for name in ("node1", "node2")
    ]
    assert len(fields_of("node", few)["fields"]) == REPEATS_MAX  # type: ignore[arg-type]
    for ask in (prepare, fields_of):
        with pytest.raises(OpPrereqError, match=f"'name' is asked for {REPEATS_MAX + 1} times"):
            ask("node", [*few, "pip", "name"])


@pytest.mark.parametrize("resource", ["node", "instance"])
def test_an_answer_that_is_too_large_is_refused_while_it_is_made(
    resource: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = View(config=make_view().config, kept_rows=KeptRows())
    plan = prepare(resource, ["name", "uuid"])
    whole = plan.run_encoded(view)
    size_bytes = sum(len(bytes(row)) + 64 for row in whole["data"])  # type: ignore[attr-defined]
    monkeypatch.setattr(limits, "ANSWER_BYTES_MAX", size_bytes)
    for known in (KeptRows(), view.kept_rows):
        some = View(config=view.config, kept_rows=known)
        assert dumps(plan.run_encoded(some)) == dumps(whole)
        finish(plan.plain_in_steps(some, Budget()))  # it has less in it
    monkeypatch.setattr(limits, "ANSWER_BYTES_MAX", size_bytes - 1)
    for known in (KeptRows(), view.kept_rows):
        some = View(config=view.config, kept_rows=known)
        with pytest.raises(OpPrereqError, match="ask for fewer things"):
            plan.run_encoded(some)
    monkeypatch.setattr(limits, "ANSWER_BYTES_MAX", 10)
    with pytest.raises(OpPrereqError, match="ask for fewer things"):
        finish(plan.plain_in_steps(view, Budget()))


def test_rows_that_are_too_large_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptRows()
    view = View(config=make_view().config, kept_rows=kept)
    plan = prepare("instance", ["name"])
    kept.of(("name",))  # a program asks for them
    monkeypatch.setattr(limits, "ANSWER_BYTES_MAX", 10)
    finish(plan.prepared(view))  # nobody to tell
    assert kept.lists == ()

"""Objects kept as raw JSON: what is not changed stays as it is, byte by byte."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from fakes.sample_config import CONFIG, only
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from ganeti.base.errors import ConfigurationError
from ganeti.config.config_data import TABLES, join_config, split_config
from ganeti.config.overlay import Stored, split_fields
from ganeti.objects.model import Cluster, Disk, Instance, Node
from ganeti.objects.record import Record

# Objects by key: what stands directly in them is not a field, so nothing unknown is put there.
BY_KEY = {
    *TABLES,
    "hvparams",
    "os_hvp",
    "beparams",
    "osparams",
    "osparams_private_cluster",
    "nicparams",
    "diskparams",
    "candidate_certs",
    "data_collectors",
    "networks",
}
# Values whose text matters: a decoder would not give the same text back.
TEXTS = ["1.0", "1.50", "1e3", "-0.0", "1E-7", "null", "true", '"\\u00e9"', '"é"', "[1.0,{}]"]


def with_extras(value: Any, random: Random, key: str = "") -> str:
    """The JSON text of a value with unknown keys put in at every level."""
    if isinstance(value, list):
        return "[" + ",".join(with_extras(item, random) for item in value) + "]"
    if not isinstance(value, dict):
        return json.dumps(value)
    members = [f"{json.dumps(name)}:{with_extras(value[name], random, name)}" for name in value]
    if key not in BY_KEY:
        for number in range(random.randrange(3)):
            text = random.choice(TEXTS)
            if random.random() < 0.3:
                text = f'{{"x-in":{text},"é":[{text}]}}'
            members.append(f'"x-{number}":{text}')
        random.shuffle(members)
    return "{" + ",".join(members) + "}"


SEEDS = st.integers(0, 2**32).map(Random)

INSTANCE = only("instances")
INSTANCE["nics"] = [
    *INSTANCE["nics"],
    {"mac": "aa:00:00:00:00:01", "nicparams": {}, "uuid": "nic-2", "name": "second"},
]
SAMPLES: list[tuple[type[Record], dict[str, Any]]] = [
    (Cluster, CONFIG["cluster"]),
    (Instance, INSTANCE),
    *((kind, next(iter(CONFIG[table].values()))) for table, kind in TABLES.items()),
]


@pytest.mark.parametrize(("kind", "sample"), SAMPLES)
@given(random=SEEDS)
@settings(max_examples=20, deadline=None)
def test_unknown_keys_do_not_disturb_decoding_and_an_empty_change_changes_nothing(
    kind: type[Record], sample: dict[str, Any], random: Random
) -> None:
    text = with_extras(sample, random)
    stored = Stored(text.encode())
    record = stored.decode(kind)
    assert stored.with_changes({}).raw == canonical(text)
    # Laying the decoded fields over it again is no change either: every known value is equal.
    known = {name: value for name, value in record.to_wire().items() if name in json.loads(text)}
    assert stored.with_changes(known).raw == canonical(text)


def canonical(text: str) -> bytes:
    """The text with the keys of its first level escaped as we write them."""
    fields = split_fields(text.encode())
    members = [
        json.dumps(key, ensure_ascii=False).encode() + b":" + bytes(raw)
        for key, raw in fields.items()
    ]
    return b"{" + b",".join(members) + b"}"


@given(random=SEEDS, table=st.sampled_from(sorted(TABLES)))
@settings(max_examples=40, deadline=None)
def test_a_change_of_one_object_leaves_every_other_byte(random: Random, table: str) -> None:
    data = with_extras(CONFIG, random).encode()
    split = split_config(data)
    assert join_config(split) == data
    uuid = random.choice(sorted(CONFIG[table]))
    before = bytes(split.tables[table][uuid])
    changed = Stored(before).with_changes({"serial_no": 99, "name": "other"}, TABLES[table]).raw
    tables = {**split.tables, table: {**split.tables[table], uuid: Raw(changed)}}
    assert join_config(replace(split, tables=tables)) == data.replace(before, changed)
    was, now = split_fields(before), split_fields(changed)
    assert (bytes(now.pop("serial_no")), bytes(now.pop("name"))) == (b"99", b'"other"')
    assert now == {key: raw for key, raw in was.items() if key not in ("serial_no", "name")}


@given(random=SEEDS, order=st.permutations([0, 1]))
@settings(max_examples=50, deadline=None)
def test_nics_keep_their_unknown_keys_when_one_is_changed(random: Random, order: list[int]) -> None:
    text = with_extras(INSTANCE, random)
    stored = Stored(text.encode())
    nics = stored.decode(Instance).nics
    changed_nics = [replace(nics[order[0]], ip="10.0.0.9", name=None), nics[order[1]]]
    changed = stored.with_changes({"nics": changed_nics})
    before = json.loads(text)["nics"]
    after = json.loads(changed.raw)["nics"]
    expected = [dict(before[index]) for index in order]
    expected[0]["ip"] = "10.0.0.9"
    expected[0].pop("name", None)
    assert after == expected
    assert stored.with_changes({"nics": nics[:1]}).decode(Instance).nics == nics[:1]


def test_numbers_keep_their_form_where_they_stay_equal() -> None:
    stored = Stored(b'{"ipolicy":{"vcpu-ratio":4.00,"std":{"a":1e2,"b":2}},"t":[1.0,2.0]}')
    changed = stored.with_changes(
        {"ipolicy": {"vcpu-ratio": 4, "std": {"a": 100, "b": 3, "c": True}}, "t": [1, 2, 3]}
    )
    assert changed.raw == (
        b'{"ipolicy":{"vcpu-ratio":4.00,"std":{"a":1e2,"b":3,"c":true}},"t":[1.0,2.0,3]}'
    )


def test_true_is_not_one() -> None:
    assert Stored(b'{"a":1}').with_changes({"a": True}).raw == b'{"a":true}'
    assert Stored(b'{"a":true}').with_changes({"a": 1}).raw == b'{"a":1}'


def test_null_removes_and_a_new_key_comes_last() -> None:
    stored = Stored(b'{"a":1,"b":2}')
    assert stored.with_changes({"a": None, "c": "x", "d": None}).raw == b'{"b":2,"c":"x"}'


def test_with_a_kind_given_fields_left_out_when_unset_are_removed() -> None:
    stored = Stored.of(Node.from_wire(only("nodes", "node2"))).with_changes(
        {"hv_state_static": {"kvm": {}}}, Node
    )
    assert stored.decode(Node).hv_state_static == {"kvm": {}}
    without = stored.with_changes({"hv_state_static": {}}, Node)
    assert "hv_state_static" not in json.loads(without.raw)


def test_unknown_keys_inside_objects_by_key_survive() -> None:
    raw = b'{"data_collectors":{"lv":{"active":true,"interval":5,"new":1.0},"old":{"active":true}}}'
    changed = Stored(raw).with_changes(
        {"data_collectors": {"lv": {"active": False, "interval": 5}}}
    )
    assert changed.raw == b'{"data_collectors":{"lv":{"active":false,"interval":5,"new":1.0}}}'


def test_child_disks_are_told_apart_by_uuid() -> None:
    child = {
        "uuid": "c1",
        "logical_id": ["vg", "lv"],
        "dev_type": "plain",
        "size": 1,
        "serial_no": 1,
    }
    disk = {**child, "uuid": "d", "children": [{**child, "x": 1}]}
    stored = Stored(json.dumps(disk).encode())
    grown = replace(stored.decode(Disk).children[0], size=2)
    assert json.loads(stored.with_changes({"children": [grown]}).raw)["children"][0]["x"] == 1


def test_decoding_again_gives_the_same_value_object() -> None:
    stored = Stored.of(Node.from_wire(only("nodes", "node2")))
    assert stored.decode(Node) is stored.decode(Node)
    assert stored == Stored(stored.raw)
    assert only("nodes", "node2")["primary_ip"] not in repr(stored)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'{"name":"n","serial_no":1', "Node: not JSON"),
        (b"[]", "Node: expected object, got array"),
        (b'{"name":"n9"}', "Node 'n9': field 'primary_ip': is missing"),
        (b'{"name":5,"uuid":"u"}', "Node 5: field 'name': expected str, got int"),
    ],
)
def test_errors_name_object_and_field(raw: bytes, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Stored(raw).decode(Node)
    assert message in caught.value.message
    if not raw.startswith(b"{"):
        with pytest.raises(ConfigurationError):
            Stored(raw).with_changes({"a": 1})


def test_a_forthcoming_instance_needs_uuid_and_serial_number_only() -> None:
    stored = Stored(b'{"uuid":"u","serial_no":1,"forthcoming":true}')
    instance = stored.decode(Instance)
    assert instance.forthcoming
    assert instance.name == ""

"""The declarations of all opcodes, against the tables of the specification."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from fakes.sample_config import load_sample

from ganeti.objects.describe import describe_place
from ganeti.opcodes.opcode import COMMON_PARAMS, OpCode
from ganeti.opcodes.registry import all_op_ids, op_id_of, opcode_class
from ganeti.opcodes.values import DiskChange

GOLDEN: dict[str, dict[str, Any]] = load_sample("opcodes")

# Parameters that 3.0 does not have; left out when they are unset.
OURS = {
    "OP_BACKUP_EXPORT": {"incremental", "quiesce", "snapshot"},
    "OP_BACKUP_REMOVE": {"before"},
    "OP_CLUSTER_RENEW_CRYPTO": {"etcd_certificates"},
    "OP_CLUSTER_SET_PARAMS": {
        *("diagnose_data_collector_filename", "max_disk_transfers", "default_iallocators"),
        *("maint_round_delay", "maint_balance", "maint_balance_threshold"),
        *("maint_use_load", "maint_move_disks", "maint_auto_repair"),
        "silent_node_tries",
    },
    "OP_INSTANCE_CREATE": {"explain", "no_nics", "src_point"},
    "OP_TEST_ALLOCATOR": {"explain", "limit"},
}
# Parameters that 3.0 must be given and that can be left out here.
FREE_HERE = {("OP_NETWORK_ADD", "network")}
OWN_OPCODES = {
    *("OP_CLUSTER_REPAIR_VOLUME_GROUPS", "OP_CLUSTER_SET_AVAILABILITY", "OP_INSTANCE_REPAIR"),
    *("OP_INSTANCE_LIST_SNAPSHOTS", "OP_INSTANCE_SNAPSHOT", "OP_REPAIR_COMMAND"),
    "OP_BACKUP_REHEARSE",
}
OF_3_0 = sorted({*all_op_ids()} - OWN_OPCODES)


def own_fields(cls: type[OpCode]) -> list[msgspec.structs.FieldInfo]:
    others = {*COMMON_PARAMS, *OURS.get(op_id_of(cls), ())}
    return [f for f in msgspec.structs.fields(cls) if f.name not in others]


@pytest.mark.parametrize(
    ("op_id", "name"), [(op, name) for op, all_ in OURS.items() for name in sorted(all_)]
)
def test_what_is_ours_is_written_only_when_it_is_set(op_id: str, name: str) -> None:
    cls = opcode_class(op_id)
    assert name in {f.name for f in msgspec.structs.fields(cls) if default_of(f) is None}
    assert name not in cls.WRITTEN_WHEN_UNSET | cls.REQUIRED_BY_LUXID


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    value = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if isinstance(value, enum.Enum):
        return value.value
    return sorted(value) if isinstance(value, frozenset) else value


def test_there_are_75_opcodes_with_454_parameters_of_their_own() -> None:
    assert {*all_op_ids()} > OWN_OPCODES
    assert len(OF_3_0) == 75
    assert sum(len(own_fields(opcode_class(op_id))) for op_id in OF_3_0) == 454


@pytest.mark.shows(
    "2.0/opcodes/create", "2.0/modify-hypervisor/same-hypervisor", "2.1/uuid-one/unchangeable"
)
@pytest.mark.parametrize("op_id", sorted(GOLDEN))
def test_parameters_and_defaults_are_as_specified(op_id: str) -> None:
    cls = opcode_class(op_id)
    assert op_id_of(cls) == op_id
    assert GOLDEN[op_id]["summary_field"] == cls.SUMMARY_FIELD
    declared = [
        [f.name] if f.required or (op_id, f.name) in FREE_HERE else [f.name, default_of(f)]
        for f in own_fields(cls)
    ]
    expected = [[name, *default] for name, _type, *default in GOLDEN[op_id]["params"]]
    assert declared == expected


def test_common_parameters() -> None:
    assert {f.name: default_of(f) for f in msgspec.structs.fields(OpCode)} == {
        "dry_run": None,
        "debug_level": None,
        "priority": 0,
        "depends": None,
        "comment": None,
        "reason": [],
        "expected_version": None,  # ours
    }


def test_unset_values_are_left_out_unless_the_specification_writes_null() -> None:
    # Every parameter whose default is null is left out then, except these.
    for op_id in all_op_ids():
        cls = opcode_class(op_id)
        written = cls.WRITTEN_WHEN_UNSET | cls.REQUIRED_BY_LUXID
        expected = {"depends", "comment", "reason"}
        if op_id == "OP_TEST_DUMMY":
            expected |= {"result", "messages", "fail", "submit_jobs"}
        assert written == expected


# One type of each kind in the specification's type language.
TYPES = {
    ("OP_INSTANCE_CREATE", "instance_name"): "str",
    ("OP_INSTANCE_CREATE", "pnode"): "null|str+",
    ("OP_INSTANCE_CREATE", "disk_template"): "null|DiskTemplate",
    ("OP_INSTANCE_CREATE", "disks"): "[IDiskParams]",
    ("OP_INSTANCE_CREATE", "osparams_secret"): "null|{str: secret(any)}",
    ("OP_INSTANCE_SET_PARAMS", "nics"): "SetParamsMods<INicParams>",
    ("OP_CLUSTER_SET_PARAMS", "uid_pool"): "null|[tuple(int, int)]",
    ("OP_CLUSTER_VERIFY", "skip_checks"): "set[VerifyOptionalChecks]",
    ("OP_INSTANCE_GROW_DISK", "disk"): "DiskIndex",
    ("OP_BACKUP_EXPORT", "target_node"): "str+|list",
    ("OP_TEST_DELAY", "duration"): "float",
}
DESCRIBED = {
    "str": "text",
    "null|str+": "null or text that is not empty",
    "null|DiskTemplate": "null or one of blockdev, diskless, drbd, ext, file, gluster, plain,"
    " rbd, sharedfile",
    "[IDiskParams]": "list of (object of (text that is not empty or integer) by text)",
    "null|{str: secret(any)}": "null or object of private values by name",
    "SetParamsMods<INicParams>": "list of ([action, index or name, object of settings])",
    "null|[tuple(int, int)]": "null or list of ([integer, integer])",
    "set[VerifyOptionalChecks]": "list of (one of nplusone_mem)",
    "DiskIndex": "integer >= 0 <= 15",
    "str+|list": "text that is not empty or list of (any value)",
    "float": "number",
}


@pytest.mark.parametrize(("place", "kind"), sorted(TYPES.items()))
def test_types_say_what_they_expect(place: tuple[str, str], kind: str) -> None:
    op_id, param = place
    described = describe_place(opcode_class(op_id), param)
    assert sorted(described.split(" or ")) == sorted(DESCRIBED[kind].split(" or "))


def unions(annotation: Any) -> Iterator[Any]:
    """Every union inside a type."""
    if get_origin(annotation) in (Union, UnionType):
        yield annotation
    for inner in get_args(annotation):
        yield from unions(inner)


def test_no_union_of_a_limited_type_and_a_tuple() -> None:
    """Such a union makes msgspec 0.22 read and write memory that is not its own."""
    for op_id in all_op_ids():
        for name, annotation in get_type_hints(opcode_class(op_id), include_extras=True).items():
            for union in unions(annotation):
                members = get_args(union)
                limited = [m for m in members if get_origin(m) is Annotated]
                tuples = [m for m in members if get_origin(m) is tuple]
                assert not (limited and tuples), (op_id, name)


def test_every_opcode_can_be_documented() -> None:
    for op_id in all_op_ids():
        cls = opcode_class(op_id)
        assert cls.__doc__
        assert cls.__doc__.endswith(".")
        for name in cls.__struct_fields__:
            assert "another type" not in describe_place(cls, name)


@pytest.mark.parametrize(
    ("wire", "action", "identifier"),
    [
        (["modify", "0", {"mode": "ro"}], "modify", 0),
        (["remove", "-1", {}], "remove", -1),
        (["0", {"mode": "ro"}], "modify", 0),
        (["modify", "data", {"mode": "ro"}], "modify", "data"),
    ],
)
def test_indexes_of_devices_may_come_as_text(
    wire: list[object], action: str, identifier: object
) -> None:
    change = DiskChange.from_wire(wire)
    assert (change.action, change.identifier) == (action, identifier)
    assert change.to_wire() == wire

"""Opcodes from JSON and back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import OpCodeUnknown, OpPrereqError
from ganeti.objects.disk_templates import DeviceAction, DiskTemplate
from ganeti.opcodes import registry
from ganeti.opcodes.instance import OpInstanceCreate, OpInstanceSetParams
from ganeti.opcodes.registry import (
    all_op_ids,
    decode_opcode,
    encode_opcode,
    for_people,
    opcode_class,
    redact,
)
from ganeti.opcodes.test import OpTestDelay, OpTestDummy

# As a job process wrote it into a job file, every key present.
NODE_ADD_IN_JOB_FILE = {
    "node_name": "node2",
    "hv_state": {},
    "disk_state": {},
    "primary_ip": "192.0.2.11",
    "secondary_ip": "192.0.2.11",
    "readd": False,
    "group": None,
    "master_capable": True,
    "vm_capable": True,
    "ndparams": None,
    "node_setup": False,
    "dry_run": None,
    "debug_level": 0,
    "priority": 0,
    "depends": None,
    "comment": None,
    "reason": [["gnt:client:gnt-node", "add", 1795236540085182464]],
    "OP_ID": "OP_NODE_ADD",
}
CREATE: dict[str, Any] = {
    "OP_ID": "OP_INSTANCE_CREATE",
    "instance_name": "inst1",
    "disks": [{"size": 128}],
    "nics": [{"mac": "auto", "ip": None}],
    "mode": "create",
}


@pytest.mark.shows("backend/jobs/op-id")
def test_an_opcode_of_a_job_file_survives_in_order() -> None:
    wire = encode_opcode(decode_opcode(NODE_ADD_IN_JOB_FILE))
    left_out = ("group", "ndparams", "dry_run")
    expected = {key: v for key, v in NODE_ADD_IN_JOB_FILE.items() if key not in left_out}
    assert list(wire.items()) == list(expected.items())


def test_defaults_are_written_and_unset_values_left_out() -> None:
    op = OpTestDelay(duration=1.0)
    assert encode_opcode(op) == {
        "duration": 1.0,
        "on_master": True,
        "on_nodes": [],
        "repeat": 0,
        "interruptible": False,
        "no_locks": True,
        "priority": 0,
        "depends": None,
        "comment": None,
        "reason": [],
        "OP_ID": "OP_TEST_DELAY",
    }
    assert encode_opcode(OpTestDummy()) == {
        **dict.fromkeys(["result", "messages", "fail", "submit_jobs", "depends", "comment"]),
        "priority": 0,
        "reason": [],
        "OP_ID": "OP_TEST_DUMMY",
    }


def test_an_integer_is_taken_for_a_float() -> None:
    op = decode_opcode({"OP_ID": "OP_TEST_DELAY", "duration": 2})
    assert isinstance(op, OpTestDelay)
    assert repr(op.duration) == "2.0"


def test_values_have_their_types() -> None:
    op = decode_opcode({**CREATE, "disk_template": "file", "depends": [[-1, ["success"]]]})
    assert isinstance(op, OpInstanceCreate)
    assert op.disk_template is DiskTemplate.FILE
    assert op.depends == [(-1, ["success"])]
    assert encode_opcode(op)["depends"] == [[-1, ["success"]]]


def test_sets_lose_duplicates_and_are_written_sorted() -> None:
    op = decode_opcode(
        {"OP_ID": "OP_CLUSTER_VERIFY", "ignore_errors": ["ENODEOS", "ENODEHV", "ENODEOS"]}
    )
    assert encode_opcode(op)["ignore_errors"] == ["ENODEHV", "ENODEOS"]


@pytest.mark.parametrize(
    ("wire", "action", "identifier"),
    [
        (["add", -1, {"size": 1}], DeviceAction.ADD, -1),
        (["modify", "disk-name", {"mode": "ro"}], DeviceAction.MODIFY, "disk-name"),
        (["remove", {}], DeviceAction.REMOVE, -1),
        ([2, {"mode": "ro"}], DeviceAction.MODIFY, 2),
    ],
)
def test_every_form_of_a_device_change(
    wire: list[object], action: DeviceAction, identifier: int | str
) -> None:
    op = decode_opcode({"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": "i", "disks": [wire]})
    assert isinstance(op, OpInstanceSetParams)
    assert (op.disks[0].action, op.disks[0].identifier) == (action, identifier)
    assert op.disks[0].settings == wire[-1]
    assert encode_opcode(op)["disks"] == [wire]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"disk_template": "raid"},
            "parameter 'disk_template': expected null or one of blockdev, diskless, drbd, ext,",
        ),
        ({"start": 1}, "parameter 'start': expected bool, got 1"),
        ({"foo": 1}, "parameter 'foo' is unknown"),
        ({"mode": None}, "parameter 'mode': expected one of create, import, remote-import"),
        ({"nics": [{"macc": "x"}]}, "parameter 'nics[0]': key: expected one of bridge, ip, link"),
        ({"disks": [{"size": None}]}, "parameter 'disks[0]': expected"),
        ({"tags": ["a", ""]}, "parameter 'tags[1]': expected text that is not empty, got ''"),
        ({"priority": 3}, "parameter 'priority': expected one of -10, 0, 10, got 3"),
        ({"source_shutdown_timeout": -1}, "expected integer >= 0, got -1"),
        ({"depends": [["x", []]]}, "parameter 'depends[0][0]': expected"),
        ({"depends": [["9" * 5000, []]]}, "parameter 'depends[0][0]': expected"),
        ({"depends": [["\N{ARABIC-INDIC DIGIT THREE}", []]]}, "'depends[0][0]': expected"),
        ({"hypervisor": "x" * 5000}, "xxx..."),
    ],
)
def test_errors_name_opcode_parameter_and_expected_type(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(OpPrereqError) as caught:
        decode_opcode({**CREATE, **changes})
    assert caught.value.message.startswith("OP_INSTANCE_CREATE: ")
    assert message in caught.value.message
    assert len(caught.value.message) < 300
    assert caught.value.ecode == "wrong_input"


def test_other_errors() -> None:
    with pytest.raises(OpPrereqError, match="OP_INSTANCE_CREATE: parameter 'mode' is missing"):
        decode_opcode({key: value for key, value in CREATE.items() if key != "mode"})
    with pytest.raises(OpCodeUnknown, match="unknown opcode 'OP_X'"):
        decode_opcode({"OP_ID": "OP_X"})
    with pytest.raises(OpCodeUnknown, match="needs a name"):
        decode_opcode({"OP_ID": ["OP_TEST_DELAY"]})
    recreate = {"OP_ID": "OP_INSTANCE_RECREATE_DISKS", "instance_name": "i"}
    with pytest.raises(OpPrereqError, match="parameter 'disks': expected indices only"):
        decode_opcode({**recreate, "disks": [0, [1, {}]]})
    with pytest.raises(
        OpPrereqError, match=r"parameter 'nics\[0\]': action: expected one of add, attach"
    ):
        decode_opcode(
            {"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": "i", "nics": [["kill", 0, {}]]}
        )
    with pytest.raises(OpPrereqError, match="IPv4 network such as"):
        decode_opcode({"OP_ID": "OP_NETWORK_ADD", "network_name": "n", "network": "10.0.0.0"})


SECRETS = {"osparams_private": {"key": "PRIVATE"}, "osparams_secret": {"pw": "SECRET"}}


def test_private_and_secret_values_are_never_shown() -> None:
    op = decode_opcode({**CREATE, **SECRETS})
    assert encode_opcode(op)["osparams_secret"] == {"pw": "SECRET"}
    for shown in (repr(op), str(op), repr(for_people(encode_opcode(op)))):
        assert "SECRET" not in shown
        assert "PRIVATE" not in shown
    assert "'pw': ***" in repr(op)
    with pytest.raises(OpPrereqError) as caught:
        decode_opcode({**CREATE, "osparams_secret": ["SECRET"]})
    assert "osparams_secret" in caught.value.message
    assert "SECRET" not in caught.value.message


def test_people_see_which_private_parameters_there_are_and_not_what_they_say() -> None:
    wire = encode_opcode(decode_opcode({**CREATE, **SECRETS}))
    assert for_people(wire)["osparams_private"] == {"key": "<redacted>"}
    assert for_people(wire)["instance_name"] == CREATE["instance_name"]
    cluster = {"OP_ID": "OP_CLUSTER_SET_PARAMS", "osparams_private_cluster": {"os": {"key": "P"}}}
    assert for_people(cluster)["osparams_private_cluster"] == {"os": {"key": "<redacted>"}}
    several = {"OP_ID": "OP_INSTANCE_MULTI_ALLOC", "instances": [wire, {"instance_name": "b"}]}
    assert "PRIVATE" not in repr(for_people(several))
    nothing_to_hide = {"OP_ID": "OP_TEST_DELAY", "osparams_private": None}
    assert for_people(nothing_to_hide) is nothing_to_hide


def test_a_job_file_has_private_values_but_no_secret_ones() -> None:
    wire = redact(decode_opcode({**CREATE, **SECRETS}))
    assert wire["osparams_private"] == {"key": "PRIVATE"}
    assert wire["osparams_secret"] == {"pw": "<redacted>"}
    nested = redact(
        decode_opcode({"OP_ID": "OP_INSTANCE_MULTI_ALLOC", "instances": [{**CREATE, **SECRETS}]})
    )
    assert "SECRET" not in repr(nested)
    assert "PRIVATE" in repr(nested)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*NODE_ADD_IN_JOB_FILE, "x"]), JSON_VALUES))
def test_any_object_is_either_an_opcode_or_refused(wire: dict[str, object]) -> None:
    wire = {**wire, "OP_ID": "OP_NODE_ADD"}
    try:
        op = decode_opcode(wire)
    except OpPrereqError as err:
        refusal = err.message
    else:
        assert decode_opcode(encode_opcode(op)) == op
        return
    assert refusal.startswith("OP_NODE_ADD: ")


def test_every_module_of_opcodes_is_known() -> None:
    classes = {opcode_class(op_id) for op_id in all_op_ids()}
    modules = {cls.__module__.removeprefix("ganeti.opcodes.") for cls in classes}
    declaring = {
        path.stem
        for path in Path(registry.__file__).parent.glob("*.py")
        if re.search(r"^class Op\w+\((?!msgspec)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert modules == declaring


@pytest.mark.parametrize(
    ("params", "place"),
    [
        ({"instance_name": "a\0b"}, "instance_name"),
        ({"hvparams": {"kernel_args": "ro\0"}}, "hvparams.kernel_args"),
        ({"osparams_secret": {"key": "secret\0"}}, "osparams_secret.key"),
        ({"disks": [{"size": 1}, {"size": 128, "name\0": "x"}]}, r"disks[1].name\x00"),
        ({"tags": ["a", "\0"]}, "tags[1]"),
        ({"comment": "\0"}, "comment"),
    ],
)
def test_no_text_has_a_null_byte(params: dict[str, Any], place: str) -> None:
    with pytest.raises(OpPrereqError) as caught:
        decode_opcode(CREATE | params)
    assert caught.value.message == (
        f"OP_INSTANCE_CREATE: parameter '{place}': a text has a null byte"
    )


def test_no_change_of_a_device_has_a_null_byte() -> None:
    change = ["modify", 0, {"name": "a\0"}]
    wire = {"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": "inst1", "disks": [change]}
    with pytest.raises(OpPrereqError, match=r"'disks\[0\]\[2\]\.name': a text has a null byte"):
        decode_opcode(wire)

"""The table of node calls, and bodies of requests and answers."""

import contextlib
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.json import loads
from ganeti.objects.rpc_instance import RpcDisk
from ganeti.protocol import node_rpc
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import NodeCall, Place
from ganeti.protocol.node_rpc_values import CompressedText
from ganeti.protocol.service import read_as

DISK = {
    "uuid": "u",
    "dev_type": "file",
    "logical_id": ["loop", "/x"],
    "size": 1,
    "params": {},
    "ctime": 0,
    "mtime": 0,
    "serial_no": 1,
    "nodes": [],
    "iv_name": "disk/0",
    "mode": "rw",
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


OWN_CALLS = {
    *("ha_look", "ha_start_member", "ha_stop_member", "ha_start", "ha_stop", "ha_report"),
    *("ha_prepare_disk", "ha_check_disk", "ha_clear_disk", "ha_renew_member"),
    *(
        "config_append",
        "config_confirm",
        "config_patch",
        "config_read",
        "config_set_aside",
        "copies_patch",
        "drbd_accept",
        "drbd_outdate",
        "drbd_sides",
        "export_chains",
        "export_merge",
        "export_note",
        "instance_consoles",
        "instance_departed",
        "instance_guest_info",
        "instance_record_since",
        "jobqueue_list",
        "ssconf_accept",
        "ssconf_patch",
        "jobqueue_read",
        "instance_snapshot",
    ),
    *("instance_snapshot_drop", "instance_snapshot_supported", "master_accept", "master_claim"),
    *("master_drain", "master_facts", "ssh_authorize", "ssh_next_key", "ssh_root_key"),
    *("ssh_take_key", "jobqueue_write", "kept_snapshots", "kept_snapshot_take"),
    *("kept_snapshot_restore", "kept_snapshot_remove", "repair_command", "image_size"),
    *("os_package_write", "os_package_answer", "os_package_log"),
}


def test_all_calls_of_the_specification_are_there() -> None:
    assert len(NodeCalls.calls.keys() - OWN_CALLS) == 108
    assert NodeCalls.calls.keys() >= OWN_CALLS
    assert all(name == call.name == call.method for name, call in NodeCalls.calls.items())


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("version", 60),
        ("etc_hosts_modify", 900),
        ("os_diagnose", 300),
        ("instance_migrate", 3600),
        ("node_powercycle", 900),
        ("instance_os_add", 86400),
    ],
)
def test_time_limits(name: str, seconds: float) -> None:
    assert NodeCalls.calls[name].rules.limit_s == seconds
    assert node_rpc.deadline_s(NodeCalls.calls[name], []) == seconds


@pytest.mark.parametrize(("args", "seconds"), [([3], 8), ([0.5], 5.5), ([-1], 5), (["x"], 5)])
def test_a_delay_may_take_as_long_as_it_says(args: list[object], seconds: float) -> None:
    assert node_rpc.deadline_s(NodeCalls.calls["test_delay"], args) == seconds


@pytest.mark.parametrize(
    ("name", "args", "seconds"),
    [
        ("instance_shutdown", [{}, 1800, []], 2700),
        ("instance_shutdown", [{}, 0, []], 900),
        ("instance_shutdown", [{}, -1, []], 900),
        ("instance_shutdown", [{}, 10**400, []], 604800 + 900),
        ("instance_shutdown", [{}, "long", []], 900),
        ("instance_reboot", [{}, "hard", 1800.5, []], 2700.5),
    ],
)
def test_a_guest_has_its_time_to_shut_down_before_the_limit_begins(
    name: str, args: list[object], seconds: float
) -> None:
    assert node_rpc.deadline_s(NodeCalls.calls[name], args) == seconds


@pytest.mark.parametrize("call", NodeCalls.calls.values(), ids=lambda call: call.name)
def test_every_argument_and_answer_has_a_type_that_can_be_read(call: NodeCall) -> None:
    for kind in (*(argument.type for argument in call.arguments), call.result):
        with contextlib.suppress(msgspec.ValidationError, GenericError, TypeError):
            read_as(kind, {})


def test_arguments_are_written_by_their_types() -> None:
    call = NodeCalls.calls["blockdev_assemble"]
    assert call.names == ("disk", "instance", "on_primary", "idx")
    disk, instance = RpcDisk.from_wire(DISK), Mock(to_wire=lambda: {"name": "inst"})
    body = loads(node_rpc.encode_arguments(call, [disk, instance, True, 0]))
    assert body == [disk.to_wire(), {"name": "inst"}, True, 0]
    many = NodeCalls.calls["blockdev_close"]
    assert loads(node_rpc.encode_arguments(many, ["inst", [disk]])) == ["inst", [disk.to_wire()]]
    text = CompressedText("y" * 1000)
    [_, sent] = node_rpc.decode_arguments(
        NodeCalls.calls["jobqueue_update"],
        node_rpc.encode_arguments(NodeCalls.calls["jobqueue_update"], ["/x", text]),
    )
    assert CompressedText.from_wire(sent) == text


@pytest.mark.shows("2.0/offline/votes")
def test_two_calls_go_to_offline_nodes() -> None:
    assert {call.name for call in NodeCalls.calls.values() if call.rules.to_offline} == {
        "node_powercycle",
        "version",
    }


def test_file_writes_run_in_the_daemon_and_what_touches_instances_does_not() -> None:
    in_daemon = {call.name for call in NodeCalls.calls.values() if call.rules.place is Place.DAEMON}
    assert in_daemon >= {"jobqueue_update", "upload_file", "write_ssconf_files", "version"}
    assert not any(name.startswith(("instance_", "blockdev_", "os_")) for name in in_daemon)


@pytest.mark.shows("backend/masterd/rpc")
@given(st.lists(JSON, min_size=2, max_size=2))
def test_arguments_survive_the_wire(args: list[object]) -> None:
    call = NodeCalls.calls["ssh_root_key"]
    assert node_rpc.decode_arguments(call, node_rpc.encode_arguments(call, args)) == args


@pytest.mark.shows("2.0/master/rpc")
def test_one_call_has_an_object_for_its_body() -> None:
    call = NodeCalls.calls["instance_console_info"]
    assert node_rpc.encode_arguments(call, [{"inst1": {}}]) == b'{"inst1":{}}'
    assert node_rpc.decode_arguments(call, b'{"inst1":{}}') == [{"inst1": {}}]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "invalid JSON"),
        (b"null", "must be a JSON list"),
        (b"[1]", r"takes 2 arguments \(file_name, content\), got 1"),
    ],
)
def test_a_wrong_body_is_named(body: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        node_rpc.decode_arguments(NodeCalls.calls["jobqueue_update"], body)


def test_too_many_arguments_never_leave() -> None:
    with pytest.raises(ProtocolError, match="takes 0 arguments"):
        node_rpc.encode_arguments(NodeCalls.calls["version"], [1])


def test_answers() -> None:
    assert node_rpc.encode_result({"a": 1}) == b'[true,{"a":1}]\n'
    assert node_rpc.encode_failure("no") == b'[false,"no"]\n'
    success, payload = node_rpc.decode_answer(b"[true,null]\n")
    assert (success, bytes(payload)) == (True, b"null")
    assert node_rpc.decode_answer(b'[false,"no"]')[0] is False


@pytest.mark.parametrize("body", [b"[]", b"[1,2]", b"{}", b"[true]", b"[true,1,2]"])
def test_an_answer_of_another_form_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        node_rpc.decode_answer(body)

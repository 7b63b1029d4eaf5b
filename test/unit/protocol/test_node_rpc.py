"""The table of node calls, and bodies of requests and answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import ProtocolError
from ganeti.protocol import node_rpc
from ganeti.protocol.node_rpc import NODE_RPC, OWN_CALLS, Encoder, Place

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def test_all_calls_of_the_specification_are_there() -> None:
    assert len(NODE_RPC.keys() - OWN_CALLS) == 108
    assert NODE_RPC.keys() >= OWN_CALLS
    assert all(name == call.name for name, call in NODE_RPC.items())


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("version", 60),
        ("etc_hosts_modify", 900),
        ("os_diagnose", 300),
        ("instance_migrate", 3600),
        ("node_ssh_keys_renew", 14400),
        ("instance_os_add", 86400),
    ],
)
def test_time_limits(name: str, seconds: float) -> None:
    assert NODE_RPC[name].timeout_s == seconds
    assert NODE_RPC[name].deadline_s([]) == seconds


@pytest.mark.parametrize(("args", "seconds"), [([3], 8), ([0.5], 5.5), ([-1], 5), (["x"], 5)])
def test_a_delay_may_take_as_long_as_it_says(args: list[object], seconds: float) -> None:
    assert NODE_RPC["test_delay"].deadline_s(args) == seconds


def test_arguments_know_their_encoders() -> None:
    call = NODE_RPC["blockdev_assemble"]
    assert call.argument_names == ("disk", "instance", "on_primary", "idx")
    assert [argument.encoder for argument in call.arguments] == [
        Encoder.SINGLE_DISK,
        Encoder.INSTANCE,
        None,
        None,
    ]


def test_calls_for_offline_nodes_and_for_each_node_its_own() -> None:
    assert {call.name for call in NODE_RPC.values() if call.sent_to_offline} == {
        "node_powercycle",
        "version",
    }
    assert {call.name for call in NODE_RPC.values() if call.per_node_args} == {
        "blockdev_getmirrorstatus_multi",
        "node_info",
    }


def test_file_writes_run_in_the_daemon_and_what_touches_instances_does_not() -> None:
    in_daemon = {call.name for call in NODE_RPC.values() if call.runs_in is Place.DAEMON}
    assert in_daemon >= {"jobqueue_update", "upload_file", "write_ssconf_files", "version"}
    assert not any(name.startswith(("instance_", "blockdev_", "os_")) for name in in_daemon)


@given(st.lists(JSON, min_size=2, max_size=2))
def test_arguments_survive_the_wire(args: list[object]) -> None:
    call = NODE_RPC["jobqueue_update"]
    assert node_rpc.decode_arguments(call, node_rpc.encode_arguments(call, args)) == args


def test_one_call_has_an_object_for_its_body() -> None:
    call = NODE_RPC["instance_console_info"]
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
        node_rpc.decode_arguments(NODE_RPC["jobqueue_update"], body)


def test_too_many_arguments_never_leave() -> None:
    with pytest.raises(ProtocolError, match="takes 0 arguments"):
        node_rpc.encode_arguments(NODE_RPC["version"], [1])


def test_answers() -> None:
    assert node_rpc.encode_result({"a": 1}) == b'[true,{"a":1}]\n'
    assert node_rpc.encode_failure("no") == b'[false,"no"]\n'
    assert node_rpc.decode_answer(b"[true,null]\n") == (True, None)
    assert node_rpc.decode_answer(b'[false,"no"]') == (False, "no")


@pytest.mark.parametrize("body", [b"[]", b"[1,2]", b"{}", b"[true]", b"[true,1,2]"])
def test_an_answer_of_another_form_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        node_rpc.decode_answer(body)

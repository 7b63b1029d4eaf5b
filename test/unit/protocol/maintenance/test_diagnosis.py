"""Tests of ganeti/protocol/maintenance/diagnosis.py."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import GenericError
from ganeti.base.json import dumps
from ganeti.protocol.maintenance.diagnosis import (
    OUTPUT_BYTES_MAX,
    REPORT_BYTES_MAX,
    Diagnosis,
    Unknown,
    parse,
    read_report,
    signed,
)
from ganeti.protocol.maintenance.stored import Action

KEY = b"0123456789abcdef0123456789abcdef01234567\n"
NODE = "node1.example.com"
NOW = 1_800_000_000.0
BROKEN: dict[str, object] = {"status": "evacuate", "details": {"disk": "sda", "n": [1, None]}}

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def body_of(data: object, name: str = "diagnose") -> bytes:
    envelope = {"name": name, "version": "B", "format_version": 1, "timestamp": 1}
    return dumps({**envelope, "category": "node", "kind": 1, "data": data})


def read(body: bytes, node: str = NODE, now_s: float = NOW) -> Diagnosis | Unknown:
    return read_report(body, KEY, node, now_s)


def why(found: Diagnosis | Unknown) -> str:
    assert isinstance(found, Unknown), found
    return found.why


@pytest.mark.shows("maintd/protocol/object", "maintd/status/values", "maintd/command/only-live")
@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[]", "no JSON object"),
        ('"Ok"', "no JSON object"),
        ("{}", "gives the status None"),
        ('{"status": "ok"}', "gives the status 'ok'; known are: Ok, live-repair"),
        ('{"status": ["Ok"]}', "gives the status"),
        ('{"status": "live-repair", "command": 5}', "asks for the command 5"),
        ('{"status": "live-repair", "command": "../x"}', "which is no name"),
        ('{"status": "live-repair", "command": ""}', "which is no name"),
        ('{"status": "Ok"} x', "no JSON"),
        ('{"status": "evacuate", "d": ' + "[" * 60 + "]" * 60 + "}", "nested too deeply"),
    ],
)
def test_what_breaks_the_rules_is_no_report(output: str, text: str) -> None:
    with pytest.raises(GenericError, match=text):
        parse(output.encode())


@pytest.mark.shows("maintd/status/values")
@pytest.mark.parametrize("status", ["Ok", "live-repair", "evacuate", "evacuate-failover"])
def test_every_status(status: str) -> None:
    assert parse(json.dumps({"status": status}).encode())["status"] == status


@pytest.mark.shows("maintd/command/only-live")
def test_a_repair_command() -> None:
    found = {"status": "live-repair", "command": "fix-disk_1", "details": {"disk": 1}}
    assert parse(json.dumps(found).encode()) == found


@pytest.mark.shows("maintd/protocol/object")
@given(st.binary(max_size=100))
def test_any_bytes_are_refused_in_words(output: bytes) -> None:
    with pytest.raises(GenericError, match="prints"):
        parse(b"x" + output)


def test_a_long_answer_is_not_repeated_whole() -> None:
    for output in (b"x" * 50000, json.dumps({"status": "y" * 50000}).encode()):
        with pytest.raises(GenericError) as caught:
            parse(output)
        assert len(caught.value.message) < 1000


@pytest.mark.shows("maintd/command/only-live")
@pytest.mark.parametrize("command", ["fix", "../x", 5, {}])
def test_a_command_beside_another_status_is_no_error(command: object) -> None:
    found = {"status": "evacuate", "command": command}
    assert parse(json.dumps(found).encode()) == found
    report = read(body_of(signed(found, KEY, NODE, NOW)))
    assert report == Diagnosis(found, Action.EVACUATE, None, int(NOW))


@pytest.mark.shows("maintd/forging/verified", "maintd/details/opaque")
@given(st.sampled_from(list(Action)), VALUES, st.floats(-300, 300))
def test_the_very_object_comes_out(action: Action, details: Any, off_s: float) -> None:
    try:
        found = parse(json.dumps({"status": action, "details": details}).encode())
    except GenericError:
        return  # a number that no JSON of ours holds
    report = read(body_of(signed(found, KEY, NODE, NOW)), now_s=NOW + int(off_s))
    assert isinstance(report, Diagnosis)
    assert dumps(report.original) == dumps(found)
    assert report.action is action


@pytest.mark.shows("maintd/forging/verified")
@given(st.data())
def test_with_any_bit_changed_nothing_is_known(data: st.DataObject) -> None:
    report = {name: text.encode() for name, text in signed(BROKEN, KEY, NODE, NOW).items()}
    name = data.draw(st.sampled_from(sorted(report)))
    place = data.draw(st.integers(0, 8 * len(report[name]) - 1))
    changed = bytearray(report[name])
    changed[place // 8] ^= 1 << place % 8
    report[name] = bytes(changed)
    texts = {key: value.decode("utf-8", "surrogateescape") for key, value in report.items()}
    body = json.dumps({"name": "diagnose", "data": texts}, ensure_ascii=False)
    assert isinstance(read(body.encode("utf-8", "surrogateescape")), Unknown)


@pytest.mark.shows("maintd/forging/verified")
@given(st.data())
def test_with_any_bit_of_the_answer_changed_nothing_else_is_known(data: st.DataObject) -> None:
    whole = body_of(signed(BROKEN, KEY, NODE, NOW))
    place = data.draw(st.integers(0, 8 * len(whole) - 1))
    changed = bytearray(whole)
    changed[place // 8] ^= 1 << place % 8
    found = read(bytes(changed))
    assert isinstance(found, Unknown) or found == read(whole)


@given(st.binary(max_size=300))
def test_of_any_bytes_nothing_is_known(body: bytes) -> None:
    assert isinstance(read(body), Unknown)


@pytest.mark.shows("maintd/forging/verified")
def test_a_report_of_another_node_says_nothing_of_this_one() -> None:
    body = body_of(signed(BROKEN, KEY, NODE, NOW))
    assert "it is of node 'node1.example.com', not of node2" in why(read(body, "node2"))
    for near in (NODE[:-1], NODE + "x", "x" + NODE, ""):
        assert isinstance(read(body, near), Unknown)


@pytest.mark.shows("maintd/forging/verified")
def test_salt_and_message_cannot_be_cut_elsewhere() -> None:
    data = signed(BROKEN, KEY, NODE, NOW)
    whole = data["salt"] + data["msg"]
    for cut in range(len(whole)):
        if cut == len(data["salt"]):
            continue
        moved = {"salt": whole[:cut], "msg": whole[cut:], "hmac": data["hmac"]}
        for node in (NODE, whole[:cut].partition(":")[2]):
            assert isinstance(read(body_of(moved), node), Unknown), cut


@pytest.mark.shows("maintd/forging/verified")
@pytest.mark.parametrize(
    ("body", "text"),
    [
        (body_of(signed(BROKEN, b"another key", NODE, NOW)), "not signed with the key"),
        (body_of(signed(BROKEN, KEY, NODE, NOW - 301)), "its time is -301 s off"),
        (body_of(signed(BROKEN, KEY, NODE, NOW + 301)), "its time is 301 s off"),
        (body_of(signed({"status": "ok"}, KEY, NODE, NOW)), "gives the status 'ok'"),
        (body_of({"msg": '{"status":"Ok"}', "salt": "", "hmac": ""}), "not signed with the key"),
        (body_of({"msg": '{"status":"Ok"}'}), "the report is not signed"),
        (body_of(BROKEN), "the report is not signed"),
        (body_of({"status": {"code": 2, "message": "no disk"}}), "the node says: no disk"),
        (body_of(signed(BROKEN, KEY, NODE, NOW), "drbd"), "of the collector 'drbd'"),
        (b" " * (REPORT_BYTES_MAX + 1), "more than"),
        (b"", "cannot be read"),
    ],
)
def test_what_is_not_believed(body: bytes, text: str) -> None:
    assert text in why(read(body))


def test_the_longest_output_comes_through() -> None:
    space = OUTPUT_BYTES_MAX - len(b'{"status":"Ok","details":""}')
    for filling in ('\\"' * (space // 2), "\\u0001" * (space // 6)):
        output = f'{{"status":"Ok","details":"{filling}"}}'.encode()
        assert len(output) <= OUTPUT_BYTES_MAX
        found = parse(output)
        report = read(body_of(signed(found, KEY, NODE, NOW)))
        assert isinstance(report, Diagnosis)
        assert report.original == found

from __future__ import annotations

import json

import pytest

from ganeti.base.errors import OpPrereqError, ProtocolError
from ganeti.objects.describe import describe_type
from ganeti.protocol.wconfd import ClientId, Effect, Need, WConfCalls, wire_names

V3_CALLS = 54  # wconfd.json, "counts"
CALLS = WConfCalls.calls.values()


@pytest.mark.shows("2.12/death/stateless")
def test_all_calls_of_3_0_are_there_and_ours_name_their_owner_first() -> None:
    old = [call for call in CALLS if not call.rules.is_own]
    assert len(old) == V3_CALLS
    needs = {call.name: call.rules.needs for call in old if call.rules.needs is not Need.NONE}
    assert needs == {"addInstance": Need.INSTANCE, "commitTemporaryIps": Need.BGL}
    for call in CALLS:
        if call.rules.is_own and call.rules.effect is not Effect.READ:
            assert wire_names(call)[0] == "client", call.name


def test_eighteen_old_changes_name_no_client() -> None:
    nameless = [
        call.name
        for call in CALLS
        if call.rules.effect in (Effect.CONFIG, Effect.RESERVE) and call.rules.owner is None
    ]
    assert all(WConfCalls.calls[name].rules.instead in WConfCalls.calls for name in nameless)
    assert len(nameless) == 18


@pytest.mark.shows("2.0/lock-caveats/scrutinised")
def test_every_change_of_our_own_needs_a_lock() -> None:
    for call in CALLS:
        if call.rules.is_own and call.rules.effect is Effect.CONFIG:
            assert call.rules.needs is not Need.NONE, call.name


def test_calls_that_wait_end_with_a_time() -> None:
    assert {call.name for call in CALLS if call.rules.waits} == {
        call.name for call in CALLS if call.names[-1:] == ("timeout_s",)
    }


@pytest.mark.shows("2.12/death/tells-path")
def test_the_owner_stands_where_3_0_puts_it() -> None:
    calls = WConfCalls.calls
    assert wire_names(calls["addInstance"]) == ["instance", "client", "replace"]
    assert wire_names(calls["guardedOpportunisticLockUnion"]) == ["count", "client", "request"]
    assert wire_names(calls["readConfig"]) == []


def test_all_types_can_be_read_and_described() -> None:
    for call in CALLS:
        assert all(argument.describe() for argument in call.arguments)
        assert describe_type(call.result)
        if call.answers_nothing:
            assert call.decode_answer(b"[]") is None


def test_answers_are_of_the_declared_type() -> None:
    assert WConfCalls.calls["getSerial"].decode_answer(b"[3,1.5]") == (3, 1.5)
    assert WConfCalls.calls["updateNode"].decode_answer(b"null") is None
    assert WConfCalls.calls["tryUpdateLocks"].decode_answer(b'[[7,"/l",1]]') == [
        ClientId(7, "/l", 1)
    ]
    with pytest.raises(ProtocolError, match="unexpected answer to getSerial: Expected"):
        WConfCalls.calls["getSerial"].decode_answer(b"[]")


@pytest.mark.shows("2.12/death/owner-pair")
def test_a_client_id_is_a_list_on_the_wire() -> None:
    client = ClientId(7, "/run/l", 1)
    assert ClientId.from_wire(json.loads(json.dumps(client.to_wire()))) == client
    assert client == ClientId(7, "/run/l", 2)
    for wrong in ([], ["x"], [True, "x", 1], [1, "x"], [1, "x", 1, 1], {"pid": 1}, None):
        with pytest.raises(OpPrereqError, match="client must be"):
            ClientId.from_wire(wrong)

"""From datagram to datagram: what is kept ready, what is too large, what is dropped."""

from __future__ import annotations

import json

import pytest
from fakes.confd_config import NODES, confd_config, encoded, mirrored_config
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.base.errors import ProtocolError
from ganeti.config.config_data import split_config
from ganeti.config.tables import Tables
from ganeti.protocol.confd import (
    DATAGRAM_BYTES_MAX,
    Reply,
    Signer,
    Status,
    open_reply,
    request_packet,
)
from ganeti.protocol.confd_queries import QueryType
from ganeti.rconfd import answers
from ganeti.rconfd.answers import HANDLERS, Answerer
from ganeti.rconfd.main import Desk

NOW = 1700000000
SIGNER = Signer(b"key\n")
FACTS = Tables(split_config(encoded(confd_config())))


def ask(
    answerer: Answerer, kind: int, question: object = None, rsalt: str = "salt"
) -> tuple[str, Reply]:
    packet = request_packet(SIGNER, kind, question, rsalt=rsalt, now_s=NOW)
    return open_reply(SIGNER, answerer.answer(packet, NOW))


QUESTIONS = st.one_of(
    st.tuples(st.sampled_from(sorted(QueryType)), st.none()),
    st.tuples(st.just(1), st.sampled_from(["node1.example.com", "node9", NODES[1]])),
    st.tuples(st.just(2), st.just({"1": "198.51.100.1"})),
    st.tuples(st.just(10), st.sampled_from(["/cluster", "/nodes", "/x", "/cluster/serial_no"])),
)


@pytest.mark.shows("backend/confd/memory")
@settings(max_examples=50)
@given(questions=st.lists(QUESTIONS, max_size=30), kept=st.sampled_from([1, 2, 50_000]))
def test_what_is_kept_ready_is_what_is_found(
    questions: list[tuple[int, object]], kept: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "KEPT_MAX", kept)
        answerer = Answerer(FACTS, SIGNER)
        for number, (kind, question) in enumerate(questions):
            salt = f"salt {number} ä"
            expected = ask(Answerer(FACTS, SIGNER), kind, question, salt)
            assert ask(answerer, kind, question, salt) == expected
            assert expected[0] == salt
            assert len(answerer._kept) <= kept


def test_what_is_kept_has_a_limit_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "KEPT_BYTES_MAX", 20_000)
    answerer = Answerer(FACTS, SIGNER)
    for number in range(500):
        ask(answerer, 1, f"node{number}.example.com")
        assert answerer._kept_bytes <= 20_000
    assert 0 < len(answerer._kept) < 40


def large_facts() -> Tables:
    config = confd_config()
    config["cluster"]["tags"] = ["x" * 1000] * 62
    return Tables(split_config(encoded(config)))


@pytest.mark.shows("2.1/confd-wire/answer-status")
def test_an_answer_that_is_too_large_is_refused_in_words() -> None:
    answerer = Answerer(large_facts(), SIGNER)
    salt, reply = ask(answerer, 10, "/cluster/tags")
    assert (salt, reply.status, reply.serial) == ("salt", Status.ERROR, 42)
    assert "61440 fit into a datagram" in str(reply.answer)
    assert ask(answerer, 10, "/cluster/cluster_name")[1].answer == "cluster.example.com"


def test_what_is_too_large_is_not_kept() -> None:
    answerer = Answerer(large_facts(), SIGNER)
    for _ in range(2):
        assert ask(answerer, 10, "/cluster/tags")[1].status is Status.ERROR
    assert answerer._kept_bytes < 2000


def test_quoting_may_make_an_answer_too_large() -> None:
    config = confd_config()
    config["cluster"]["tags"] = [""] * 15_000  # 45,000 bytes, and a backslash for each mark
    answerer = Answerer(Tables(split_config(encoded(config))), SIGNER)
    assert "fit into a datagram" in str(ask(answerer, 10, "/cluster/tags")[1].answer)


def test_many_drbd_devices_are_told_in_parts_that_fit() -> None:
    facts = Tables(split_config(encoded(mirrored_config(1500))))
    answerer = Answerer(facts, SIGNER)
    assert ask(answerer, QueryType.NODE_DRBD, NODES[0])[1].status is Status.ERROR
    rows: list[object] = []
    parts, first = 0, 0
    while first is not None:
        reply = ask(answerer, QueryType.NODE_DRBD_PART, f"node1.example.com/{first}", "s" * 36)[1]
        assert reply.status is Status.OK
        assert isinstance(reply.answer, list)
        found, first = reply.answer
        rows += found
        parts += 1
    assert rows == json.loads(HANDLERS[QueryType.NODE_DRBD](facts, NODES[0]))
    assert len(rows) == 1500
    assert 2 < parts < 10


def test_a_salt_that_leaves_no_room_gets_no_answer() -> None:
    answerer = Answerer(FACTS, SIGNER)
    long = "s" * (DATAGRAM_BYTES_MAX - 400)
    assert ask(answerer, 0, rsalt=long)[0] == long
    with pytest.raises(ProtocolError, match="the salt for its answer has"):
        ask(answerer, 10, "/cluster", rsalt="s" * (DATAGRAM_BYTES_MAX - 210))


@pytest.mark.parametrize("kind", [-1, 12, 1 << 70])
def test_unknown_queries_get_no_answer(kind: int) -> None:
    with pytest.raises(ProtocolError):
        ask(Answerer(FACTS, SIGNER), kind)


@pytest.mark.parametrize("question", [7, [], True, {"9": 1}, {"3": [9]}])
def test_malformed_queries_get_no_answer(question: object) -> None:
    answerer = Answerer(FACTS, SIGNER)
    for _ in range(2):
        with pytest.raises(ProtocolError, match="malformed query"):
            ask(answerer, 3, question)
    assert not answerer._kept


@given(data=st.binary(max_size=300), keep=st.integers(0, 100))
def test_rubbish_is_dropped_and_counted(data: bytes, keep: int) -> None:
    packet = request_packet(SIGNER, 1, "node1", rsalt="salt", now_s=NOW)
    desk = Desk()
    assert desk.handle(packet, "192.0.2.1", NOW) is None
    assert desk.dropped == 0  # nobody is there to drop it
    desk.answerer = Answerer(FACTS, SIGNER)
    assert desk.handle(packet, "192.0.2.1", NOW) is not None
    for rubbish in (data, packet[:keep] + data, data + packet[keep:], b"plj0" + data):
        if rubbish != packet:
            assert desk.handle(rubbish, "192.0.2.1", NOW) is None
    assert desk.dropped >= 2

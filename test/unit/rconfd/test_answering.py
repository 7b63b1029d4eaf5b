"""From datagram to datagram: what is kept ready, what is too large, what is dropped."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from fakes.confd_config import DB, NODES, WEB, confd_config, encoded, mirrored_config
from fakes.large_config import large_config, uuid_of
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.base.errors import ProtocolError
from ganeti.config.config_data import split_config
from ganeti.config.tables import Tables
from ganeti.protocol.confd import (
    DATAGRAM_BYTES_MAX,
    Answer,
    Pages,
    Reply,
    ReplyStatus,
    Signer,
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
    assert (salt, reply.status, reply.serial) == ("salt", ReplyStatus.ERROR, 42)
    assert "61440 fit into a datagram" in str(reply.answer)
    assert ask(answerer, 10, "/cluster/cluster_name")[1].answer == "cluster.example.com"


def test_what_is_too_large_is_not_kept() -> None:
    answerer = Answerer(large_facts(), SIGNER)
    for _ in range(2):
        assert ask(answerer, 10, "/cluster/tags")[1].status is ReplyStatus.ERROR
    assert answerer._kept_bytes < 2000


def test_quoting_may_make_an_answer_too_large() -> None:
    config = confd_config()
    config["cluster"]["tags"] = [""] * 15_000  # 45,000 bytes, and a backslash for each mark
    answerer = Answerer(Tables(split_config(encoded(config))), SIGNER)
    assert "fit into a datagram" in str(ask(answerer, 10, "/cluster/tags")[1].answer)


def instances_named(names: list[str]) -> Tables:
    """Return a configuration with instances of these names, on one node after the other."""
    config = confd_config()
    web = config["instances"].pop(WEB)
    del config["instances"][DB]
    for number, name in enumerate(names):
        uuid = uuid_of("instance", 100 + number)
        where = NODES[number % len(NODES)]
        made = {**web, "uuid": uuid, "name": name, "primary_node": where, "disks": [], "nics": []}
        config["instances"][uuid] = made
    return Tables(split_config(encoded(config)))


def read_pages(
    facts: Tables, kind: QueryType, key: str = "", salt: str = "s" * 36
) -> tuple[list[Any], int]:
    """Return the entries of all pages, as the client puts them together, and how many there are."""
    answerer, pages = Answerer(facts, SIGNER), Pages(kind, key)
    for count in range(1, 10_000):
        packet = request_packet(SIGNER, kind, pages.query, rsalt=salt, now_s=NOW)
        sent = answerer.answer(packet, NOW)
        assert len(sent) <= DATAGRAM_BYTES_MAX
        got, reply = open_reply(SIGNER, sent)
        assert got == salt
        whole = pages.take(Answer(kind, pages.query, reply.status, reply.answer, reply.serial, "a"))
        if whole is not None:
            assert isinstance(whole.value, list)
            return whole.value, count
    raise AssertionError("there is no end")


# Any text is a name here: what must be escaped, once and twice, and what has many bytes.
NAMES = st.text(max_size=40) | st.text(alphabet='"\\\n\x01ä😀', max_size=40)


@pytest.mark.shows("2.1/confd/instance-list", "2.1/confd/primary-nodes")
@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(NAMES.filter(bool), max_size=60, unique=True),
    room=st.integers(400, 3000),
    salt=st.text(alphabet="s", min_size=1, max_size=36),
)
def test_all_pages_together_are_the_list_and_each_fits(
    names: list[str], room: int, salt: str
) -> None:
    """Whatever the names are and however little a page holds."""
    facts = instances_named(names)
    in_order = [facts.instances.read(uuid) for uuid in facts.instances.order]
    on = {NODES[number]: f"node{number + 1}.example.com" for number in range(len(NODES))}
    lists: dict[QueryType, list[Any]] = {
        QueryType.INSTANCE_LIST: [one.name for one in in_order],
        QueryType.INSTANCE_PRIMARY_NODES: [[one.name, on[one.primary_node]] for one in in_order],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "_PAGE_BYTES_MAX", room)
        patch.setattr(sys.modules[__name__], "DATAGRAM_BYTES_MAX", room + 300)
        for kind, entries in lists.items():
            assert sorted(names) == sorted(one.name for one in in_order)
            assert read_pages(facts, kind, salt=salt)[0] == entries


@pytest.mark.parametrize("name", ["i#", "instance#.example.com", '"\\"#', "ä#" * 20])
def test_pages_are_full(name: str) -> None:
    """There are no more than the bytes ask for: a page is not left half empty."""
    names = [name.replace("#", str(number)) for number in range(5000)]
    entries, count = read_pages(instances_named(names), QueryType.INSTANCE_LIST)
    assert sorted(entries) == sorted(names)
    in_json = len(json.dumps(json.dumps(names, ensure_ascii=False), ensure_ascii=False).encode())
    assert count <= in_json // (DATAGRAM_BYTES_MAX - 4096) + 1


def test_everything_in_the_configuration_can_be_had_in_pages() -> None:
    facts = instances_named([f"instance{number}" for number in range(500)])
    whole = json.loads(HANDLERS[QueryType.CONFIG_QUERY](facts, "/instances"))
    entries, count = read_pages(facts, QueryType.CONFIG_PART, "/instances")
    assert [tuple(entry) for entry in entries] == list(whole.items())
    assert count > 3


@pytest.mark.parametrize(
    ("count", "kind", "question", "forms"),
    [
        (150, QueryType.CONFIG_QUERY, "/instances", ("instances", "primary-nodes", "config-part")),
        (2, QueryType.CONFIG_QUERY, "/cluster/tags", ("config-part",)),
    ],
)
def test_a_list_that_is_too_large_is_refused_with_its_paged_forms(
    count: int, kind: QueryType, question: str, forms: tuple[str, ...]
) -> None:
    config = json.loads(HANDLERS[QueryType.CONFIG_QUERY](large_facts(), "/cluster"))
    large = large_config(count)
    large["cluster"]["tags"] = config["tags"]
    reply = ask(Answerer(Tables(split_config(encoded(large))), SIGNER), kind, question)[1]
    assert reply.status is ReplyStatus.ERROR
    assert "ask for a part of it, or for its pages by " in str(reply.answer)
    for form in forms:
        query = next(query for query in QueryType if query.label == form)
        assert f"{form!r} (query type {query:d})" in str(reply.answer)


def test_many_drbd_devices_are_told_in_parts_that_fit() -> None:
    facts = Tables(split_config(encoded(mirrored_config(1500))))
    answerer = Answerer(facts, SIGNER)
    refused = ask(answerer, QueryType.NODE_DRBD, NODES[0])[1]
    assert "its pages by 'node-drbd-part' (query type 101)" in str(refused.answer)
    rows: list[object] = []
    parts, first = 0, 0
    while first is not None:
        reply = ask(answerer, QueryType.NODE_DRBD_PART, f"node1.example.com/{first}", "s" * 36)[1]
        assert reply.status is ReplyStatus.OK
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

"""A client's questions: the newest answer counts, whatever else arrives."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ganeti.base.errors import ConfdClientError
from ganeti.protocol import confd
from ganeti.protocol.confd import (
    Answer,
    Asked,
    Event,
    EventKind,
    Exchange,
    Pages,
    ReplyStatus,
    Signer,
    open_request,
    reply_message,
    seal,
    sealable,
)
from ganeti.protocol.confd_queries import QueryType

NOW = 1700000000
SIGNER = Signer(b"key\n")


class Client:
    """An exchange whose events are kept."""

    def __init__(self) -> None:
        self.exchange = Exchange(SIGNER)
        self.events: list[Event] = []
        self.salts = 0

    def ask(
        self,
        *peers: str,
        query: object = None,
        deadline_s: float = 10.0,
        callback: Callable[[Event], None] | None = None,
    ) -> Asked:
        self.salts += 1
        return self.exchange.ask(
            QueryType.CLUSTER_MASTER,
            query,
            peers,
            callback or self.events.append,
            salt=f"salt{self.salts}",
            unix_time_s=NOW,
            deadline_s=deadline_s,
        )

    def answers(self) -> list[object]:
        return [e.answer and e.answer.value for e in self.events if e.kind is EventKind.ANSWER]

    def ended(self) -> list[object]:
        return [e.answer and e.answer.value for e in self.events if e.kind is EventKind.ENDED]


def reply(asked: Asked, value: bytes, serial: int, status: ReplyStatus = ReplyStatus.OK) -> bytes:
    salt = open_request(SIGNER, asked.packet, NOW).rsalt
    return seal(SIGNER, salt, sealable(reply_message(status, value, serial)))


@pytest.mark.shows("backend/confd/serial", "2.12/rconfd/freshest", "2.1/confd/several")
def test_the_newest_of_all_answers_counts() -> None:
    client = Client()
    asked = client.ask("a", "b", "c")
    for peer, value, serial in (("b", b'"old"', 3), ("a", b'"new"', 5), ("c", b'"older"', 2)):
        assert client.ended() == []
        client.exchange.receive(reply(asked, value, serial), peer)
    assert client.answers() == ["old", "new", "older"]
    assert client.ended() == ["new"]
    assert len(client.exchange) == 0


def test_what_was_removed_stays_removed() -> None:
    """The newest answer counts, whatever it says; refusals of 3.0 have the serial number 0."""
    client = Client()
    asked = client.ask("a", "b", "c")
    client.exchange.receive(reply(asked, b'"removed"', 8), "a")
    client.exchange.receive(reply(asked, b"0", 9, ReplyStatus.ERROR), "b")
    client.exchange.receive(reply(asked, b"2", 0, ReplyStatus.ERROR), "c")
    assert client.ended() == [0]


def test_a_reply_without_a_serial_number_counts_if_nothing_else_came() -> None:
    client = Client()
    asked = client.ask("a", "b")
    client.exchange.receive(reply(asked, b"0", 0, ReplyStatus.ERROR), "a")
    client.exchange.receive(reply(asked, b'"x"', 3), "b")
    assert client.ended() == ["x"]
    asked = client.ask("a", "b")
    for peer in ("a", "b"):
        client.exchange.receive(reply(asked, b"1", 0, ReplyStatus.ERROR), peer)
    assert client.ended() == ["x", 1]


@pytest.mark.shows("2.1/confd-wire/maybe-none")
def test_time_ends_a_question() -> None:
    client = Client()
    first, second = client.ask("a", "b", deadline_s=5.0), client.ask("a", deadline_s=7.0)
    assert client.exchange.next_deadline_s == 5.0
    client.exchange.receive(reply(first, b"1", 1), "a")
    client.exchange.expire(4.9)
    assert client.ended() == []
    client.exchange.expire(6.0)
    assert client.ended() == [1]
    assert client.exchange.next_deadline_s == 7.0
    client.exchange.expire(7.0)
    assert client.ended() == [1, None]
    assert client.exchange.next_deadline_s is None
    client.exchange.receive(reply(second, b"1", 1), "a")  # too late
    assert len(client.events) == 3


@pytest.mark.shows("backend/confd/salt", "2.1/confd/salt")
def test_what_nobody_waited_for_is_nothing() -> None:
    client = Client()
    asked = client.ask("a", "b")
    answer = reply(asked, b"1", 1)
    other = Client().ask("a")
    other_salt = reply(other, b"1", 1).replace(b"salt1", b"salt9")
    for data in (b"", b"plj0{}", answer[:-9], other_salt, asked.packet):
        client.exchange.receive(data, "a")
    foreign = sealable(reply_message(ReplyStatus.OK, b"1", 1))
    client.exchange.receive(seal(Signer(b"other"), "salt1", foreign), "a")
    assert client.events == []
    client.exchange.receive(answer, "a")
    client.exchange.receive(answer, "a")
    assert client.answers() == [1]
    for _ in range(3):  # a candidate has two addresses; no more than were asked are believed
        client.exchange.receive(answer, "c")
    assert client.answers() == [1, 1, 1]
    client.exchange.forget(asked)
    client.exchange.receive(answer, "b")
    assert client.ended() == []


def test_questions_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confd, "PENDING_MAX", 2)
    client = Client()
    client.ask("a")
    client.ask("a")
    with pytest.raises(ConfdClientError, match="wait for answers already"):
        client.ask("a")
    with pytest.raises(ConfdClientError, match="no master candidate to ask"):
        client.ask()
    with pytest.raises(ConfdClientError, match=r"has \d+ bytes, 61440 fit"):
        Client().ask("a", query="x" * 62_000)


@pytest.mark.shows("2.1/confd-wire/answer-status")
@pytest.mark.parametrize(
    ("status", "value", "text"),
    [
        (
            ReplyStatus.ERROR,
            0,
            r"on a refused the question 'node-role' about \"x\": there is no such",
        ),
        (ReplyStatus.ERROR, 2, "an argument of a wrong form"),
        (ReplyStatus.ERROR, "too large", "too large"),
        (ReplyStatus.NOT_IMPLEMENTED, 77, "77"),
    ],
)
def test_refusals_say_why(status: ReplyStatus, value: object, text: str) -> None:
    answer = Answer(QueryType.NODE_ROLE, "x", status, value, 0, "a")
    with pytest.raises(ConfdClientError, match=text):
        answer.check()


def test_a_path_to_nothing_is_called_that() -> None:
    answer = Answer(QueryType.CONFIG_QUERY, "/x", ReplyStatus.ERROR, 2, 0, "a")
    with pytest.raises(ConfdClientError, match="nothing at this path; paths begin with '/'"):
        answer.check()


def page(value: object, serial: int, status: ReplyStatus = ReplyStatus.OK) -> Answer:
    return Answer(QueryType.INSTANCE_LIST, "/0", status, value, serial, "a")


def test_pages_become_one_answer() -> None:
    pages = Pages(QueryType.INSTANCE_LIST)
    assert (pages.query, pages.serial) == ("/0", None)
    assert pages.take(page([["a", "b"], 2], 7)) is None
    assert (pages.query, pages.serial) == ("/2", 7)
    assert pages.take(page([["c"], None], 7)) == Answer(
        QueryType.INSTANCE_LIST, None, ReplyStatus.OK, ["a", "b", "c"], 7, "a"
    )
    whole = Pages(QueryType.NODE_DRBD_PART, "node1").take(page([[], None], 3))
    assert whole is not None
    assert (whole.query, whole.value) == ("node1", [])


def test_a_list_begins_again_when_the_configuration_changes() -> None:
    pages = Pages(QueryType.NODE_DRBD_PART, "node1")
    assert pages.take(page([["a", "b"], 2], 7)) is None
    assert pages.take(page([["d"], None], 8)) is None  # b is no longer the second, perhaps
    assert (pages.query, pages.serial) == ("node1/0", None)
    assert pages.take(page([["a", "c", "d"], 3], 8)) is None
    assert (
        pages.take(page(0, 9, ReplyStatus.ERROR)) is None
    )  # the node was removed: the next says so
    with pytest.raises(
        ConfdClientError, match="'instances' about \"node1\": there is no such entry"
    ):
        pages.take(page(0, 9, ReplyStatus.ERROR))


def test_a_list_does_not_begin_again_for_ever() -> None:
    pages = Pages(QueryType.INSTANCE_LIST)
    for serial in range(41):  # the first page of one configuration, the second of the next
        assert pages.take(page([["a"], 1], serial)) is None
    with pytest.raises(ConfdClientError, match="the configuration changed 20 times meanwhile"):
        pages.take(page([["a"], 1], 41))


@pytest.mark.parametrize(
    "value", [None, 5, [], [["a"]], ["a", None], [["a"], 0], [["a"], 5], [[], 0], [["a"], "1"]]
)
def test_what_is_no_page_is_refused(value: object) -> None:
    with pytest.raises(ConfdClientError, match="RConfD answers no page of a list"):
        Pages(QueryType.INSTANCE_LIST).take(page(value, 7))


def test_a_path_to_no_list_is_called_that() -> None:
    answer = Answer(QueryType.CONFIG_PART, "/x", ReplyStatus.ERROR, 2, 0, "a")
    with pytest.raises(ConfdClientError, match="no object or list at this path"):
        answer.check()


def test_good_answers_have_a_value() -> None:
    assert Answer(QueryType.PING, None, ReplyStatus.OK, 3000000, 0, "a").check() == 3000000

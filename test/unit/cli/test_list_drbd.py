"""``gnt-node list-drbd``: one answer, or as many as it takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.confd_config import NODES, encoded, mirrored_config

from ganeti.base.errors import ConfdClientError
from ganeti.cli.node.drbd import devices_of
from ganeti.clients.confd import ConfdClient
from ganeti.config.config_data import split_config
from ganeti.config.tables import Tables
from ganeti.protocol.confd import Answer, ReplyStatus
from ganeti.protocol.confd_queries import QueryType
from ganeti.rconfd.answers import HANDLERS


class Client(ConfdClient):
    """Answers as RConfD does, from a configuration that may change meanwhile."""

    def __init__(self, count: int, serials: Iterator[int], *, is_old: bool = False) -> None:
        self.facts = Tables(split_config(encoded(mirrored_config(count))))
        self.serials = serials
        self.is_old = is_old
        self.asked: list[QueryType] = []

    def _ask(
        self,
        query_type: QueryType,
        query: object,
        _deadline_s: float,
        _wanted_serial: int | None = None,
    ) -> list[Answer]:
        self.asked.append(query_type)
        found = HANDLERS[query_type](self.facts, str(query))
        value: Any = json.loads(found)
        status = ReplyStatus.OK
        if self.is_old or len(found) > 60_000:
            status, value = ReplyStatus.ERROR, "the answer has too many bytes"
        return [Answer(query_type, query, status, value, next(self.serials), "192.0.2.1")]


def forever(*first: int) -> Iterator[int]:
    yield from first
    while True:
        yield first[-1]


def test_few_are_one_answer() -> None:
    client = Client(3, forever(7))
    assert [row[1] for row in devices_of(client, NODES[0])] == [0, 1, 2]
    assert client.asked == [QueryType.NODE_DRBD]


def test_many_are_asked_for_in_parts() -> None:
    client = Client(1500, forever(7))
    assert [row[1] for row in devices_of(client, NODES[0])] == list(range(1500))


def test_a_change_meanwhile_begins_anew() -> None:
    client = Client(1500, forever(7, 8, 9))
    assert [row[1] for row in devices_of(client, NODES[0])] == list(range(1500))
    with pytest.raises(ConfdClientError, match="the configuration changed 20 times meanwhile"):
        devices_of(Client(1500, iter(range(1000))), NODES[0])


def test_an_older_daemon_refuses() -> None:
    with pytest.raises(ConfdClientError, match="too many bytes"):
        devices_of(Client(3, forever(7), is_old=True), NODES[0])

"""The table of queries, and what can be asked about."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import ProtocolError
from ganeti.cli.tools.confd_client import TABLES
from ganeti.protocol.confd_queries import (
    OWN_TYPES_FROM,
    Keys,
    MasterField,
    QueryType,
    Question,
    decode_question,
    page_query,
    split_page_query,
)
from ganeti.rconfd.answers import HANDLERS


def test_every_query_is_answered_and_shown() -> None:
    assert set(QueryType) == set(HANDLERS) == set(TABLES)
    assert sorted(QueryType) == [*range(12), *range(OWN_TYPES_FROM, OWN_TYPES_FROM + 6)]
    assert len({query.label for query in QueryType}) == len(QueryType)


def test_answers_in_one_piece_name_their_paged_forms() -> None:
    """Each paged question is its own, or another's, which names it."""
    labels = {query.label: query for query in QueryType}
    for query in QueryType:
        if query.is_paged:
            label, _space, argument = query.pages_of.partition(" ")
            whole = labels[label]
            assert whole is query or query in whole.paged_forms(argument or None)
    assert QueryType.INSTANCE_LIST in QueryType.CONFIG_QUERY.paged_forms("/instances")
    assert QueryType.CONFIG_QUERY.paged_forms("/cluster/tags") == [QueryType.CONFIG_PART]
    assert QueryType.PING.paged_forms(None) == QueryType.OFFLINE_NODES.paged_forms(None) == []


@given(key=st.text(), first=st.integers(0, 10**9))
def test_queries_of_pages_are_split_as_they_were_made(key: str, first: int) -> None:
    assert split_page_query(page_query(key, first)) == (key, str(first))
    assert split_page_query(None) == ("", "0")
    assert split_page_query("node1") == ("node1", "0")


@pytest.mark.parametrize(
    ("raw", "question"),
    [
        (b"null", None),
        (b'""', ""),
        (b'"node1"', "node1"),
        (b"{}", Keys()),
        (b'{"0": null, "1": "192.0.2.1"}', Keys(ip="192.0.2.1")),
        (b'{"0": "br0", "2": ["a", "b"]}', Keys(link="br0", iplist=("a", "b"))),
        (b'{"3": [0, 2]}', Keys(fields=(MasterField.NAME, MasterField.MNODE_PIP))),
    ],
)
def test_questions(raw: bytes, question: Question) -> None:
    assert decode_question(raw) == question
    if isinstance(question, Keys):
        assert decode_question(msgspec.json.encode(question)) == question


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"1", b"true", b"[]", b'{"4": null}', b'{"ip": "x"}', b'{"1": 7}', b'{"2": "x"}'),
        *(b'{"2": [1]}', b'{"3": [3]}', b'{"3": ["0"]}', b'{"3": [-1]}', b"{" * 5000),
    ],
)
def test_malformed_questions(raw: bytes) -> None:
    with pytest.raises(ProtocolError, match="malformed query"):
        decode_question(raw)

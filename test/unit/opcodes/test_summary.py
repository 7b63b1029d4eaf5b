"""Short texts about opcodes."""

from __future__ import annotations

import pytest

from ganeti.opcodes.registry import decode_opcode
from ganeti.opcodes.summary import reason_source, summary


@pytest.mark.parametrize(
    ("wire", "text"),
    [
        ({"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "inst1"}, "INSTANCE_STARTUP(inst1)"),
        ({"OP_ID": "OP_CLUSTER_QUERY"}, "CLUSTER_QUERY"),
        ({"OP_ID": "OP_TAGS_GET", "kind": "nodegroup"}, "TAGS_GET(TagKindGroup)"),
        ({"OP_ID": "OP_TEST_DELAY", "duration": 2.0}, "TEST_DELAY(2.0)"),
        ({"OP_ID": "OP_TEST_DELAY", "duration": 0.001}, "TEST_DELAY(1.0e-3)"),
        ({"OP_ID": "OP_TEST_DELAY", "duration": 12345678.5}, "TEST_DELAY(1.23456785e7)"),
        ({"OP_ID": "OP_QUERY", "what": "node", "fields": []}, "QUERY(node)"),
        (
            {"OP_ID": "OP_TEST_ALLOCATOR", "direction": "in", "mode": "allocate", "name": "i"},
            "TEST_ALLOCATOR(None)",
        ),
    ],
)
def test_summary(wire: dict[str, object], text: str) -> None:
    assert summary(wire) == text
    assert summary(decode_opcode(wire)) == text


def test_an_opcode_of_another_release_shows_its_name() -> None:
    assert summary({"OP_ID": "OP_NEW_THING", "name": "x"}) == "NEW_THING"


def test_reason_source() -> None:
    assert reason_source("OP_INSTANCE_SHUTDOWN") == "gnt:opcode:instance_shutdown"

"""The QEMU Machine Protocol, both sides played with bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import ProtocolError
from ganeti.base.json import dumps, loads
from ganeti.protocol import qmp

GREETING = (
    b'{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "Debian"},'
    b' "capabilities": ["oob"]}}\r\n'
)
EVENT = b'{"timestamp": {"seconds": 1, "microseconds": 2}, "event": "STOP"}\r\n'


def ready() -> qmp.Session:
    session = qmp.Session()
    session.receive(GREETING)
    session.command("qmp_capabilities")
    session.receive(b'{"return": {}, "id": 1}\r\n')
    assert session.state is qmp.SessionState.READY
    return session


def test_opening_dialog() -> None:
    session = qmp.Session()
    assert session.receive(GREETING) == [qmp.Greeting("7.2.22", ("oob",))]
    assert loads(session.command("qmp_capabilities")) == {"execute": "qmp_capabilities", "id": 1}
    assert session.receive(b'{"return": {}, "id": 1}\r\n') == [qmp.Reply({})]


def test_command_and_reply_with_an_event_between() -> None:
    session = ready()
    line = session.command("migrate", {"uri": "tcp:127.0.0.1:1"})
    assert line.endswith(b"\n")
    assert loads(line) == {"execute": "migrate", "arguments": {"uri": "tcp:127.0.0.1:1"}, "id": 2}
    assert session.receive(EVENT + b'{"return": {}, "id": 2}\n') == [
        qmp.Event("STOP", {}),
        qmp.Reply({}),
    ]


def test_refused_command() -> None:
    session = ready()
    session.command("nonsense")
    answer = b'{"id": 2, "error": {"class": "CommandNotFound", "desc": "no nonsense"}}\n'
    assert session.receive(answer) == [qmp.Failure("CommandNotFound", "no nonsense")]
    assert session.state is qmp.SessionState.READY


@given(st.lists(st.integers(1, 40), max_size=30))
def test_any_chunking_gives_the_same_messages(sizes: list[int]) -> None:
    stream = GREETING + EVENT * 2
    session = qmp.Session()
    messages = []
    for size in [*sizes, len(stream)]:
        chunk, stream = stream[:size], stream[size:]
        messages += session.receive(chunk)
    assert messages == [qmp.Greeting("7.2.22", ("oob",)), *[qmp.Event("STOP", {})] * 2]


def test_second_command_before_the_answer_is_refused() -> None:
    session = ready()
    session.command("query-status")
    with pytest.raises(ProtocolError, match="busy"):
        session.command("query-status")


def test_command_before_the_greeting_is_refused() -> None:
    with pytest.raises(ProtocolError, match="greeting"):
        qmp.Session().command("qmp_capabilities")


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b"[1]\n",
        b'{"return": {}, "id": 77}\n',
        b'{"error": {"class": "X", "desc": "y"}, "id": 77}\n',
        b'{"return": {}, "id": 1}\n',  # answered already
    ],
)
def test_messages_against_the_rules_are_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        ready().receive(line)


def test_endless_message_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qmp, "MESSAGE_BYTES_MAX", 100)
    session = ready()
    with pytest.raises(ProtocolError, match="longer than"):
        session.receive(b"x" * 101)
    assert session.state is qmp.SessionState.CLOSED


SCHEMA = qmp.Schema(
    loads(
        dumps(
            [
                {"name": "device_add", "meta-type": "command", "arg-type": "0"},
                {"name": "0", "meta-type": "object", "members": [{"name": "id", "type": "str"}]},
                {"name": "STOP", "meta-type": "event", "arg-type": "1"},
                {"name": "set-caps", "meta-type": "command", "arg-type": "2"},
                {
                    "name": "2",
                    "meta-type": "object",
                    "members": [{"name": "capabilities", "type": "[3]"}],
                },
                {"name": "[3]", "meta-type": "array", "element-type": "3"},
                {
                    "name": "3",
                    "meta-type": "object",
                    "members": [{"name": "capability", "type": "4"}],
                    "variants": [{"case": "x", "type": "5"}],
                },
                {"name": "4", "meta-type": "enum", "members": [{"name": "a"}, {"name": "b"}]},
                {"name": "5", "meta-type": "object", "members": [{"name": "extra", "type": "4"}]},
            ]
        )
    )
)


def test_schema_knows_commands_and_arguments() -> None:
    assert SCHEMA.has_command("device_add")
    assert not SCHEMA.has_command("STOP")
    assert SCHEMA.has_argument("device_add", "id")
    assert not SCHEMA.has_argument("device_add", "bus")
    assert not SCHEMA.has_argument("nonsense", "id")
    assert SCHEMA.has_argument("set-caps", "capabilities", "extra")


def test_schema_must_be_a_list() -> None:
    with pytest.raises(ProtocolError):
        qmp.Schema({})

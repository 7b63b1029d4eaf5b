"""The blocking monitor client against a QEMU that a test plays."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ganeti.base.errors import ProtocolError, encode_error
from ganeti.base.json import loads
from ganeti.hypervisor.kvm.monitor import Monitor, MonitorError, MonitorGone, MonitorTimeout

GREETING = (
    b'{"QMP": {"version": {"qemu": {"micro": 0, "minor": 0, "major": 9}, "package": ""},'
    b' "capabilities": []}}\r\n'
)
Script = Callable[[socket.socket, Callable[[], dict[str, object]]], None]


@contextmanager
def played_qemu(path: Path, script: Script, *, greets: bool = True) -> Iterator[str]:
    """Play QEMU at a socket: greet, accept capabilities, then do what the script says."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(4)

    def play() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as lines:

            def receive() -> dict[str, object]:
                message = loads(lines.readline())
                assert isinstance(message, dict)
                return message

            if greets:
                connection.sendall(GREETING)
                assert receive()["execute"] == "qmp_capabilities"
                connection.sendall(b'{"return": {}, "id": 1}\n')
            script(connection, receive)

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    try:
        yield str(path)
    finally:
        listener.close()
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m"


def test_command_answer_and_events(path: Path) -> None:
    def script(connection: socket.socket, receive: Callable[[], dict[str, object]]) -> None:
        assert receive()["arguments"] == {"value": 5}
        connection.sendall(b'{"event": "STOP", "data": {"a": 1}}\n{"return": [1], "id": 2}\n')
        connection.sendall(b'{"event": "RESUME"}\n{"event": "SHUTDOWN"}\n')

    with played_qemu(path, script) as where, Monitor.connect("inst1", where) as monitor:
        assert monitor.execute("balloon", {"value": 5}) == [1]
        event = monitor.wait_event(frozenset({"STOP", "SHUTDOWN"}), 60)
        assert event is not None
        assert (event.name, event.data) == ("STOP", {"a": 1})
        event = monitor.wait_event(frozenset({"STOP", "SHUTDOWN"}), 60)
        assert event is not None
        assert event.name == "SHUTDOWN"


def test_refusal_names_instance_and_command(path: Path) -> None:
    def script(connection: socket.socket, receive: Callable[[], dict[str, object]]) -> None:
        receive()
        connection.sendall(b'{"id": 2, "error": {"class": "GenericError", "desc": "no lock"}}\n')

    with (
        played_qemu(path, script) as where,
        Monitor.connect("inst1", where) as monitor,
        pytest.raises(MonitorError, match="instance inst1: QEMU refused cont: no lock") as info,
    ):
        monitor.execute("cont")
    assert encode_error(info.value)[0] == "HypervisorError"


def test_no_answer_in_time(path: Path) -> None:
    done = threading.Event()

    def script(connection: socket.socket, receive: Callable[[], dict[str, object]]) -> None:
        done.wait(60)

    with played_qemu(path, script) as where, Monitor.connect("inst1", where) as monitor:
        assert monitor.wait_event(frozenset({"STOP"}), 0.01) is None
        with pytest.raises(MonitorTimeout, match="the answer to query-status in time"):
            monitor.execute("query-status", timeout_s=0.05)
        done.set()


def test_qemu_that_goes_away(path: Path) -> None:
    def script(connection: socket.socket, receive: Callable[[], dict[str, object]]) -> None:
        receive()

    with played_qemu(path, script) as where, Monitor.connect("inst1", where) as monitor:
        with pytest.raises(MonitorGone, match="closed its monitor"):
            monitor.execute("quit")
        with pytest.raises(ProtocolError, match="closed"):
            monitor.execute("quit")


def test_nobody_there(path: Path) -> None:
    with pytest.raises(MonitorGone, match="no monitor of QEMU at"):
        Monitor.connect("inst1", str(path))


def test_silent_peer(path: Path) -> None:
    done = threading.Event()

    def script(connection: socket.socket, receive: Callable[[], dict[str, object]]) -> None:
        done.wait(60)

    with played_qemu(path, script, greets=False) as where:
        with pytest.raises(MonitorTimeout, match="its greeting"):
            Monitor.connect("inst1", where, 0.05)
        done.set()


def test_full_line_of_waiting_clients(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(str(path))
            with pytest.raises(MonitorTimeout, match="is busy"):
                Monitor.connect("inst1", str(path), 0.05)


@pytest.mark.parametrize("answer", [b"1", b"[1]", b'"x"'])
def test_answers_of_the_wrong_shape(path: Path, answer: bytes) -> None:
    def script(connection: socket.socket, receive: Callable[[], dict[str, object]]) -> None:
        receive()
        connection.sendall(b'{"return": %b, "id": 2}\n' % answer)

    with (
        played_qemu(path, script) as where,
        Monitor.connect("inst1", where) as monitor,
        pytest.raises(ProtocolError),
    ):
        monitor.query("query-status")


def test_schema_is_asked_for_once(path: Path) -> None:
    def script(connection: socket.socket, receive: Callable[[], dict[str, object]]) -> None:
        assert receive()["execute"] == "query-qmp-schema"
        connection.sendall(
            b'{"return": [{"name": "cont", "meta-type": "command", "arg-type": "0"}], "id": 2}\n'
        )

    with played_qemu(path, script) as where, Monitor.connect("inst1", where) as monitor:
        assert monitor.schema().has_command("cont")
        assert not monitor.schema().has_command("stop")

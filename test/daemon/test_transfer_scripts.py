"""Scripts at the ends of transfers are stopped with them."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
import sys
from pathlib import Path

import pytest
from fakes.tls_node import TlsNode
from fakes.waiting import wait_until

from ganeti.base.errors import CommandError
from ganeti.base.json import dumps
from ganeti.node_ops.transfers import ends
from ganeti.node_ops.transfers import main as transfer_process
from ganeti.node_ops.transfers.ends import End
from ganeti.node_ops.transfers.status import Request, TransferFiles, TransferStatus
from ganeti.protocol.node_rpc_values import StreamForm, TransferOptions
from ganeti.system import process

WAIT_S = 60.0


@pytest.fixture
def end(tmp_path: Path) -> End:
    """A script that says who it is, and neither reads nor writes."""
    path = tmp_path / "script"
    path.write_text(
        '#!/bin/sh\necho $$ > "$PID_FILE.new"; mv "$PID_FILE.new" "$PID_FILE"; sleep 1000'
    )
    path.chmod(0o755)
    return End(
        kind="script",
        path=str(tmp_path / "disk"),
        argv=[str(path)],
        env={"PATH": "/usr/bin:/bin", "PID_FILE": str(tmp_path / "pid")},
        log=str(tmp_path / "log"),
    )


def pid_of(end: End) -> int:
    path = Path(end.env["PID_FILE"])
    wait_until(path.exists, "the script runs")
    return int(path.read_text())


def test_a_transfer_that_is_stopped_stops_its_script(tmp_path: Path, end: End) -> None:
    node = TlsNode(tmp_path, "node1")
    directory = tmp_path / "transfer"
    directory.mkdir()
    files = TransferFiles(str(directory))
    files.save_status(TransferStatus(ctime=1.0, mtime=1.0))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        request = Request(
            end=end,
            options=TransferOptions(),
            certificate=node.paths.client_pem,
            authority=node.paths.server_pem,
            host="127.0.0.1",
            port=silent.getsockname()[1],
        )
        files.save_request(dumps(request))
        argv = [sys.executable, "-m", transfer_process.__name__, str(directory)]
        child = process.spawn(argv, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        pid = pid_of(end)
        child.send_signal(signal.SIGTERM)
        assert child.wait(WAIT_S) == 128 + signal.SIGTERM
    assert process.wait_gone(pid, WAIT_S)


@pytest.mark.parametrize("receives", [False, True])
def test_a_script_that_does_nothing_is_stopped(
    end: End, monkeypatch: pytest.MonkeyPatch, receives: bool
) -> None:
    monkeypatch.setattr(ends, "SCRIPT_STALL_S", 1.0)

    class Endless:
        def read(self, count: int) -> bytes:
            return bytes(count)

    def move() -> None:
        if receives:
            list(ends.open_sink(end, Endless(), StreamForm.FRAMES).run())
        else:
            with contextlib.closing(ends.open_source(end, StreamForm.FRAMES)) as source:
                list(source.pieces())

    with pytest.raises(CommandError, match="was stopped: nothing moved for 1 s"):
        move()
    path = Path(end.env["PID_FILE"])
    assert not path.exists() or process.wait_gone(int(path.read_text()), WAIT_S)


def script_that(tmp_path: Path, text: str) -> End:
    """Return an end whose script leaves a process behind, then does as told."""
    path = tmp_path / "script"
    path.write_text(f'#!/bin/sh\nsleep 1000 >&- <&- 2>&- & echo $! > "$PID_FILE"\n{text}\n')
    path.chmod(0o755)
    return End(
        kind="script",
        path=str(tmp_path / "disk"),
        argv=[str(path)],
        env={"PATH": "/usr/bin:/bin", "PID_FILE": str(tmp_path / "pid")},
        log=str(tmp_path / "log"),
    )


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The process groups that were sent a signal while nobody owned their number."""
    found: list[int] = []
    kill = os.killpg

    def watch(pgid: int, number: int) -> None:
        if not Path(f"/proc/{pgid}").exists():
            found.append(pgid)
        kill(pgid, number)

    monkeypatch.setattr(os, "killpg", watch)
    return found


def test_a_script_that_was_waited_for_is_sent_no_signal(tmp_path: Path, killed: list[int]) -> None:
    """The sender then waits for an hour, and its number may be that of a guest by the end."""
    end = script_that(tmp_path, "echo the disk")
    with contextlib.closing(ends.open_source(end, StreamForm.FRAMES)) as source:
        assert b"".join(source.pieces()) == b"the disk\n"
    assert process.wait_gone(pid_of(end), WAIT_S)  # it may use the disk
    assert killed == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat > /dev/null; exit 3", "ended with status 3"),
        ("kill -TERM $$", "ended with status -15"),
        ("exit 0", "did not read all of its input"),
    ],
)
def test_a_script_that_fails_is_sent_no_signal_after_its_end(
    tmp_path: Path, killed: list[int], text: str, message: str
) -> None:
    end = script_that(tmp_path, text)
    incoming = io.BytesIO(bytes(4 << 20))
    with pytest.raises(CommandError, match=message):
        list(ends.open_sink(end, incoming, StreamForm.FRAMES).run())
    assert killed == []
    assert process.wait_gone(pid_of(end), WAIT_S)


def test_an_import_script_that_succeeds_may_leave_a_process(
    tmp_path: Path, killed: list[int]
) -> None:
    end = script_that(tmp_path, "cat > /dev/null")
    list(ends.open_sink(end, io.BytesIO(b"the disk"), StreamForm.FRAMES).run())
    assert killed == []
    pid = pid_of(end)
    os.kill(pid, signal.SIGKILL)
    assert process.wait_gone(pid, WAIT_S)

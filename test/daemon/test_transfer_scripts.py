"""Scripts at the ends of transfers are stopped with them."""

from __future__ import annotations

import contextlib
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

"""Work on many nodes at once."""

from __future__ import annotations

import io
import os
import select
import threading
from pathlib import Path

import pytest

from ganeti.base.errors import CommandError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.bootstrap.node_transport import VirtualTransport
from ganeti.cli.cluster import remote
from ganeti.cli.cluster.remote import Destination, on_each, read_file, receiving
from ganeti.cli.declaration.parser import parse
from ganeti.cli.programs import named
from ganeti.cli.run.context import Context, Terminal
from ganeti.system.process import CommandResult, run

WAIT_S = 60.0


def nodes(tmp_path: Path, *names: str) -> list[Destination]:
    return [Destination(name, VirtualTransport(name, Paths(str(tmp_path)))) for name in names]


def test_results_come_in_the_order_of_the_nodes(tmp_path: Path) -> None:
    def work(node: Destination, _stop_fd: int) -> CommandResult:
        if node.name == "b":
            raise CommandError("it broke", ("x",), None, "")
        return CommandResult((), 0, node.name.encode(), b"")

    found = [
        result.stdout if isinstance(result, CommandResult) else result.message
        for _, result in on_each(nodes(tmp_path, "a", "b", "c"), work)
    ]
    assert found == [b"a", "it broke", b"c"]


def test_output_that_was_cut_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cut = CommandResult(("x",), -9, b"a\n", b"", truncated=True)
    monkeypatch.setattr(remote, "on_each", lambda chosen, _work: [(node, cut) for node in chosen])
    monkeypatch.setattr(remote, "destinations", lambda *_args: nodes(tmp_path, "node2"))
    monkeypatch.setattr(remote.ssconf, "master_node", lambda _paths: "node1")
    line = parse(named("gnt-cluster"), ["command", "--failure-only", "dump"], {})
    terminal = Terminal(out := io.StringIO(), err := io.StringIO(), io.StringIO())
    context = Context("gnt-cluster", line.command, line.options, terminal)
    assert remote.run_command(context, line.options, line.args) == 0
    assert out.getvalue().endswith("node: node2\na\n\n")
    assert err.getvalue() == "Node node2: the command printed too much and was killed\n"


def test_nobody_waits_for_what_still_runs(tmp_path: Path) -> None:
    told = []
    slow_runs = threading.Event()

    def work(node: Destination, stop_fd: int) -> CommandResult:
        if node.name == "quick":
            assert slow_runs.wait(WAIT_S)
        else:
            slow_runs.set()
            told.append(bool(select.select([stop_fd], [], [], WAIT_S)[0]))
        return CommandResult((), 0, b"", b"")

    for node, _ in on_each(nodes(tmp_path, "quick", "slow"), work):
        assert node.name == "quick"
        break  # as an interrupt does
    assert told == [True]


def test_a_pipe_is_no_file_to_copy_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "pipe")
    with pytest.raises(OpPrereqError, match="pipe is not a plain file"):
        read_file(str(path))
    (plain := tmp_path / "plain").write_bytes(b"text")
    plain.chmod(0o640)
    assert read_file(str(plain)) == (b"text", 0o640)


def test_a_file_whose_end_does_not_come_leaves_the_old_one(tmp_path: Path) -> None:
    (there := tmp_path / "file").write_bytes(b"old")
    argv = receiving(str(there), 0o640, 9)
    cut = run(argv, timeout_s=WAIT_S, stdin=b"new te")  # as when the connection is lost
    assert (cut.status, cut.stderr) == (1, b"the file was cut off\n")
    assert (os.listdir(tmp_path), there.read_bytes()) == (["file"], b"old")
    run(argv, timeout_s=WAIT_S, stdin=b"new text\n").check()
    assert (os.listdir(tmp_path), there.read_bytes()) == (["file"], b"new text\n")
    assert there.stat().st_mode & 0o777 == 0o640


def test_a_file_is_not_put_into_a_directory_of_its_name(tmp_path: Path) -> None:
    (there := tmp_path / "file").mkdir()
    result = run(receiving(str(there), 0o640, 3), timeout_s=WAIT_S, stdin=b"new")
    assert result.status != 0
    assert (os.listdir(tmp_path), os.listdir(there)) == (["file"], [])

"""Running programs: help, versions, unbuilt commands, exit statuses, questions."""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ganeti.base.errors import GenericError, OpPrereqError, TransportError
from ganeti.base.ids import JobId
from ganeti.cli import programs
from ganeti.cli.declaration.parser import Options
from ganeti.cli.declaration.program import Command, Program
from ganeti.cli.programs import named
from ganeti.cli.run import main as runner
from ganeti.cli.run.context import Context, Terminal, confirm
from ganeti.cli.run.failures import NotConfirmed
from ganeti.cli.run.secret import ask_secret
from ganeti.clients.luxi import LuxiClient


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = runner.run(named("gnt-instance"), words)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_help_and_version_go_to_the_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "--help")
    assert (status, err) == (0, "")
    assert "usage: gnt-instance" in out
    assert run(capsys, "--version") == (0, "gnt-instance (ganeti) 3.0.2\n", "")
    status, out, _ = run(capsys, "add", "--help")
    assert status == 0
    assert "Examples:" in out


def test_unbuilt_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    unbuilt = Program("gnt-some", "things", "", (Command("thing", "do a thing"),))
    assert runner.run(unbuilt, ["thing"]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "gnt-some thing is not supported yet\n")


def test_an_interruption_while_modules_load_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["gnt-instance", "list"])
    monkeypatch.setattr(programs, "named", interrupted)
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    assert programs.main() == 130
    assert capsys.readouterr() == ("", "Interrupted.\n")


def test_wrong_option_leaves_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "list", "--nonsense")
    assert (status, out) == (2, "")
    assert err.startswith("gnt-instance: no such option: --nonsense")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        *((OpPrereqError("x"), 1), (NotConfirmed("x"), 1), (GenericError("x"), 1)),
        (PermissionError(13, "no", "/x"), 1),
    ],
)
def test_error_of_a_command_becomes_text_and_status(
    capsys: pytest.CaptureFixture[str], error: Exception, status: int
) -> None:
    def fail(_context: Context, _options: Options, _args: list[str]) -> int:
        raise error

    program = Program("gnt-some", "things", "", (Command("thing", "do a thing", fail),))
    assert runner.run(program, ["thing"]) == status
    assert "x" in capsys.readouterr().err


def test_jobs_that_go_on_without_luxid_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    def lose(context: Context, _options: Options, _args: list[str]) -> int:
        context.waiting_for += [JobId(7), JobId(8)]
        raise TransportError("/run/luxid: no answer")

    program = Program("gnt-some", "things", "", (Command("thing", "do a thing", lose),))
    assert runner.run(program, ["thing"]) == 1
    assert capsys.readouterr().err == (
        "What was submitted goes on (jobs 7 8).\n"
        "'gnt-job watch 8' follows it.\n"
        "Cannot communicate with the master daemon: /run/luxid: no answer\n"
    )


@pytest.mark.parametrize(
    ("method", "waiting", "text"),
    [
        ("submit_job", [], "Interrupted; jobs may have been submitted, see 'gnt-job list'.\n"),
        ("submit_many_jobs", [7], "\nMore jobs may have been submitted, see 'gnt-job list'.\n"),
        ("query_jobs", [], "Interrupted.\n"),
    ],
)
def test_a_submission_that_was_not_answered_is_told(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    method: str,
    waiting: list[JobId],
    text: str,
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def ask(context: Context, _options: Options, _args: list[str]) -> int:
        context.client.query_jobs([], [])
        context.waiting_for += waiting
        monkeypatch.setattr(LuxiClient, "_ask", interrupted)
        getattr(context.client, method)([], *([[]] if method == "query_jobs" else []))
        raise AssertionError

    monkeypatch.setattr(LuxiClient, "_ask", lambda *_: msgspec.Raw(b"[]"))
    program = Program("gnt-some", "things", "", (Command("thing", "do a thing", ask),))
    assert runner.run(program, ["thing"]) == 130
    assert capsys.readouterr().err.endswith(text)


def test_an_interruption_of_the_first_modules_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("raise KeyboardInterrupt")
    done = subprocess.run(
        [sys.executable, "-c", "from ganeti.cli.programs import main"],
        env={"PYTHONPATH": f"{tmp_path}:{os.getcwd()}"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_words_that_are_no_text_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.run(named("gnt-cluster"), ["add-tags", "a\udcffb"]) == 1
    assert "argument b'a\\xffb' is not valid UTF-8" in capsys.readouterr().err


def ask(answers: str, *, is_interactive: bool = True) -> str:
    out = io.StringIO()
    terminal = Terminal(out, out, io.StringIO(answers), is_interactive=is_interactive)
    confirm(Context("gnt-x", Command("y", ""), Options({}), terminal), "Really?")
    return out.getvalue()


@pytest.mark.parametrize("answers", ["y\n", "Yes\n", "what?\ny\n"])
def test_yes(answers: str) -> None:
    assert "Really?" in ask(answers)


@pytest.mark.parametrize("answers", ["n\n", "\n", ""])
def test_everything_else_is_no(answers: str) -> None:
    with pytest.raises(NotConfirmed):
        ask(answers)


def test_end_of_the_input_is_an_empty_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(_question: str) -> str:
        raise EOFError

    monkeypatch.setattr("getpass.getpass", end)
    out = io.StringIO()
    assert ask_secret(Terminal(out, out, io.StringIO(), is_interactive=True), "Secret: ") == ""
    assert ask_secret(Terminal(out, out, io.StringIO()), "Secret: ") == ""
    assert ask_secret(Terminal(out, out, io.StringIO(" a c \r\n")), "Secret: ") == " a c "


def test_nobody_to_ask_names_the_option() -> None:
    with pytest.raises(NotConfirmed, match="--force"):
        ask("y\n", is_interactive=False)

"""Running scripts with their output in a log, and directories of scripts."""

import os
import signal
from pathlib import Path

import pytest
from fakes.shell_scripts import write_script

from ganeti.base.errors import CommandError, GenericError
from ganeti.node_ops import scripts
from ganeti.system import clock, process

ENV = {"PATH": scripts.PATH, "MARK": "42"}


def run(tmp_path: Path, text: str, timeout_s: float = 20.0) -> scripts.LoggedRun:
    script = write_script(tmp_path / "script", text)
    return scripts.run_logged(
        [script], str(tmp_path / "log"), env=ENV, cwd=str(tmp_path), timeout_s=timeout_s
    )


@pytest.mark.shows("2.0/os-output/stderr")
def test_all_output_is_in_the_log_and_its_end_in_the_error(tmp_path: Path) -> None:
    ended = run(tmp_path, "seq 1 1000; echo oops >&2; pwd; echo $MARK $HOME; exit 3")
    assert ended.status == 3
    log = (tmp_path / "log").read_text()
    assert log.startswith("1\n2\n")
    assert log.endswith(f"oops\n{tmp_path}\n42\n")
    assert len(ended.tail.splitlines()) == 20
    assert ended.failure("it").startswith(f"it failed with exit status 3 (log file {tmp_path}/log)")


def test_success_needs_no_words(tmp_path: Path) -> None:
    assert run(tmp_path, "exit 0") == scripts.LoggedRun(0, str(tmp_path / "log"), "")


def test_a_script_that_hangs_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    ended = run(tmp_path, "echo begun; sleep 600 & echo $! > child; wait", timeout_s=2.0)
    assert ended.status is None
    assert ended.tail == "begun"
    assert "did not end in time" in ended.failure("it")
    pid = int((tmp_path / "child").read_text())
    assert process.wait_gone(pid, 60)


def test_a_script_that_prints_without_end_fills_no_disk(tmp_path: Path) -> None:
    ended = run(tmp_path, "head -c 30000000 /dev/zero | tr '\\0' x; echo end")
    assert ended.status == 0
    assert (tmp_path / "log").stat().st_size == 16 << 20
    assert ended.tail.endswith("end")


def test_what_a_script_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    started = clock.monotonic()
    ended = run(tmp_path, "sleep 60 & echo $! > child; echo done")
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert clock.monotonic() - started < 30
    assert ended.status == 0
    assert ended.tail == "done"


def test_a_signal_is_named(tmp_path: Path) -> None:
    assert "killed by SIGKILL" in run(tmp_path, "kill -9 $$").failure("it")


def test_a_script_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot run"):
        scripts.run_logged(["/no/such"], str(tmp_path / "log"), env=ENV, cwd="/", timeout_s=1)


def test_parts_run_in_order_and_others_are_passed_over(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    write_script(directory / "20-b", "echo two $MARK; exit 1")
    write_script(directory / "10-a", "pwd; env | grep -c .")
    write_script(directory / "30-c", "echo no", 0o644)
    write_script(directory / "40.bak", "echo no")
    (directory / "50-dir").mkdir()
    results = list(scripts.run_parts(str(directory), env=ENV, timeout_s=20))
    assert [(name, result and result.status) for name, result in results] == [
        ("10-a", 0),
        ("20-b", 1),
        ("30-c", None),
        ("40.bak", None),
        ("50-dir", None),
    ]
    assert results[0][1] is not None
    assert results[0][1].stdout.startswith(b"/\n")
    assert results[1][1] is not None
    assert results[1][1].stdout == b"two 42\n"


def test_a_part_that_cannot_be_started_has_failed_and_others_run(tmp_path: Path) -> None:
    """A hook without an interpreter kept those behind it from running, which could forbid the job."""
    script = write_script(tmp_path / "10-a", "")
    Path(script).write_text("echo no interpreter\n")
    write_script(tmp_path / "20-b", "exit 1")
    (_, first), (_, second) = scripts.run_parts(str(tmp_path), env=ENV, timeout_s=20)
    assert first is not None
    assert second is not None
    assert (first.status, second.status) == (127, 1)
    assert "Exec format error" in first.output
    (_, first), _second = scripts.run_parts(str(tmp_path), env={**ENV, "A": "x\0"}, timeout_s=20)
    assert first is not None
    assert "null byte" in first.output


def test_a_part_for_which_no_time_is_left_is_not_begun(tmp_path: Path) -> None:
    write_script(tmp_path / "10-a", "exec sleep 600")
    write_script(tmp_path / "20-b", "exec sleep 600")
    (_, first), (_, second) = scripts.run_parts(str(tmp_path), env=ENV, timeout_s=0.05)
    assert first is not None
    assert second is not None
    assert (first.timed_out, first.status) == (True, -9)
    assert (second.timed_out, second.status) == (False, 127)
    assert second.output == "not started: those before it took all the time"


@pytest.mark.parametrize(("number", "words"), [(9, "SIGKILL"), (36, "signal 36")])
def test_a_script_that_a_signal_ends(tmp_path: Path, number: int, words: str) -> None:
    outcome = scripts.run_logged(
        ["/bin/sh", "-c", f"kill -{number} $$"],
        str(tmp_path / "log"),
        env=ENV,
        cwd="/",
        timeout_s=20,
    )
    assert f"it was killed by {words} (log" in outcome.failure("it")


def test_no_directory_no_parts(tmp_path: Path) -> None:
    assert list(scripts.run_parts(str(tmp_path / "none"), env=ENV, timeout_s=1)) == []


def test_programs_are_found_by_plain_names_only(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    write_script(tmp_path / "a" / "hail", "", 0o644)
    found = write_script(tmp_path / "b" / "hail", "")
    directories = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert scripts.find_executable("hail", directories, "iallocator") == found
    for name in ("../b/hail", "", "absent", "a b"):
        with pytest.raises(GenericError):
            scripts.find_executable(name, directories, "iallocator")

"""Tests of ganeti/daemon/log.py."""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.errors import GenericError
from ganeti.daemon import log

logger = logging.getLogger("test")


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in list(root.handlers):
        root.removeHandler(handler)
        if handler not in handlers:
            handler.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.log"


def set_up(path: Path, **options: bool) -> log.FileHandler:
    handler = log.set_up("ganeti-x", str(path), debug=options.get("debug", False), console=False)
    assert handler is not None
    return handler


@pytest.mark.shows("2.0/logging/one-log")
def test_a_line_says_when_who_and_what(path: Path) -> None:
    set_up(path)
    logging.getLogger("any").info("node %s is %s", "n1", "up")
    line = path.read_text()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}: ganeti-x pid=\d+ INFO node n1 is up\n", line
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_lines_of_a_job_carry_its_id(path: Path) -> None:
    set_up(path)
    with log.job_context(7):
        logger.warning("inside")
        with log.job_context(8):
            logger.warning("deeper")
        logger.warning("inside again")
    logger.warning("outside")
    lines = path.read_text().splitlines()
    assert [("job=7" in line, "job=8" in line) for line in lines] == [
        (True, False),
        (False, True),
        (True, False),
        (False, False),
    ]


def test_a_process_for_one_job_says_so_once(path: Path) -> None:
    set_up(path)

    def run() -> None:
        log.set_job(9)
        logger.warning("mine")

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "job=9 WARNING mine" in path.read_text()


def test_debug_lines_come_only_when_wanted(path: Path) -> None:
    set_up(path)
    logger.debug("hidden")
    set_up(path, debug=True)
    logger.debug("shown")
    assert "hidden" not in path.read_text()
    assert "DEBUG shown" in path.read_text()


def test_no_text_can_forge_a_line(path: Path) -> None:
    set_up(path)
    logger.info("one\n2026-01-01 00:00:00,000: ganeti-x pid=1 INFO forged\0")
    lines = path.read_text().splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("    2026")
    assert lines[1].endswith("\\0")


def test_an_exception_is_written_whole(path: Path) -> None:
    set_up(path)
    logger.error("It failed", exc_info=KeyError("oops"))
    text = path.read_text()
    assert "ERROR It failed\n    KeyError" in text
    assert text.endswith("    KeyError: 'oops'\n")


def test_a_wrong_format_or_strange_text_stops_nothing(path: Path) -> None:
    set_up(path)
    logger.info("%d files", "many")
    logger.info("name \udcff")
    logger.info("after")
    text = path.read_text()
    assert "cannot format log line '%d files'" in text
    assert "name \\udcff" in text
    assert "INFO after" in text


def test_a_full_disk_loses_lines_but_counts_them(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(path)
    logger.info("before")
    real_write = os.write

    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for _ in range(3):
        logger.info("lost")
    monkeypatch.setattr(os, "write", real_write)
    logger.info("after")
    lines = path.read_text().splitlines()
    assert "before" in lines[0]
    assert lines[1] == "(3 lines before this one are lost: they could not be written)"
    assert "after" in lines[2]


@pytest.mark.shows("2.1/noded/console")
def test_lines_that_a_failed_disk_does_not_take_go_to_the_console(path: Path) -> None:
    console = path.with_name("console")
    os.symlink("/dev/full", path)
    log.set_up("x", str(path), debug=False, console=False, fallback=str(console))
    logger.info("before there is a console")
    assert not console.exists()
    console.touch()
    logger.info("restarting")
    assert console.read_bytes().endswith(b"INFO restarting\r\n")


def test_half_a_line_is_ended_before_the_next(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(path)
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real_write(descriptor, data[:10]))
    logger.info("cut short")
    monkeypatch.setattr(os, "write", real_write)
    logger.info("after")
    lines = path.read_text().splitlines()
    assert len(lines[0]) == 10
    assert lines[1].startswith("(1 lines")
    assert lines[2].endswith("INFO after")


def test_a_rotated_file_is_followed_by_its_name(path: Path) -> None:
    handler = set_up(path)
    logger.info("one")
    old = path.with_name("x.log.1")
    path.rename(old)
    logger.info("two")
    assert "one" in old.read_text()
    assert "two" not in old.read_text()
    assert "two" in path.read_text()
    path.rename(old)
    handler.reopen()
    assert path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="makes links of others")
def test_a_link_in_the_place_of_the_file_leads_nowhere(path: Path) -> None:
    set_up(path)
    path.rename(path.with_name("x.log.1"))
    path.symlink_to("precious")
    os.chown(path, 64_000, 64_000, follow_symlinks=False)
    logger.info("lost")
    assert not path.with_name("precious").exists()
    path.unlink()
    logger.info("written")
    assert "written" in path.read_text()


def test_a_closed_descriptor_is_opened_again(path: Path) -> None:
    handler = set_up(path)
    os.close(handler.fileno())
    logger.info("lost")
    logger.info("written")
    assert "(1 lines before" in path.read_text()
    assert "written" in path.read_text()


def test_if_the_directory_is_gone_the_old_file_is_used(path: Path) -> None:
    directory = path.parent / "log"
    directory.mkdir()
    set_up(directory / "x.log")
    kept = path.parent / "kept"
    os.link(directory / "x.log", kept)
    os.unlink(directory / "x.log")
    directory.rmdir()
    logger.info("still written")
    assert "still written" in kept.read_text()


def test_a_log_that_cannot_be_opened_is_named() -> None:
    with pytest.raises(GenericError, match=r"cannot open log file /nowhere/x\.log: No such file"):
        log.set_up("x", "/nowhere/x.log", debug=False, console=False)


def test_console_and_system_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log.set_up("ganeti-x", None, debug=False, console=True)
    logger.info("to the console")
    assert "INFO to the console" in capsys.readouterr().err


def test_a_missing_system_log_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "SYSLOG_SOCKET", str(path.parent / "nothing"))
    with pytest.raises(GenericError, match="there is no system log at"):
        log.set_up("x", str(path), debug=False, console=False, syslog="only")

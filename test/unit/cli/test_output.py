"""Output that cannot be written: one line for people, and the status of a failure."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from ganeti.cli.programs import named
from ganeti.cli.run.main import run
sys.exit(run(named("gnt-instance"), ["--version"]))
"""
WRITES = """
import sys
from ganeti.cli.run.context import Terminal
Terminal.of_process().write("gr\\u00fcn\\u20ac")
"""


def in_shell(redirection: str, program: str = PROGRAM, **variables: str) -> tuple[int, str, str]:
    """Run a program with standard streams as a shell redirects them."""
    argv = ["sh", "-c", f'exec "$0" -c "$1" {redirection}', sys.executable, program]
    found = subprocess.run(argv, env=dict(os.environ) | variables, capture_output=True, check=False)
    return found.returncode, found.stdout.decode("latin-1"), found.stderr.decode()


def test_full_disk_is_told_in_one_line() -> None:
    text = "gnt-instance: cannot write the output: No space left on device\n"
    assert in_shell(">/dev/full") == (1, "", text)


def test_messages_that_cannot_be_written_either_end_it_quietly() -> None:
    assert in_shell(">/dev/full 2>&1") == (1, "", "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_stream_may_be_closed(closed: str) -> None:
    status, _, err = in_shell(closed)
    assert (status, err) == (0, "")


def test_characters_that_the_encoding_lacks_are_written_as_numbers() -> None:
    found = in_shell("", WRITES, PYTHONIOENCODING="latin-1")
    assert found == (0, "gr\xfcn\\u20ac\n", "")


@pytest.mark.parametrize("columns", ["\u00b2", "wide", "-5", "0", "1" * 5000])
def test_a_width_that_is_no_number_is_the_usual_one(columns: str) -> None:
    program = PROGRAM.replace("--version", "--help")
    assert in_shell("", program, COLUMNS=columns) == in_shell("", program, COLUMNS="80")

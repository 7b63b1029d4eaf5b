"""The shell on a virtual node: stand-ins for programs of 3.0 that are not here."""

from __future__ import annotations

import subprocess

import pytest

from ganeti.bootstrap.virtual.shell import absent_program, absent_programs
from ganeti.system import daemon_control


def test_every_program_that_is_missing_says_what_does_its_work() -> None:
    missing = absent_programs(daemon_control.program_directories())
    assert "ganeti-kvmd" in missing
    for name in missing:
        assert f"{name}: this version does not have that program; " in absent_program(name)


@pytest.mark.parametrize("name", ["ganeti-kvmd", "ganeti-listrunner", "gnt-os"])
def test_a_stand_in_tells_and_fails(name: str) -> None:
    found = subprocess.run(
        ["sh", "-c", absent_program(name)], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout) == (127, "")
    assert found.stderr.startswith(f"{name}: this version does not have that program")
    assert found.stderr.count("\n") == 1

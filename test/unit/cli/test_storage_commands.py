"""The commands in the guide to storage are commands of this version, with these options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ganeti.cli.programs import PROGRAMS

GUIDE = Path(__file__).resolve().parents[3] / "doc" / "storage-volumes.md"
COMMANDS = sorted(
    {" ".join(each.split()) for each in re.findall(r"`(gnt-[^`]+)`", GUIDE.read_text("utf-8"))}
)


def test_there_are_commands_for_both_templates_on_volumes() -> None:
    assert len(COMMANDS) > 25
    assert any("-t drbd" in each for each in COMMANDS)
    assert any("-t plain" in each for each in COMMANDS)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_and_its_options_are_known(line: str) -> None:
    program_name, name, *words = line.split()
    program = next(each for each in PROGRAMS if each.name == program_name)
    command = program.find(name)
    assert command is not None
    known = {flag for option in command.options for flag in option.flags}
    for word in words:
        if word.startswith("-"):
            assert word.partition("=")[0] in known

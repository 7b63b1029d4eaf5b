"""Tests of ganeti/system/programs.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti.base.errors import GenericError
from ganeti.system import programs


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "allowed"
    path.mkdir(mode=0o755)
    return path


def put(path: Path, mode: int = 0o755) -> str:
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return str(path)


def test_an_allowed_program_is_found(directory: Path) -> None:
    path = put(directory / "check-disks")
    assert programs.find_allowed(str(directory), "check-disks", "command") == path


@pytest.mark.shows("maintd/security/name-only")
@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a b", "x.sh", "ä", "a\0"])
def test_names_that_could_lead_elsewhere_are_refused(directory: Path, name: str) -> None:
    with pytest.raises(GenericError, match="not a valid name"):
        programs.find_allowed(str(directory), name, "command")


@pytest.mark.shows("maintd/security/directory")
def test_what_others_may_have_written_is_not_trusted(directory: Path) -> None:
    put(directory / "open", 0o757)
    put(directory / "plain", 0o644)
    (directory / "link").symlink_to("/bin/true")
    for name, text in (
        ("open", "can be changed by others"),
        ("plain", "is not an executable file"),
        ("link", "is a symbolic link"),
        ("missing", "No such file"),
    ):
        with pytest.raises(GenericError, match=text):
            programs.find_allowed(str(directory), name, "command")


@pytest.mark.shows("maintd/security/directory")
def test_a_directory_that_others_may_write_to_is_not_trusted(directory: Path) -> None:
    put(directory / "good")
    directory.chmod(0o777)
    with pytest.raises(GenericError, match="allowed can be changed by others"):
        programs.find_allowed(str(directory), "good", "command")

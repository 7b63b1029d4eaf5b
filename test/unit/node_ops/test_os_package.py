"""The package of an operating system on a disk, the answer there, and the script of an image."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from fakes.shell_scripts import write_script

from ganeti.base.errors import GenericError
from ganeti.node_ops.instances import os_definitions, os_package

DISK_BYTES = 16 << 20
RUNNER = Path(__file__).parents[3] / "doc/examples/run-install"


@pytest.fixture
def definition(tmp_path: Path) -> os_definitions.OsDefinition:
    directory = tmp_path / "os"
    write_script(directory / "create_untrusted", "echo $GREETING from $(pwd); . ./more/end.sh")
    (directory / "ganeti_api_version").write_text("15\n")
    (directory / "more").mkdir()
    (directory / "more/end.sh").write_text("echo bye; exit $STATUS\n")
    return os_definitions.read("untrusted", str(directory))


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    path = tmp_path / "disk"
    path.write_bytes(b"old data" * (DISK_BYTES // 8))
    return path


def write(definition: os_definitions.OsDefinition, disk: Path, **environment: str) -> None:
    package = os_package.build(definition, environment)
    os_package.write_to_disk(str(disk), package, DISK_BYTES)


def run_install(*disks: Path) -> None:
    argv = ["sh", str(RUNNER), *map(str, disks)]
    env = {"PATH": "/usr/bin:/bin", "POWEROFF": "true"}
    subprocess.run(argv, env=env, check=True, timeout=60)


@pytest.mark.parametrize("status", [0, 7])
def test_the_script_of_an_image_runs_a_package_and_answers(
    definition: os_definitions.OsDefinition, disk: Path, tmp_path: Path, status: int
) -> None:
    write(definition, disk, GREETING="hel'lo $(x)", STATUS=str(status))
    assert os_package.read_answer(str(disk)) == ""
    assert os_package.read_output(str(disk)) == b""
    other = tmp_path / "other"
    other.write_bytes(b"\0" * 4096)
    run_install(other, disk)
    assert os_package.read_answer(str(disk)) == f"exit {status}"
    first, last = os_package.read_output(str(disk)).decode().splitlines()
    assert first.startswith("hel'lo $(x) from /")
    assert last == "bye"
    assert other.read_bytes() == b"\0" * 4096


def test_a_variable_that_no_shell_takes_does_not_stop_the_script(
    definition: os_definitions.OsDefinition, disk: Path
) -> None:
    """Definitions before API 20 take parameters of any name; the shell ended at such a one."""
    write(definition, disk, **{"OSP_A.B": "x", "OSP_A;exit 9;": "x"}, GREETING="hello", STATUS="0")
    run_install(disk)
    assert os_package.read_output(str(disk)).startswith(b"hello from /")
    assert os_package.read_answer(str(disk)) == "exit 0"


def test_a_name_that_no_package_can_hold_is_refused(
    definition: os_definitions.OsDefinition,
) -> None:
    (Path(definition.path) / ("n" * 120)).touch()
    with pytest.raises(GenericError, match="cannot be in an installation package: name is too"):
        os_package.build(definition, {})


def test_nothing_that_a_terminal_obeys_is_shown(
    definition: os_definitions.OsDefinition, disk: Path
) -> None:
    write(definition, disk)
    with disk.open("r+b") as file:
        file.write(b"progress \x1b[2J\xff\n" + b"more\n" + bytes(512))
        file.seek(512)
        file.write(b"one\x1b]0;x\x07\n" + b"line\n" * 30 + b"\0rest")
    assert os_package.read_answer(str(disk)) == "progress ?[2J\ufffd"
    output = os_package.read_output(str(disk))
    assert output.endswith(b"line\n")
    assert os_package.tail(output) == "\n".join(["line"] * 20)
    assert os_package.tail(output[:10]) == "one?]0;x?"


def test_what_is_too_large_is_refused(
    definition: os_definitions.OsDefinition, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GenericError, match="too much for its disk"):
        os_package.write_to_disk(str(disk), b"x" * (15 << 20), 15 << 20)
    monkeypatch.setattr(os_package, "BYTES_MAX", 100)
    Path(definition.path, "large").write_bytes(b"x" * 101)
    with pytest.raises(GenericError, match="larger than 100 bytes"):
        os_package.build(definition, {})
    Path(definition.path, "large").write_bytes(b"x" * 80)
    with pytest.raises(GenericError, match="more than 1000 files or 0 MiB"):
        os_package.build(definition, {})

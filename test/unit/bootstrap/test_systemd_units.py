"""The systemd units fit the daemons."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from ganeti.system.daemon_control import START_TIMEOUT_S

ROOT = Path(__file__).resolve().parents[3]
SERVICES = sorted((ROOT / "systemd").glob("*.service"))


def read(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names have capitals
    parser.read(path)
    return parser


def test_every_daemon_has_a_unit() -> None:
    daemons = {path.name for path in (ROOT / "daemons").iterdir() if path.is_symlink()}
    assert daemons == {path.stem for path in SERVICES}


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_unit_runs_its_daemon_in_the_foreground(path: Path) -> None:
    service = read(path)["Service"]
    assert service["Type"] == "notify"
    variable = f"{path.stem.removeprefix('ganeti-').upper()}_ARGS"
    assert service["ExecStart"] == f"/usr/sbin/{path.stem} --foreground ${variable} $ONCE_ARGS"
    assert f"EnvironmentFile=-/run/ganeti/{path.stem}.once\n" in path.read_text()


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_a_slow_machine_has_minutes_to_start_a_daemon(path: Path) -> None:
    assert float(read(path)["Service"]["TimeoutStartSec"]) == START_TIMEOUT_S


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_unit_belongs_to_a_target(path: Path) -> None:
    unit = read(path)
    target = unit["Install"]["WantedBy"]
    assert (ROOT / "systemd" / target).exists()
    assert unit["Unit"]["PartOf"] == target


def test_one_command_enables_all() -> None:
    lines = (ROOT / "systemd/ganeti.target").read_text().splitlines()
    enabled = {
        word
        for line in lines
        if line.startswith("Also=")
        for word in line.removeprefix("Also=").split()
    }
    assert enabled == {path.name for path in (ROOT / "systemd").iterdir()} - {"ganeti.target"}


def test_what_daemons_leave_running_survives_them() -> None:
    for name in ("ganeti-noded", "ganeti-luxid"):
        service = read(ROOT / "systemd" / f"{name}.service")["Service"]
        assert service["KillMode"] == "process"

"""The systemd units fit the daemons."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from ganeti.base.daemons import DAEMONS, PERIODIC
from ganeti.base.paths import Paths
from ganeti.system.daemon_control import START_TIMEOUT_S

ROOT = Path(__file__).resolve().parents[3]
UNITS = ROOT / "systemd"
SERVICES = sorted(UNITS / f"{daemon.name}.service" for daemon in DAEMONS)
TIMERS = sorted(UNITS.glob("*.timer"))


def read(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names have capitals
    parser.read(path)
    return parser


def test_every_program_has_a_unit() -> None:
    programs = {path.name for path in (ROOT / "daemons").iterdir() if path.is_symlink()}
    assert programs == {*PERIODIC, *(path.stem for path in SERVICES)}
    units = {path.name for path in UNITS.iterdir() if path.suffix == ".service"}
    timed = {path.with_suffix(".service").name for path in TIMERS}
    assert units == timed | {path.name for path in SERVICES}


@pytest.mark.parametrize("path", TIMERS, ids=lambda path: path.stem)
def test_a_timer_runs_one_of_the_programs_and_waits_for_its_end(path: Path) -> None:
    service = read(path.with_suffix(".service"))["Service"]
    assert service["Type"] == "oneshot"
    program = Path(service["ExecStart"].split()[0])
    assert (str(program.parent), program.name in PERIODIC) == ("/usr/sbin", True)


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_unit_runs_its_daemon_in_the_foreground(path: Path) -> None:
    service = read(path)["Service"]
    assert service["Type"] == "notify"
    variable = f"{path.stem.removeprefix('ganeti-').upper()}_ARGS"
    assert service["ExecStart"] == f"/usr/sbin/{path.stem} --foreground ${variable} $ONCE_ARGS"


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_arguments_for_one_start_are_roots_and_do_not_outlive_it(path: Path) -> None:
    once = f"{Paths('').once_dir}/{path.stem}"
    assert f"EnvironmentFile=-{once}\n" in path.read_text()
    assert read(path)["Service"]["ExecStartPost"] == f"+/bin/rm -f {once}"


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_a_slow_machine_has_minutes_to_start_a_daemon(path: Path) -> None:
    assert float(read(path)["Service"]["TimeoutStartSec"]) == START_TIMEOUT_S


@pytest.mark.parametrize("path", [*SERVICES, *TIMERS], ids=lambda path: path.name)
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
    targets = {path.name for path in UNITS.glob("*.target")} - {"ganeti.target"}
    assert enabled == targets | {path.name for path in [*SERVICES, *TIMERS]}


def test_what_daemons_leave_running_survives_them() -> None:
    for name in ("ganeti-noded", "ganeti-luxid"):
        service = read(ROOT / "systemd" / f"{name}.service")["Service"]
        assert service["KillMode"] == "process"

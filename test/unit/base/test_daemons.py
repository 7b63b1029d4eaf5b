"""The table of daemons and the places that follow from it."""

from __future__ import annotations

import configparser
import runpy
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path

import pytest

from ganeti.base.daemons import DAEMONS, FACES, MASTER_DAEMONS, PERIODIC, Daemon, Place, daemon_of
from ganeti.base.owned_files import OWNED
from ganeti.base.paths import Paths
from ganeti.cli.documents.write import DAEMONS as DOCUMENTED
from ganeti.daemon.options import options_of

ROOT = Path(__file__).resolve().parents[3]
PRESENT = [daemon for daemon in DAEMONS if (ROOT / "daemons" / daemon.name).exists()]
TARGETS = {Place.NODE: "ganeti-node.target", Place.MASTER: "ganeti-master.target"}


def test_every_program_of_a_daemon_is_in_the_table() -> None:
    programs = {path.name for path in (ROOT / "daemons").glob("ganeti-*") if path.is_file()}
    assert programs == {*(daemon.name for daemon in PRESENT), *PERIODIC}


def test_package_and_manual_know_every_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    declared: dict[str, object] = {}
    monkeypatch.setattr("setuptools.setup", declared.update)
    monkeypatch.chdir(ROOT)
    packages = runpy.run_path(str(ROOT / "setup.py"))
    packaged = packages["DAEMONS"]
    assert packages["PERIODIC"] == list(PERIODIC)
    assert set(packaged) == set(DOCUMENTED)
    assert set(packaged) == {daemon.name for daemon in PRESENT}


@pytest.mark.shows("2.0/master/entities")
@pytest.mark.parametrize("daemon", DAEMONS, ids=lambda daemon: daemon.name)
def test_every_daemon_has_a_package_that_knows_its_name(daemon: Daemon) -> None:
    assert daemon_of(daemon.name) == daemon
    assert import_module(f"ganeti.{daemon.package}.main").SPEC.name == daemon.name


@pytest.mark.shows(
    "backend/noded/everywhere",
    "backend/rapi/master",
    "2.12/overview/where",
    "2.0/master/entities",
    "2.0/rapi-design/own-daemon",
)
@pytest.mark.parametrize("daemon", PRESENT, ids=lambda daemon: daemon.name)
def test_unit_belongs_to_the_target_of_its_place(daemon: Daemon) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read(ROOT / "systemd" / f"{daemon.name}.service")
    assert unit["Install"]["WantedBy"] == TARGETS[daemon.place]


@pytest.mark.parametrize("name", sorted(PERIODIC))
def test_every_periodic_program_says_what_it_is_and_takes(name: str) -> None:
    module = import_module(f"ganeti.{PERIODIC[name]}")
    assert name == module.NAME
    assert [*options_of(module.Options)]


def test_timers_start_the_periodic_programs_with_the_node() -> None:
    units = ROOT / "systemd"
    timers = {path.name for path in units.glob("*.timer")}
    target = (units / "ganeti.target").read_text()
    started = []
    for name in sorted(timers):
        timer = configparser.ConfigParser(strict=False, interpolation=None)
        timer.read(units / name)
        assert timer["Install"]["WantedBy"] == "ganeti.target"
        assert name in target.partition("[Install]")[2].split() or f"Also={name}" in target
        service = configparser.ConfigParser(strict=False, interpolation=None)
        service.read(units / name.replace(".timer", ".service"))
        started.append(service["Service"]["ExecStart"])
    assert started == [
        "/usr/sbin/ganeti-cleaner master",
        "/usr/sbin/ganeti-cleaner node",
        "/usr/sbin/ganeti-watcher $WATCHER_ARGS",
    ]


def test_cron_starts_what_the_timers_start() -> None:
    lines = (ROOT / "doc/examples/ganeti.cron").read_text().splitlines()
    jobs = [line.split("|| ")[-1] for line in lines if " root " in line]
    assert jobs == ["ganeti-watcher", "ganeti-cleaner master", "ganeti-cleaner node"]


def test_every_log_is_rotated_once() -> None:
    lines = (ROOT / "doc/examples/ganeti.logrotate").read_text().splitlines()
    rotated = [
        word for line in lines if line.startswith("/") for word in line.split() if word != "{"
    ]
    logs = [f"{Paths('').log_dir}/{row.pattern}" for row in OWNED if row.place == "log_dir"]
    logs = [path for path in logs if path.endswith(".log")]
    assert len(logs) > len(DAEMONS)
    for path in [*logs, Paths("").log_watcher]:
        assert sum(fnmatch(path, pattern) for pattern in rotated) == 1, path


def test_what_makes_a_master_is_no_face() -> None:
    assert MASTER_DAEMONS == ("ganeti-wconfd", "ganeti-luxid")
    assert not {"ganeti-noded", *MASTER_DAEMONS} & set(FACES)


@pytest.mark.shows("backend/logs/one-each", "2.0/logging/one-log")
def test_logs_have_the_names_that_operators_know() -> None:
    assert Paths("").log_file("ganeti-confd") == "/var/log/ganeti/conf-daemon.log"
    assert Paths("").log_file("ganeti-luxid") == "/var/log/ganeti/luxi-daemon.log"

"""Daemons as units of systemd; a script stands for systemctl and journalctl."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from fakes.shell_scripts import write_script

from ganeti.base.errors import CommandError
from ganeti.base.paths import Paths
from ganeti.system import daemon_control, filelock, systemd

NAME = "ganeti-luxid"
UNIT = f"{NAME}.service"
SYSTEMCTL = """
echo "$@" >> "$SAID"
case "$*" in
*start*) cat {once} >> "$SAID" 2>/dev/null; touch {started}; exit {status};;
*show*) printf 'ActiveState={active}\\nConditionResult={condition}\\nInvocationID=12\\nResult=protocol\\n';;
esac
"""
JOURNALCTL = "echo 'pid=1 INFO Starting'; echo 'pid=1 ERROR Cannot go on: the port is in use'"


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("SAID", f"{tmp_path}/said")
    monkeypatch.setattr(systemd, "unit_of", lambda _paths, name: f"{name}.service")
    (tmp_path / "bin").mkdir()
    write_script(tmp_path / "bin/journalctl", JOURNALCTL)
    return Paths(str(tmp_path))


def fake_systemctl(
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
    *,
    status: int = 0,
    condition: str = "yes",
    active: str = "active",
) -> None:
    started = Path(f"{paths.root}/started")
    once = f"{paths.once_dir}/{NAME}"
    words = {
        "once": once,
        "started": started,
        "status": status,
        "condition": condition,
        "active": active,
    }
    text = SYSTEMCTL
    for key, value in words.items():
        text = text.replace(f"{{{key}}}", str(value))
    write_script(Path(f"{paths.root}/bin/systemctl"), text)
    monkeypatch.setattr(
        filelock,
        "running_pid",
        lambda _path: os.getpid() if started.exists() and not status else None,
    )


def said(paths: Paths) -> list[str]:
    return Path(f"{paths.root}/said").read_text().splitlines()


def test_a_daemon_with_a_unit_is_started_by_systemd(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_systemctl(paths, monkeypatch)
    assert daemon_control.start_daemon(paths, NAME)
    assert said(paths) == [
        f"--no-ask-password --quiet reset-failed {UNIT}",
        f"--no-ask-password --quiet start {UNIT}",
    ]
    assert not daemon_control.start_daemon(paths, NAME)


def test_more_arguments_are_for_this_start_only(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_systemctl(paths, monkeypatch)
    assert daemon_control.start_daemon(paths, NAME, ["--no-voting", "--yes-do-it"])
    assert said(paths)[-1] == "ONCE_ARGS=--no-voting --yes-do-it"
    assert not os.path.exists(f"{paths.once_dir}/{NAME}")
    assert stat.S_IMODE(os.stat(paths.once_dir).st_mode) == 0o700


@pytest.mark.parametrize(
    ("status", "condition", "reason"),
    [(1, "yes", "the port is in use"), (1, "no", "a condition of .* is not met")],
)
def test_why_a_unit_does_not_run_is_told(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, status: int, condition: str, reason: str
) -> None:
    fake_systemctl(paths, monkeypatch, status=status, condition=condition)
    with pytest.raises(CommandError, match=f"{NAME} did not start: .*{reason}"):
        daemon_control.start_daemon(paths, NAME)


def test_what_systemd_runs_is_stopped_by_systemd(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_systemctl(paths, monkeypatch)
    assert daemon_control.start_daemon(paths, NAME)
    monkeypatch.setattr(systemd, "runs", lambda _unit, pid: pid == os.getpid())
    assert daemon_control.stop_daemon(paths, NAME)
    assert said(paths)[-1] == f"--no-ask-password --quiet stop {UNIT}"


@pytest.mark.parametrize(
    ("active", "is_stopped"), [("activating", True), ("active", True), ("failed", False)]
)
def test_one_that_systemd_is_about_to_start_anew_is_stopped(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, active: str, is_stopped: bool
) -> None:
    fake_systemctl(paths, monkeypatch, status=1, active=active)
    assert daemon_control.stop_daemon(paths, NAME) == is_stopped
    assert (f"--no-ask-password --quiet stop {UNIT}" in said(paths)) == is_stopped


@pytest.mark.parametrize(
    ("control_groups", "is_in"),
    [
        (f"9:name=systemd:/system.slice/{UNIT}\n8:pids:/\n", True),
        (f"0::/system.slice/{UNIT}/guest\n", True),
        ("0::/user.slice/user-0.slice/session-3.scope\n", False),
        (f"0::/system.slice/my-{UNIT}\n", False),
        ("", False),
    ],
)
def test_the_control_group_tells_who_started_a_process(control_groups: str, is_in: bool) -> None:
    assert systemd.is_in_unit(UNIT, control_groups) == is_in


def test_a_process_that_has_ended_belongs_to_no_unit() -> None:
    assert not systemd.runs(UNIT, 2**22 + 1)


def test_a_virtual_node_has_no_units(tmp_path: Path) -> None:
    assert systemd.unit_of(Paths(str(tmp_path)), NAME) is None

"""Where our own programs are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from ganeti.base.daemons import AGENT, DAEMONS, MEMBER, Daemon, Place
from ganeti.base.errors import CommandError, GenericError
from ganeti.base.paths import Paths
from ganeti.system import daemon_control
from ganeti.system.programs import installation_prefix


@pytest.mark.parametrize(
    ("above_package", "prefix"),
    [
        ("/usr/lib/python3.11/site-packages", "/usr"),
        ("/usr/lib/python3/dist-packages", "/usr"),
        ("/opt/ganeti/lib/python3.13/site-packages", "/opt/ganeti"),
        ("/home/me/ganeti", None),
    ],
)
def test_the_package_tells_where_it_is_installed(above_package: str, prefix: str | None) -> None:
    assert installation_prefix(above_package) == prefix


def test_a_checkout_uses_its_own_programs() -> None:
    daemon = daemon_control.executable("ganeti-noded")
    checkout = os.path.dirname(os.path.dirname(daemon))
    assert os.path.isdir(f"{checkout}/ganeti")
    assert daemon_control.command("vcluster", ["-h"]) == [
        sys.executable,
        f"{checkout}/tools/vcluster",
        "-h",
    ]


def test_installed_programs_are_looked_for_below_the_prefix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(daemon_control, "installation_prefix", lambda: "/opt/ganeti")
    assert daemon_control.program_directories() == [
        "/opt/ganeti/sbin",
        "/opt/ganeti/bin",
        "/opt/ganeti/lib/ganeti/tools",
        "/opt/ganeti/lib/ganeti/iallocators",
        os.path.dirname(sys.executable),
    ]


def test_a_program_that_is_nowhere_is_named() -> None:
    with pytest.raises(GenericError, match="the program ganeti-nosuch is not installed"):
        daemon_control.executable("ganeti-nosuch")


NODE, MASTER = frozenset({Place.NODE}), frozenset({Place.MASTER})


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """A virtual node with programs that are all installed."""
    monkeypatch.setattr(daemon_control, "_find_executable", lambda name: f"/sbin/{name}")
    paths = Paths(str(tmp_path / "node1.example.com"))
    os.makedirs(paths.data_dir)
    for daemon in DAEMONS:
        if daemon.only_with:
            Path(getattr(paths, daemon.only_with)).touch()
    return paths


def names(paths: Paths, places: frozenset[Place] = NODE | MASTER) -> list[str]:
    return [daemon.name for daemon in daemon_control.wanted(paths, places)]


@pytest.mark.shows("backend/cluster-node/daemons")
def test_a_node_runs_what_its_places_ask_for(paths: Paths) -> None:
    assert names(paths) == [daemon.name for daemon in DAEMONS]
    assert names(paths, MASTER)[:2] == ["ganeti-wconfd", "ganeti-luxid"]
    assert names(paths, NODE)[0] == "ganeti-noded"
    assert not set(names(paths, NODE)) & set(names(paths, MASTER))


@pytest.mark.shows("backend/confd/left-out")
def test_a_virtual_cluster_goes_without_what_its_record_says(paths: Paths, tmp_path: Path) -> None:
    (tmp_path / "vcluster.json").write_bytes(b'{"base": "x", "without": ["ganeti-confd"]}')
    assert "ganeti-confd" not in names(paths)
    (tmp_path / "vcluster.json").write_bytes(b'{"base": "x"}')
    assert "ganeti-confd" in names(paths)


@pytest.mark.parametrize("daemon", [daemon for daemon in DAEMONS if daemon.only_with])
def test_a_daemon_without_its_settings_is_not_wanted(paths: Paths, daemon: Daemon) -> None:
    assert daemon.name in names(paths)
    os.unlink(getattr(paths, daemon.only_with))
    assert daemon.name not in names(paths)


@pytest.mark.shows("backend/confd/left-out")
def test_faces_that_are_not_installed_are_not_wanted(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_control, "_find_executable", lambda _name: None)
    assert names(paths) == ["ganeti-noded", "ganeti-wconfd", "ganeti-luxid"]


def test_a_face_that_does_not_come_up_keeps_nobody_else(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, tuple[str, ...]]] = []

    def start(_paths: Paths, name: str, args: tuple[str, ...] = (), **_rest: object) -> bool:
        if name in broken:
            raise CommandError(f"{name} did not start: no", [name], 1, "no")
        started.append((name, args))
        return True

    monkeypatch.setattr(daemon_control, "start_daemon", start)
    said: list[str] = []
    broken = {"ganeti-confd"}
    daemon_control.start_wanted(paths, NODE | MASTER, said.append, master_args=("--no-voting",))
    assert "ganeti-confd did not start: no; going on without" in said
    assert ("ganeti-luxid", ("--no-voting",)) in started
    assert ("ganeti-noded", ()) in started
    assert {name for name, _ in started} == {d.name for d in DAEMONS} - broken

    broken = {"ganeti-luxid"}
    with pytest.raises(CommandError, match="ganeti-luxid did not start"):
        daemon_control.start_wanted(paths, MASTER, said.append)


def test_all_are_stopped_the_last_first_and_failures_named(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def stop(_paths: Paths, name: str, *, waits: bool = True) -> bool:
        if not waits:
            return False
        asked.append(name)
        if name == "ganeti-luxid":
            raise GenericError("ganeti-luxid (process 7) cannot be stopped")
        return True

    monkeypatch.setattr(daemon_control, "stop_daemon", stop)
    said: list[str] = []
    with pytest.raises(GenericError, match="process 7"):
        daemon_control.stop_all(paths, NODE | MASTER, said.append, but=("ganeti-noded",))
    assert asked == [d.name for d in reversed(DAEMONS) if d.name != "ganeti-noded"]
    assert "stopped ganeti-wconfd" in said


def test_the_agent_is_told_first_and_waited_for_after_the_master(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def stop(_paths: Paths, name: str, *, waits: bool = True) -> bool:
        asked.append(name if waits else f"tell {name}")
        return True

    monkeypatch.setattr(daemon_control, "stop_daemon", stop)
    daemon_control.stop_all(paths, NODE | MASTER, asked.append)
    others = [each.name for each in reversed(DAEMONS) if each.name not in (AGENT, MEMBER)]
    order = [each for each in asked if not each.startswith(("told", "stopped"))]
    assert order == [f"tell {AGENT}", *others, AGENT, MEMBER]


def test_who_is_told_to_stop_is_not_waited_for(paths: Paths) -> None:
    assert not daemon_control.stop_daemon(paths, AGENT, waits=False)
    code = (
        "import signal, sys\nfrom ganeti.system.filelock import PidFile\nsignal.signal("
        "signal.SIGTERM, lambda *_: print('told', flush=True))\n"
        "PidFile(sys.argv[1]).acquire()\nprint('runs', flush=True)\nsys.stdin.read()\n"
    )
    os.makedirs(os.path.dirname(paths.pid_file(AGENT)))
    argv = [sys.executable, "-c", code, paths.pid_file(AGENT)]
    with subprocess.Popen(argv, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "runs\n"
        assert daemon_control.stop_daemon(paths, AGENT, waits=False)
        assert process.stdout.readline() == "told\n"
        assert process.poll() is None
        process.stdin.close()


def test_more_arguments_are_read_where_units_read_them(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    assert daemon_control.default_arguments(paths, "ganeti-wconfd") == []
    file = Path(paths.default_arguments)
    file.parent.mkdir(parents=True)
    file.write_text(
        "# it's for all\nRAPI_ARGS='--bind 1.2.3.4'\nWCONFD_ARGS=-d\n"
        'WCONFD_ARGS="--config-journal --syslog=yes"  # the last one counts\n'
    )
    found = daemon_control.default_arguments(paths, "ganeti-wconfd")
    assert found == ["--config-journal", "--syslog=yes"]
    assert daemon_control.default_arguments(paths, "ganeti-rapi") == ["--bind", "1.2.3.4"]
    assert daemon_control.default_arguments(paths, "ganeti-luxid") == []
    file.write_text("WCONFD_ARGS='half\n")
    with pytest.raises(GenericError, match="/etc/default/ganeti: No closing quotation"):
        daemon_control.default_arguments(paths, "ganeti-wconfd")


def test_one_that_is_started_again_has_its_arguments_once() -> None:
    defaults, once = ["--config-journal"], ["--no-voting", "--yes-do-it"]
    first = daemon_control.with_defaults(defaults, once)
    assert first == [*defaults, *once]
    assert daemon_control.with_defaults(defaults, first) == first
    assert daemon_control.with_defaults([], once) == once

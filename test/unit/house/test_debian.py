"""``debian/``: the package agrees with the tables of the program, and with itself."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.old_configs import load_config

from ganeti.base.daemons import ALL_DAEMONS, DAEMONS
from ganeti.base.owned_files import OWNED
from ganeti.base.paths import Paths
from ganeti.cli.cluster.upgrade_plan import CFGUPGRADE, DAEMON_UTIL, OF_3_0, OURS

ROOT = Path(__file__).parents[3]
DEBIAN = ROOT / "debian"
SCRIPTS = sorted([*DEBIAN.glob("*.p*st*"), *DEBIAN.glob("*.prerm"), DEBIAN / "arrange"])


def fields_of_package() -> dict[str, str]:
    *_, package = (DEBIAN / "control").read_text().split("\n\n")
    unfolded = re.sub(r"\n +", " ", package)
    return dict(line.split(": ", 1) for line in unfolded.splitlines() if ": " in line)


def rows(name: str) -> list[list[str]]:
    lines = (DEBIAN / f"{OURS}.{name}").read_text().splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def test_it_takes_the_place_of_each_package_of_3_0() -> None:
    fields = fields_of_package()
    assert fields["Package"] == OURS
    assert fields["Conflicts"] == fields["Replaces"]
    conflicts = {name.strip() for name in fields["Conflicts"].split(",")}
    assert conflicts >= {OF_3_0, "ganeti-3.0", "ganeti-haskell-3.0", "ganeti-htools-3.0"}
    provided = {name.split()[0] for name in fields["Provides"].split(",")}
    assert provided <= conflicts


def test_the_changelog_names_source_and_upstream_version(monkeypatch: pytest.MonkeyPatch) -> None:
    declared: dict[str, str] = {}
    monkeypatch.setattr("setuptools.setup", declared.update)
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    first = (DEBIAN / "changelog").read_text().splitlines()[0]
    assert first.startswith(f"{OURS} ({declared['version']}+")
    minimum = declared["python_requires"].removeprefix(">=")
    assert f"python3 (>= {minimum}~)" in (DEBIAN / "control").read_text()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_have_no_mistakes_of_grammar(path: Path) -> None:
    subprocess.run(["sh", "-n", path], check=True)


@pytest.mark.parametrize(
    ("script", "name", "suffixes"),
    [("prerm", "UNITS", {".target", ".timer", ".service"}), ("postinst", "SERVICES", {".service"})],
)
def test_scripts_name_each_unit(script: str, name: str, suffixes: set[str]) -> None:
    text = (DEBIAN / f"{OURS}.{script}").read_text()
    [named] = re.findall(rf'^{name}="([^"]*)"', text, re.MULTILINE)
    units = [path.name for path in (ROOT / "systemd").iterdir() if path.suffix in suffixes]
    assert sorted(named.split()) == sorted(units)


def test_the_package_makes_each_user_and_group_that_owns_something() -> None:
    users = {row[1] for row in rows("sysusers") if row[0] == "u"}
    groups = {row[1] for row in rows("sysusers") if row[0] in "gu"}
    assert users == {daemon.user for daemon in DAEMONS} - {"root"}
    used = {row.group for row in OWNED} | {daemon.group for daemon in DAEMONS}
    assert used - {"root"} <= groups
    members = {(row[1], row[2]) for row in rows("sysusers") if row[0] == "m"}
    assert {(user, ALL_DAEMONS) for user in users} <= members
    assert all(user in users and group in groups for user, group in members)


def test_directories_at_boot_are_those_of_the_table() -> None:
    paths = Paths("")
    known = {
        getattr(paths, row.place).replace("/var/run", "/run"): [
            f"{row.mode:04o}",
            row.user,
            row.group,
        ]
        for row in OWNED
        if not row.pattern
    }
    for kind, path, *owner in rows("tmpfiles"):
        assert kind == "d"
        assert owner == known[path], path


def test_defaults_name_the_variables_of_the_units() -> None:
    script = (DEBIAN / f"{OURS}.postinst").read_text()
    written = set(re.findall(r'(?m)^(\w+_ARGS)=""$', script))
    used = set()
    for unit in (ROOT / "systemd").glob("*.service"):
        used |= set(re.findall(r"\$(\w+_ARGS)", unit.read_text())) - {"ONCE_ARGS"}
    assert written <= used
    assert used - written == {"ETCD_ARGS", "HA_ARGS", "MAINTD_ARGS"}  # not in 3.0


def test_programs_of_placement_are_those_of_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    monkeypatch.chdir(ROOT)
    placement = runpy.run_path("setup.py")["PLACEMENT"]
    assert f"        {' | '.join(placement)}) ln" in (DEBIAN / "arrange").read_text()


def test_tools_are_where_scripts_call_them() -> None:
    linked = re.search(r"for tool in ([\w -]+); do", (DEBIAN / "arrange").read_text())
    assert linked is not None
    for name in linked[1].split():
        assert (ROOT / "tools" / name).exists()
    assert DAEMON_UTIL.rpartition("/")[2] in linked[1].split()
    assert (ROOT / "tools" / CFGUPGRADE.rpartition("/")[2]).exists()
    called = set()
    for script in SCRIPTS:
        called |= set(re.findall(r"/usr/lib/ganeti/(?:tools/)?([\w-]+)", script.read_text()))
    assert called
    assert all((ROOT / "tools" / name).exists() for name in called - {"tools"})


class Installed:
    """A machine with the package, below a directory: its scripts are run with other paths."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "var/lib/ganeti/config.data"
        cfgupgrade = root / CFGUPGRADE[1:]
        programs = {
            root / "usr/share/ganeti/ganeti.logrotate": "",
            root / DAEMON_UTIL[1:]: "#!/bin/sh\n",
            root / "usr/lib/ganeti/ensure-dirs": "#!/bin/sh\n",
            cfgupgrade: f"#!/bin/sh\nexec {sys.executable} {ROOT}/tools/cfgupgrade"
            f' "$@" --path={self.config.parent}\n',
        }
        for path, text in programs.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        for name in ("etc/default", "run/lock", "var/lib/ganeti"):
            (root / name).mkdir(parents=True)

    def run(self, script: str, *args: str) -> None:
        text = (DEBIAN / f"{OURS}.{script}").read_text()
        text = re.sub(r"(?<![\w}])/(?=(etc|run|usr|var)/)", f"{self.root}/", text)
        subprocess.run(["sh", "-c", text, script, *args], check=True, capture_output=True)


@pytest.mark.parametrize("args", [("abort-remove",), ("configure", "3.0.2+py1")], ids=str)
def test_a_configuration_that_nobody_used_without_the_package_is_put_back(
    tmp_path: Path, args: tuple[str, ...]
) -> None:
    machine = Installed(tmp_path)
    of_3_0 = load_config("2.16.upgraded")["config"]
    ours = of_3_0 | {"maintenance": {"jobs": [1]}}
    machine.config.write_text(json.dumps(ours))
    machine.run("prerm", "remove")
    assert json.loads(machine.config.read_bytes()) == of_3_0, "no newer than the master's"
    machine.run("postinst", *args)
    assert json.loads(machine.config.read_bytes()) == ours
    machine.run("prerm", "remove")
    machine.config.write_text(json.dumps(of_3_0 | {"serial_no": of_3_0["serial_no"] + 1}))
    written = machine.config.read_bytes()
    machine.run("postinst", *args)
    assert machine.config.read_bytes() == written, "3.0 has changed it meanwhile"
    machine.run("prerm", "remove")
    machine.run("postinst", *args)
    assert machine.config.read_bytes() == written, "there was nothing to be taken out"

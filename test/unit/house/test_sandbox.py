"""Units: watched, and confined as far as their work allows (doc/sandboxing.md)."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ganeti.base.daemons import DAEMONS

ROOT = Path(__file__).parents[3]
UNITS = sorted((ROOT / "systemd").glob("*.service"))
PAGE = (ROOT / "doc/sandboxing.md").read_text()
# Those that cannot be below 3.0, and where they are: the page says why.
OPEN = {"ganeti-noded.service": 8.8, "ganeti-watcher.service": 8.8, "ganeti-ha.service": 5.5}
LIMIT = 3.0
# Whatever makes a mount namespace: mounts of the node daemon have to be those of the machine.
MOUNTS = re.compile(
    r"(?m)^(Private|Protect|ReadOnly|ReadWrite|Inaccessible|Temporary|Bind|Root)\w*="
)


def options_of(unit: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read(unit)
    return parser["Service"]


@pytest.mark.parametrize("name", [daemon.name for daemon in DAEMONS])
def test_systemd_watches_each_daemon(name: str) -> None:
    options = options_of(ROOT / "systemd" / f"{name}.service")
    assert options["Type"] == "notify"
    assert options["WatchdogSec"] == "60"
    assert options["Restart"] == "on-failure"


def test_mounts_and_devices_of_the_node_daemon_are_those_of_the_machine() -> None:
    text = (ROOT / "systemd/ganeti-noded.service").read_text()
    assert MOUNTS.search(text) is None
    assert "Device" not in text


@pytest.mark.parametrize("name", ["ganeti-mond", "ganeti-ha", "ganeti-noded", "ganeti-watcher"])
def test_no_option_closes_the_devices_of_who_needs_them(name: str) -> None:
    """ProtectClock brings a list of allowed devices with it, which leaves out all others."""
    options = options_of(ROOT / "systemd" / f"{name}.service")
    assert not {"ProtectClock", "PrivateDevices", "DevicePolicy", "DeviceAllow"} & set(options)


def test_the_agent_may_settle_drbd() -> None:
    options = options_of(ROOT / "systemd/ganeti-ha.service")
    assert "CAP_NET_ADMIN" in options["CapabilityBoundingSet"].split()


@pytest.mark.parametrize("name", ["ganeti-luxid", "ganeti-wconfd", "ganeti-mond"])
def test_who_looks_at_processes_of_others_sees_them(name: str) -> None:
    assert "ProtectProc" not in options_of(ROOT / "systemd" / f"{name}.service")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_exposure(unit: Path) -> None:
    argv = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    said = subprocess.run(argv, capture_output=True, text=True, check=False)
    overall = re.search(r"Overall exposure level for \S+: ([\d.]+)", said.stdout)
    if overall is None and "offline" in said.stderr:
        pytest.skip("systemd-analyze is too old")
    assert overall is not None, said.stderr
    assert float(overall[1]) <= OPEN.get(unit.name, LIMIT - 0.1)
    shown = re.search(rf"(?m)^\| `{unit.stem}` \| ([\d.]+) \|", PAGE)
    assert shown is not None, f"doc/sandboxing.md does not have {unit.stem}, {overall[1]}"
    assert abs(float(shown[1]) - float(overall[1])) < 0.3, "versions of systemd differ by less"

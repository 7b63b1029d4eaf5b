"""Taps on a real Open vSwitch: frames go where the VLANs say (root).

The switch runs in a network namespace of its own, without help from the kernel; the test stands for
the guests: what it writes to a tap comes from the guest, what it reads goes to the guest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network namespace"),
    pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare"),
    pytest.mark.skipif(not shutil.which("ovs-vswitchd"), reason="needs openvswitch-switch"),
]

SCRIPT = """
import os, select, struct, subprocess, sys, time
from ganeti.base.errors import GenericError, HypervisorError
from ganeti.netdev.backends import BackendKind, NicBackend
from ganeti.netdev.taps import ensure_switch
from ganeti.netdev.taps import can_make_taps, create_tap, open_tap, remove_tap

base, schema = sys.argv[1:]
os.environ["OVS_RUNDIR"] = base
DEADLINE_S = time.monotonic() + 120
TAPS = {"gntaccess1": ".10", "gntaccess2": ".10", "gntother": ".20", "gnttrunk": ":10:20",
        "gntnative": ".20:10"}

def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout

def until(condition, what):
    while not condition():
        assert time.monotonic() < DEADLINE_S, what
        time.sleep(0.05)

subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)  # that of the namespace
if not can_make_taps():
    sys.exit(77)
run("ip", "link", "set", "lo", "up")
run("ovsdb-tool", "create", base + "/conf.db", schema)
log = open(base + "/log", "w")
daemons = []
def start(*words):
    daemons.append(subprocess.Popen(words, stdout=log, stderr=log))

def frame(marker):
    return b"\\xff" * 6 + b"\\x02\\0\\0\\0\\0" + marker[:1] + struct.pack("!H", 0x88b5) + marker.ljust(50, b"\\0")

def read_all(descriptors, seen):
    ready, _, _ = select.select(list(descriptors.values()), [], [], 0.2)
    for name, descriptor in descriptors.items():
        if descriptor in ready:
            data = os.read(descriptor, 2048)
            tag = None
            if data[12:14] == b"\\x81\\0":
                tag = struct.unpack("!H", data[14:16])[0] & 0xfff
                data = data[:12] + data[16:]
            if data[12:14] == struct.pack("!H", 0x88b5):
                seen.add((name, data[14:].rstrip(b"\\0").decode(), tag))

def send(descriptors, source, wanted, seen):
    "Send from one guest until all who should have it have it."
    told = {(name, source, tag) for name, tag in wanted.items()}
    while not told <= seen:
        assert time.monotonic() < DEADLINE_S, (source, seen)
        os.write(descriptors[source], frame(source.encode()))
        read_all(descriptors, seen)

try:
    start("ovsdb-server", base + "/conf.db", "--remote=punix:" + base + "/db.sock")
    until(lambda: os.path.exists(base + "/db.sock"), "the database answers")
    run("ovs-vsctl", "--no-wait", "init")
    start("ovs-vswitchd", "unix:" + base + "/db.sock")
    run("ovs-vsctl", "--timeout=60", "add-br", "s1", "--", "set", "bridge", "s1", "datapath_type=netdev")
    backends = [NicBackend("u", BackendKind.TAP, tap=tap, mode="openvswitch", link="s1", vlan=vlan)
                for tap, vlan in TAPS.items()]
    for backend in (*backends, backends[0]):  # one twice, as after a run that was cut off
        create_tap(backend, vnet_hdr=False)
    assert set(run("ovs-vsctl", "list-ports", "s1").split()) == set(TAPS)
    descriptors = {tap: open_tap(tap, vnet_hdr=False)[0] for tap in TAPS}
    seen = set()
    send(descriptors, "gntaccess1", {"gntaccess2": None, "gnttrunk": 10, "gntnative": 10}, seen)
    send(descriptors, "gntother", {"gntnative": None, "gnttrunk": 20}, seen)
    send(descriptors, "gntnative", {"gntother": None, "gnttrunk": 20}, seen)
    # By now all that the first sent is where it goes, and nowhere else.
    assert {name for name, source, _ in seen if source == "gntaccess1"} == {
        "gntaccess2", "gnttrunk", "gntnative"}, seen
    assert {name for name, source, _ in seen if source == "gntother"} == {
        "gntnative", "gnttrunk"}, seen
    for descriptor in descriptors.values():
        os.close(descriptor)
    for tap in TAPS:
        remove_tap(tap, "openvswitch")
    assert run("ovs-vsctl", "list-ports", "s1").split() == []
    assert "gnt" not in run("ip", "link")
    try:
        create_tap(NicBackend("u", BackendKind.TAP, tap="gntlost", mode="openvswitch", link="nix"),
                   vnet_hdr=False)
    except HypervisorError as err:
        assert "nix" in err.message, err.message
    else:
        raise AssertionError("a switch that there is not was not missed")
    assert "gntlost" not in run("ip", "link")
    run("ip", "tuntap", "add", "mode", "tap", "dev", "outside0")
    for _ in range(2):  # what is there already stays
        ensure_switch("switch1", "outside0")
    assert run("ovs-vsctl", "list-ports", "switch1").split() == ["outside0"]
    try:
        ensure_switch("switch2", "outside0")
    except GenericError as err:
        assert "switch2" in err.message and "outside0" in err.message, err.message
    else:
        raise AssertionError("an interface went into a second switch")
finally:
    for daemon in reversed(daemons):
        daemon.terminate()
        daemon.wait(60)
print("all well")
"""


def schema() -> str:
    return "/usr/share/openvswitch/vswitch.ovsschema"


@pytest.mark.skipif(not os.path.exists(schema()), reason="needs the schema of Open vSwitch")
def test_frames_stay_in_their_vlans(tmp_path: Path) -> None:
    tests = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, "-c", SCRIPT, str(tmp_path), schema()],
        env={**os.environ, "PYTHONPATH": f"{tests}:{tests.parent}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip("no right to make network namespaces or taps here")
    log = (tmp_path / "log").read_text(errors="replace")
    assert done.returncode == 0, f"{done.stderr}\n{log}"
    assert done.stdout == "all well\n"

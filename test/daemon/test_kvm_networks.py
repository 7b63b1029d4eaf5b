"""Two Linux guests on the networks of a node: a bridge with VLANs, then routes (root).

The node is a network namespace of its own.  Its address is 10.99.0.1 on the bridge, in VLAN 10;
both guests ping it and each other for as long as they run.  Where the kernel's bridges know no
VLANs, a second bridge stands for the other VLAN.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from guests import images
from guests.nodes import QEMU

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.root,
    pytest.mark.skipif(QEMU is None, reason="needs qemu-system-x86_64"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network namespace"),
    pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare"),
]

TIMEOUT_S = 500

SCRIPT = """
import subprocess, sys
from guests.instances import make_instance
from guests.nodes import kvm_nodes
from fakes.waiting import wait_until
from ganeti.netdev.taps import can_make_taps
from ganeti.objects.rpc_instance import RpcInstance, RpcNIC

kernel, initrd = sys.argv[1:]
NODE, FIRST, SECOND = "10.99.0.1", "10.99.0.11", "10.99.0.12"
UUIDS = {FIRST: "a8ea3c51-895c-49a4-ba49-3cf1863fbc11", SECOND: "a8ea3c51-895c-49a4-ba49-3cf1863fbc12"}

def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout

def setting(path, value):
    with open("/proc/sys/net/ipv4/conf/" + path, "w") as file:
        file.write(value)

def nic(address, mode, link, vlan=""):
    return {"mac": "aa:00:00:00:00:" + address[-2:], "uuid": UUIDS[address], "ip": address,
            "nicparams": {"mode": mode, "link": link, "vlan": vlan}}

def guest(address, other, place):
    bare = make_instance("guest" + address[-2:] + ".example.com", memory_mib=128, network_port=None,
        uuid=UUIDS[address].replace("a8ea", "b8ea"), kernel_path=kernel, initrd_path=initrd,
        root_path="", kvm_flag="disabled",
        kernel_args=f"quiet panic=1 tiny_ip={address} tiny_ping={NODE},{other}")
    wire = bare.to_wire() | {"nics": [nic(address, *place)]}
    return RpcInstance.from_wire(wire)

subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)  # that of the namespace
if not can_make_taps():
    sys.exit(77)
run("ip", "link", "set", "lo", "up")
run("ip", "link", "add", "br0", "type", "bridge")
run("ip", "link", "add", "br1", "up", "type", "bridge")
filtering = subprocess.run(
    ["ip", "link", "set", "br0", "type", "bridge", "vlan_filtering", "1"], capture_output=True)
if filtering.returncode == 0:
    run("bridge", "vlan", "add", "dev", "br0", "vid", "10", "pvid", "untagged", "self")
    HERE, ELSEWHERE = ("bridged", "br0", ".10"), ("bridged", "br0", ".20")
else:
    HERE, ELSEWHERE = ("bridged", "br0"), ("bridged", "br1")
run("ip", "addr", "add", NODE + "/24", "dev", "br0")
run("ip", "link", "set", "br0", "up")

with kvm_nodes() as nodes:
    node = nodes.nodes[0]
    first, second = guest(FIRST, SECOND, HERE), guest(SECOND, FIRST, ELSEWHERE)
    for one in (first, second):
        node.driver.start(one, [])

    def said(one, target, word, mark=0):
        return node.serial(one.name)[mark:].count(f"PING {target} {word}")

    def mark(one):
        return len(node.serial(one.name))

    def wait_ok(one, target, since):
        what = f"{one.name} reaches {target}"
        wait_until(lambda: said(one, target, "ok", since), what, timeout_s=100)

    # The first is in the node's VLAN, the second in another: it can reach nobody.
    wait_ok(first, NODE, 0)
    wait_until(lambda: said(second, NODE, "no") >= 2, "pings of the second", timeout_s=100)
    assert not said(second, NODE, "ok") and not said(second, FIRST, "ok")
    assert not said(first, SECOND, "ok")

    # It gets another interface in the same VLAN while it runs, and reaches both.
    since, since_first = mark(second), mark(first)
    node.driver.hotplug.remove_nic(second, UUIDS[SECOND])
    assert "gnt3cf1863fbc12" not in run("ip", "link")
    changed = RpcNIC.from_wire(nic(SECOND, *HERE))
    assert node.driver.hotplug.add_nic(second, changed, 0)
    wait_ok(second, NODE, since)
    wait_ok(second, FIRST, since)
    wait_ok(first, SECOND, since_first)

    # Now the first is routed: the node stands between them.
    setting("br0/proxy_arp", "1")
    setting("br0/forwarding", "1")
    node.driver.hotplug.remove_nic(first, UUIDS[FIRST])
    since_first = mark(first)
    assert node.driver.hotplug.add_nic(first, RpcNIC.from_wire(nic(FIRST, "routed", "br0")), 0)
    since = mark(second)
    assert "dev gnt3cf1863fbc11" in run("ip", "route", "get", FIRST)
    wait_ok(first, NODE, since_first)
    wait_ok(first, SECOND, since_first)
    wait_ok(second, FIRST, since)

    for one in (first, second):
        node.driver.stop(one.name, force=True)
    assert "gnt" not in run("ip", "link") + run("ip", "route"), run("ip", "link")
print("all well")
"""


def test_guests_reach_each_other_where_they_should() -> None:
    found = images.tiny_linux()
    if found is None:
        pytest.skip(f"no Linux guest: {images.why_no_linux}")
    tests = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, "-c", SCRIPT, *found],
        env={**os.environ, "PYTHONPATH": f"{tests}:{tests.parent}"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip("no right to make network namespaces or taps here")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all well\n"

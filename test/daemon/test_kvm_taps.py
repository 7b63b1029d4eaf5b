"""A guest on a bridge, a switch or a route, in a network namespace of its own (root)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.chance import seed
from guests.nodes import QEMU

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.root,
    pytest.mark.skipif(QEMU is None, reason="needs qemu-system-x86_64"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network namespace"),
    pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare"),
]

START = """
import os, subprocess, sys
from guests.instances import make_instance
from guests.nodes import kvm_nodes
from ganeti.base.errors import HypervisorError
from ganeti.netdev.taps import can_make_taps
from ganeti.objects.rpc_instance import RpcInstance

def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=True)
    return done.stdout

subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)  # that of the namespace
if not can_make_taps():
    sys.exit(77)
"""

BRIDGED = """
ip("link", "add", "xen-br0", "type", "bridge")
with kvm_nodes() as nodes:
    node = nodes.nodes[0]
    for options in ({}, {"nic_type": "e1000"}, {"virtio_net_queues": 2}):
        instance = make_instance(kernel_path="", kvm_flag="disabled", nics=2, **options)
        node.driver.start(instance, [nodes.boot_disk()])
        node.wait_serial(instance.name, "guest up")
        links = ip("link", "show", "master", "xen-br0")
        assert links.count("gnt3cf1863fbc0") == 2, links
        assert links.count("UP") >= 2, links
        node.driver.stop(instance.name, timeout_s=20)
        assert "gnt" not in ip("link"), ip("link")
    broken = make_instance(kernel_path="", kvm_flag="disabled", nics=1, kvm_extra="-nonsense")
    try:
        node.driver.start(broken, [])
    except HypervisorError as err:
        assert "nonsense" in err.message
    assert "gnt" not in ip("link"), ip("link")
print("all well")
"""

# The second interface is plugged while the guest, which has no operating system, just runs.
OTHERS = """
ip("link", "set", "lo", "up")

def executable(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write("#!/bin/sh\\n" + text)
    os.chmod(path, 0o755)

def made(mode, link, vlan="", **options):
    bare = make_instance(kernel_path="", kvm_flag="disabled", nics=2, **options).to_wire()
    params = {"mode": mode, "link": link, "vlan": vlan}
    nics = [nic | {"nicparams": params, "ip": f"192.0.2.{number}"}
            for number, nic in enumerate(bare["nics"], 1)]
    return RpcInstance.from_wire(bare | {"nics": nics[:1]}), RpcInstance.from_wire(bare | {"nics": nics[1:]}).nics[0]

def life(node, instance, second):
    node.driver.start(instance, [])
    node.driver.hotplug.add_nic(instance, second, 1)
    while_up = ip("link") + ip("route", "show", "table", "all") + ip("rule")
    node.driver.stop(instance.name, force=True)
    left = ip("link") + ip("route", "show", "table", "all") + ip("rule")
    assert "gnt" not in left, left
    return while_up

with kvm_nodes() as nodes:
    node, base = nodes.nodes[0], str(nodes.base)
    record = base + "/record"
    executable(base + "/bin/ovs-vsctl", f'echo "$*" >>{record}; [ "$2" != br-exists ] || [ "$3" = s1 ]\\n')
    os.environ["PATH"] = base + "/bin:" + os.environ["PATH"]

    life(node, *made("openvswitch", "s1", ".10:20"))
    said = open(record).read()
    for tap in ("gnt3cf1863fbc00", "gnt3cf1863fbc01"):
        assert f"add-port s1 {tap} -- set Port {tap} tag=10 trunks=20" in said, said
        assert said.rstrip().rpartition("add-port")[2].count(f"--if-exists del-port {tap}") == 1, said

    up = life(node, *made("routed", "77", virtio_net_queues=2))
    for number, tap in ((1, "gnt3cf1863fbc00"), (2, "gnt3cf1863fbc01")):
        assert f"192.0.2.{number} dev {tap} table 77" in up, up
        assert f"iif {tap} lookup 77" in up, up

    executable(node.env.paths.kvm_vif_script, f"env >{record}.$INTERFACE\\nip link set $INTERFACE up\\n")
    life(node, *made("routed", "whatever"))
    told = open(record + ".gnt3cf1863fbc01").read().splitlines()
    assert {"MODE=routed", "LINK=whatever", "IP=192.0.2.2", "INTERFACE_INDEX=1"} <= set(told), told

    executable(node.env.paths.kvm_vif_script, "echo no way; exit 3\\n")
    try:
        node.driver.start(made("bridged", "br0")[0], [])
    except HypervisorError as err:
        assert "no way" in err.message and "exit status 3" in err.message, err.message
    else:
        raise AssertionError("the script's failure was not seen")
    assert "gnt" not in ip("link"), ip("link")
print("all well")
"""

# Both nodes are in one namespace, and their taps have one name: the target's replaces the source's.
MOVED = """
ip("link", "set", "lo", "up")
bare = make_instance(kernel_path="", kvm_flag="disabled", nics=1).to_wire()
params = {"mode": "routed", "link": "77", "vlan": ""}
(nic,) = bare["nics"]
instance = RpcInstance.from_wire(bare | {"nics": [nic | {"nicparams": params, "ip": "192.0.2.1"}]})
name = instance.name

def routes():
    return ip("route", "show", "table", "all") + ip("rule")

def arrive(nodes):
    source, target = nodes.nodes
    source.driver.start(instance, [])
    assert "192.0.2.1 dev gnt" in routes(), routes()
    info = source.driver.migration.describe(instance)
    where = target.driver.migration.accept(instance, info, target.env.address, [])
    source.driver.migration.send(instance, where, live=True)
    status = source.driver.migration.status(instance, wait_s=60)
    assert status.status == "completed", status
    assert "gnt3cf1863fbc00" in ip("link")
    assert "gnt" not in routes(), routes()
    return source, target, info

with kvm_nodes(2) as nodes:
    source, target, info = arrive(nodes)
    target.driver.migration.finish_target(instance, info, success=True)
    assert "192.0.2.1 dev gnt3cf1863fbc00 table 77" in routes(), routes()
    assert "iif gnt3cf1863fbc00 lookup 77" in routes(), routes()
    assert target.driver.instance_info(name).state == 0
    target.driver.stop(name, force=True)
    source.driver.stop(name, force=True)

    script, record = target.env.paths.kvm_vif_script, str(nodes.base) + "/record"
    os.makedirs(os.path.dirname(script))
    with open(script, "w") as file:
        file.write(f"#!/bin/sh\\necho $INTERFACE >{record}\\nexit 3\\n")
    os.chmod(script, 0o755)
    source, target, info = arrive(nodes)
    assert not os.path.exists(record)
    try:
        target.driver.migration.finish_target(instance, info, success=True)
    except HypervisorError as err:
        assert "cannot connect gnt3cf1863fbc00" in err.message, err.message
    assert open(record).read() == "gnt3cf1863fbc00\\n"
    assert target.driver.instance_info(name) is None
    assert target.driver.migration.finish_target(instance, info, success=False)
    assert "gnt" not in ip("link"), ip("link")
    source.driver.migration.finish_source(instance, success=False, live=True)
    assert source.driver.instance_info(name).state == 0
print("all well")
"""

# A child of the node daemon is killed at a random moment of a start, each time a little later and
# the last time when it has ended; then the instance is stopped or started again, as the master or
# an operator does.
CUTS = """
import random, signal, time

def start(node, instance, disk):
    os.setsid()  # as children of the node daemon
    node.driver.start(instance, [disk])

ip("link", "add", "xen-br0", "type", "bridge")
chance = random.Random(int(os.environ["SEED"]))
with kvm_nodes() as nodes:
    node, disk = nodes.nodes[0], nodes.boot_disk()
    instance = make_instance(kernel_path="", kvm_flag="disabled", nics=2)
    begun = time.monotonic()
    start(node, instance, disk)
    lasts_s = time.monotonic() - begun
    node.driver.stop(instance.name, force=True)
    seen = set()
    cuts = int(os.environ["CUTS"])
    for cut in range(cuts):
        pid = os.fork()
        if pid == 0:
            try:
                start(node, instance, disk)
            finally:
                os._exit(0)
        if cut < cuts - 1:
            time.sleep((cut + chance.random()) / cuts * 1.2 * lasts_s)
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        seen.add(ip("link").count("gnt3cf1863fbc0"))
        has_begun = node.driver.instance_info(instance.name) is not None
        if not has_begun and chance.random() < 0.5:
            node.driver.start(instance, [disk])
        node.driver.stop(instance.name, force=True)
        assert "gnt" not in ip("link"), ip("link")
        processes = subprocess.run(["pgrep", "--full", str(nodes.base)], capture_output=True, text=True).stdout
        assert [each for each in processes.split() if int(each) != os.getpid()] == [], processes
    assert 2 in seen, seen
print("all well")
"""


@pytest.mark.parametrize(
    "script", [BRIDGED, OTHERS, MOVED, CUTS], ids=["bridged", "others", "moved", "cuts"]
)
def test_taps_come_and_go_with_the_guest(script: str) -> None:
    tests = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, "-c", START + script],
        env={
            **os.environ,
            "PYTHONPATH": f"{tests}:{tests.parent}",
            "SEED": str(seed()),
            "CUTS": os.environ.get("GANETI_TEST_ROUNDS", "8"),
        },
        capture_output=True,
        text=True,
        timeout=500,
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no right to make network namespaces or taps here")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all well\n"

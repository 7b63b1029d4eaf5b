"""Guests on the interfaces that lead to their node, which has the metadata daemon (root).

Node and guests are network namespaces, with a virtual cable in the place of each tap; then a real
Linux guest asks over a real tap.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import lan
from guests import images
from guests.nodes import QEMU

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not lan.is_possible(), reason="needs root and network namespaces"),
]

TIMEOUT_S = 120
LINUX_TIMEOUT_S = 300

SCRIPT = """
import json, os, subprocess, sys, tempfile
from pathlib import Path
from ganeti.base.paths import Paths
from ganeti.netdev import taps
from ganeti.netdev.backends import BackendKind, NicBackend
from ganeti.objects.nic import NODE_ADDRESS
from ganeti.protocol.node_rpc_values import GuestMetadata
from ganeti.system import daemon_control
from ganeti.transport.unix_client import UnixClient

NAME, ONE, TWO = "node1.example.com", "169.254.1.1", "169.254.1.2"
ASK = '''
import http.client, sys
source, target = sys.argv[1:]
connection = http.client.HTTPConnection(target, 80, timeout=2, source_address=(source, 0))
connection.request("GET", "/latest/meta-data/local-hostname")
print(connection.getresponse().read().decode())
'''

SEND = '''
import contextlib, socket, sys
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as connection:
    connection.settimeout(1)
    connection.connect((sys.argv[1], 9))
    connection.send(b"x")
    with contextlib.suppress(OSError):
        connection.recv(1)
'''

def run(*words, check=True):
    return subprocess.run(words, capture_output=True, text=True, check=check)

def make_peer(tap, address):
    process = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo; exec sleep 300"], stdout=subprocess.PIPE)
    process.stdout.readline()
    run("ip", "link", "add", tap, "type", "veth", "peer", "name", "guest0")
    run("ip", "link", "set", "guest0", "netns", str(process.pid))
    inside = ["nsenter", "-t", str(process.pid), "-n"]
    run(*inside, "ip", "addr", "add", address + "/16", "dev", "guest0")
    run(*inside, "ip", "link", "set", "guest0", "up")
    return process, inside

def make_guest(number, address):
    tap = f"gnt.com.{number}"
    process, inside = make_peer(tap, address)
    backend = NicBackend("u", BackendKind.TAP, tap=tap, mode="routed", ip=address, to_node=True)
    for step in taps.attach_steps(backend):
        taps._run(step)
    return process, inside

run("mount", "-t", "sysfs", "sysfs", "/sys")  # that of the namespace
run("ip", "link", "set", "lo", "up")
Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
guests = [make_guest(0, ONE), make_guest(1, TWO)]
insides = [inside for _process, inside in guests]
outside = make_peer("out0", "192.0.2.2")
run("ip", "link", "set", "out0", "up")

def ask(inside, source, target=NODE_ADDRESS):
    return run(*inside, sys.executable, "-c", ASK, source, target, check=False)

def arrived(inside, target):
    '''Return how many datagrams have arrived outside, after one more is sent.'''
    run(*inside, sys.executable, "-c", SEND, target)
    rows = run(*outside[1], "cat", "/proc/net/snmp6").stdout.splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("Udp6NoPorts "))

with tempfile.TemporaryDirectory(prefix="gnt") as base:
    paths = Paths(f"{base}/{NAME}")
    for path in (paths.data_dir, paths.lock_dir, paths.conf_dir):
        os.makedirs(path)
    Path(paths.etc_hosts).write_text(f"127.0.0.1 {NAME}\\n")
    daemon_control.start_daemon(
        paths, "ganeti-metad", ["--bind", NODE_ADDRESS, "--port", "8080"], hostname=NAME)
    daemon_control.stop_daemon(paths, "ganeti-metad")
    # Port 80 stands for one of its own on a virtual node, unless an address is given.
    daemon_control.start_daemon(paths, "ganeti-metad", ["--bind", NODE_ADDRESS], hostname=NAME)
    try:
        with UnixClient(paths.metad_socket) as client:
            for name, address in (("one", ONE), ("two", TWO)):
                guest = GuestMetadata(name=name, uuid=name, address=address)
                client.call("updateConfig", [guest.to_wire()])
        assert ask(insides[0], ONE).stdout == "one\\n", ask(insides[0], ONE)
        assert ask(insides[1], TWO).stdout == "two\\n"

        # Nobody gets an answer for another's address, or reaches another.
        run(*insides[0], "ip", "addr", "add", TWO + "/32", "dev", "guest0")
        assert "imed out" in ask(insides[0], TWO).stderr, ask(insides[0], TWO)
        assert ask(insides[1], TWO).stdout == "two\\n"
        run(*insides[0], "ip", "addr", "del", TWO + "/32", "dev", "guest0")
        run(*insides[0], "ip", "route", "add", TWO + "/32", "via", NODE_ADDRESS, "dev", "guest0")
        assert "imed out" in ask(insides[0], ONE, TWO).stderr, ask(insides[0], ONE, TWO)
        assert ask(insides[0], ONE).stdout == "one\\n"

        # Nor does the node forward IPv6, if it does so for others.
        if os.path.exists("/proc/sys/net/ipv6"):
            Path("/proc/sys/net/ipv6/conf/all/forwarding").write_text("1")
            near = json.loads(run("ip", "-j", "link", "show", "dev", "gnt.com.0").stdout)[0]
            run("ip", "-6", "addr", "add", "fd00:2::1/64", "dev", "out0", "nodad")
            run(*outside[1], "ip", "-6", "addr", "add", "fd00:2::2/64", "dev", "guest0", "nodad")
            run(*insides[0], "ip", "-6", "addr", "add", "fd00:1::9/64", "dev", "guest0", "nodad")
            to_node = ["fd00:1::1", "dev", "guest0"]
            run(*insides[0], "ip", "-6", "neigh", "add", *to_node, "lladdr", near["address"])
            run(*insides[0], "ip", "-6", "route", "add", "fd00:2::/64", "via", *to_node)
            assert arrived([], "fd00:2::2") == 1, "the node itself reaches it"
            assert arrived(insides[0], "fd00:2::2") == 1

        # An interface that goes takes its address and route with it.
        taps.remove_tap("gnt.com.0", "routed")
        assert ONE not in run("ip", "route").stdout
        assert ask(insides[1], TWO).stdout == "two\\n"
    finally:
        daemon_control.stop_daemon(paths, "ganeti-metad")
        for process, _inside in (*guests, outside):
            process.kill()
            process.wait()
"""


def test_guests_reach_their_node_and_nobody_else() -> None:
    argv = ["unshare", "--net", "--mount", sys.executable, "-c", SCRIPT]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


LINUX = """
import os, subprocess, sys, tempfile
from pathlib import Path
from fakes.waiting import wait_until
from guests.instances import make_instance
from guests.nodes import kvm_nodes
from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import NodeEnv
from ganeti.netdev.taps import can_make_taps
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.protocol.node_rpc_values import GuestMetadata
from ganeti.system import daemon_control
from ganeti.transport.unix_client import UnixClient

kernel, initrd = sys.argv[1:]
WAIT_S = 200
NAME, GUEST, ADDRESS = "node1.example.com", "asks.example.com", "169.254.169.9"
PAGE = "169.254.169.254/latest/meta-data/local-hostname"
subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)  # that of the namespace
if not can_make_taps():
    sys.exit(77)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
NodeEnv.is_virtual = property(lambda _self: False)  # it has its network for itself
nic = {"mac": "52:54:00:00:00:01", "uuid": "a8ea3c51-895c-49a4-ba49-3cf1863fbc11", "ip": ADDRESS,
       "name": "ganeti:communication:" + GUEST,
       "nicparams": {"mode": "routed", "link": "communication_rt", "vlan": ""}}
bare = make_instance(GUEST, memory_mib=128, network_port=None, kernel_path=kernel, root_path="",
    initrd_path=initrd, kvm_flag="disabled",
    kernel_args=f"quiet panic=1 tiny_ip={ADDRESS} tiny_get={PAGE}")
instance = RpcInstance.from_wire(bare.to_wire() | {"nics": [nic]})
with kvm_nodes() as nodes, tempfile.TemporaryDirectory(prefix="gnt") as base:
    paths = Paths(f"{base}/{NAME}")
    for path in (paths.data_dir, paths.lock_dir, paths.conf_dir):
        os.makedirs(path)
    Path(paths.etc_hosts).write_text(f"127.0.0.1 {NAME}\\n")
    node = nodes.nodes[0]
    node.driver.start(instance, [])
    assert "gnt.com.63fbc11" in subprocess.run(["ip", "link"], capture_output=True, text=True).stdout
    daemon_control.start_daemon(paths, "ganeti-metad", ["--bind", "169.254.169.254"], hostname=NAME)
    try:
        with UnixClient(paths.metad_socket) as client:
            guest = GuestMetadata(name=GUEST, uuid="u", address=ADDRESS)
            client.call("updateConfig", [guest.to_wire()])
        said = lambda: node.serial(GUEST)
        try:
            wait_until(lambda: f"GET {GUEST}" in said(), "the answer", timeout_s=WAIT_S)
        except AssertionError as err:
            raise SystemExit(f"{err}: {said()[-2000:]}") from err
    finally:
        daemon_control.stop_daemon(paths, "ganeti-metad")
        node.driver.stop(GUEST, force=True)
print("all well")
"""


@pytest.mark.qemu
@pytest.mark.skipif(QEMU is None, reason="needs qemu-system-x86_64")
def test_a_linux_guest_asks_over_its_tap() -> None:
    found = images.tiny_linux()
    if found is None:
        pytest.skip(f"no Linux guest: {images.why_no_linux}")
    tests = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, "-c", LINUX, *found],
        env={**os.environ, "PYTHONPATH": f"{tests}:{tests.parent}"},
        capture_output=True,
        text=True,
        timeout=LINUX_TIMEOUT_S,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip("no right to make taps here")
    assert done.stdout == "all well\n", done.stderr

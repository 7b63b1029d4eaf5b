"""The master's address on a real interface, in a network namespace (root)."""

from __future__ import annotations

import subprocess
import sys

import pytest
from fakes import lan

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not lan.is_possible(), reason="needs root and network namespaces"),
]

TIMEOUT_S = 120

NODE = """
import json, os, subprocess, sys
from pathlib import Path
from ganeti.base.errors import GenericError
from ganeti.base.ids import NodeUuid
from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine.master import Master
from ganeti.objects.model import IpFamily, MasterNetworkParameters
from ganeti.system import environment

def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout

def here():
    links = json.loads(run("ip", "-j", "addr", "show", "dev", "net0", "scope", "global"))
    found = [each for link in links for each in link.get("addr_info", ()) if each]
    return [f"{each['local']}/{each['prefixlen']}" for each in found]

run("mount", "-t", "tmpfs", "tmpfs", os.path.realpath(Paths().lock_dir))
run("ip", "link", "set", "lo", "up")
run("ip", "link", "add", "net0", "type", "veth", "peer", "name", "net1")
for name in ("net0", "net1"):
    run("ip", "link", "set", name, "up")
node = Master(NodeContext(Paths(), "node1.example.com"))
"""


def play(script: str) -> None:
    """Run a script on a node that has networks of its own; the master address is to be on net0."""
    argv = ["unshare", "--net", "--mount", sys.executable, "-c", NODE + script]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


def test_an_address_that_programs_may_only_wait_at_is_set_up() -> None:
    play("""
for version, address, netmask in ((4, "192.0.2.77", 32), (6, "2001:db8::77", 128)):
    setting = Path(f"/proc/sys/net/ipv{version}/ip_nonlocal_bind")
    if not setting.exists():  # a kernel without IPv6
        continue
    setting.write_text("1")
    family = IpFamily.IPV6 if version == 6 else IpFamily.IPV4
    params = MasterNetworkParameters(
        uuid=NodeUuid("u"), ip=address, netmask=netmask, netdev="net0", ip_family=family)
    assert not environment.is_own_address(address)
    node.node_activate_master_ip(params, use_external_mip_script=False)
    assert here() == [f"{address}/{netmask}"]
    node.node_activate_master_ip(params, use_external_mip_script=False)
    assert environment.is_own_address(address)
    node.node_deactivate_master_ip(params, use_external_mip_script=False)
    assert here() == []
    node.node_deactivate_master_ip(params, use_external_mip_script=False)
assert environment.is_own_address("127.9.8.7"), "nodes of a virtual cluster have any of these"
assert environment.is_own_address("::1") or not Path("/proc/sys/net/ipv6").exists()
""")


def test_the_netmask_is_changed_or_remains() -> None:
    play("""
def change(old, new):
    node.node_change_master_netmask(old, new, address, "net0")

for address, old, new, wrong in (("192.0.2.77", 32, 24, 33), ("2001:db8::77", 128, 64, 129)):
    if ":" in address and not Path("/proc/sys/net/ipv6").exists():
        continue
    run("ip", "addr", "add", f"{address}/{old}", "dev", "net0", *(["nodad"] * (":" in address)))
    change(old, new)
    assert here() == [f"{address}/{new}"]
    try:
        change(new, wrong)
    except GenericError:
        assert here() == [f"{address}/{new}"], here()
    else:
        raise AssertionError("there is no such netmask")
    run("ip", "addr", "del", f"{address}/{new}", "dev", "net0")
try:
    change(64, 128)
except GenericError as err:
    assert "is not on node" in err.message, err
else:
    raise AssertionError("the address is not here")
""")

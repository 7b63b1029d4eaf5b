"""A guest on a bridge, in a network namespace of its own (root)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from guests.nodes import QEMU

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.root,
    pytest.mark.skipif(QEMU is None, reason="needs qemu-system-x86_64"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network namespace"),
    pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare"),
]

SCRIPT = """
import subprocess, sys
from guests.instances import make_instance
from guests.nodes import kvm_nodes
from ganeti.base.errors import HypervisorError
from ganeti.netdev.taps import can_make_taps

def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=True)
    return done.stdout

subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)  # that of the namespace
if not can_make_taps():
    sys.exit(77)
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


def test_taps_come_and_go_with_the_guest() -> None:
    tests = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": f"{tests}:{tests.parent}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no right to make network namespaces or taps here")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all well\n"

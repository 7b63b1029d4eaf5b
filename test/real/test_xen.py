"""Domains of a real Xen, on a machine of the rig: first by the driver alone, then by commands.

The tests build on one another.
"""

from __future__ import annotations

import json
import shlex
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rig.cluster import make_cluster
from rig.virtual_machines import VOLUME_GROUP, VirtualMachine
from rig.xen import CONSOLES, GUEST, xen_machine

PLACE = "/root/driver"
PYTHON = "/opt/ganeti/bin/python"
UP_TIMEOUT_S = 300.0
GUESTS = Path(__file__).parents[1] / "guests"
KERNEL = f"kernel_path={GUEST}/vmlinuz,initrd_path={GUEST}/initrd,kernel_args=console=hvc0"
NAME, HVM, WEB = "i1.example.com", "hvm1.example.com", "web1.example.com"
# The driver, told by words: {what it is to do} -> {what it says}
PROGRAM = """
import json, sys
from guests.instances import make_instance
from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import AssembledDisk, ConsoleNode, NodeEnv, get_hypervisor
from ganeti.objects.hypervisors import RebootType

order = json.loads(sys.argv[1])
kind = order.get("kind", "xen-pvm")
params = {"blockdev_prefix": "xvd"}
if kind == "xen-pvm":
    params |= {"kernel_path": "/srv/guest/vmlinuz", "initrd_path": "/srv/guest/initrd"}
    params["kernel_args"] = "ro console=hvc0 quiet"
else:
    params |= {"vnc_password_file": "", "blockdev_prefix": "hd", "vnc_bind_address": "0.0.0.0"}
instance = make_instance(order["name"], kind, memory_mib=96, uuid=order["uuid"], **params)
disks = [AssembledDisk(0, "u", "/dev/xenvg/" + order["name"], 64)]
driver = get_hypervisor(kind, NodeEnv(Paths(""), "node1", "127.0.0.1"), instance.hvparams)
moving = driver.migration
steps = {
    "start": lambda: driver.start(instance, disks),
    "info": lambda: (found := driver.instance_info(instance.name)) and found.to_wire(),
    "list": driver.list_instances,
    "node": driver.node_info,
    "verify": driver.verify,
    "balloon": lambda: driver.balloon(instance.name, 80),
    "reboot": lambda: driver.reboot(instance, disks, kind=RebootType.SOFT, timeout_s=300),
    "stop": lambda: driver.stop(instance.name, timeout_s=120),
    "console": lambda: driver.consoles(instance, ConsoleNode("node1", "192.0.2.1"))[-1].command,
    "send": lambda: moving.send(instance, "localhost", live=True),
    "status": lambda: moving.status(instance, wait_s=60).to_wire(),
    "back": lambda: moving.finish_source(instance, success=False, live=True),
}
try:
    said = {"said": steps[order["do"]]()}
except GenericError as err:
    said = {"error": err.message}
print(json.dumps(said))
"""

Say = Callable[..., Any]


@pytest.fixture(scope="module")
def machine(root: None) -> Iterator[VirtualMachine]:
    with xen_machine() as running:
        yield running


@pytest.fixture(scope="module")
def driver(machine: VirtualMachine) -> Say:
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            archive.add(GUESTS, "guests")
        file.seek(0)
        machine.run(f"mkdir -p {PLACE}; tar -x -C {PLACE}", file.read())
    machine.run(f"cat > {PLACE}/do.py", PROGRAM)
    for name in (NAME, HVM):
        machine.run(f"lvcreate -q -y -L 64M -n {name} {VOLUME_GROUP}")

    def say(do: str, name: str = NAME, **more: Any) -> Any:
        uuid = "d57ad28d-8ef1-47df-9747-d09279cc83" + ("51" if name == NAME else "52")
        order = json.dumps({"do": do, "name": name, "uuid": uuid, **more})
        command = f"cd {PLACE} && PYTHONPATH={PLACE} {PYTHON} do.py {shlex.quote(order)}"
        return json.loads(machine.run(command).splitlines()[-1])

    return say


def wait_booted(machine: VirtualMachine, count: int, name: str = NAME) -> None:
    log = f"{CONSOLES}/guest-{name}.log"
    machine.wait_until(f"test $(grep -ac GUEST-UP {log}) -ge {count}", UP_TIMEOUT_S)


def test_the_node_tells_its_resources(driver: Say) -> None:
    assert driver("verify") == {"said": None}
    found = driver("node")["said"]
    assert found["memory_total"] > found["memory_dom0"] > 100
    assert found["memory_hv"] >= 0
    assert found["hv_version"][0] == 4


def test_a_paravirtual_guest_starts(machine: VirtualMachine, driver: Say) -> None:
    assert driver("start") == {"said": None}
    wait_booted(machine, 1)
    assert driver("list") == {"said": [NAME]}
    assert driver("list", kind="xen-hvm") == {"said": []}
    info = driver("info")["said"]
    assert (info["memory"], info["vcpus"], info["state"]) == (96, 1, 0)
    assert "already" in driver("start")["error"]


def test_its_memory_and_its_reboot(machine: VirtualMachine, driver: Say) -> None:
    assert driver("balloon") == {"said": None}
    assert driver("info")["said"]["memory"] == 80
    assert driver("reboot") == {"said": None}
    wait_booted(machine, 2)


def test_live_migration_ends_as_this_xen_can(machine: VirtualMachine, driver: Say) -> None:
    """Debian's Xen cannot migrate paravirtual guests live: the guest has to stay where it is."""
    assert driver("send") == {"said": None}
    for _ in range(10):
        found = driver("status")["said"]
        if found["status"] != "active":
            break
    if found["status"] == "failed":
        assert found["error"]
        assert driver("back") == {"said": None}
    assert driver("list") == {"said": [NAME]}
    assert "--incoming" not in machine.run("xl list")


def test_its_console_and_its_end(machine: VirtualMachine, driver: Say) -> None:
    command = shlex.join(driver("console")["said"])
    shown = machine.run(f"(sleep 6) | timeout 8 script -qc {shlex.quote(command)} /dev/null || :")
    assert shown
    assert driver("stop") == {"said": None}
    assert NAME not in machine.run("xl list")
    assert NAME not in machine.run("ls /etc/xen")


def test_a_full_machine_starts_and_is_removed(machine: VirtualMachine, driver: Say) -> None:
    assert driver("start", HVM, kind="xen-hvm") == {"said": None}
    assert driver("list", HVM, kind="xen-hvm") == {"said": [HVM]}
    assert driver("list") == {"said": []}
    machine.run("ss -ltn | grep :11000")
    machine.run(f"xl destroy {HVM}")
    assert driver("stop", HVM, kind="xen-hvm") == {"said": None}
    assert HVM not in machine.run("ls /etc/xen")


def field(machine: VirtualMachine, names: str) -> list[str]:
    return machine.run(f"gnt-instance list --no-headers -o {names} {WEB}").split()


def test_an_instance_is_a_domain(machine: VirtualMachine) -> None:
    make_cluster([machine])
    params = f"-H xen-pvm:{KERNEL} -H xen-hvm:vnc_password_file="
    machine.run(f"gnt-cluster modify --enabled-hypervisors=xen-pvm,xen-hvm {params}")
    found = machine.try_run("gnt-cluster verify")
    assert "hypervisor" not in found.out + found.err
    machine.run(
        f"gnt-instance add -H xen-pvm -t plain -s 64m -o bootsector+default -n {machine.name}"
        f" --no-name-check --no-ip-check -B maxmem=96,minmem=80 --net 0:link=br0 {WEB}"
    )
    wait_booted(machine, 1, WEB)
    assert field(machine, "status,oper_ram,oper_vcpus") == ["running", "96M", "1"]
    log = machine.run(f"grep -a GUEST-UP {CONSOLES}/guest-{WEB}.log")
    assert "disks=xvda" in log
    assert "nics=eth0" in log
    assert "vif" in machine.run("ip -o link show master br0")
    assert f"xl console {WEB}" in machine.run(f"gnt-instance console --show-cmd {WEB}")


def test_commands_change_and_end_it(machine: VirtualMachine) -> None:
    machine.run(f"gnt-instance modify -m 80 {WEB}")
    assert field(machine, "oper_ram") == ["80M"]
    machine.run(f"gnt-instance reboot {WEB}")
    wait_booted(machine, 2, WEB)
    machine.run(f"xl destroy {WEB}")  # as if it had crashed
    assert field(machine, "status") == ["ERROR_down"]
    machine.run(f"gnt-instance startup {WEB}")
    wait_booted(machine, 3, WEB)
    machine.run(f"gnt-instance shutdown {WEB}")
    assert field(machine, "status") == ["ADMIN_down"]
    assert WEB not in machine.run("xl list")
    machine.run(f"gnt-instance remove -f {WEB}")
    assert WEB not in machine.run("ls /etc/xen; lvs")

"""The driver of Xen on a machine with the real one; ``GANETI_TEST_XEN`` is how a command runs there.

That is the beginning of a command, as ``ssh -i KEY root@192.0.2.11``, for a machine with Debian 12,
Xen, Python and the volume group xenvg, where a kernel and an initial RAM disk for guests lie at
/srv/guest (a guest that says GUEST-UP on its console, and obeys ``xl shutdown`` and ``xl reboot``).
The driver is copied there, with what it imports: it needs no installation.  The tests build on one another.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ganeti

REACHED_BY = shlex.split(os.environ.get("GANETI_TEST_XEN", ""))
PLACE = "/root/driver"
TIMEOUT_S = 1200  # such a machine is emulated
NAME, HVM = "i1.example.com", "hvm1.example.com"
BOOTED = f"grep -a GUEST-UP /var/log/xen/console/guest-{NAME}.log"
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

pytestmark = pytest.mark.skipif(not REACHED_BY, reason="GANETI_TEST_XEN names no machine with Xen")
Say = Callable[..., Any]


def there(command: str, stdin: bytes = b"") -> str:
    """Run a command on the machine."""
    done = subprocess.run(
        [*REACHED_BY, command], input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout!r} {done.stderr!r}"
    return done.stdout.decode()


def _archive() -> bytes:
    sources = {"ganeti": Path(ganeti.__file__).parent, "msgspec": Path(msgspec.__file__).parent}
    sources["guests"] = Path(__file__).parents[1] / "guests"
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, path in sources.items():
                archive.add(path, name, filter=lambda info: None if "/ui/" in info.name else info)
        file.seek(0)
        return file.read()


@pytest.fixture(scope="module")
def driver() -> Say:
    assert sys.version_info[:2] == (3, 11), "msgspec is copied as it is: Debian 12 has Python 3.11"
    there(f"rm -rf {PLACE}; mkdir -p {PLACE}; tar -xz -C {PLACE}", _archive())
    there(f"cat > {PLACE}/do.py", PROGRAM.encode())
    there("modprobe -a xen-blkback xen-netback loop dm-mod")
    there("vgs xenvg || { pvcreate -q /dev/vdb && vgcreate -q xenvg /dev/vdb; }")
    for name in (NAME, HVM):
        there(f"lvs xenvg/{name} || lvcreate -q -y -L 64M -n {name} xenvg")

    def say(do: str, name: str = NAME, **more: Any) -> Any:
        uuid = "d57ad28d-8ef1-47df-9747-d09279cc83" + ("51" if name == NAME else "52")
        order = json.dumps({"do": do, "name": name, "uuid": uuid, **more})
        command = f"cd {PLACE} && PYTHONPATH={PLACE} python3 do.py {shlex.quote(order)}"
        return json.loads(there(command).splitlines()[-1])

    return say


def wait_booted(count: int) -> None:
    there(
        f"for n in $(seq 300); do [ $({BOOTED} | wc -l) -ge {count} ] && exit; sleep 1; done; exit 1"
    )


def test_the_node_tells_its_resources(driver: Say) -> None:
    assert driver("verify") == {"said": None}
    found = driver("node")["said"]
    assert found["memory_total"] > found["memory_dom0"] > 100
    assert found["memory_hv"] >= 0
    assert found["hv_version"][0] == 4


def test_a_paravirtual_guest_starts(driver: Say) -> None:
    there(f"rm -f /var/log/xen/console/guest-{NAME}.log")
    assert driver("start") == {"said": None}
    wait_booted(1)
    assert driver("list") == {"said": [NAME]}
    assert driver("list", kind="xen-hvm") == {"said": []}
    info = driver("info")["said"]
    assert (info["memory"], info["vcpus"], info["state"]) == (96, 1, 0)
    assert "already" in driver("start")["error"]


def test_its_memory_and_its_reboot(driver: Say) -> None:
    assert driver("balloon") == {"said": None}
    assert driver("info")["said"]["memory"] == 80
    assert driver("reboot") == {"said": None}
    wait_booted(2)


def test_live_migration_ends_as_this_xen_can(driver: Say) -> None:
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
    assert "--incoming" not in there("xl list")


def test_its_console_and_its_end(driver: Say) -> None:
    command = shlex.join(driver("console")["said"])
    shown = there(f"(sleep 6) | timeout 8 script -qc {shlex.quote(command)} /dev/null || :")
    assert shown
    assert driver("stop") == {"said": None}
    assert NAME not in there("xl list")
    assert NAME not in there("ls /etc/xen")


def test_a_full_machine_starts_and_is_removed(driver: Say) -> None:
    assert driver("start", HVM, kind="xen-hvm") == {"said": None}
    assert driver("list", HVM, kind="xen-hvm") == {"said": [HVM]}
    assert driver("list") == {"said": []}
    there("ss -ltn | grep :11000")
    there(f"xl destroy {HVM}")
    assert driver("stop", HVM, kind="xen-hvm") == {"said": None}
    assert HVM not in there("ls /etc/xen")

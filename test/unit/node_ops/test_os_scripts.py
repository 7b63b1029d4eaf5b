"""What OS scripts are told, golden."""

import re

import pytest
from fakes.rpc_instances import PRIMARY, SECONDARY, UUID, rpc_instance

from ganeti.cli.documents.write import documents
from ganeti.hypervisor.interface import AssembledDisk
from ganeti.node_ops.instances import os_definitions
from ganeti.node_ops.instances.os_definitions import OsDefinition
from ganeti.node_ops.instances.os_scripts import instance_environment
from ganeti.objects.rpc_instance import RpcInstance

DISKS = [
    AssembledDisk(0, "u0", "/dev/loop0", 4),
    AssembledDisk(1, "u1", "/dev/loop1", 8, uri="kvm:file:/x"),
]

GOLDEN = f"""\
DISK_0_ACCESS=rw
DISK_0_BACKEND_TYPE=file:loop
DISK_0_FRONTEND_TYPE=paravirtual
DISK_0_PATH=/dev/loop0
DISK_0_SIZE=4
DISK_0_UUID=ee8b6d3b-9c9e-48f4-9373-1b4a3fd556cd
DISK_1_ACCESS=ro
DISK_1_BACKEND_TYPE=file:loop
DISK_1_FRONTEND_TYPE=paravirtual
DISK_1_NAME=data
DISK_1_PATH=/dev/loop1
DISK_1_SIZE=8
DISK_1_URI=kvm:file:/x
DISK_1_UUID=ee8b6d3b-9c9e-48f4-9373-1b4a3fd556ce
DISK_COUNT=2
HYPERVISOR=fake
INSTANCE_BE_always_failover=False
INSTANCE_BE_auto_balance=True
INSTANCE_BE_maxmem=256
INSTANCE_BE_minmem=128
INSTANCE_BE_spindle_use=1
INSTANCE_BE_vcpus=2
INSTANCE_CTIME=1795236758.5
INSTANCE_HV_acpi=True
INSTANCE_HV_boot_order=None
INSTANCE_HV_disk_type=paravirtual
INSTANCE_HV_nic_type=e1000
INSTANCE_MTIME=1795236765.25
INSTANCE_NAME=inst1.example.com
INSTANCE_OS=noop+big
INSTANCE_PRIMARY_NODE={PRIMARY}
INSTANCE_SECONDARY_NODES={SECONDARY}
INSTANCE_UUID={UUID}
NIC_0_BRIDGE=br0
NIC_0_FRONTEND_TYPE=e1000
NIC_0_IP=10.9.0.2
NIC_0_LINK=br0
NIC_0_MAC=aa:00:00:3d:30:80
NIC_0_MODE=bridged
NIC_0_NETWORK_GATEWAY=10.9.0.1
NIC_0_NETWORK_MAC_PREFIX=aa:00:01
NIC_0_NETWORK_NAME=net1
NIC_0_NETWORK_SUBNET=10.9.0.0/28
NIC_0_NETWORK_TAGS=a b
NIC_0_NETWORK_UUID=45fbaa90-f4da-4de8-93e4-78e1958d9f98
NIC_0_UUID=a8ea3c51-895c-49a4-ba49-3cf1863fbc41
NIC_1_FRONTEND_TYPE=e1000
NIC_1_LINK=100
NIC_1_MAC=aa:00:00:3d:30:81
NIC_1_MODE=routed
NIC_1_NAME=mgmt
NIC_1_UUID=b8ea3c51-895c-49a4-ba49-3cf1863fbc42
NIC_COUNT=2
"""


@pytest.mark.shows(
    "2.0/variable-nics/os-interface",
    "2.0/os/environment",
    "2.0/os/generic",
    "2.0/os/hypervisors",
    "2.0/os-input/name",
    "2.0/os-input/hypervisor",
    "2.0/os-input/disk-count",
    "2.0/os-input/nic-count",
    "2.0/os-input/disk-path",
    "2.0/os-input/disk-access",
    "2.0/os-input/disk-frontend",
    "2.0/os-input/disk-backend",
    "2.0/os-input/nic-mac",
    "2.0/os-input/nic-ip",
    "2.0/os-input/nic-bridge",
    "2.0/os-input/nic-frontend",
    "2.1/os-versions/filtered",
    "2.1/os-variables/hypervisor",
    "2.1/os-variables/hvparams",
)
def test_an_instance_in_variables() -> None:
    instance = RpcInstance.from_wire(rpc_instance())
    env = instance_environment(instance, DISKS, 20)
    assert "".join(f"{name}={env[name]}\n" for name in sorted(env)) == GOLDEN
    older = instance_environment(instance, DISKS, 10)
    assert older == {name: env[name] for name in env if not name.startswith("INSTANCE_HV_")}


@pytest.mark.shows("2.0/os-input/disk-backend")
def test_a_block_device_is_called_block_and_no_device_has_no_path() -> None:
    wire = rpc_instance()
    wire["disks_info"][0].update(dev_type="plain", logical_id=["xenvg", "lv"])
    devices = [AssembledDisk(0, "u0", "", 4, uri="rbd:x"), DISKS[1]]
    env = instance_environment(RpcInstance.from_wire(wire), devices, 20)
    assert env["DISK_0_BACKEND_TYPE"] == "block"
    assert "DISK_0_PATH" not in env
    assert env["DISK_0_URI"] == "rbd:x"


@pytest.mark.shows(
    "2.0/os-input/api-version",
    "2.0/os-input/debug",
    "2.0/os-declared/newest",
    "2.1/os-versions/both",
    "2.1/variants/name",
    "2.1/variants/told",
)
@pytest.mark.parametrize(
    ("versions", "variants", "full_name", "version", "variant"),
    [
        ((10,), (), "noop", "10", ""),
        ((15, 10), ("big", "small"), "noop+small", "15", "small"),
        ((25, 20, 15), ("big", "small"), "noop", "20", "big"),
    ],
)
def test_what_every_script_is_told(
    versions: tuple[int, ...], variants: tuple[str, ...], full_name: str, version: str, variant: str
) -> None:
    definition = OsDefinition("noop", "/os/noop", versions, {}, variants, ())
    env = os_definitions.core_environment(definition, full_name, {"root-size": "2g"}, 3)
    assert env == {
        "OS_API_VERSION": version,
        "OS_NAME": "noop",
        "OS_VARIANT": variant,
        "DEBUG_LEVEL": "3",
        "PATH": "/sbin:/bin:/usr/sbin:/usr/bin",
        "OSP_ROOT_SIZE": "2g",
    }


@pytest.mark.shows("2.0/os-input/documented")
def test_the_manual_page_names_every_variable() -> None:
    definition = OsDefinition("noop", "/os/noop", (20,), {}, ("big",), ())
    core = os_definitions.core_environment(definition, "noop", {"size": "2g"}, 0)
    names = {re.sub(r"_\d+_", "_N_", line.partition("=")[0]) for line in GOLDEN.splitlines()}
    names |= {name for name in core if not name.startswith("OSP_")}
    names |= {"INSTANCE_REINSTALL", "OLD_INSTANCE_NAME"}
    names |= {f"{kind}_{what}" for kind in ("EXPORT", "IMPORT") for what in ("DEVICE", "INDEX")}
    page = re.sub(r"\\f.|\\", "", documents()["man/ganeti-os-interface.7"])
    words = set(re.findall(r"[A-Z_0-9]{3,}", page))
    missing = {
        name
        for name in names
        if name not in words
        and not name.startswith(("INSTANCE_BE_", "INSTANCE_HV_"))
        and not (name.startswith("NIC_N_NETWORK_") and name.rpartition("NETWORK_")[2] in words)
    }
    assert not missing
    assert {"INSTANCE_BE_NAME", "INSTANCE_HV_NAME", "OSP_NAME"} <= words

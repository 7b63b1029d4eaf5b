"""The example that installs a real Debian: what it would do."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.instances import os_definitions

EXAMPLE = Path(__file__).resolve().parents[2] / "doc" / "examples" / "os" / "debootstrap"
DISK = {"DISK_COUNT": "1", "DISK_0_PATH": "/nowhere/disk", "DISK_0_SIZE": "2048"}
INSTANCE = {"INSTANCE_NAME": "deb1.example.com", "OS_VARIANT": "bookworm", "OSP_DRY_RUN": "yes"}


def run(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [EXAMPLE / script],
        env={"PATH": os.environ["PATH"], **INSTANCE, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_is_a_valid_definition(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    shutil.copytree(EXAMPLE, Path(paths.os_search_path[0]) / "debootstrap")
    definition = os_definitions.load(paths, "debootstrap+bookworm")
    assert definition.variants == ("bookworm", "trixie")
    assert definition.hypervisors == ("kvm", "fake")
    context = NodeContext(paths, "node1.example.com")
    for params, is_valid in (
        ({"mirror": "http://deb.example.com", "packages": "vim,less"}, True),
        ({"mirror": "ftp://deb.example.com"}, False),
        ({"packages": "vim; rm"}, False),
        ({"dry_run": "maybe"}, False),
        ({"kernel": "linux-image-amd64"}, True),
        ({"kernel": "linux-image-amd64,vim"}, False),
        ({"kernel": "vim"}, False),
        ({"cache": "/"}, True),
        ({"cache": "packages"}, False),
        ({"cache": "/nowhere/at/all"}, False),
        ({"root_password_hash": "$6$salt$hash"}, True),
        ({"root_password_hash": "in clear"}, False),
    ):
        arguments = (True, "debootstrap+trixie", ["parameters"], params, False)
        if is_valid:
            assert os_definitions.OsDefinitions(context).os_validate(*arguments)
        else:
            with pytest.raises(Exception, match=next(iter(params))):
                os_definitions.OsDefinitions(context).os_validate(*arguments)


def test_what_create_would_do_is_in_order_and_undone() -> None:
    result = run("create", **DISK, NIC_0_IP="192.0.2.5", NIC_0_NETWORK_SUBNET="192.0.2.0/24")
    assert result.returncode == 0, result.stderr
    steps = ["sfdisk", "mkfs.ext4", "mount -t ext4", "debootstrap --variant", "extlinux --install"]
    steps += ["mbr.bin", "umount", "rmdir"]
    places = [result.stdout.index(step) for step in steps]
    assert places == sorted(places)


@pytest.mark.shows("2.0/variable-nics/os-interface", "2.0/os/generic")
def test_every_network_card_gets_its_settings() -> None:
    result = run("create", **DISK, NIC_COUNT="2")
    assert "interfaces.d/eth0" in result.stdout
    assert "interfaces.d/eth1" in result.stdout
    assert "interfaces.d" not in run("create", **DISK).stdout


def test_an_address_of_ipv6_is_written_as_such() -> None:
    networks = {"NIC_0_NETWORK_SUBNET": "192.0.2.0/24", "NIC_0_NETWORK_GATEWAY": "192.0.2.1"}
    networks |= {"NIC_0_NETWORK_SUBNET6": "2001:db8::/64", "NIC_0_NETWORK_GATEWAY6": "2001:db8::1"}
    for address, text in (
        ("2001:db8::77", "inet6 static address 2001:db8::77/64 gateway 2001:db8::1"),
        ("192.0.2.77", "inet static address 192.0.2.77/24 gateway 192.0.2.1"),
    ):
        result = run("create", **DISK, NIC_COUNT="1", NIC_0_IP=address, **networks)
        assert f"iface eth0 {text}" in " ".join(result.stdout.split())


def test_rename_mounts_and_undoes() -> None:
    result = run("rename", **DISK, OLD_INSTANCE_NAME="old.example.com")
    assert result.returncode == 0, result.stderr
    assert "would write: /tmp/target/etc/hostname" in result.stdout
    assert "would run: umount --recursive /tmp/target" in result.stdout


@pytest.mark.parametrize(
    ("env", "text"),
    [
        ({}, "has no disk"),
        ({"DISK_COUNT": "1"}, "has no path"),
        ({**DISK, "DISK_0_SIZE": "64"}, "1024 MiB or more"),
    ],
)
def test_disks_that_will_not_do(env: dict[str, str], text: str) -> None:
    result = run("create", **env)
    assert result.returncode == 1
    assert text in result.stderr

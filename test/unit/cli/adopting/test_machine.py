"""The words of ``gnt-instance add`` that adopt a machine."""

from __future__ import annotations

from typing import Any

import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.cli.adopting.machine import FoundDisk, FoundNic, Machine, Wishes, add_words, settings_of


def machine(**more: Any) -> Machine:
    return Machine(**{"name": "web1", "maxmem_mib": 64, "hvparams": {"kernel_path": ""}, **more})


@pytest.mark.parametrize(
    ("path", "template", "settings"),
    [
        ("/dev/vg0/web1", "plain", {"adopt": "web1", "vg": "vg0"}),
        ("/dev/mapper/vg--0-web--1", "plain", {"adopt": "web-1", "vg": "vg-0"}),
        ("/dev/disk/by-id/wwn-1", "blockdev", {"adopt": "/dev/disk/by-id/wwn-1"}),
        ("/srv/a.img", "file", {"adopt": "/srv/a.img"}),
    ],
)
def test_how_a_disk_is_adopted(path: str, template: str, settings: dict[str, str]) -> None:
    assert settings_of(FoundDisk(label="a", path=path)) == (template, settings)


@pytest.mark.parametrize(
    ("disk", "words"),
    [
        (FoundDisk(label="a", path="/dev/sdb"), "neither a logical volume nor below /dev/disk/"),
        (FoundDisk(label="a", path="/dev/zvol/x"), "neither a logical volume"),
        (FoundDisk(label="a", path="a.img"), "not the absolute path"),
        (FoundDisk(label="a", path="/a.vmdk", format="vmdk"), "format vmdk cannot be adopted"),
        (FoundDisk(label="a", problem="it is elsewhere"), "it is elsewhere"),
    ],
)
def test_disks_that_cannot_be_adopted(disk: FoundDisk, words: str) -> None:
    with pytest.raises(OpPrereqError, match=words):
        settings_of(disk)
    with pytest.raises(OpPrereqError, match=r"disk a cannot be adopted: .* \(--incomplete leaves"):
        add_words(machine(disks=[disk]), Wishes())
    found = machine(disks=[disk])
    assert add_words(found, Wishes(incomplete=True))[:2] == ["-t", "diskless"]
    assert words in found.left_out[0]


def test_the_whole_command() -> None:
    found = machine(
        vcpus=2,
        minmem_mib=32,
        disks=[
            FoundDisk(label="a", path="/dev/vg0/web1"),
            FoundDisk(label="b", path="/srv/a,b.qcow2", format="qcow2", read_only=True),
        ],
        nics=[FoundNic(mac="aa:00:00:00:00:01", link="br0"), FoundNic(vlan=":1:2", is_switch=True)],
        hvparams={"kernel_path": "", "cpu_type": "host"},
        tags=["x", "y"],
    )
    wishes = Wishes(node="n1", os_type="test", name="a.b", flags=["--no-ip-check"])
    assert add_words(found, wishes) == [
        *("-t", "plain", "--disk", "0:adopt=web1,vg=vg0"),
        *("--disk", r"1:adopt=/srv/a\,b.qcow2,format=qcow2,mode=ro,dev_type=file"),
        *("--net", "0:mac=aa:00:00:00:00:01,link=br0", "--net", "1:mode=openvswitch,vlan=:1:2"),
        *("-B", "maxmem=64,minmem=32,vcpus=2", "-H", "kvm:kernel_path=,cpu_type=host"),
        *("--tags", "x,y", "-o", "test", "-n", "n1", "--no-install", "--no-ip-check", "a.b"),
    ]
    assert found.left_out == [
        "the network of interface 1: it gets the cluster's default (--link=LINK)"
    ]
    assert "1:mode=openvswitch,link=sw,vlan=:1:2" in add_words(found, Wishes(link="sw"))


def test_a_name_is_needed_and_there_may_be_no_network() -> None:
    with pytest.raises(OpPrereqError, match="--name"):
        add_words(machine(name=""), Wishes())
    assert "--no-nics" in add_words(machine(), Wishes())


def test_kinds_of_devices_are_those_of_the_first() -> None:
    found = machine()
    found.set_nic_type("e1000")
    found.set_nic_type("virtio")
    assert found.hvparams["nic_type"] == "e1000"
    found.set_disk_type(None, "sata")
    assert found.left_out == [
        "network interfaces of type virtio: the guest sees them as e1000",
        "disks on the bus sata: the guest sees them as paravirtual",
    ]

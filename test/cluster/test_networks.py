"""Networks and NICs by the real commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakes.virtual_cluster import TestCluster

from ganeti.bootstrap.virtual import lifecycle

NAME = "nics.example.com"
ADD = f"-n node1 --no-name-check --no-ip-check -B memory=32 -o bootsector+default {NAME}"


@pytest.fixture
def networks(cluster: TestCluster) -> Iterator[TestCluster]:
    """The cluster with net1 on bridge br0 of its group; it goes with the test."""
    cluster.gnt("network add --network=192.0.2.0/28 --gateway=192.0.2.1 -m aa:bb:cc net1")
    cluster.gnt("network connect -N mode=bridged,link=br0,vlan=7 net1")
    yield cluster
    cluster.tidy_up()
    cluster.gnt("network disconnect net1")
    cluster.gnt("network remove net1")


def addresses_taken(cluster: TestCluster) -> str:
    return cluster.gnt("network list --no-headers -o map net1").out.strip()


def nics(cluster: TestCluster) -> str:
    return cluster.instance_field(NAME, "nic.ips,nic.networks.names,nic.links")


def test_addresses_come_from_the_pool_and_go_back(networks: TestCluster) -> None:
    networks.gnt(f"instance add -t diskless -H fake --net 0:network=net1,ip=pool {ADD}")
    assert nics(networks) == "192.0.2.2|['net1']|br0"
    assert networks.instance_field(NAME, "nic.macs").startswith("aa:bb:cc:")
    networks.gnt(f"instance modify --net add:ip=198.51.100.7,link=br1,name=out {NAME}")
    networks.gnt(f"instance modify --net 0:ip=192.0.2.9 --net out:vlan=12 {NAME}")
    assert nics(networks) == "192.0.2.9,198.51.100.7|['net1', None]|br0,br1"
    assert addresses_taken(networks) == "XX.......X.....X"
    info = networks.gnt("network info net1").out
    assert "default (mode:bridged link:br0 vlan:.7)" in info
    assert f"{NAME}: 0:192.0.2.9" in info
    refusals = {
        f"instance modify --net add:network=net1,ip=192.0.2.9 {NAME}": "that of nic/0",
        f"instance modify --net add:network=net1,ip=192.0.2.1 {NAME}": "externally reserved",
        f"instance modify --net add:ip=192.0.2.8,link=br0 {NAME}": "lies in network 'net1'",
        f"instance modify --net 7:remove {NAME}": "nic 7 not found",
        "network remove net1": "connected to node group(s) default",
        "network disconnect net1": f"used by instance(s) {NAME}",
        "network modify --add-reserved-ips=192.0.2.9 net1": "in use by an instance",
        "network add --network=10.0.0.0/8 big": "is not supported",
    }
    for command, text in refusals.items():
        networks.refused(command, text)
    networks.gnt(f"instance modify --net 0:remove {NAME}")
    assert addresses_taken(networks) == "XX.............X"
    networks.gnt("network modify --add-reserved-ips=192.0.2.4,192.0.2.5 net1")
    assert addresses_taken(networks) == "XX..XX.........X"
    assert "ERROR" not in networks.gnt("cluster verify-config").out


def test_creations_at_once_get_different_addresses(networks: TestCluster) -> None:
    words = ADD.replace(NAME, "").replace("-o bootsector+default", "--no-install")
    names = [f"pool{number}.example.com" for number in range(4)]
    networks.gnt(
        "network modify --network6=2001:db8::/64 --gateway6=2001:db8::1"
        " --add-reserved-ips=2001:db8::3-2001:db8::ff net1"
    )
    both = "--net 0:network=net1,ip=pool --net 1:network=net1,ip=pool6"
    jobs = [
        networks.submit(f"instance add -t diskless -H fake {both} {words} {name}") for name in names
    ]
    for job in jobs:
        networks.gnt(f"job wait {job}")
    out = networks.gnt("instance list --no-headers -o nic.ip/0").out.split()
    assert sorted(out) == [f"192.0.2.{number}" for number in range(2, 6)]
    out = networks.gnt("instance list --no-headers -o nic.ip/1").out.split()
    assert sorted(out) == ["2001:db8::100", "2001:db8::101", "2001:db8::102", "2001:db8::2"]
    networks.refused("network modify --add-reserved-ips=2001:db8::101 net1", "in use by an")
    shown = networks.gnt("network info net1").out
    assert "externally reserved IPv6s:\n    2001:db8::3-2001:db8::ff" in shown


def test_a_network_of_ipv6_addresses_alone(networks: TestCluster) -> None:
    networks.refused("network add none", "give the addresses of the network")
    networks.gnt("network add --network6=2001:db8:6::/64 --gateway6=2001:db8:6::1 only6")
    networks.gnt("network connect -N mode=bridged,link=br0 only6")
    networks.gnt(f"instance add -t diskless -H fake --net 0:network=only6,ip=pool {ADD}")
    assert networks.instance_field(NAME, "nic.ips") == "2001:db8:6::2"
    networks.refused(
        f"instance modify --net add:ip=2001:db8:6::9,link=br0 {NAME}", "lies in network 'only6'"
    )
    shown = networks.gnt("network list --no-headers --separator=: -o network,map,free_count only6")
    assert shown.out.strip() == "-:-:-"
    assert "ERROR" not in networks.gnt("cluster verify-config").out
    networks.gnt(f"instance remove -f {NAME}")
    networks.gnt("network disconnect only6")
    networks.gnt("network remove only6")


@pytest.mark.qemu
@pytest.mark.skipif(lifecycle.find_qemu() is None, reason="no QEMU binary is installed")
def test_a_running_guest_gets_a_nic_and_keeps_it_when_it_moves(networks: TestCluster) -> None:
    disks = "-t sharedfile --disk 0:size=16"
    networks.gnt(f"instance add {disks} -H kvm {ADD}")
    out = networks.gnt(f"instance modify --hotplug --net add:network=net1,ip=pool {NAME}").out
    assert "NIC 1 was given to the running instance at pci.0/" in out
    networks.gnt(f"instance migrate -f -n node2 {NAME}")
    assert networks.instance_field(NAME, "status,pnode") == "running|node2.example.com"
    networks.gnt(f"instance modify --hotplug --net add:mac=aa:00:00:00:00:77 {NAME}")
    assert networks.instance_field(NAME, "nic.count") == "3"

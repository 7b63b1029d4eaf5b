"""Filling in defaults."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.sample_config import CONFIG, only

from ganeti.base.errors import ConfigurationError
from ganeti.objects.fill import (
    cluster_hvparams,
    fill_all_diskparams,
    fill_beparams,
    fill_diskparams,
    fill_group_ndparams,
    fill_hvparams,
    fill_ipolicy,
    fill_ndparams,
    fill_nicparams,
    fill_osparams,
    fill_osparams_all,
)
from ganeti.objects.model import Cluster, Instance, Node, NodeGroup
from ganeti.objects.nic import NIC
from ganeti.objects.record import PrivateParams


def cluster(**changes: Any) -> Cluster:
    return Cluster.from_wire({**CONFIG["cluster"], **changes})


def instance(**changes: Any) -> Instance:
    return Instance.from_wire({**only("instances"), **changes})


def group(**changes: Any) -> NodeGroup:
    return NodeGroup.from_wire({**only("nodegroups"), **changes})


@pytest.mark.shows(
    "backend/instance/own-or-cluster",
    "2.0/parameters/only-own",
    "2.0/cluster-parameters/beparams",
    "2.0/defaults/fill-be",
)
def test_backend_parameters() -> None:
    assert fill_beparams(cluster(), instance(beparams={"vcpus": 4})) == {
        "minmem": 128,
        "maxmem": 128,
        "vcpus": 4,
        "auto_balance": True,
        "always_failover": False,
        "spindle_use": 1,
    }
    # What the cluster lacks comes from the table of defaults.
    assert fill_beparams(cluster(beparams={}))["maxmem"] == 128
    with pytest.raises(ConfigurationError, match="instance 'inst1': parameter 'vcpus': expected"):
        fill_beparams(cluster(), instance(beparams={"vcpus": "4"}))


@pytest.mark.shows(
    "backend/instance/own-or-cluster",
    "2.0/cluster-parameters/hvparams",
    "2.0/defaults/fill-hv",
    "2.1/vnc/levels",
)
def test_hypervisor_parameters_come_in_layers() -> None:
    of_cluster = cluster(
        hvparams={"kvm": {"kernel_path": "cluster", "acpi": False, "vga": "cluster"}},
        os_hvp={
            "debian": {"kvm": {"kernel_path": "os", "vga": "os"}},
            "debian+small": {"kvm": {"vga": "variant"}},
        },
    )
    of_instance = instance(hypervisor="kvm", os="debian+small", hvparams={"boot_order": "network"})
    filled = fill_hvparams(of_cluster, of_instance)
    assert filled["acpi"] is False
    assert filled["kernel_path"] == "os"
    assert filled["vga"] == "variant"
    assert filled["boot_order"] == "network"
    assert filled["migration_port"] == 8102
    assert fill_hvparams(of_cluster, instance(hypervisor="kvm"))["vga"] == "cluster"
    assert cluster_hvparams(cluster()) == {"fake": {"migration_mode": "live"}}


def test_os_parameters() -> None:
    of_cluster = cluster(
        osparams={"debian": {"mirror": "a", "size": "1"}, "debian+small": {"size": "2"}},
        osparams_private_cluster={"debian": {"token": "t1"}},
    )
    assert fill_osparams(of_cluster, "debian+small", {"x": "y"}) == {
        "mirror": "a",
        "size": "2",
        "x": "y",
    }
    everything = fill_osparams_all(
        of_cluster, "debian", {}, PrivateParams({"key": "k"}), PrivateParams({"password": "p"})
    )
    assert everything.reveal() == {
        "mirror": "a",
        "size": "1",
        "token": "t1",
        "key": "k",
        "password": "p",
    }


@pytest.mark.shows(
    "backend/instance/own-or-cluster", "2.1/diskparams/netparams", "2.1/diskparams/overridden"
)
def test_nic_parameters() -> None:
    nic = NIC(mac="m", uuid="u", nicparams={"mode": "routed"})
    assert fill_nicparams(cluster(), nic) == {"mode": "routed", "link": "xen-br0", "vlan": ""}
    assert fill_nicparams(cluster(), {"link": "br1"})["link"] == "br1"


def test_node_parameters() -> None:
    of_group = group(ndparams={"ssh_port": 2222, "ovs": True})
    node = Node.from_wire({**only("nodes", "node2"), "ndparams": {"ovs": False}})
    filled = fill_ndparams(cluster(), of_group, node)
    assert (filled["ssh_port"], filled["ovs"], filled["spindle_count"]) == (2222, False, 1)
    assert fill_group_ndparams(cluster(), of_group)["ovs"] is True


@pytest.mark.shows(
    "2.1/diskparams/diskparams", "2.1/diskparams/overridden", "2.1/diskparams/stripes"
)
def test_disk_parameters() -> None:
    of_group = group(diskparams={"plain": {"stripes": 2}})
    assert fill_diskparams(cluster(), of_group, "plain") == {
        "stripes": 2,
        "stripe-size": 0,
        "thin-pool": "",
    }
    none = fill_diskparams(cluster(diskparams={}), group(), "plain")
    assert none == {"stripes": 1, "stripe-size": 0, "thin-pool": ""}
    assert set(fill_all_diskparams(cluster(), of_group)) == set(CONFIG["cluster"]["diskparams"])


def test_policies_merge_the_standard_values_and_replace_the_rest() -> None:
    of_group = group(ipolicy={"std": {"cpu-count": 2}, "disk-templates": ["drbd"]})
    filled = fill_ipolicy(cluster(), of_group)
    assert filled["std"] == {**CONFIG["cluster"]["ipolicy"]["std"], "cpu-count": 2}
    assert filled["disk-templates"] == ["drbd"]
    assert filled["minmax"] == CONFIG["cluster"]["ipolicy"]["minmax"]
    assert fill_ipolicy(cluster(ipolicy={}), group(ipolicy={}))["vcpu-ratio"] == 4.0

"""The first configuration: valid, complete, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ganeti.base import json
from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.bootstrap.cluster_config import (
    Birth,
    ClusterRequest,
    FirstNode,
    build_config,
    build_ipolicy,
    check_request,
)
from ganeti.config.config_data import ConfigData
from ganeti.config.ssconf_values import ssconf_values
from ganeti.config.state import ConfigState
from ganeti.objects.disk_templates import supported_templates

NODE = FirstNode(
    name="node1.example.com",
    uuid="1cff4dc5-4185-45b7-9db8-c54a78a490ef",
    primary_ip="192.0.2.10",
    secondary_ip="192.0.2.10",
    certificate_digest="84:92",
)
BIRTH = Birth(
    now=1000.5,
    cluster_uuid="6b8f0c4f-3b74-45a9-857e-15bd47986b35",
    group_uuid="5a6e89c9-26b7-4042-9bf3-70fa3f2bd0c9",
    master_ip="192.0.2.1",
    host_key="AAAA",
)


def request(**changes: Any) -> ClusterRequest:
    values: dict[str, Any] = {
        "cluster_name": "cluster.example.com",
        "enabled_hypervisors": ["kvm", "fake"],
        "enabled_disk_templates": ["file", "diskless"],
    }
    return ClusterRequest(**(values | changes))


@pytest.mark.shows("2.0/background/mixed", "2.1/uuid-one/attribute", "2.1/uuid-two/node-identity")
def test_configuration_is_one_that_the_daemons_read() -> None:
    wire = build_config(request(), NODE, BIRTH)
    config = ConfigData.from_wire(wire)
    assert config.to_wire() == wire
    assert config.serial_no == 1
    assert config.cluster.master_node == NODE.uuid
    assert config.cluster.candidate_certs == {NODE.uuid: "84:92"}
    assert set(config.cluster.hvparams) == {"kvm", "fake"}
    assert config.cluster.hvparams["kvm"]["acpi"] is True
    [group] = config.nodegroups.values()
    assert group.name == "default"


@pytest.mark.shows("backend/roles/pool-set", "2.0/candidate/default-ten")
@pytest.mark.parametrize(("asked", "size"), [({}, 10), ({"candidate_pool_size": 3}, 3)])
def test_the_pool_of_candidates_has_the_size_asked_for(asked: dict[str, int], size: int) -> None:
    wire = build_config(request(**asked), NODE, BIRTH)
    assert ConfigData.from_wire(wire).cluster.candidate_pool_size == size


@pytest.mark.shows("2.1/uid-init/init", "2.1/uid-init/empty")
@pytest.mark.parametrize(("asked", "pool"), [({}, []), ({"uid_pool": [(10, 20)]}, [[10, 20]])])
def test_the_pool_of_user_ids_is_empty_unless_given(asked: dict[str, Any], pool: object) -> None:
    wire: Any = build_config(request(**asked), NODE, BIRTH)
    assert wire["cluster"]["uid_pool"] == pool


def test_static_figures_are_kept() -> None:
    asked = request(
        hv_state={"kvm": {"cpu_total": "4"}}, disk_state={"plain": {"vg": {"disk_total": "10"}}}
    )
    check_request(asked)
    cluster = ConfigData.from_wire(build_config(asked, NODE, BIRTH)).cluster
    assert cluster.hv_state_static == {"kvm": {"cpu_total": 4}}
    assert cluster.disk_state_static == {"plain": {"vg": {"disk_total": 10}}}


def test_images_are_kept() -> None:
    images: dict[str, Any] = {"install_image": "/srv/i.img", "zeroing_image": "https://a.example/z"}
    check_request(request(**images))
    cluster: Any = build_config(request(**images), NODE, BIRTH)["cluster"]
    assert {name: cluster[name] for name in images} == images


def test_simple_configuration_follows_from_it() -> None:
    data = json.dumps(build_config(request(), NODE, BIRTH))
    values = ssconf_values(ConfigState(data).durable)
    assert values["master_node"] == "node1.example.com"
    assert values["cluster_name"] == "cluster.example.com"
    assert values["master_candidates_certs"] == f"{NODE.uuid}=84:92"


@pytest.mark.shows(
    "2.0/cluster-parameters/beparams", "2.0/gnt-cluster/init", "2.1/diskparams/default"
)
def test_parameters_are_laid_over_the_defaults() -> None:
    config = ConfigData.from_wire(
        build_config(
            request(
                beparams={"memory": "1g", "vcpus": "2"},
                hvparams={"kvm": {"kernel_path": "", "acpi": False}},
                nicparams={"link": "br7"},
                diskparams={"plain": {"stripes": "2"}},
                ndparams={"ssh_port": "2222"},
            ),
            NODE,
            BIRTH,
        )
    )
    cluster = config.cluster
    assert cluster.beparams["default"]["minmem"] == 1024
    assert cluster.beparams["default"]["maxmem"] == 1024
    assert cluster.beparams["default"]["vcpus"] == 2
    assert cluster.hvparams["kvm"]["kernel_path"] == ""
    assert cluster.hvparams["kvm"]["acpi"] is False
    assert cluster.nicparams["default"]["link"] == "br7"
    assert cluster.diskparams["plain"]["stripes"] == 2
    assert cluster.ndparams["ssh_port"] == 2222


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"enabled_hypervisors": []}, "at least one hypervisor"),
        ({"enabled_hypervisors": ["vmware"]}, "unknown hypervisor 'vmware'"),
        ({"enabled_hypervisors": ["fake", "fake"]}, "twice"),
        ({"enabled_disk_templates": ["floppy"]}, "unknown disk template 'floppy'"),
        ({"mac_prefix": "aa:00"}, "'aa:00'"),
        ({"mac_prefix": "aa:00:0g"}, "'aa:00:0g'"),
        ({"file_storage_dir": "srv"}, "not an absolute path"),
        ({"file_storage_dir": "/srv/../etc"}, "cannot hold disks"),
        ({"file_storage_dir": ""}, "file is enabled and needs a directory: --file-storage-dir"),
        ({"master_netmask": 64}, "IPv4 has lengths from 1 to 32"),
        ({"compression_tools": ["lzop"]}, "gzip must be among them"),
        ({"compression_tools": ["gzip", "../x"]}, "'../x' is not the name of a program"),
        ({"beparams": {"maxmem": "64"}}, "must not be larger than maxmem"),
        ({"nicparams": {"link": ""}}, "mode bridged needs a link"),
        ({"nicparams": {"vlan": "x"}}, "'vlan': 'x' is not a VLAN"),
        ({"ipolicy": {"disk-templates": ["file", "drbd"]}}, "drbd, which would not be enabled"),
        ({"ssh_key_type": "ecdsa", "ssh_key_bits": 2048}, "cannot have 2048 bits, but 256, 384"),
        ({"ssh_key_bits": 1}, "cannot have 1 bits, but 1024 to 16384"),
        ({"candidate_pool_size": 0}, "one node at least"),
        ({"primary_ip_version": 5}, "IP version 5"),
        ({"install_image": "x"}, "install_image: 'x' is neither an absolute path nor a URL"),
        ({"zeroing_image": "http:x"}, "zeroing_image: 'http:x' is neither"),
        ({"enabled_hypervisors": ["fake"], "hvparams": {"kvm": {}}}, "not enabled"),
        ({"diskparams": {"nix": {}}}, "disk template 'nix', which is none"),
        ({"diskparams": {"plain": {"stripes": "0"}}}, "parameter 'stripes': 0 is not between"),
        ({"diskparams": {"drbd": {"protocol": "Z"}}}, "parameter 'protocol': 'Z' is not one of"),
        ({"ndparams": {"ssh_port": 0}}, "'ssh_port': 0 is not between"),
    ],
)
def test_wrong_requests_are_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        check_request(request(**changes))


def test_every_template_that_instances_may_have_can_be_enabled_at_once() -> None:
    check_request(request(enabled_disk_templates=supported_templates()))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"beparams": {"color": "red"}}, "'color'"),
        ({"beparams": {"vcpus": "two"}}, "'vcpus'"),
        ({"hvparams": {"kvm": {"acpi": "perhaps"}}}, "'acpi'"),
        ({"ndparams": {"ssh_port": "x"}}, "'ssh_port'"),
    ],
)
def test_wrong_parameters_are_named(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        build_config(request(**changes), NODE, BIRTH)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"hv_state": {"kvm": {"wheels": "4"}}}, "wheels"),
        ({"hv_state": {"qemu": {}}}, "hypervisor state: 'qemu' is unknown"),
        ({"disk_state": {"file": {}}}, "disk state: 'file' is unknown"),
    ],
)
def test_wrong_static_figures_are_named(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(GenericError, match=text):
        check_request(request(**changes))


def test_several_allocators_are_asked_in_order() -> None:
    cluster = ConfigData.from_wire(
        build_config(request(default_iallocator="hail,spare"), NODE, BIRTH)
    ).cluster
    assert cluster.default_iallocator == "hail"
    assert list(cluster.default_iallocators.values()) == [["hail", "spare"]]


BOUNDS = {
    "memory-size": 4,
    "disk-size": 0,
    "disk-count": 0,
    "cpu-count": 1,
    "nic-count": 0,
    "spindle-use": 0,
}


def bounds(**largest: object) -> dict[str, object]:
    top = dict.fromkeys(BOUNDS, "100000") | {
        name.replace("_", "-"): value for name, value in largest.items()
    }
    return {"minmax": [{"min": {k: str(v) for k, v in BOUNDS.items()}, "max": top}]}


def test_instance_policy_takes_sizes_with_units() -> None:
    policy = build_ipolicy(bounds(memory_size="4g"), ["file"])
    assert policy["minmax"] == [
        {"min": BOUNDS, "max": dict.fromkeys(BOUNDS, 100000) | {"memory-size": 4096}}
    ]
    assert policy["disk-templates"] == ["file"]


@pytest.mark.parametrize(
    ("own", "text"),
    [
        ({"minmax": [{"min": {"memory-size": "1"}, "max": {}}]}, "is missing"),
        ({"minmax": [{"max": {}}]}, "exactly 'min' and 'max'"),
        ({"std": {"color": "1"}}, "'color'"),
        ({"std": {"memory-size": "64g"}}, "outside all limits"),
        ({"vcpu-ratio": "x"}, "must be a number greater than 0"),
    ],
)
def test_wrong_instance_policies_are_refused(own: dict[str, object], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        build_ipolicy(own, ["file"])


def test_bounds_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(OpPrereqError, match="min 5 is greater than max 4"):
        build_ipolicy(
            {"minmax": [{"min": dict.fromkeys(BOUNDS, 5), "max": dict.fromkeys(BOUNDS, 4)}]},
            ["file"],
        )


def test_templates_of_logical_volumes_bring_the_usual_volume_group() -> None:
    cluster = build_config(request(enabled_disk_templates=["plain"]), NODE, BIRTH)["cluster"]
    assert cluster["volume_group_name"] == "xenvg"
    assert cluster["diskparams"]["drbd"]["metavg"] == "xenvg"
    assert "drbd_usermode_helper" not in cluster
    check_request(request(enabled_disk_templates=["plain"]))


def test_another_volume_group_and_helper_may_be_asked_for() -> None:
    asked = request(
        vg_name="fast", drbd_helper="/sbin/helper", diskparams={"drbd": {"metavg": "m"}}
    )
    check_request(asked)
    cluster = build_config(asked, NODE, BIRTH)["cluster"]
    assert cluster["volume_group_name"] == "fast"
    assert cluster["drbd_usermode_helper"] == "/sbin/helper"
    assert cluster["diskparams"]["drbd"]["metavg"] == "m"


def test_templates_of_logical_volumes_need_a_volume_group() -> None:
    with pytest.raises(OpPrereqError, match="template plain is enabled and needs --vg-name"):
        check_request(request(enabled_disk_templates=["plain"], vg_name=""))
    with pytest.raises(OpPrereqError, match="'a b' cannot be the name"):
        check_request(request(vg_name="a b"))

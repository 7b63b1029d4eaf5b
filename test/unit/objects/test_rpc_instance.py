"""Instances and disks as the node daemon gets them."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.sample_config import CONFIG, load_sample, only
from msgspec import structs

from ganeti.base.ids import NodeUuid
from ganeti.objects.model import Cluster, Disk, Instance, Network, NodeGroup
from ganeti.objects.rpc_instance import (
    RpcInstance,
    build_rpc_disk,
    build_rpc_instance,
    disk_template,
    secondary_nodes,
)

CLUSTER = Cluster.from_wire(CONFIG["cluster"])
GROUP = NodeGroup.from_wire(only("nodegroups"))
NETWORK = Network.from_wire(only("networks"))
NODE_A, NODE_B = NodeUuid("a"), NodeUuid("b")


def drbd_disk() -> Disk:
    child = {"size": 1, "serial_no": 1, "dev_type": "plain", "logical_id": ["vg", "lv"]}
    return Disk.from_wire(
        {
            "uuid": "d",
            "size": 100,
            "serial_no": 1,
            "dev_type": "drbd",
            "logical_id": [NODE_A, NODE_B, 11000, 0, 3, "secret"],
            "nodes": [NODE_A, NODE_B],
            "children": [{**child, "uuid": "c1"}, {**child, "uuid": "c2"}],
            "params": {"resync-rate": 5},
        }
    )


def build(**kwargs: Any) -> RpcInstance:
    return build_rpc_instance(
        CLUSTER,
        GROUP,
        Instance.from_wire(only("instances")),
        [Disk.from_wire(only("disks"))],
        networks={NETWORK.uuid: NETWORK},
        **kwargs,
    )


@pytest.mark.shows("2.0/instance-parameters/two-dictionaries", "2.0/defaults/sent-filled")
def test_everything_is_filled_in() -> None:
    wire = build().to_wire()
    assert wire["hvparams"] == {"migration_mode": "live"}
    assert wire["beparams"] == CONFIG["cluster"]["beparams"]["default"]
    assert wire["secondary_nodes"] == []
    assert wire["disk_template"] == "file"
    disk = {**only("disks"), "params": {}, "dynamic_params": {}}
    assert wire["disks_info"] == [disk]
    nics = wire["nics"]
    assert isinstance(nics, list)
    assert nics[0]["netinfo"] == only("networks")
    assert nics[0]["nicparams"] == {"mode": "bridged", "link": "xen-br0", "vlan": ""}
    assert {key: wire[key] for key in ("name", "uuid", "disks")} == {
        key: only("instances")[key] for key in ("name", "uuid", "disks")
    }


def test_it_survives_the_wire() -> None:
    instance = build()
    assert RpcInstance.from_wire(instance.to_wire()) == instance


def test_overrides_are_laid_over_and_secrets_hidden() -> None:
    instance = build(
        hvp={"migration_mode": "non-live"}, bep={"maxmem": 256}, osp={"password": "SECRET"}
    )
    assert instance.hvparams["migration_mode"] == "non-live"
    assert instance.beparams["maxmem"] == 256
    assert instance.osparams.reveal() == {"password": "SECRET"}
    assert "SECRET" not in repr(instance)
    assert instance.to_wire()["osparams"] == {"password": "SECRET"}


def test_a_drbd_disk_knows_both_ends() -> None:
    ips = {NODE_A: "10.0.0.1", NODE_B: "10.0.0.2"}
    disk = build_rpc_disk(CLUSTER, GROUP, drbd_disk(), node_uuid=NODE_B, secondary_ips=ips)
    assert disk.dynamic_params == {
        "port": 11000,
        "local-ip": "10.0.0.2",
        "remote-ip": "10.0.0.1",
        "local-minor": 3,
        "remote-minor": 0,
    }
    other = build_rpc_disk(CLUSTER, GROUP, drbd_disk(), node_uuid=NodeUuid("c"), secondary_ips=ips)
    assert other.dynamic_params == {}


def test_parameters_of_the_device_level() -> None:
    disk = build_rpc_disk(CLUSTER, GROUP, drbd_disk())
    expected = load_sample("parameters")["diskparams_on_device_level"]
    assert disk.params == {**expected["drbd"], "resync-rate": 5}
    assert [child.params for child in disk.children] == [{"stripes": 1}, {"stripes": 1}]
    for template in ("ext", "file", "gluster", "plain", "rbd", "sharedfile", "blockdev"):
        wire = {**only("disks"), "dev_type": template}
        built = build_rpc_disk(CLUSTER, GROUP, Disk.from_wire(wire))
        assert built.params == expected[template]


def test_parameters_of_one_disk_come_over_those_of_group_and_cluster() -> None:
    group = structs.replace(GROUP, diskparams={"plain": {"stripes": 3}, "drbd": {"protocol": "A"}})
    own = {"data-stripes": 2, "protocol": "B", "disk-barriers": "bf"}
    disk = build_rpc_disk(CLUSTER, group, structs.replace(drbd_disk(), params=own))
    assert disk.params is not None
    assert disk.params["protocol"] == "B"
    assert disk.params["disabled-barriers"] == "bf"
    assert "data-stripes" not in disk.params
    assert [child.params for child in disk.children] == [{"stripes": 2}, {"stripes": 1}]
    plain = Disk.from_wire({**only("disks"), "dev_type": "plain"})
    assert build_rpc_disk(CLUSTER, group, plain).params == {"stripes": 3}
    plain = structs.replace(plain, params={"stripes": 4})
    assert build_rpc_disk(CLUSTER, group, plain).params == {"stripes": 4}


def test_secondary_nodes_and_template() -> None:
    instance = Instance.from_wire({**only("instances"), "primary_node": NODE_A})
    assert secondary_nodes(instance, [drbd_disk()]) == [NODE_B]
    assert disk_template([]) == "diskless"
    assert disk_template([drbd_disk()]) == "drbd"
    assert disk_template([drbd_disk(), Disk.from_wire(only("disks"))]) == "mixed"

"""Each parameter of the opcodes that change settings is carried out or refused: none crashes."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest
from fakes.fake_cluster import FakeCluster

from ganeti.base.errors import GenericError
from ganeti.logical_units.parameters import PARAMETERS
from ganeti.opcodes.cluster import OpClusterSetParams
from ganeti.opcodes.group import OpGroupSetParams
from ganeti.opcodes.instance import OpInstanceSetParams
from ganeti.opcodes.network import OpNetworkSetParams
from ganeti.opcodes.node import OpNodeSetParams
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.registry import op_id_of

NAME = "web1.example.com"
_OBJECTS: Final[dict[type[OpCode], dict[str, str]]] = {
    OpClusterSetParams: {},
    OpGroupSetParams: {"group_name": "default"},
    OpInstanceSetParams: {"instance_name": NAME},
    OpNetworkSetParams: {"network_name": "net1"},
    OpNodeSetParams: {"node_name": "node2"},
}
_NOT_SETTINGS: Final = {*("instance_uuid", "node_uuid"), *OpCode.__struct_fields__}
_KVM: Final = {"kvm": {"kernel_args": "ro"}}
_VALUES: Final[dict[str, Any]] = {
    "add_reserved_ips": ["192.0.2.3"],
    "add_uids": [[5000, 5001]],
    "alloc_policy": "unallocable",
    "beparams": {"vcpus": 2},
    "blacklisted_os": [["add", "debian"]],
    "compression_tools": ["gzip"],
    "data_collector_interval": {"lv": 1000000},
    "default_iallocator": "hail",
    "default_iallocator_params": {"a": 1},
    "default_iallocators": {"relocate": ["hail"]},
    "diagnose_data_collector_filename": "diagnose",
    "disk_state": {"plain": {"vg": {"disk_total": 5}}},
    "disk_template": "file",
    "diskparams": {"rbd": {"pool": "p"}},
    "disks": [["modify", "0", {"mode": "ro"}]],
    "drbd_helper": "/bin/true",
    "enabled_data_collectors": {"lv": False},
    "enabled_disk_templates": ["diskless", "sharedfile"],
    "enabled_hypervisors": ["fake"],
    "ext_params": {"a": "b"},
    "file_driver": "loop",
    "file_storage_dir": "/srv/ganeti/file-storage",
    "gateway": "192.0.2.1",
    "gateway6": "2001:db8::1",
    "gluster_storage_dir": "/var/run/ganeti/gluster",
    "hidden_os": [["add", "debian"]],
    "hv_state": {"kvm": {"mem_total": 4096}},
    "hvparams": _KVM,
    "iallocator": "hail",
    "install_image": "/srv/image",
    "instance_communication_network": "talk",
    "ipolicy": {"vcpu-ratio": 2.0},
    "mac_prefix": "aa:00:01",
    "master_netdev": "eth0",
    "master_netmask": 24,
    "ndparams": {"ssh_port": 2222},
    "network6": "2001:db8::/64",
    "nicparams": {"link": "br1"},
    "nics": [["modify", "0", {"ip": "192.0.2.9"}]],
    "os_hvp": {"debian": _KVM},
    "os_name": "debian",
    "osparams": {"debian": {"a": "b"}},
    "osparams_private": {"a": "b"},
    "osparams_private_cluster": {"debian": {"a": "b"}},
    "pnode": "node2",
    "pnode_uuid": "uuid",
    "remote_node": "node2",
    "remote_node_uuid": "uuid",
    "remove_reserved_ips": ["192.0.2.3"],
    "remove_uids": [[5000, 5001]],
    "reserved_lvs": ["xenvg/a"],
    "secondary_ip": "192.0.2.2",
    "shared_file_storage_dir": "/srv/ganeti/shared-file-storage",
    "uid_pool": [[5000, 5001]],
    "vg_name": "xenvg",
    "zeroing_image": "/srv/image",
}
_OF_INSTANCES: Final[dict[str, Any]] = {"hvparams": {}, "osparams": {"a": "b"}}
_PARAMETERS: Final = [
    (op, name)
    for op, objects in _OBJECTS.items()
    for name in op.__struct_fields__
    if name not in _NOT_SETTINGS and name not in objects
]


def sample(op: type[OpCode], name: str) -> object:
    """Return a value for one parameter: a switch or number if the table has none."""
    if op is OpInstanceSetParams and name in _OF_INSTANCES:
        return _OF_INSTANCES[name]
    if name in _VALUES:
        return _VALUES[name]
    (field,) = (field for field in msgspec.structs.fields(op) if field.name == name)
    return True if "bool" in str(field.type) else 3


@pytest.mark.parametrize(("op", "name"), _PARAMETERS)
def test_a_parameter_alone_is_set_or_refused(
    cluster: FakeCluster, op: type[OpCode], name: str
) -> None:
    cluster.execute("OP_NETWORK_ADD", network_name="net1", network="192.0.2.0/28")
    cluster.add_instance()
    try:
        cluster.execute(op_id_of(op), **_OBJECTS[op], **{name: sample(op, name)})
    except GenericError as err:
        refusal = err.message
    else:
        refusal = ""
    assert "expected" not in refusal  # the value has the type of the parameter
    if name in PARAMETERS:
        assert not refusal

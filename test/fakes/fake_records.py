"""A cluster, nodes and groups as a configuration has them, for tests to change."""

from __future__ import annotations

from typing import Any

from ganeti.objects.parameters import BEPARAMS, IPOLICY_DEFAULTS, defaults_of

GROUP = "5a6e89c9-26b7-4042-9bf3-000000000000"


def uuid_of(name: str) -> str:
    """Return the same made-up UUID for the same name."""
    return f"00000000-0000-4000-8000-{int.from_bytes(name.encode()[-5:]):012x}"


def make_cluster(**changes: object) -> dict[str, Any]:
    """Return a cluster object; any field can be changed."""
    templates = changes.get("enabled_disk_templates", ["sharedfile", "file", "diskless", "ext"])
    minmax = {
        "min": dict.fromkeys(_ISPECS, 0) | {"memory-size": 16, "cpu-count": 1},
        "max": dict.fromkeys(_ISPECS, 16) | {"memory-size": 32768, "disk-size": 1048576},
    }
    return {
        "rsahostkeypub": "",
        "highest_used_port": 10999,
        "tcpudp_port_pool": [],
        "mac_prefix": "aa:00:00",
        "reserved_lvs": [],
        "master_node": uuid_of("node1"),
        "master_ip": "192.0.2.100",
        "master_netdev": "lo",
        "master_netmask": 32,
        "use_external_mip_script": False,
        "cluster_name": "cluster.example.com",
        "file_storage_dir": "/srv/ganeti/file-storage",
        "shared_file_storage_dir": "/srv/ganeti/shared-file-storage",
        "gluster_storage_dir": "/var/run/ganeti/gluster",
        "enabled_hypervisors": ["fake", "kvm"],
        "hvparams": {"fake": {"migration_mode": "live"}, "kvm": {}},
        "os_hvp": {},
        "beparams": {"default": defaults_of(BEPARAMS)},
        "osparams": {},
        "osparams_private_cluster": {},
        "nicparams": {"default": {"mode": "bridged", "link": "br0", "vlan": ""}},
        "ndparams": {},
        "diskparams": {},
        "candidate_pool_size": 10,
        "modify_etc_hosts": False,
        "modify_ssh_setup": False,
        "maintain_node_health": False,
        "uid_pool": [],
        "default_iallocator": "hail",
        "default_iallocator_params": {},
        "hidden_os": [],
        "blacklisted_os": [],
        "primary_ip_family": 2,
        "prealloc_wipe_disks": False,
        "ipolicy": {**IPOLICY_DEFAULTS, "minmax": [minmax], "disk-templates": templates},
        "enabled_disk_templates": templates,
        "candidate_certs": {uuid_of("node1"): "AA:BB"},
        "max_running_jobs": 20,
        "max_tracked_jobs": 25,
        "install_image": "",
        "instance_communication_network": "",
        "zeroing_image": "",
        "compression_tools": ["gzip"],
        "enabled_user_shutdown": False,
        "data_collectors": {},
        "ssh_key_type": "rsa",
        "ssh_key_bits": 2048,
        "uuid": uuid_of("cluster"),
        "serial_no": 1,
        "tags": [],
        **changes,
    }


_ISPECS = ("memory-size", "disk-size", "disk-count", "cpu-count", "nic-count", "spindle-use")


def make_node(number: int, **changes: object) -> dict[str, Any]:
    """Return the object of node ``node<number>.example.com``; any field can be changed."""
    return {
        "name": f"node{number}.example.com",
        "primary_ip": f"192.0.2.{number}",
        "secondary_ip": f"192.0.2.{number}",
        "master_candidate": True,
        "offline": False,
        "drained": False,
        "group": GROUP,
        "master_capable": True,
        "vm_capable": True,
        "ndparams": {},
        "powered": True,
        "uuid": uuid_of(f"node{number}"),
        "serial_no": 1,
        "tags": [],
        **changes,
    }


def make_group(name: str = "default", uuid: str = GROUP, **changes: object) -> dict[str, Any]:
    """Return a node group; any field can be changed."""
    return {
        "name": name,
        "members": [],
        "ndparams": {},
        "alloc_policy": "preferred",
        "ipolicy": {},
        "diskparams": {},
        "networks": {},
        "uuid": uuid,
        "serial_no": 1,
        "tags": [],
        **changes,
    }

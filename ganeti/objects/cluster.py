"""The cluster: everything that is set once for all.

Source: config.json, objects "Cluster", "DataCollectorConfig" and "MasterNetworkParameters".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import ClassVar, Final

from msgspec import field

from ganeti.base.ids import NodeUuid
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.hypervisors import Hypervisor
from ganeti.objects.json_value import JsonValue
from ganeti.objects.private import PrivateParams
from ganeti.objects.record import Record

DEFAULTS: Final = "default"  # the one key of Cluster.beparams and Cluster.nicparams


class IpFamily(IntEnum):
    """Address family of the cluster, as the operating system numbers it."""

    IPV4 = 2
    IPV6 = 10

    @property
    def version(self) -> int:
        """IP version, 4 or 6."""
        return 4 if self is IpFamily.IPV4 else 6


class SshKeyType(StrEnum):
    """Kinds of SSH keys."""

    DSA = "dsa"
    ECDSA = "ecdsa"
    RSA = "rsa"


class DataCollectorConfig(Record, frozen=True, kw_only=True):
    """Whether a collector of the monitoring daemon runs; interval in microseconds."""

    active: bool
    interval: int


class Cluster(Record, frozen=True, kw_only=True):
    """Cluster-wide settings and defaults."""

    LEFT_OUT: ClassVar[Mapping[str, object]] = {
        "dsahostkeypub": None,
        "volume_group_name": None,
        "drbd_usermode_helper": None,
        "hv_state_static": {},
        "disk_state_static": {},
        "diagnose_data_collector_filename": "",
    }
    OURS: ClassVar[frozenset[str]] = frozenset({"diagnose_data_collector_filename"})

    rsahostkeypub: str
    dsahostkeypub: str | None = None
    highest_used_port: int
    tcpudp_port_pool: list[int]
    mac_prefix: str
    volume_group_name: str | None = None
    reserved_lvs: list[str]
    drbd_usermode_helper: str | None = None
    master_node: NodeUuid
    master_ip: str
    master_netdev: str
    master_netmask: int
    use_external_mip_script: bool
    cluster_name: str
    file_storage_dir: str
    shared_file_storage_dir: str
    gluster_storage_dir: str
    enabled_hypervisors: list[Hypervisor]
    hvparams: Mapping[str, Mapping[str, JsonValue]]
    os_hvp: Mapping[str, Mapping[str, Mapping[str, JsonValue]]]
    beparams: Mapping[str, Mapping[str, JsonValue]]
    osparams: Mapping[str, Mapping[str, JsonValue]]
    osparams_private_cluster: Mapping[str, PrivateParams] = field(default_factory=dict)
    nicparams: Mapping[str, Mapping[str, JsonValue]]
    ndparams: Mapping[str, JsonValue]
    diskparams: Mapping[str, Mapping[str, JsonValue]]
    candidate_pool_size: int
    modify_etc_hosts: bool
    modify_ssh_setup: bool
    maintain_node_health: bool
    uid_pool: list[tuple[int, int]]
    default_iallocator: str
    default_iallocator_params: Mapping[str, JsonValue]
    hidden_os: list[str]
    blacklisted_os: list[str]
    primary_ip_family: IpFamily
    prealloc_wipe_disks: bool
    ipolicy: Mapping[str, JsonValue]
    hv_state_static: Mapping[str, JsonValue] = {}
    disk_state_static: Mapping[str, JsonValue] = {}
    enabled_disk_templates: list[DiskTemplate]
    candidate_certs: Mapping[NodeUuid, str]
    max_running_jobs: int
    max_tracked_jobs: int
    install_image: str
    instance_communication_network: str
    zeroing_image: str
    compression_tools: list[str]
    enabled_user_shutdown: bool
    data_collectors: Mapping[str, DataCollectorConfig]
    diagnose_data_collector_filename: str = ""
    ssh_key_type: SshKeyType
    ssh_key_bits: int
    uuid: str
    ctime: float = 0.0
    mtime: float = 0.0
    serial_no: int
    tags: list[str] = []


class MasterNetworkParameters(Record, frozen=True, kw_only=True):
    """Where the cluster's own address lives; sent to the node daemon."""

    uuid: NodeUuid
    ip: str
    netmask: int
    netdev: str
    ip_family: IpFamily


def master_network_parameters(cluster: Cluster) -> MasterNetworkParameters:
    """Pick out what a node must know to take or give up the cluster's address."""
    return MasterNetworkParameters(
        uuid=cluster.master_node,
        ip=cluster.master_ip,
        netmask=cluster.master_netmask,
        netdev=cluster.master_netdev,
        ip_family=cluster.primary_ip_family,
    )

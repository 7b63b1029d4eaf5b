"""The settings of the cluster, by name: for LuxiD's answers and for jobs that are asked.

Source: luxi.json, "cluster_info" and "config_values"; query_fields.json, "cluster".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ganeti.base import versions
from ganeti.base.secret import HIDDEN
from ganeti.objects.fill import cluster_hvparams, fill_cluster_ipolicy
from ganeti.objects.model import Cluster
from ganeti.objects.record import plain
from ganeti.protocol.maintenance.stored import Maintenance

_VERSIONS: Final = {
    "software_version": versions.RELEASE_VERSION,
    "protocol_version": versions.PROTOCOL_VERSION,
    "config_version": versions.CONFIG_VERSION,
    "os_api_version": max(versions.OS_API_VERSIONS),
    "export_version": versions.EXPORT_VERSION,
    "vcs_version": versions.VCS_VERSION,
}

# Told as they stand in the configuration.
_STAMPS: Final = ("ctime", "mtime", "tags", "volume_group_name")
_SSH: Final = ("modify_ssh_setup", "ssh_key_type", "ssh_key_bits")
_SETTINGS: Final = (
    "os_hvp",
    "beparams",
    "osparams",
    "nicparams",
    "ndparams",
    "diskparams",
    "candidate_pool_size",
    "max_running_jobs",
    "max_tracked_jobs",
    "max_disk_transfers",
    "silent_node_tries",
    "mac_prefix",
    "master_netdev",
    "master_netmask",
    "use_external_mip_script",
    "drbd_usermode_helper",
    "file_storage_dir",
    "shared_file_storage_dir",
    "gluster_storage_dir",
    "maintain_node_health",
    "uuid",
    "uid_pool",
    "default_iallocator",
    "default_iallocator_params",
    "reserved_lvs",
    "prealloc_wipe_disks",
    "hidden_os",
    "blacklisted_os",
    "enabled_disk_templates",
    "install_image",
    "instance_communication_network",
    "zeroing_image",
    "compression_tools",
    "enabled_user_shutdown",
    *_SSH,
    # ours, beside the settings that 3.0 tells
    "serial_no",
    "modify_etc_hosts",
    "hv_state_static",
    "disk_state_static",
    "diagnose_data_collector_filename",
    "default_iallocators",
)


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a cluster that are not in its object.

    Attributes:
        architecture: of the master node: "64bits" and "x86_64".
        watcher_pause: seconds since the epoch; None if the watcher does not pause.
    """

    master_name: str
    architecture: Sequence[str]
    is_drained: bool
    watcher_pause: float | None


def _as_stored(cluster: Cluster, names: Sequence[str]) -> dict[str, object]:
    return {name: plain(getattr(cluster, name)) for name in names}


def cluster_fields(cluster: Cluster, around: Surroundings) -> dict[str, object]:
    """Return the values of all query fields of the cluster."""
    return {
        **_VERSIONS,
        **_as_stored(cluster, _STAMPS),
        "architecture": list(around.architecture),
        "cluster_name": cluster.cluster_name,
        "drain_flag": around.is_drained,
        "master_node": around.master_name,
        "name": cluster.cluster_name,
        "watcher_pause": around.watcher_pause,
    }


def config_values(cluster: Cluster, around: Surroundings) -> dict[str, object]:
    """Return the values of the configuration that can be asked for singly."""
    return {**cluster_fields(cluster, around), **_as_stored(cluster, _SSH)}


def cluster_info(
    cluster: Cluster,
    master_name: str,
    architecture: Sequence[str],
    maintenance: Maintenance | None = None,
) -> dict[str, object]:
    """Return everything about the cluster as a whole; what is None is switched off."""
    collectors = cluster.data_collectors
    return {
        **_VERSIONS,
        **_as_stored(cluster, (*_STAMPS, *_SETTINGS)),
        "architecture": list(architecture),
        "name": cluster.cluster_name,
        "master": master_name,
        "default_hypervisor": next(iter(cluster.enabled_hypervisors), None),
        "enabled_hypervisors": [str(name) for name in cluster.enabled_hypervisors],
        "hvparams": cluster_hvparams(cluster),
        "ipolicy": fill_cluster_ipolicy(cluster),
        "osparams_private_cluster": {
            name: dict.fromkeys(params, HIDDEN)
            for name, params in cluster.osparams_private_cluster.items()
        },
        "primary_ip_version": cluster.primary_ip_family.version,
        "enabled_data_collectors": {name: each.active for name, each in collectors.items()},
        "data_collector_interval": {name: each.interval for name, each in collectors.items()},
        "maint_round_delay": maintenance and maintenance.round_delay,
        "maint_balance": maintenance and maintenance.balance,
        "maint_balance_threshold": maintenance and maintenance.balance_threshold,
        "maint_use_load": maintenance and maintenance.use_load,
        "maint_move_disks": maintenance and maintenance.move_disks,
        "maint_auto_repair": maintenance and maintenance.auto_repair,
    }

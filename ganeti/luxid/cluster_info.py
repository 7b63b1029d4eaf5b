"""What LuxiD says about the cluster as a whole.

Source: luxi.json, "cluster_info" and "config_values".
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Mapping
from typing import Final

from ganeti.base.versions import (
    CONFIG_VERSION,
    EXPORT_VERSION,
    OS_API_VERSIONS,
    PROTOCOL_VERSION,
    RELEASE_VERSION,
    VCS_VERSION,
)
from ganeti.luxid.config_view import ConfigView
from ganeti.objects.cluster import Cluster
from ganeti.objects.fill import cluster_hvparams, fill_cluster_ipolicy
from ganeti.objects.record import plain

# Fields that are passed on as they are in the configuration.
_SAME_NAME: Final = (
    "os_hvp",
    "beparams",
    "osparams",
    "nicparams",
    "ndparams",
    "diskparams",
    "candidate_pool_size",
    "max_running_jobs",
    "max_tracked_jobs",
    "mac_prefix",
    "master_netdev",
    "master_netmask",
    "use_external_mip_script",
    "volume_group_name",
    "drbd_usermode_helper",
    "file_storage_dir",
    "shared_file_storage_dir",
    "gluster_storage_dir",
    "maintain_node_health",
    "ctime",
    "mtime",
    "uuid",
    "tags",
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
    "modify_ssh_setup",
    "ssh_key_type",
    "ssh_key_bits",
    # ours, beside what 3.0 tells
    "modify_etc_hosts",
    "hv_state_static",
    "disk_state_static",
)


def cluster_info(view: ConfigView) -> dict[str, object]:
    """Answer QueryClusterInfo."""
    cluster = view.cluster
    info: dict[str, object] = {
        "software_version": RELEASE_VERSION,
        "protocol_version": PROTOCOL_VERSION,
        "config_version": CONFIG_VERSION,
        "os_api_version": max(OS_API_VERSIONS),
        "export_version": EXPORT_VERSION,
        "vcs_version": VCS_VERSION,
        "architecture": [f"{struct.calcsize('P') * 8}bits", platform.machine()],
        "name": cluster.cluster_name,
        "master": view.master.name,
        "default_hypervisor": next(iter(cluster.enabled_hypervisors), None),
        "enabled_hypervisors": list(cluster.enabled_hypervisors),
        "hvparams": _enabled_hvparams(cluster),
        "ipolicy": fill_cluster_ipolicy(cluster),
        "primary_ip_version": cluster.primary_ip_family.version,
        "enabled_data_collectors": {
            name: collector.active for name, collector in cluster.data_collectors.items()
        },
        "data_collector_interval": {
            name: collector.interval for name, collector in cluster.data_collectors.items()
        },
    }
    info.update((name, plain(getattr(cluster, name))) for name in _SAME_NAME)
    return info


def _enabled_hvparams(cluster: Cluster) -> Mapping[str, object]:
    filled = cluster_hvparams(cluster)
    return {name: filled[name] for name in cluster.enabled_hypervisors if name in filled}


def config_values(
    view: ConfigView, names: list[str], *, drained: bool, watcher_pause: float | None
) -> list[object]:
    """Answer QueryConfigValues; null for an unknown name."""
    cluster = view.cluster
    values: dict[str, object] = {
        "cluster_name": cluster.cluster_name,
        "master_node": view.master.name,
        "watcher_pause": watcher_pause,
        "drain_flag": drained,
        "modify_ssh_setup": cluster.modify_ssh_setup,
        "ssh_key_type": cluster.ssh_key_type,
        "ssh_key_bits": cluster.ssh_key_bits,
    }
    return [values.get(name) for name in names]

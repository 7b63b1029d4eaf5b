"""What the cluster is set to, asked by a job."""

from __future__ import annotations

import platform
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.versions import (
    CONFIG_VERSION,
    EXPORT_VERSION,
    OS_API_VERSIONS,
    PROTOCOL_VERSION,
    RELEASE_VERSION,
    VCS_VERSION,
)
from ganeti.logical_units.base import LogicalUnit
from ganeti.objects.fill import cluster_hvparams, fill_cluster_ipolicy
from ganeti.opcodes.cluster import OpClusterConfigQuery, OpClusterQuery
from ganeti.system import files

if TYPE_CHECKING:
    from ganeti.base.paths import Paths
    from ganeti.objects.cluster import Cluster

_PAUSE_BYTES_MAX = 64

# Settings that are shown as they are stored.
_AS_STORED = (
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
    "modify_ssh_setup",
    "ssh_key_type",
    "ssh_key_bits",
    # ours, beside what 3.0 tells
    "modify_etc_hosts",
    "hv_state_static",
    "disk_state_static",
)


def watcher_pause(paths: Paths) -> float | None:
    """Return until when the watcher pauses, or None."""
    data = files.read_bytes_or_none(paths.watcher_pause, _PAUSE_BYTES_MAX)
    try:
        return float(data) if data else None
    except ValueError:
        return None


def cluster_row(cluster: Cluster, master_name: str, paths: Paths) -> dict[str, object]:
    """Return the values of all query fields of the cluster.

    Source: query_fields.json, "cluster".
    """
    return {
        "architecture": [f"{struct.calcsize('P') * 8}bits", platform.machine()],
        "cluster_name": cluster.cluster_name,
        "config_version": CONFIG_VERSION,
        "ctime": cluster.ctime,
        "drain_flag": files.read_bytes_or_none(paths.queue_drain) is not None,
        "export_version": EXPORT_VERSION,
        "master_node": master_name,
        "mtime": cluster.mtime,
        "name": cluster.cluster_name,
        "os_api_version": max(OS_API_VERSIONS),
        "protocol_version": PROTOCOL_VERSION,
        "software_version": RELEASE_VERSION,
        "tags": list(cluster.tags),
        "vcs_version": VCS_VERSION,
        "volume_group_name": cluster.volume_group_name,
        "watcher_pause": watcher_pause(paths),
    }


class LUClusterQuery(LogicalUnit[OpClusterQuery]):
    """Answer the cluster's settings.

    Source: luxi.json, "cluster_info".
    """

    def exec(self) -> Mapping[str, object]:
        """Return them."""
        cluster, row = self.cluster, cluster_row(self.cluster, self.master.name, self.context.paths)
        stored = cluster.to_wire()
        collectors = cluster.data_collectors
        return {
            **{name: stored.get(name) for name in _AS_STORED},
            **{
                name: row[name]
                for name in (
                    "software_version",
                    "protocol_version",
                    "config_version",
                    "os_api_version",
                    "export_version",
                    "vcs_version",
                    "architecture",
                    "name",
                    "volume_group_name",
                    "ctime",
                    "mtime",
                    "tags",
                )
            },
            "master": self.master.name,
            "default_hypervisor": next(iter(cluster.enabled_hypervisors), None),
            "enabled_hypervisors": [str(name) for name in cluster.enabled_hypervisors],
            "hvparams": cluster_hvparams(cluster),
            "ipolicy": fill_cluster_ipolicy(cluster),
            "primary_ip_version": cluster.primary_ip_family.version,
            "enabled_data_collectors": {name: c.active for name, c in collectors.items()},
            "data_collector_interval": {name: c.interval for name, c in collectors.items()},
        }


class LUClusterConfigQuery(LogicalUnit[OpClusterConfigQuery]):
    """Answer values of the configuration by name.

    Source: query_fields.json, "cluster".
    """

    def exec(self) -> list[object]:
        """Return the values in the order asked."""
        row = cluster_row(self.cluster, self.master.name, self.context.paths)
        unknown = [name for name in self.op.output_fields if name not in row]
        if unknown:
            raise OpPrereqError(
                f"unknown field(s) {', '.join(unknown)}; known are: {', '.join(sorted(row))}",
                ErrorCode.INVAL,
            )
        return [row[name] for name in self.op.output_fields]

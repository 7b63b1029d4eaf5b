"""The directories and files that make a machine a node of a cluster.

Source: config.json, "paths_ensured_by_installation".  Owners are left to the installation: this
build runs all daemons as root, or as the user of a virtual cluster.
"""

from __future__ import annotations

import glob
import os
import shutil
from typing import Final

from ganeti.base.paths import Paths
from ganeti.system import files

# mode -> well-known paths, each after those that it is in
DIRECTORIES: Final = {
    0o775: ("run_dir",),
    0o755: (
        *("data_dir", "conf_dir", "lock_dir", "bdev_cache_dir", "disk_links_dir"),
        *("import_export_dir", "instance_reason_dir"),
    ),
    0o770: ("socket_dir", "log_dir"),
    0o750: (
        *("queue_dir", "queue_archive_dir", "rapi_dir", "uid_pool_dir", "livelock_dir"),
        *("luxid_message_dir", "log_os_dir", "log_kvm_dir"),
    ),
    0o700: ("crypto_keys_dir",),
}

SECRET_MODE: Final = 0o440
CONFIG_MODE: Final = 0o640
READABLE_MODE: Final = 0o644

# The files that a cluster leaves on a node, as well-known paths; ssconf and the queue are below.
_FILES: Final = (
    *("config_data", "locks_data", "tempres_data", "locks_own_data", "tempres_own_data"),
    *("server_pem", "client_pem", "rapi_pem", "spice_pem", "spice_ca_pem", "hmac_key"),
    *("cluster_domain_secret", "known_hosts", "ssh_pub_keys", "ssh_managed", "watcher_pause"),
    *("queue_serial", "queue_version", "queue_lock", "queue_drain"),
)
_PATTERNS: Final = (
    *(("data_dir", "ssconf_*"), ("data_dir", "master_claim"), ("queue_dir", "job-*")),
    *(("livelock_dir", "*"), ("luxid_message_dir", "*")),
)


def ensure_directories(paths: Paths) -> None:
    """Make the directories that are missing; those that exist keep their modes.

    Raises:
        OSError: one cannot be made.
    """
    for mode, names in DIRECTORIES.items():
        for name in names:
            files.ensure_directory(getattr(paths, name), mode)


def cluster_files(paths: Paths) -> list[str]:
    """Return the files of a cluster that exist on this node."""
    found = [getattr(paths, name) for name in _FILES]
    for name, pattern in _PATTERNS:
        found += sorted(glob.glob(f"{glob.escape(getattr(paths, name))}/{pattern}"))
    return [path for path in found if os.path.lexists(path)]


def remove_cluster_files(paths: Paths) -> list[str]:
    """Remove the files of a cluster from this node, archived jobs included; returns their paths.

    Disks of instances, exports, logs and what administrators wrote below /etc stay.

    Raises:
        OSError: one cannot be removed.
    """
    removed = cluster_files(paths)
    for path in removed:
        files.remove_if_exists(path)
    shutil.rmtree(paths.queue_archive_dir, ignore_errors=True)
    return removed

"""The directories and files that make a machine a node of a cluster.

Owners are left to the start of the daemons (`ganeti.store.accounts`): without users for them they
run as root, or as the user of a virtual cluster.
"""

from __future__ import annotations

import glob
import os
import shutil
from contextlib import ExitStack
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.base.owned_files import DIRECTORY, OWNED
from ganeti.base.paths import Paths
from ganeti.store.working_directory import RESTORE, remove_unused
from ganeti.system import files

SECRET_MODE: Final = 0o440
CONFIG_MODE: Final = 0o640
READABLE_MODE: Final = 0o644

# The files that a cluster leaves on a node, as well-known paths; ssconf and the queue are below.
_FILES: Final = (
    *("config_data", "config_journal"),
    *("locks_data", "tempres_data", "locks_own_data", "tempres_own_data"),
    *("server_pem", "client_pem", "rapi_pem", "spice_pem", "spice_ca_pem", "hmac_key"),
    *("cluster_domain_secret", "known_hosts", "ssh_pub_keys", "ssh_managed"),
    *("ssh_revoked_keys", "upgrade_under_way", "renewal_note", "merge_note"),
    *("restore_note", "instance_communication", "volume_group_health"),
    *("queue_serial", "queue_version", "queue_lock", "queue_drain"),
)
# Of high availability, whose daemons start where they find their settings.
_AVAILABILITY: Final = (
    *("high_availability", "ha_state", "ha_member", "etcd_member"),
    *("ha_member_certificate", "ha_member_authority"),
    *("ha_certificate", "ha_authority", "ha_authority_key"),
)
# Users of the remote API and their rights, which administrators may have written before a cluster.
_ACCESS: Final = ("rapi_users", "rapi_roles", "rapi_tokens")
_PATTERNS: Final = (
    *(("data_dir", "ssconf_*"), ("data_dir", "master_claim"), ("queue_dir", "job-*")),
    *(("livelock_dir", "*"), ("luxid_message_dir", "*")),
    ("data_dir", "cluster-merge.*"),  # keys, beside the note of a merge
    *(("data_dir", "config.data.demoted"), ("data_dir", "watcher.*")),
)


def replace_file(undo: ExitStack, path: str, content: bytes, mode: int) -> None:
    """Write a file durably; as it was before again where a later step fails.

    Raises:
        GenericError: it stays as it was.
    """
    before = files.read_bytes_or_none(path)
    try:
        files.write_durable(path, content, mode)
    except OSError as err:
        raise GenericError(f"cannot write {path}: {err.strerror}; nothing was changed") from err
    if before is None:
        undo.callback(files.remove_if_exists, path)
    else:
        undo.callback(files.write_durable, path, before, mode)


def ensure_directories(paths: Paths) -> None:
    """Make the missing directories; existing ones keep their modes.

    Raises:
        OSError: one cannot be made.
    """
    for name in ("conf_dir", "lock_dir"):
        files.ensure_directory(getattr(paths, name), 0o755)
    for row in OWNED:
        if row.kind == DIRECTORY and not row.pattern:
            files.ensure_directory(getattr(paths, row.place), row.mode)


def cluster_files(paths: Paths) -> list[str]:
    """Return the files of a cluster that exist on this node, but for archived jobs."""
    found = [getattr(paths, name) for name in (*_FILES, *_ACCESS, *_AVAILABILITY)]
    for name, pattern in _PATTERNS:
        found += sorted(glob.glob(f"{glob.escape(getattr(paths, name))}/{pattern}"))
    # A process that was killed may have left the directory of a job that it played.
    return [path for path in found if os.path.lexists(path) and not os.path.isdir(path)]


def remove_cluster_files(paths: Paths, *, keeps_access: bool = False) -> list[str]:
    """Remove the files of a cluster from this node, archived jobs included; returns their paths.

    Disks of instances, exports, logs and the files of administrators below /etc stay.

    Args:
        keeps_access: users of the remote API stay, since this node belonged to no cluster before.

    Raises:
        OSError: one cannot be removed.
    """
    kept = [getattr(paths, name) for name in _ACCESS] if keeps_access else []
    removed = [path for path in cluster_files(paths) if path not in kept]
    for path in removed:
        files.remove_if_exists(path)
    for path in glob.glob(f"{glob.escape(paths.luxid_message_dir)}/*"):
        files.remove_tree(path)
    shutil.rmtree(paths.queue_archive_dir, ignore_errors=True)
    removed += remove_unused(RESTORE, paths.data_dir)
    remove_availability(paths)
    return removed


def remove_access(paths: Paths) -> None:
    """Remove the users of the remote API, who would have the same rights in another cluster.

    Raises:
        OSError: a file cannot be removed.
    """
    for name in _ACCESS:
        files.remove_if_exists(getattr(paths, name))


def remove_availability(paths: Paths) -> None:
    """Remove what high availability has left, and the data of etcd; no daemon of it runs.

    Raises:
        OSError: a file cannot be removed.
    """
    for name in _AVAILABILITY:
        files.remove_if_exists(getattr(paths, name))
    shutil.rmtree(paths.etcd_dir, ignore_errors=True)

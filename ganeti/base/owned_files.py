"""Owners and modes of the files and directories of a cluster: a table.

An installation may have users of its own for the daemons, as Debian's has; without them everything
belongs to root.  Nodes make the directories with these modes in both cases.

Source: config.json, "paths_ensured_by_installation"; constants.json, "daemons_and_ports".
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ganeti.base.daemons import ALL_DAEMONS, CONFD, DAEMONS, MASTERD, METAD_USER, RAPI, ROOT

DIRECTORY: Final = "directory"
FILE: Final = "file"
SSCONF: Final = "ssconf_*"


class Owned(NamedTuple):
    """The owner of a file or directory.

    Attributes:
        place: name of a well-known path.
        pattern: of names below it; "" for the path itself.
    """

    kind: str
    place: str
    mode: int
    user: str
    group: str
    pattern: str = ""


def _rows(kind: str, mode: int, user: str, group: str, *places: str) -> list[Owned]:
    return [
        Owned(kind, place, mode, user, group, pattern)
        for place, _, pattern in (each.partition("/") for each in places)
    ]


OWNED: Final = (
    # Directories, each after the directories around it.
    *_rows(DIRECTORY, 0o755, MASTERD, MASTERD, "data_dir"),
    *_rows(DIRECTORY, 0o775, MASTERD, ALL_DAEMONS, "run_dir"),
    *_rows(DIRECTORY, 0o770, MASTERD, ALL_DAEMONS, "socket_dir", "log_dir"),
    *_rows(DIRECTORY, 0o750, MASTERD, ALL_DAEMONS, "queue_dir", "queue_archive_dir"),
    *_rows(DIRECTORY, 0o750, MASTERD, ALL_DAEMONS, "queue_archive_dir/[0-9]*"),
    *_rows(DIRECTORY, 0o750, MASTERD, ALL_DAEMONS, "livelock_dir", "luxid_message_dir"),
    *_rows(DIRECTORY, 0o750, RAPI, MASTERD, "rapi_dir"),
    *_rows(DIRECTORY, 0o755, ROOT, MASTERD, "bdev_cache_dir", "disk_links_dir"),
    *_rows(DIRECTORY, 0o755, ROOT, MASTERD, "import_export_dir"),
    *_rows(DIRECTORY, 0o750, ROOT, MASTERD, "uid_pool_dir"),
    *_rows(DIRECTORY, 0o700, ROOT, MASTERD, "crypto_keys_dir"),
    *_rows(DIRECTORY, 0o755, ROOT, ROOT, "instance_reason_dir"),
    *_rows(DIRECTORY, 0o750, ROOT, ALL_DAEMONS, "log_os_dir", "log_kvm_dir", "log_xen_dir"),
    *_rows(DIRECTORY, 0o750, ROOT, ALL_DAEMONS, "log_lxc_dir"),
    *_rows(DIRECTORY, 0o750, ROOT, ROOT, "log_cleaner_dir"),
    *_rows(DIRECTORY, 0o750, MASTERD, MASTERD, "log_master_cleaner_dir"),
    # The cluster and its secrets.
    *_rows(FILE, 0o640, MASTERD, CONFD, "config_data", "config_journal"),
    *_rows(FILE, 0o600, MASTERD, MASTERD, "locks_data", "tempres_data"),
    *_rows(FILE, 0o640, MASTERD, MASTERD, "cluster_domain_secret"),
    *_rows(FILE, 0o644, MASTERD, MASTERD, "known_hosts", "watcher_pause"),
    *_rows(FILE, 0o440, MASTERD, MASTERD, "server_pem", "client_pem"),
    *_rows(FILE, 0o440, CONFD, MASTERD, "hmac_key"),
    *_rows(FILE, 0o440, ROOT, MASTERD, "spice_pem", "spice_ca_pem"),
    *_rows(FILE, 0o440, RAPI, MASTERD, "rapi_pem"),
    *_rows(FILE, 0o640, RAPI, MASTERD, "rapi_users"),
    *_rows(FILE, 0o444, ROOT, ROOT, f"data_dir/{SSCONF}"),
    # The job queue.
    *_rows(FILE, 0o640, MASTERD, ALL_DAEMONS, "queue_lock", "queue_serial", "queue_version"),
    *_rows(FILE, 0o640, MASTERD, ALL_DAEMONS, "queue_dir/job-*", "queue_archive_dir/*/job-*"),
    *_rows(FILE, 0o644, MASTERD, ALL_DAEMONS, "queue_drain"),
    # Files made while the daemons run.
    *_rows(FILE, 0o660, MASTERD, ALL_DAEMONS, "socket_dir/ganeti-master", "query_socket"),
    *_rows(FILE, 0o600, MASTERD, ALL_DAEMONS, "wconfd_socket"),
    *_rows(FILE, 0o600, METAD_USER, ALL_DAEMONS, "metad_socket"),
    *(
        row
        for daemon in DAEMONS
        for row in (
            *_rows(FILE, 0o600, daemon.user, MASTERD, f"log_dir/{daemon.log_name}.log"),
            *_rows(FILE, 0o600, daemon.user, daemon.group, f"run_dir/{daemon.name}.pid"),
        )
    ),
    # Ours.
    *_rows(DIRECTORY, 0o700, MASTERD, MASTERD, "etcd_dir"),
    *_rows(DIRECTORY, 0o700, METAD_USER, METAD_USER, "metadata_dir"),
    *_rows(FILE, 0o644, ROOT, ROOT, "instance_communication"),
    *_rows(FILE, 0o640, MASTERD, "gnt-luxid", "run_dir/job-*.lock"),
    *_rows(FILE, 0o600, MASTERD, MASTERD, "ha_member", "etcd_member"),
    *_rows(FILE, 0o600, MASTERD, MASTERD, "locks_own_data", "tempres_own_data", "ssh_pub_keys"),
    *_rows(FILE, 0o600, MASTERD, MASTERD, "ssh_revoked_keys"),
    *_rows(FILE, 0o644, MASTERD, MASTERD, "ssh_managed"),
    *_rows(FILE, 0o600, MASTERD, "gnt-luxid", "log_dir/jobs.log"),
    *_rows(FILE, 0o600, RAPI, RAPI, "log_dir/rapi-access.log", "log_dir/rapi-audit.log"),
    *_rows(FILE, 0o600, MASTERD, MASTERD, "log_dir/audit.log"),
    *_rows(FILE, 0o640, RAPI, MASTERD, "rapi_roles", "rapi_tokens"),
)
SHARED_LOCKS: Final = ("ssconf_lock",)
"""Lock files of several users, in a directory of all users: they belong to root, with the group of
the master's daemons."""

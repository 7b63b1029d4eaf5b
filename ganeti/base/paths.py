"""Every well-known path, below one root directory.

``Paths("")`` is the real system; ``Paths("/srv/vc/node1.example.com")`` is a virtual node.  In
``config.data`` and on the node RPC wire, paths stand without the root; `Paths.localize` and
`Paths.globalize` translate where a message enters or leaves a process.

Source: config.json, "well_known_paths" and "paths_ensured_by_installation"; constants.json,
"virtual_cluster".
"""

from __future__ import annotations

import os.path
from typing import Final

from ganeti.base.daemons import DAEMONS
from ganeti.base.errors import OpPrereqError

VIRTUAL_PATH_PREFIX: Final = "/###-VIRTUAL-PATH-###,"
UNIX_SOCKET_PATH_BYTES_MAX: Final = 107  # sun_path of Linux, less the final zero byte
VIRTUAL_CLUSTER_RECORD: Final = "vcluster.json"  # beside the roots of its nodes
SSCONF_BYTES_MAX: Final = 131072  # of one file of the simple configuration

LIBRARIES: Final = ("/usr/local/lib/ganeti", "/usr/lib/ganeti")
SHARES: Final = ("/srv/ganeti", *LIBRARIES, "/usr/share/ganeti")

_LOG_NAMES: Final = {daemon.name: daemon.log_name for daemon in DAEMONS}

# name -> path below the root
_WELL_KNOWN: Final = {
    "data_dir": "/var/lib/ganeti",
    "config_data": "/var/lib/ganeti/config.data",
    "config_journal": "/var/lib/ganeti/config.journal",
    "locks_data": "/var/lib/ganeti/locks.data",
    "tempres_data": "/var/lib/ganeti/tempres.data",
    "locks_own_data": "/var/lib/ganeti/locks-own.data",
    "tempres_own_data": "/var/lib/ganeti/tempres-own.data",
    "queue_dir": "/var/lib/ganeti/queue",
    "queue_archive_dir": "/var/lib/ganeti/queue/archive",
    "queue_serial": "/var/lib/ganeti/queue/serial",
    "queue_version": "/var/lib/ganeti/queue/version",
    "queue_lock": "/var/lib/ganeti/queue/lock",
    "queue_drain": "/var/lib/ganeti/queue/drain",
    "server_pem": "/var/lib/ganeti/server.pem",
    "client_pem": "/var/lib/ganeti/client.pem",
    "rapi_pem": "/var/lib/ganeti/rapi.pem",
    "rapi_dir": "/var/lib/ganeti/rapi",
    "rapi_users": "/var/lib/ganeti/rapi/users",
    "rapi_roles": "/var/lib/ganeti/rapi/roles",
    "rapi_tokens": "/var/lib/ganeti/rapi/tokens",
    "spice_pem": "/var/lib/ganeti/spice.pem",
    "spice_ca_pem": "/var/lib/ganeti/spice-ca.pem",
    "hmac_key": "/var/lib/ganeti/hmac.key",
    "cluster_domain_secret": "/var/lib/ganeti/cluster-domain-secret",
    "known_hosts": "/var/lib/ganeti/known_hosts",
    "ssh_pub_keys": "/var/lib/ganeti/ganeti_pub_keys",
    "ssh_revoked_keys": "/var/lib/ganeti/ganeti_revoked_keys",
    "ssh_managed": "/var/lib/ganeti/ssh-managed",
    "export_dir": "/var/lib/ganeti/export",
    "volume_group_health": "/var/lib/ganeti/volume-groups.health",
    "watcher_pause": "/var/lib/ganeti/watcher.pause",
    "high_availability": "/var/lib/ganeti/high-availability",
    "ha_member": "/var/lib/ganeti/high-availability-member",
    "ha_member_certificate": "/var/lib/ganeti/high-availability-member.pem",
    "ha_member_authority": "/var/lib/ganeti/high-availability-member-ca.pem",
    "ha_certificate": "/var/lib/ganeti/high-availability.pem",
    "ha_authority": "/var/lib/ganeti/high-availability-ca.pem",
    "ha_authority_key": "/var/lib/ganeti/high-availability-ca.key",
    "instance_communication": "/var/lib/ganeti/instance-communication",
    "departures_dir": "/var/lib/ganeti/departures",
    "upgrade_under_way": "/var/lib/ganeti/upgrade-under-way",
    "etcd_dir": "/var/lib/ganeti/etcd",
    "etcd_member": "/var/lib/ganeti/etcd.member",
    "renewal_note": "/var/lib/ganeti/renewal",
    "restore_note": "/var/lib/ganeti/restoration",
    "merge_note": "/var/lib/ganeti/cluster-merge",
    "watcher_nodes_data": "/var/lib/ganeti/watcher.nodes.data",
    "run_dir": "/var/run/ganeti",
    "socket_dir": "/var/run/ganeti/socket",
    "query_socket": "/var/run/ganeti/socket/ganeti-query",
    "wconfd_socket": "/var/run/ganeti/socket/ganeti-wconfd",
    "metad_socket": "/var/run/ganeti/socket/ganeti-metad",
    "metadata_dir": "/var/run/ganeti/metadata",
    "ha_copies": "/var/run/ganeti/ha-copies",
    "ha_state": "/var/run/ganeti/ha-state",
    "livelock_dir": "/var/run/ganeti/livelocks",
    "luxid_message_dir": "/var/run/ganeti/luxidmessages",
    "bdev_cache_dir": "/var/run/ganeti/bdev-cache",
    "disk_links_dir": "/var/run/ganeti/instance-disks",
    "uid_pool_dir": "/var/run/ganeti/uid-pool",
    "crypto_keys_dir": "/var/run/ganeti/crypto",
    "import_export_dir": "/var/run/ganeti/import-export",
    "instance_reason_dir": "/var/run/ganeti/instance-reason",
    "instance_status": "/var/run/ganeti/instance-status",
    "kvm_dir": "/var/run/ganeti/kvm-hypervisor",
    "fake_dir": "/var/run/ganeti/fake-hypervisor",
    "chroot_dir": "/var/run/ganeti/chroot-hypervisor",
    "lxc_dir": "/var/run/ganeti/lxc-hypervisor",
    "xen_dir": "/var/run/ganeti/xen-hypervisor",
    "xen_config_dir": "/etc/xen",
    "gluster_storage_dir": "/var/run/ganeti/gluster",
    "gluster_uses_dir": "/var/run/ganeti/gluster-uses",
    "ceph_conf": "/etc/ceph/ceph.conf",
    "log_dir": "/var/log/ganeti",
    "log_watcher": "/var/log/ganeti/watcher.log",
    "log_cleaner_dir": "/var/log/ganeti/cleaner",
    "log_master_cleaner_dir": "/var/log/ganeti/master-cleaner",
    "log_os_dir": "/var/log/ganeti/os",
    "log_kvm_dir": "/var/log/ganeti/kvm",
    "log_lxc_dir": "/var/log/ganeti/lxc",
    "log_xen_dir": "/var/log/ganeti/xen",
    "log_es_dir": "/var/log/ganeti/extstorage",
    "once_dir": "/run/ganeti-once",
    "lock_dir": "/var/lock",
    "ssconf_lock": "/var/lock/ganeti-ssconf.lock",
    "watcher_lock": "/var/lock/ganeti-watcher.lock",
    "restricted_commands_lock": "/var/lock/ganeti-restricted-commands.lock",
    "repair_commands_lock": "/var/lock/ganeti-repair-commands.lock",
    "conf_dir": "/etc/ganeti",
    "default_arguments": "/etc/default/ganeti",
    "etc_hosts": "/etc/hosts",
    "hooks_dir": "/etc/ganeti/hooks",
    "user_scripts_dir": "/etc/ganeti/scripts",
    "restricted_commands_dir": "/etc/ganeti/restricted-commands",
    "diagnose_commands_dir": "/etc/ganeti/node-diagnose-commands",
    "repair_commands_dir": "/etc/ganeti/node-repair-commands",
    "file_storage_paths_file": "/etc/ganeti/file-storage-paths",
    "shared_dir_paths_file": "/etc/ganeti/shared-dir-paths",
    "distributed_files_list": "/etc/ganeti/distributed-files",
    "accepted_files_list": "/etc/ganeti/accepted-files",
    "kvm_vif_script": "/etc/ganeti/kvm-vif-bridge",
    "lxc_vif_script": "/etc/ganeti/lxc-vif-bridge",
    "vnc_password_file": "/etc/ganeti/vnc-cluster-password",
    "file_storage_dir": "/srv/ganeti/file-storage",
    "shared_file_storage_dir": "/srv/ganeti/shared-file-storage",
    "backup_dir": "/var/backups",
}


class Paths:
    """The well-known paths below ``root`` ("" for the real system)."""

    __slots__ = ("root",)

    def __init__(self, root: str = "") -> None:
        self.root = root.rstrip("/")

    def __repr__(self) -> str:
        return f"Paths({self.root!r})"

    def __getattr__(self, name: str) -> str:
        try:
            return self.root + _WELL_KNOWN[name]
        except KeyError:
            raise AttributeError(f"no well-known path is called {name!r}") from None

    @property
    def os_search_path(self) -> list[str]:
        """Directories with operating system definitions, first match wins."""
        return [f"{self.root}{directory}/os" for directory in SHARES]

    @property
    def es_search_path(self) -> list[str]:
        """Directories with external storage providers, first match wins."""
        return [f"{self.root}{directory}/extstorage" for directory in SHARES]

    @property
    def iallocator_search_path(self) -> list[str]:
        """Directories with allocators, first match wins."""
        return [f"{self.root}{directory}/iallocators" for directory in LIBRARIES]

    @property
    def virtual_cluster_record(self) -> str | None:
        """The file that describes the virtual cluster of this node; None on a real one."""
        return f"{os.path.dirname(self.root)}/{VIRTUAL_CLUSTER_RECORD}" if self.root else None

    def pid_file(self, daemon: str) -> str:
        """Return the pid file of a daemon, e.g. of ``ganeti-noded``."""
        return f"{self.run_dir}/{daemon}.pid"

    def job_lock(self, name: str) -> str:
        """Return the file by which jobs keep others away; only our daemons may write beside it."""
        return f"{self.run_dir}/job-{name}.lock"

    def log_file(self, daemon: str) -> str:
        """Return the log file of a daemon, by the names that operators know."""
        return f"{self.log_dir}/{_LOG_NAMES.get(daemon, daemon)}.log"

    def watcher_data(self, group_uuid: str) -> str:
        """Return the file of what the watcher remembers about a node group."""
        return f"{self.data_dir}/watcher.{group_uuid}.data"

    def watcher_status(self, group_uuid: str) -> str:
        """Return the file with the states of a group's instances as the watcher last saw them."""
        return f"{self.data_dir}/watcher.{group_uuid}.instance-status"

    def watcher_group_lock(self, group_uuid: str, task: str = "") -> str:
        """Return the lock file of the watcher's run for a node group, or of one task of it."""
        return f"{self.lock_dir}/ganeti-watcher.{group_uuid}{task}.lock"

    def ssconf_file(self, key: str) -> str:
        """Return the file that holds one ssconf key."""
        return f"{self.data_dir}/ssconf_{key}"

    def job_file(self, job_id: int) -> str:
        """Return the file of a job in the queue."""
        return f"{self.queue_dir}/job-{job_id}"

    def archived_job_file(self, job_id: int) -> str:
        """Return the file of an archived job."""
        return f"{self.queue_archive_dir}/{job_id // 10000}/job-{job_id}"

    def job_livelock(self, job_id: int, seconds: int) -> str:
        """Return the lock file of a job process started at that time."""
        return f"{self.livelock_dir}/job_{job_id:06d}_{seconds}"

    def localize(self, wire_path: str) -> str:
        """Translate a path from the wire or the configuration to this node's file system.

        Raises:
            OpPrereqError: the path is not absolute, or leaves the root through "..".
        """
        path = wire_path.removeprefix(VIRTUAL_PATH_PREFIX)
        if not path.startswith("/") or "\0" in path:
            raise OpPrereqError(f"path {wire_path!r} is not absolute")
        if ".." in path.split("/"):
            raise OpPrereqError(f"path {wire_path!r} contains '..'")
        return self.root + os.path.normpath("/" + path.lstrip("/"))

    def globalize(self, local_path: str) -> str:
        """Translate a path of this node to the form for the wire and the configuration.

        Raises:
            OpPrereqError: the path does not lie below this node's root.
        """
        path = os.path.normpath(local_path)
        if not self.root:
            return path
        if not path.startswith(self.root + "/"):
            raise OpPrereqError(f"path {local_path!r} does not lie below {self.root!r}")
        return path[len(self.root) :]

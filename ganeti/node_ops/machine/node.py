"""The node itself: its version and addresses, its other daemons, and leaving the cluster.

Source: constants.json, "daemons_and_ports".
"""

import contextlib
import glob
import logging
import os
import shutil
import threading
from collections.abc import Iterator
from typing import Final

from ganeti.base.daemons import DAEMONS, METAD, NODED, Place
from ganeti.base.errors import GenericError, LockError
from ganeti.base.paths import Paths
from ganeti.base.versions import PROTOCOL_VERSION
from ganeti.netdev.taps import ensure_switch
from ganeti.node_ops.context import NodeHandler
from ganeti.node_ops.instances import communication
from ganeti.store import config_file, master_facts
from ganeti.store.notes import watcher_pause
from ganeti.store.working_directory import RESTORE, remove_unused
from ganeti.system import daemon_control, environment, files
from ganeti.system.filelock import FileLock

logger = logging.getLogger(__name__)

_FLAG_BYTES_MAX: Final = 4096
# Of 3.0, whose masters order them on and off; here they can only be off.
_NEVER_HERE: Final = ("ganeti-kvmd",)
_ON_DEMAND: Final = frozenset(daemon.name for daemon in DAEMONS) - {NODED} | {*_NEVER_HERE}
_MASTER: Final = frozenset({Place.MASTER})
_WATCHER_S_MAX: Final = 90.0  # its scripts take a minute at most
_NO_VOTING: Final = ("--no-voting", "--yes-do-it")


class Node(NodeHandler):
    """The node and its daemons."""

    def version(self) -> int:
        return PROTOCOL_VERSION

    def master_node_name(self) -> str:
        data = files.read_bytes_or_none(self.paths.ssconf_file("master_node"), _FLAG_BYTES_MAX)
        if data is None:
            raise GenericError(f"node {self.hostname} does not know a master node")
        return data.decode().strip()

    def node_has_ip_address(self, address: str) -> bool:
        return environment.is_own_address(address)

    def get_file_info(self, file_path: str) -> tuple[bool, dict[str, int]]:
        try:
            size_bytes = os.stat(self.paths.localize(file_path)).st_size
        except (FileNotFoundError, NotADirectoryError):
            return False, {}
        return True, {"size": size_bytes}

    def get_watcher_pause(self) -> float | None:
        until = watcher_pause.read(self.paths)
        if until is None:
            watcher_pause.write(self.paths, None)
        return until

    def set_watcher_pause(self, until: float | None) -> None:
        watcher_pause.write(self.paths, until)

    def test_delay(self, duration: float) -> None:
        if duration < 0:
            raise GenericError(f"{self.node.call}: duration {duration} is negative")
        threading.Event().wait(duration)

    def node_configure_ovs(self, ovs_name: str, ovs_link: str | None) -> None:
        ensure_switch(ovs_name, ovs_link or "")

    def node_start_master_daemons(self, *, no_voting: bool) -> None:
        args = _NO_VOTING if no_voting else ()
        daemon_control.start_wanted(
            self.paths, _MASTER, logger.info, hostname=self.hostname, master_args=args
        )

    def node_stop_master(self) -> None:
        daemon_control.stop_all(self.paths, _MASTER, logger.info)
        for name in master_facts.remove_dead_locks(self.paths):
            logger.info("removed the lock file %s, which nobody held", name)

    def node_ensure_daemon(self, daemon: str, *, run: bool) -> bool:
        if daemon not in _ON_DEMAND:
            raise GenericError(f"{daemon!r} is not a daemon that runs on demand")
        if daemon == METAD:
            communication.allow(self.paths, run=run)
        if run:
            daemon_control.start_daemon(self.paths, daemon, hostname=self.hostname)
        else:
            daemon_control.stop_daemon(self.paths, daemon)
        return True

    def node_demote_from_mc(self) -> None:
        paths = self.paths
        if daemon_control.running_pid(paths, "ganeti-wconfd") is not None:
            raise GenericError(f"node {self.hostname} is the master and stays a candidate")
        with config_file.only_writer(paths):
            if config_file.has_config(paths):
                data = config_file.readable_config(paths)
                files.write_durable(f"{paths.config_data}.demoted", data, 0o600)
                files.remove_if_exists(paths.config_data)
            files.remove_if_exists(paths.config_journal)
        files.remove_if_exists(paths.ssh_pub_keys)
        files.remove_if_exists(paths.ssh_revoked_keys)

    def node_leave_cluster(self, *, modify_ssh_setup: bool) -> None:
        paths = self.paths
        with _watcher_kept_away(paths):
            daemon_control.stop_all(paths, frozenset(Place), logger.info, but=(NODED,))
            if modify_ssh_setup:
                logger.info("other nodes' keys are not let in any more; host keys stay as they are")
            aside = glob.glob(f"{glob.escape(paths.queue_dir)}.aside-*")
            for directory in (paths.queue_dir, *aside, paths.departures_dir):
                shutil.rmtree(directory, ignore_errors=True)
            remove_unused(RESTORE, paths.data_dir)
            for path in _cluster_files(paths):
                if files.remove_if_exists(path):
                    logger.info("removed %s", path)
            files.fsync_directory(paths.data_dir)


@contextlib.contextmanager
def _watcher_kept_away(paths: Paths) -> Iterator[None]:
    """Keep the watcher from starting what is being stopped.

    One whose run does not end keeps no node in the cluster: the others have forgotten it already.
    """
    files.ensure_directory(paths.lock_dir, 0o755)
    with contextlib.ExitStack() as held:
        try:
            lock = FileLock(paths.watcher_lock)
            lock.acquire(timeout_s=_WATCHER_S_MAX)
            held.enter_context(lock)
        except LockError as err:
            logger.warning("%s, by a run of the watcher; going on", err.message)
        yield


def _cluster_files(paths: Paths) -> list[str]:
    """Return the files that make this node one of a cluster; the certificates come last."""
    data_files = [
        path
        for path in glob.glob(f"{glob.escape(paths.data_dir)}/*")
        if os.path.isfile(path) and path not in (paths.server_pem, paths.client_pem)
    ]
    access = (paths.rapi_users, paths.rapi_roles, paths.rapi_tokens)
    return [*sorted(data_files), *access, paths.client_pem, paths.server_pem]

"""High availability on this node: its settings, its agent, and a member of etcd."""

import logging
import os
import shutil
import stat
from collections.abc import Iterator
from typing import Final

from ganeti.base.daemons import AGENT, MEMBER
from ganeti.base.errors import GenericError, OpExecError, failing_as
from ganeti.node_ops.context import NodeHandler
from ganeti.protocol.node_rpc_values import CompressedText
from ganeti.storage.drbd import fencing
from ganeti.store import availability, lease_disk
from ganeti.system import clock, daemon_control, files

logger = logging.getLogger(__name__)

_MODE: Final = 0o600
_BYTES_MAX: Final = 1 << 20
_WATCHDOGS: Final = "/sys/class/watchdog"
_TAKEN_S: Final = 15.0  # a look at the files, and a few beats
_LOOK_S: Final = 0.1


class Availability(NodeHandler):
    """The agent of high availability, and a member of etcd."""

    def ha_look(self, watchdog: str, as_member: bool) -> list[str]:
        found = list(_watchdog_problems(self.paths.localize(watchdog))) if watchdog else []
        if as_member and shutil.which("etcd") is None:
            found.append("etcd is not installed; on Debian: apt-get install etcd-server")
        return found

    def ha_prepare_disk(self, path: str, cluster: str, lease: str, slots: int) -> None:
        lease_disk.prepare(self.paths, path, cluster, lease, slots)

    def ha_check_disk(self, path: str, cluster: str, lease: str) -> str:
        return lease_disk.problem(self.paths, path, cluster, lease)

    def ha_clear_disk(self, path: str, cluster: str) -> None:
        with failing_as(OpExecError, f"cannot clear lease disk {path}"):
            lease_disk.clear(self.paths, path, cluster)

    def ha_start_member(
        self, settings: CompressedText, certificate: CompressedText, authority: CompressedText
    ) -> None:
        paths = self.paths
        self.ha_stop_member()
        self._write(paths.ha_member_certificate, certificate.content)
        self._write(paths.ha_member_authority, authority.content)
        self._write(paths.ha_member, settings.content)
        daemon_control.start_daemon(paths, MEMBER, hostname=self.hostname)

    def ha_renew_member(
        self, certificate: CompressedText, authority: CompressedText, restart: bool
    ) -> None:
        paths = self.paths
        if not os.path.exists(paths.ha_member):
            raise OpExecError("this node is no member of etcd")
        if certificate.content:
            self._write(paths.ha_member_certificate, certificate.content)
        self._write(paths.ha_member_authority, authority.content)
        if restart:
            daemon_control.stop_daemon(paths, MEMBER)
            daemon_control.start_daemon(paths, MEMBER, hostname=self.hostname)

    def ha_stop_member(self) -> None:
        paths = self.paths
        files.remove_if_exists(paths.ha_member)  # first, so that nobody starts it again
        daemon_control.stop_daemon(paths, MEMBER)
        for path in (paths.ha_member_certificate, paths.ha_member_authority, paths.etcd_member):
            files.remove_if_exists(path)
        shutil.rmtree(paths.etcd_dir, ignore_errors=True)

    def ha_start(
        self, settings: CompressedText, certificate: CompressedText, authority: CompressedText
    ) -> None:
        paths = self.paths
        for path, text in ((paths.ha_certificate, certificate), (paths.ha_authority, authority)):
            if text.content:
                self._write(path, text.content)
        self._write(paths.high_availability, settings.content)
        fencing.apply(paths, "")
        if AGENT in [daemon.name for daemon in daemon_control.wanted(paths)]:
            daemon_control.start_daemon(paths, AGENT, hostname=self.hostname)
            self._wait_for_agent(availability.digest(settings.content))

    def _wait_for_agent(self, digest: str) -> None:
        """Wait until the agent, which may have been running already, works with these settings.

        Raises:
            OpExecError: it does not.
        """
        until_s = clock.monotonic() + _TAKEN_S
        while clock.monotonic() < until_s:
            state = availability.read_state(self.paths)
            if state is not None and state.settings == digest:
                return
            clock.pause(_LOOK_S)
        raise OpExecError(
            "ganeti-ha runs on with the settings that it had, and takes up the new ones as soon as"
            f" etcd lets it; see {self.paths.log_file(AGENT)}"
        )

    def ha_stop(self, drbd_helper: str) -> None:
        paths = self.paths
        # First, so that nobody starts the agent again, and that it ends the watchdog although etcd
        # does not answer.
        files.remove_if_exists(paths.high_availability)
        daemon_control.stop_daemon(paths, AGENT)
        keys = (paths.ha_certificate, paths.ha_authority, paths.ha_authority_key)
        for path in (paths.ha_state, *keys):
            files.remove_if_exists(path)
        fencing.apply(paths, drbd_helper)

    def ha_report(self) -> dict[str, object]:
        paths = self.paths
        is_member = os.path.exists(paths.ha_member)
        state = availability.read_state(paths)
        return {
            "settings": availability.digest_here(paths),
            "taken": "" if state is None else state.settings,
            "agent": daemon_control.running_pid(paths, AGENT) is not None,
            "member": daemon_control.running_pid(paths, MEMBER) is not None if is_member else None,
            "disk": None if state is None else state.disk,
            "ends": dict(self._ends()),
        }

    def _ends(self) -> Iterator[tuple[str, float]]:
        """Yield when the certificates for etcd end."""
        from ganeti.system import certificates  # many milliseconds, and rarely needed

        paths = self.paths
        for path in (paths.ha_certificate, paths.ha_authority, paths.ha_member_certificate):
            pem = files.read_bytes_or_none(path, _BYTES_MAX)
            if pem is not None:
                yield paths.globalize(path), certificates.facts(pem, path).not_after

    def _write(self, path: str, content: bytes) -> None:
        """Write a file for root and for the owner of the data directory, whose daemons read it."""
        status = os.stat(self.paths.data_dir)
        files.write_durable(path, content, _MODE, owner=(status.st_uid, status.st_gid))


def _watchdog_problems(path: str) -> Iterator[str]:
    """Yield what keeps a watchdog from being used; it is not opened, which would start it."""
    try:
        mode = os.stat(path).st_mode
    except OSError as err:
        yield f"watchdog {path}: {err.strerror}; load its driver, or softdog"
        return
    if stat.S_ISFIFO(mode):
        return  # of a virtual node
    if not stat.S_ISCHR(mode):
        yield f"{path} is no watchdog"
        return
    name = os.path.basename(os.path.realpath(path))
    place = f"{_WATCHDOGS}/{name if name[-1].isdigit() else f'{name}0'}"
    try:
        state, is_endless = (
            (files.read_bytes_or_none(f"{place}/{name}", _BYTES_MAX) or b"").strip()
            for name in ("state", "nowayout")
        )
    except (OSError, GenericError):
        return
    if state == b"active":
        yield f"watchdog {path} is in use; stop what uses it (systemd: RuntimeWatchdogSec=0)"
    elif is_endless == b"1":
        yield (
            f"watchdog {path} cannot be ended once it runs, so a pause, or the end of the agent,"
            " would reset the node; load its driver with nowayout=0"
        )

"""Moving domains between nodes.

Live, ``xl migrate`` does all of it: memory goes over SSH while the guest runs; in the end the
guest goes on at the other node as soon as it stands still here, and a failure before lets it run on
here.  Not live, the guest is saved and stays here, paused; the image is restored there, paused
too, and whether it goes on here or there is decided by the steps that follow.

The transfer is a process of its own, which outlives the node daemon; its end is in files.

Source: xl(1), migrate, save, restore.
"""

from __future__ import annotations

import os
import shlex
import signal
from contextlib import suppress
from typing import Final

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.interface import Disks, Migration, MigrationState, MigrationStatus, NodeEnv
from ganeti.hypervisor.xen.output import Domain
from ganeti.hypervisor.xen.tool import DomainFiles, Xl
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.store import ssconf
from ganeti.system import clock, process, ssh
from ganeti.system.files import read_bytes_or_none, remove_if_exists, write_atomic

_POLL_S: Final = 0.2
_BYTES_MAX: Final = 1 << 20
_TAIL_LINES: Final = 5
_SETTLE_S: Final = 30.0
_KILL_S: Final = 5.0

# Both files appear whole: an empty one would say that there is no process, and no result.
_FRAME: Final = """echo $$ > {pid}.new && mv {pid}.new {pid}
{body}
status=$?
echo $status > {status}.new && mv {status}.new {status}
rm -f {image} {pid}
"""
_LIVE: Final = "xl migrate -s {ssh} {name} {host}"
_SAVED: Final = "xl save -p {name} {image} && {ssh} {host} xl restore -p /dev/stdin < {image}"


class XenMigration(Migration):
    """Moving the domains of one node."""

    def __init__(self, env: NodeEnv, xl: Xl) -> None:
        self._env = env
        self._xl = xl

    def _files(self, instance: RpcInstance) -> DomainFiles:
        return DomainFiles(self._env.paths, instance.name)

    def _running(self, instance: RpcInstance) -> Domain:
        found = self._xl.find(instance.name)
        if found is None or found.is_over or self._files(instance).is_incoming:
            host = self._env.hostname
            raise HypervisorError(f"instance {instance.name!r} does not run on {host}")
        return found

    def check(self, instance: RpcInstance) -> None:
        """Check that the domain runs, and is not being moved already."""
        self._running(instance)
        if self._process(instance) is not None:
            raise HypervisorError(f"instance {instance.name!r} is being migrated already")

    def describe(self, instance: RpcInstance) -> str:
        """Return the configuration of the running domain."""
        self._running(instance)
        return self._files(instance).read_config()

    def accept(self, instance: RpcInstance, info: str, address: str, disks: Disks) -> str:
        """Note that the instance is expected; SSH and xl make its domain."""
        files = self._files(instance)
        if self._xl.find(instance.name) is not None and not files.is_incoming:
            host = self._env.hostname
            raise HypervisorError(f"instance {instance.name!r} is already on {host}; not accepted")
        self._remove_received(instance)  # of an earlier try
        files.make_directories()
        write_atomic(files.incoming, b"")
        return address

    def send(self, instance: RpcInstance, target_address: str, *, live: bool) -> None:
        """Begin the transfer; returns at once."""
        self.check(instance)
        files = self._files(instance)
        files.make_directories()
        for kind in ("status", "image", "log", "pid"):
            remove_if_exists(files.transfer(kind))
        command = self._command(instance, target_address, live=live)
        with open(files.transfer("log"), "wb") as log:
            process.spawn(
                ["sh", "-c", command],
                env=self._xl.environment,
                stdout=log.fileno(),
                stderr=log.fileno(),
            )
        deadline = clock.monotonic() + _SETTLE_S
        while not self._has_begun(files) and clock.monotonic() < deadline:
            clock.pause(_POLL_S / 10)

    def _has_begun(self, files: DomainFiles) -> bool:
        return any(os.path.exists(files.transfer(kind)) for kind in ("pid", "status"))

    def _command(self, instance: RpcInstance, address: str, *, live: bool) -> str:
        """Return the transfer as a program for the shell."""
        paths, files = self._env.paths, self._files(instance)
        alias = ssconf.read_key_or_none(paths, "cluster_name") or ""
        known_hosts = paths.known_hosts if alias else ""
        *options, host, _end, _nothing = ssh.command_line(
            address, [], known_hosts=known_hosts, alias=alias.strip()
        )
        words = {
            "name": shlex.quote(instance.name),
            "host": shlex.quote(host),
            "ssh": shlex.quote(shlex.join(options)) if live else shlex.join(options),
            **{kind: shlex.quote(files.transfer(kind)) for kind in ("status", "image", "pid")},
        }
        body = (_LIVE if live else _SAVED).format(**words)
        return _FRAME.format(body=body, **words)

    def _process(self, instance: RpcInstance) -> int | None:
        """Return the process of a transfer that is under way."""
        data = read_bytes_or_none(self._files(instance).transfer("pid"), _BYTES_MAX)
        pid = int(data) if data is not None and data.strip().isdigit() else None
        return None if pid is None or process.wait_gone(pid, 0.0) else pid

    def status(self, instance: RpcInstance, *, wait_s: float = 1.0) -> MigrationStatus:
        """Look at the transfer, waiting a moment for its end."""
        deadline = clock.monotonic() + wait_s
        while self._process(instance) is not None:
            left_s = deadline - clock.monotonic()
            if left_s <= 0:
                return MigrationStatus(MigrationState.ACTIVE)
            clock.pause(min(left_s, _POLL_S))
        files = self._files(instance)
        if files.has_left:
            return MigrationStatus(MigrationState.COMPLETED)
        said = read_bytes_or_none(files.transfer("log"), _BYTES_MAX) or b""
        lines = said.decode("utf-8", "replace").strip().splitlines()[-_TAIL_LINES:]
        error = "; ".join(line.strip() for line in lines) or "the transfer was broken off"
        return MigrationStatus(MigrationState.FAILED, error=error)

    def finish_source(self, instance: RpcInstance, *, success: bool, live: bool) -> None:
        """Remove the domain after its memory has left, or let it go on."""
        name, files = instance.name, self._files(instance)
        pid = self._process(instance)
        if pid is not None and not success:
            _end(pid)
        found = self._xl.find(name)
        if success:
            if found is not None and not (found.is_paused or found.is_over):
                host = self._env.hostname
                raise HypervisorError(f"instance {name!r} still runs on {host}; not removed")
            if found is not None:
                self._xl.change(f"instance {name!r} cannot be removed", "destroy", name)
                self._xl.wait_gone(name)
            files.remove()
        elif found is None or found.is_over:
            host = self._env.hostname
            raise HypervisorError(f"instance {name!r} does not run on {host} any more")
        elif found.is_paused:
            self._xl.change(f"instance {name!r} cannot go on", "unpause", name)
        for kind in ("status", "image", "pid"):
            remove_if_exists(files.transfer(kind))

    def finish_target(self, instance: RpcInstance, info: str, *, success: bool) -> bool:
        """Let the received domain run, or remove one that has not run yet."""
        name, files = instance.name, self._files(instance)
        if not success:
            return files.is_incoming and self._remove_received(instance)
        found = self._xl.find(name)
        if found is None or found.is_over:
            host = self._env.hostname
            raise HypervisorError(f"instance {name!r} was not received on {host}")
        if info:  # the clean-up of a migration that was broken off has none
            write_atomic(files.config, info.encode(), 0o600)
        remove_if_exists(files.incoming)  # nobody takes it for waiting once it may run
        if found.is_paused:
            try:
                self._xl.change(f"instance {name!r} cannot run", "unpause", name)
            except HypervisorError:
                write_atomic(files.incoming, b"")
                raise
        return False

    def _remove_received(self, instance: RpcInstance) -> bool:
        """Remove what has come of an instance, unless it runs: then it is here alone.

        Returns:
            Whether nothing of it is here any more.
        """
        name, files = instance.name, self._files(instance)
        found = self._xl.find(name)
        if found is not None and not found.is_paused:
            return False
        moving = f"{name}--incoming"
        for each in self._xl.domains():
            if each.name in (name, moving):
                self._xl.change(f"instance {name!r} cannot be removed", "destroy", each.name)
        self._xl.wait_gone(name)
        files.remove()
        return True


def _end(shell: int) -> None:
    """End the shell of a transfer and its programs, which would go on to move the guest."""
    group = [each for each in _processes() if _group_of(each) == shell]
    for number, patience_s in ((signal.SIGTERM, _SETTLE_S), (signal.SIGKILL, _KILL_S)):
        with suppress(ProcessLookupError):
            os.killpg(shell, number)
        deadline = clock.monotonic() + patience_s
        if all(process.wait_gone(each, max(0.0, deadline - clock.monotonic())) for each in group):
            return


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _group_of(pid: int) -> int:
    with suppress(ProcessLookupError):
        return os.getpgid(pid)
    return 0

"""Send an instance to another cluster: the half that has it.

    prepare   a certificate is made on the primary node, and handed out with what shows that this
              cluster knows the domain secret
    export    the instance is shut down, all its disks are sent to where the other cluster waits for
              them; then it is started again, or removed

A disk counts as sent once the other side has said that all of it is on its disk.  Whatever fails
before all of them are leaves the instance as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ganeti.base.errors import (
    ErrorCode,
    GenericError,
    NotSupportedError,
    OpExecError,
    OpPrereqError,
)
from ganeti.logical_units.backup import remote
from ganeti.logical_units.instance import disks
from ganeti.logical_units.instance.copying import check_compression, disk_by_script
from ganeti.logical_units.instance.power import (
    is_running,
    running_info,
    start_again,
    stop_on_primary,
)
from ganeti.logical_units.instance.remove import remove_instance
from ganeti.logical_units.instance.subject import InstanceUnit, check_node_online
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, shared
from ganeti.logical_units.node_calls import order
from ganeti.logical_units.undo import Undo
from ganeti.opcodes.backup import OpBackupExport, OpBackupPrepare
from ganeti.protocol import remote_move

if TYPE_CHECKING:
    from ganeti.objects.node import Node

_CONNECT_TIMEOUT_S: Final = 60  # the other side listens already


class LUBackupPrepareRemote(InstanceUnit[OpBackupPrepare]):
    """Make a certificate for an export to another cluster, and hand out what is told there."""

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the instance and its nodes shared: nothing is done to them."""
        if level is LockLevel.INSTANCE:
            return shared(level, [self.instance.name])
        return super().declare_locks(level) if level is LockLevel.NODE else {}

    def check_prereq(self) -> None:
        """Refuse what cannot be exported."""
        name = self.instance.name
        check_node_online(self.subject.primary, f"cannot export instance {name!r} from its")
        self.secret = remote.domain_secret(self.context.paths)

    def exec(self) -> Mapping[str, object]:
        """Make it; returns what the other cluster and the export want to know."""
        secret, salt = self.secret, self.context.new_uuid
        name, pem = remote.make_certificate(self.context, self.subject.primary)
        return {
            "instance": self.instance.name,
            "handshake": remote_move.handshake(secret, salt()),
            "x509_key_name": remote_move.signed_key_name(secret, salt(), name),
            "x509_ca": remote_move.signed_certificate(secret, salt(), pem),
        }


class LUBackupExportRemote(InstanceUnit[OpBackupExport]):
    """Send the disks of an instance to another cluster, which is waiting for them."""

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the instance exclusively, its primary node shared."""
        if level is LockLevel.NODE:
            return shared(level, [self.subject.primary.uuid])
        return super().declare_locks(level)

    def check_prereq(self) -> None:
        """Refuse what cannot be sent as things stand."""
        op, name, doing = self.op, self.instance.name, f"send instance {self.instance.name!r}"
        check_compression(op.compress)
        if op.zero_free_space:
            raise NotSupportedError("filling free space with zeroes is not supported yet")
        secret = remote.domain_secret(self.context.paths)
        awaited = op.target_node
        if isinstance(awaited, str):
            raise OpPrereqError(f"cannot {doing}: the target is a node, not a list of disks")
        with remote.refusing(doing):
            self.key_name = remote_move.read_key_name(secret, op.x509_key_name)
            self.peer = remote.peer_certificate(
                self.context, secret, op.destination_x509_ca, "the receiving cluster"
            )
            self.awaited = remote_move.read_disks(secret, awaited, len(self.subject.disks))
        check_node_online(self.subject.primary, f"cannot {doing} from its")
        info = running_info(self.context, self.subject, self.subject.primary)
        self.was_running = is_running(info)
        if self.was_running and not op.shutdown:
            raise OpPrereqError(
                f"instance {name!r} runs: its disks cannot be sent while it writes to them; shut it"
                " down, or let it be shut down",
                ErrorCode.STATE,
            )

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Run hooks on master and source."""
        nodes = [self.master, self.subject.primary]
        return nodes, nodes

    def own_env(self) -> Mapping[str, object]:
        """Tell how it is exported; the target is a node of nobody here."""
        return {
            "EXPORT_MODE": self.op.mode.value,
            "EXPORT_NODE": "",
            "EXPORT_DO_SHUTDOWN": self.op.shutdown,
            "SHUTDOWN_TIMEOUT": self.op.shutdown_timeout,
            "REMOVE_INSTANCE": self.op.remove_instance,
        }

    def hooks_env_after(self) -> Mapping[str, object]:
        """Tell about the instance as it is, or was."""
        return self.hooks_env() if self.op.remove_instance else super().hooks_env_after()

    def exec(self) -> tuple[bool, list[bool]]:
        """Send it; returns whether everything was sent, and whether each disk was."""
        try:
            with Undo(self.context) as undo:
                if self.was_running:
                    self._stop(undo)
                self._send()
                undo.forget()
        finally:
            remote.remove_certificate(self.context, self.subject.primary, self.key_name)
        if self.op.remove_instance:
            remove_instance(
                self.context,
                self.subject,
                shutdown_timeout_s=self.op.shutdown_timeout,
                ignore_failures=self.op.ignore_remove_failures,
                reason=self.op.reason,
            )
        elif self.was_running:
            self._start_again_after_all()
        return True, [True] * len(self.subject.disks)

    def _stop(self, undo: Undo) -> None:
        name = self.instance.name
        self.context.feedback(f"Shutting down instance {name}")
        undo.push(f"start instance {name!r} again", self._start_again)
        stop_on_primary(
            self.context,
            self.subject,
            self.subject.primary,
            self.op.shutdown_timeout,
            self.op.reason,
        )

    def _start_again(self) -> None:
        self.context.feedback(f"Starting instance {self.instance.name}")
        start_again(self.context, self.subject, self.op.reason)

    def _start_again_after_all(self) -> None:
        try:
            self._start_again()
        except GenericError as err:
            raise OpExecError(f"instance {self.instance.name!r} was sent, but {err}") from err

    def _send(self) -> None:
        """Send all disks at once; they are closed again, unless the instance is to have them."""
        context, subject, node = self.context, self.subject, self.subject.primary
        doing = f"send instance {self.instance.name!r} to another cluster"
        names: list[str] = []
        try:
            for index, disk in enumerate(subject.disks):
                context.check_canceled()
                names.append(self._start_sending(index))
                host = self.awaited[index].host
                context.feedback(f"* sending disk {index} ({disk.size} MiB) to {host}")
            remote.follow(context, doing, node, names, "sent")
        finally:
            remote.forget(context, doing, node, names)
            if self.was_running or not self.instance.disks_active:
                disks.deactivate(context, subject, node)

    def _start_sending(self, index: int) -> str:
        awaited = self.awaited[index]
        options = {
            "key_name": self.key_name,
            "ca_pem": self.peer,
            "compress": self.op.compress,
            "magic": awaited.magic,
            "ipv6": ":" in awaited.host,
            "connect_timeout": _CONNECT_TIMEOUT_S,
        }
        answer = order(
            self.context,
            self.subject.primary,
            f"send disk {index} of instance {self.instance.name!r}",
            "export_start",
            options,
            awaited.host,
            awaited.port,
            self.subject.wire(),
            f"disk{index}",
            disk_by_script(self.subject, index).io,
        )
        return str(answer)

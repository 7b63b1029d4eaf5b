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
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import (
    GenericError,
    NotSupportedError,
    OpExecError,
    OpPrereqError,
    wrong_state,
)
from ganeti.logical_units.backup import remote
from ganeti.logical_units.backup.export import export_values
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.base import InstanceUnit, OnInstance, check_node_online
from ganeti.logical_units.instance.life.power import (
    is_running,
    running_info,
    start_again,
    stop_on_primary,
)
from ganeti.logical_units.instance.life.remove import remove_instance
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.storage.copying import check_compression, disk_by_script
from ganeti.logical_units.locks import LockLevel, LockNeed, exclusive, shared
from ganeti.logical_units.undo import Undo
from ganeti.objects.model import Node
from ganeti.opcodes.backup import OpBackupExport, OpBackupPrepare
from ganeti.protocol import remote_move
from ganeti.protocol.node_rpc_values import TransferOptions
from ganeti.protocol.remote_move import AwaitedDisk, Secret

_CONNECT_TIMEOUT_S: Final = 60  # the other side listens already


@dataclass(frozen=True, slots=True)
class Preparation(OnInstance):
    """An instance that is to be exported, and the secret that both clusters have."""

    secret: Secret


class LUBackupPrepareRemote(InstanceUnit[OpBackupPrepare, Preparation]):
    """Make a certificate for an export to another cluster, and return its words for that one."""

    mode = "remote"

    def locks(self, found: OnInstance) -> LockNeed:
        """Lock the instance and its nodes shared: nothing is done to them."""
        return super().locks(found) | shared(LockLevel.INSTANCE, [found.view.instance.name])

    def plan(self, found: OnInstance) -> Preparation:
        """Refuse an instance that cannot be exported."""
        view, name = found.view, found.view.instance.name
        check_node_online(view.primary, f"cannot export instance {name!r} from its")
        return Preparation(view, remote.domain_secret(self.context.paths))

    def execute(self, plan: Preparation) -> Mapping[str, object]:
        """Make it; returns the values that the other cluster and the export need."""
        secret, salt = plan.secret, self.context.new_uuid
        name, pem = remote.make_certificate(self.context, plan.view.primary)
        return {
            "instance": plan.view.instance.name,
            "handshake": remote_move.handshake(secret, salt()),
            "x509_key_name": remote_move.signed_key_name(secret, salt(), name),
            "x509_ca": remote_move.signed_certificate(secret, salt(), pem),
        }


@dataclass(frozen=True, slots=True)
class Sending(OnInstance):
    """How an instance is sent.

    Attributes:
        key_name: our certificate, on the primary node.
        peer: the certificate of the other cluster, as PEM.
        awaited: where the other cluster waits for each disk.
    """

    key_name: str
    peer: str
    awaited: Sequence[AwaitedDisk]
    was_running: bool


class LUBackupExportRemote(InstanceUnit[OpBackupExport, Sending]):
    """Send the disks of an instance to another cluster, which is waiting for them."""

    mode = "remote"
    hooks = HookPoint("instance-export", ObjectType.INSTANCE)

    def locks(self, found: OnInstance) -> LockNeed:
        """Lock the instance exclusively, its primary node shared."""
        name = found.view.instance.name
        nodes = shared(LockLevel.NODE, [found.view.primary.uuid])
        return exclusive(LockLevel.INSTANCE, [name]) | nodes

    def plan(self, found: OnInstance) -> Sending:
        """Refuse an instance that cannot be sent as things stand."""
        op, view, name = self.op, found.view, found.view.instance.name
        doing = f"send instance {name!r}"
        check_compression(op.compress)
        if op.zero_free_space:
            raise NotSupportedError("filling free space with zeroes is not supported yet")
        secret = remote.domain_secret(self.context.paths)
        awaited = op.target_node
        if isinstance(awaited, str):
            raise OpPrereqError(f"cannot {doing}: the target is a node, not a list of disks")
        with remote.refusing(doing):
            key_name = remote_move.read_key_name(secret, op.x509_key_name)
            peer = remote.peer_certificate(
                self.context, secret, op.destination_x509_ca, "the receiving cluster"
            )
            places = remote_move.read_disks(secret, awaited, len(view.disks))
        check_node_online(view.primary, f"cannot {doing} from its")
        was_running = is_running(running_info(self.context, view, view.primary))
        if was_running and not op.shutdown:
            raise wrong_state(
                f"instance {name!r} runs: its disks cannot be sent while it writes to them; shut it"
                " down, or let it be shut down"
            )
        return Sending(view, key_name, peer, places, was_running)

    def hook_nodes(self, plan: Sending) -> Sequence[Node]:
        return [self.master, plan.view.primary]

    def own_values(self, plan: Sending) -> Mapping[str, object]:
        return export_values(self.op, "")  # the target is no node of this cluster

    def hook_values_after(self, plan: Sending) -> Mapping[str, object]:
        """Tell about the instance as it is, or was if it is removed."""
        return (
            self.hook_values(plan) if self.op.remove_instance else super().hook_values_after(plan)
        )

    def execute(self, plan: Sending) -> tuple[bool, list[bool]]:
        """Send it; returns whether everything was sent, and whether each disk was."""
        _Transfer(self.context, self.op, plan).run()
        return True, [True] * len(plan.view.disks)


class _Transfer:
    """The work of sending one instance."""

    def __init__(self, context: JobContext, op: OpBackupExport, plan: Sending) -> None:
        self.context = context
        self.op = op
        self.view = plan.view
        self.instance = plan.view.instance
        self.key_name = plan.key_name
        self.peer = plan.peer
        self.awaited = plan.awaited
        self.was_running = plan.was_running

    def run(self) -> None:
        """Send it, then start it again, or remove it."""
        try:
            with Undo(self.context) as undo:
                if self.was_running:
                    self._stop(undo)
                self._send()
                undo.forget()
        finally:
            remote.remove_certificate(self.context, self.view.primary, self.key_name)
        if self.op.remove_instance:
            remove_instance(
                self.context,
                self.view,
                shutdown_timeout_s=self.op.shutdown_timeout,
                ignore_failures=self.op.ignore_remove_failures,
                reason=self.op.reason or [],
            )
        elif self.was_running:
            self._start_again_after_all()

    def _stop(self, undo: Undo) -> None:
        name = self.instance.name
        self.context.feedback(f"Shutting down instance {name}")
        undo.push(f"start instance {name!r} again", self._start_again)
        stop_on_primary(
            self.context,
            self.view,
            self.view.primary,
            self.op.shutdown_timeout,
            self.op.reason or [],
        )

    def _start_again(self) -> None:
        self.context.feedback(f"Starting instance {self.instance.name}")
        start_again(self.context, self.view, self.op.reason or [])

    def _start_again_after_all(self) -> None:
        try:
            self._start_again()
        except GenericError as err:
            raise OpExecError(f"instance {self.instance.name!r} was sent, but {err}") from err

    def _send(self) -> None:
        """Send all disks at once; they are closed again, unless the instance is to have them."""
        context, view, node = self.context, self.view, self.view.primary
        doing = f"send instance {self.instance.name!r} to another cluster"
        names: list[str] = []
        try:
            for index, disk in enumerate(view.disks):
                context.check_canceled()
                names.append(self._start_sending(index))
                host = self.awaited[index].host
                context.feedback(f"* sending disk {index} ({disk.size} MiB) to {host}")
            remote.follow(context, doing, node, names, "sent")
        finally:
            remote.forget(context, doing, node, names)
            if self.was_running or not self.instance.disks_active:
                disks.deactivate(context, view, node)

    def _start_sending(self, index: int) -> str:
        awaited = self.awaited[index]
        options = TransferOptions(
            key_name=self.key_name,
            ca_pem=self.peer,
            compress=self.op.compress,
            magic=awaited.magic,
            ipv6=":" in awaited.host,
            connect_timeout=_CONNECT_TIMEOUT_S,
        )
        answer = self.context.nodes.on(
            self.view.primary, f"send disk {index} of instance {self.instance.name!r}"
        ).export_start(
            options,
            awaited.host,
            awaited.port,
            self.view.wire(),
            f"disk{index}",
            disk_by_script(self.view, index).io,
        )
        return str(answer)

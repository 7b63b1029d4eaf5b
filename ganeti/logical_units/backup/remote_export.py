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
    OpExecError,
    OpPrereqError,
    ProtocolError,
    refusing,
    wrong_state,
)
from ganeti.logical_units.backup import remote
from ganeti.logical_units.backup.export import AnyExport
from ganeti.logical_units.instance import guest
from ganeti.logical_units.instance.base import InstanceUnit, OnInstance, check_primary_online
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.storage.copying import disk_by_script, forget_transfers
from ganeti.logical_units.locks import LockLevel, LockNeed, shared
from ganeti.logical_units.undo import Undo
from ganeti.opcodes.backup import OpBackupPrepare
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
        return super().locks(found) | shared(LockLevel.INSTANCE, [found.view.name])

    def plan(self, found: OnInstance) -> Preparation:
        """Refuse an instance that cannot be exported."""
        view, name = found.view, found.view.name
        check_primary_online(view, f"export instance {name!r}")
        return Preparation(view, remote.domain_secret(self.context.paths))

    def execute(self, plan: Preparation) -> Mapping[str, object]:
        """Make it; returns the values that the other cluster and the export need."""
        secret, salt = plan.secret, self.context.new_uuid
        name, pem = remote.make_certificate(self.context, plan.view.primary)
        return {
            "instance": plan.view.name,
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


class LUBackupExportRemote(AnyExport[OnInstance, Sending]):
    """Send the disks of an instance to another cluster, which is waiting for them."""

    mode = "remote"

    def resolve(self) -> OnInstance:
        return OnInstance(self.read_instance())

    def plan(self, found: OnInstance) -> Sending:
        """Refuse an instance that cannot be sent as things stand."""
        op, view, name = self.op, found.view, found.view.name
        doing = f"send instance {name!r}"
        self.check_options()
        secret = remote.domain_secret(self.context.paths)
        awaited = op.target_node
        if isinstance(awaited, str):
            raise OpPrereqError(f"cannot {doing}: the target is a node, not a list of disks")
        with refusing(ProtocolError, prefix=f"cannot {doing}: "):
            key_name = remote_move.read_key_name(secret, op.x509_key_name)
            said = op.destination_x509_ca
            peer = remote.peer_certificate(self.context, secret, said, "the receiving cluster")
            places = remote_move.read_disks(secret, awaited, len(view.disks))
        check_primary_online(view, doing)
        was_running = guest.runs(self.context, view)
        if was_running and not op.shutdown:
            raise wrong_state(
                f"instance {name!r} runs: its disks cannot be sent while it writes to them; shut it"
                " down, or let it be shut down"
            )
        return Sending(view, key_name, peer, places, was_running)

    def export(self, plan: Sending) -> None:
        """Send it, then start it again, or remove it."""
        try:
            with Undo(self.context) as undo:
                if plan.was_running:
                    self.stop(plan, undo)
                self._send(plan)
                undo.forget()
        finally:
            remote.remove_certificate(self.context, plan.view.primary, plan.key_name)
        if self.op.remove_instance:
            self.remove(plan)
        elif plan.was_running:
            try:
                self.start_again(plan)
            except GenericError as err:
                name = plan.view.name
                raise OpExecError(f"instance {name!r} was sent, but {err}") from err

    def stop(self, plan: Sending, undo: Undo) -> None:
        super().stop(plan, undo)
        disks.deactivate(self.context, plan.view, plan.view.primary)

    def _send(self, plan: Sending) -> None:
        """Send all disks at once; they are closed again, unless the instance is to have them."""
        context, view, node = self.context, plan.view, plan.view.primary
        doing = f"send instance {view.name!r} to another cluster"
        names: list[str] = []
        try:
            for index, (disk, awaited) in enumerate(zip(view.disks, plan.awaited, strict=True)):
                context.check_canceled()
                names.append(self._start_sending(plan, index, awaited))
                context.feedback(f"* sending disk {index} ({disk.size} MiB) to {awaited.host}")
            remote.follow(context, doing, node, names, "sent")
        finally:
            forget_transfers(context, doing, node, names)
            if plan.was_running or not view.instance.disks_active:
                disks.deactivate(context, view, node)

    def _start_sending(self, plan: Sending, index: int, awaited: AwaitedDisk) -> str:
        view, host, port = plan.view, awaited.host, awaited.port
        options = TransferOptions(
            key_name=plan.key_name,
            ca_pem=plan.peer,
            compress=self.op.compress,
            magic=awaited.magic,
            ipv6=":" in host,
            connect_timeout=_CONNECT_TIMEOUT_S,
        )
        doing = f"send disk {index} of instance {view.name!r}"
        nodes, io = self.context.nodes.on(view.primary, doing), disk_by_script(view, index).io
        return str(nodes.export_start(options, host, port, view.wire(), f"disk{index}", io))

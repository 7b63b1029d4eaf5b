"""Receive an instance from another cluster: the half that waits.

It is a creation like any other whose disks are filled by the other cluster: the disks are made, the
node listens for each of them, and an entry in the job's log says where, for the operator to tell
the other cluster.  The instance counts as planned only until every disk is complete, and nothing of
it is left if one is not.  From then on it stays, whatever fails: the job that sends may remove it
there.  It also stays, as a planned one, where the node does not tell whether they are complete.

Source: opcodes.json, OP_INSTANCE_CREATE; constants.json, ELOG_REMOTE_IMPORT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from msgspec import structs

from ganeti.base.errors import (
    GenericError,
    JobCanceled,
    OpExecError,
    OpPrereqError,
    ProtocolError,
    refusing,
)
from ganeti.logical_units.backup import remote
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.creation.building import (
    Creation,
    keep_in_doubt,
    keep_received,
    tell_received_name,
)
from ganeti.logical_units.instance.creation.create import LUInstanceCreate, Wanted
from ganeti.logical_units.instance.storage.copying import (
    check_compression,
    disk_by_script,
    forget_transfers,
    transfer_states,
)
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.undo import Undo
from ganeti.opcodes.instance import OpInstanceCreate
from ganeti.protocol import remote_move
from ganeti.protocol.node_rpc_values import StreamForm, TransferOptions
from ganeti.protocol.remote_move import LOG_KIND, AwaitedDisk, Secret

_BEGIN_TIMEOUT_S: Final = 300  # until the other cluster begins, besides shutting the instance down
_NAMELESS: Final = ("name", "None")


@dataclass(frozen=True, slots=True)
class _Sender:
    """The cluster that sends: the common secret, the certificate that it shows, how it sends."""

    secret: Secret
    certificate: str
    form: StreamForm


class LUInstanceCreateRemote(LUInstanceCreate):
    """Make an instance whose disks another cluster fills."""

    mode = "remote-import"

    def __init__(self, context: JobContext, op: OpInstanceCreate) -> None:
        """Take disks that the 'move-instance' of 3.0 calls None for those without a name."""
        disks = [
            {key: value for key, value in disk.items() if (key, value) != _NAMELESS}
            for disk in op.disks
        ]
        super().__init__(context, structs.replace(op, disks=disks))

    def resolve(self) -> Wanted:
        """Refuse a cluster that does not know the secret before anything else."""
        op = self.op
        doing = f"receive instance {op.instance_name!r}"
        if not op.source_instance_name:
            raise OpPrereqError(f"cannot {doing}: source_instance_name is missing")
        self._check_sender(doing)
        check_compression(op.compress)
        return super().resolve()

    def _check_sender(self, doing: str) -> _Sender:
        secret = remote.domain_secret(self.context.paths)
        with refusing(ProtocolError, prefix=f"cannot {doing}: "):
            form = remote_move.check_handshake(secret, self.op.source_handshake)
            said = self.op.source_x509_ca
            certificate = remote.peer_certificate(self.context, secret, said, "the sending cluster")
        return _Sender(secret, certificate, form)

    def plan(self, found: Wanted) -> Creation:
        """Decide everything as for any creation; the disks come filled."""
        plan = super().plan(found)
        if not plan.view.disks:
            raise OpPrereqError(
                f"instance {found.name!r} has no disks: there is nothing that another cluster could"
                " send"
            )
        sender = self._check_sender(f"receive instance {found.name!r}")
        return replace(plan, install=False, fill=partial(self._receive, sender))

    def _os_name(self, found: Wanted) -> str:
        return super()._os_name(found) if self.op.os_type else ""

    def _receive(
        self, sender: _Sender, context: JobContext, view: InstanceView, undo: Undo
    ) -> None:
        """Fill the disks, and record that.

        Raises:
            OpExecError: a disk was not filled completely, or nobody knows, or that could not be
                recorded.
            JobCanceled: canceled before all were filled.
        """
        node = view.primary
        key_name, pem = remote.make_certificate(context, node)
        names: list[str] = []
        words = [context.new_uuid() for _ in view.disks]
        doing = f"receive instance {view.name!r} from another cluster"
        try:
            for index, word in enumerate(words):
                context.check_canceled()
                names.append(self._start_receiving(sender, view, index, key_name, word))
            states = transfer_states(context, doing, node, names)
            ports = [state["listen_port"] for state in states]
            try:
                self._announce(sender, view, ports, words, pem)
                remote.follow(context, doing, node, names, "received")
            except GenericError as err:
                # The other cluster may have removed the instance when the last disk had arrived.
                if not self._have_arrived(doing, view, undo, names, err):
                    raise
                context.warn(f"{err}, but all disks of instance {view.name!r} have been received")
            keep_received(context, view, undo)
        finally:
            forget_transfers(context, doing, node, names)
            remote.remove_certificate(context, node, key_name)
        old_name = str(self.op.source_instance_name)
        tell_received_name(context, view, old_name, self.op.debug_level)

    def _have_arrived(
        self, doing: str, view: InstanceView, undo: Undo, names: Sequence[str], failure: object
    ) -> bool:
        """Tell whether all disks had arrived before something failed; the others never will.

        Raises:
            OpExecError: nobody knows; the disks and the planned instance stay.
        """
        try:
            return remote.have_arrived(self.context, doing, view.primary, names)
        except (OpExecError, JobCanceled) as err:
            why = f"{failure}" if str(err) == str(failure) else f"{failure}; {err}"
            raise keep_in_doubt(view, undo, why) from err

    def _start_receiving(
        self, sender: _Sender, view: InstanceView, index: int, key_name: str, word: str
    ) -> str:
        options = TransferOptions(
            key_name=key_name,
            ca_pem=sender.certificate,
            compress=self.op.compress,
            magic=word,
            ipv6=":" in view.primary.primary_ip,
            connect_timeout=_BEGIN_TIMEOUT_S + self.op.source_shutdown_timeout,
            form=sender.form,
        )
        doing = f"wait for disk {index} of instance {view.name!r}"
        nodes, io = self.context.nodes.on(view.primary, doing), disk_by_script(view, index).io
        wire = view.wire(view.primary)
        return str(nodes.import_start(options, wire, f"disk{index}", io))

    def _announce(
        self,
        sender: _Sender,
        view: InstanceView,
        ports: Sequence[object],
        words: Sequence[str],
        pem: str,
    ) -> None:
        """Say where the disks are waited for, as an entry of the log that programs read."""
        salt = self.context.new_uuid
        disks = [
            AwaitedDisk(view.primary.primary_ip, int(str(port)), word)
            for port, word in zip(ports, words, strict=True)
        ]
        self.context.feedback(f"* waiting for {len(disks)} disk(s) from another cluster...")
        signed = [
            remote_move.signed_disk(sender.secret, salt(), index, disk, sender.form)
            for index, disk in enumerate(disks)
        ]
        certificate = remote_move.signed_certificate(sender.secret, salt(), pem)
        self.context.feedback({"disks": signed, "x509_ca": certificate}, LOG_KIND)

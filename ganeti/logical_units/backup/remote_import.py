"""Receive an instance from another cluster: the half that waits.

It is a creation like any other whose disks are filled by the other cluster: the disks are made, the
node listens for each of them, and an entry in the job's log says where, for whoever carries that to
the other cluster.  The instance counts as planned only until every disk is complete, and nothing of
it is left if one is not.

Source: opcodes.json, OP_INSTANCE_CREATE; constants.json, ELOG_REMOTE_IMPORT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ganeti.base.errors import OpPrereqError
from ganeti.logical_units.backup import remote
from ganeti.logical_units.instance.copying import (
    check_compression,
    disk_by_script,
    transfer_states,
)
from ganeti.logical_units.instance.create import LUInstanceCreate
from ganeti.logical_units.instance.os_scripts import RENAME, run_script
from ganeti.logical_units.node_calls import failure_text, order
from ganeti.protocol import remote_move
from ganeti.protocol.remote_move import LOG_KIND, AwaitedDisk

if TYPE_CHECKING:
    from ganeti.logical_units.context import JobContext
    from ganeti.logical_units.instance.subject import Subject

_BEGIN_TIMEOUT_S: Final = 300  # until the other cluster begins, besides shutting the instance down


class LUInstanceCreateRemote(LUInstanceCreate):
    """Make an instance whose disks another cluster fills."""

    def expand_names(self) -> None:
        """Refuse a cluster that does not know the secret before anything else."""
        op = self.op
        doing = f"receive instance {op.instance_name!r}"
        if not op.source_instance_name:
            raise OpPrereqError(f"cannot {doing}: source_instance_name is missing")
        self.secret = remote.domain_secret(self.context.paths)
        with remote.refusing(doing):
            remote_move.check_handshake(self.secret, op.source_handshake)
            self.peer = remote.peer_certificate(
                self.context, self.secret, op.source_x509_ca, "the sending cluster"
            )
        check_compression(op.compress)
        super().expand_names()

    def check_prereq(self) -> None:
        """Decide everything as for any creation; the disks come filled."""
        super().check_prereq()
        if not self.plan.subject.disks:
            raise OpPrereqError(
                f"instance {self.name!r} has no disks: there is nothing that another cluster could"
                " send"
            )
        self.plan.install = False
        self.plan.fill = self._receive

    def _os_name(self) -> str:
        return super()._os_name() if self.op.os_type else ""

    def _receive(self, context: JobContext, subject: Subject) -> None:
        """Fill the disks.

        Raises:
            OpExecError: a disk was not filled completely.
        """
        node = subject.primary
        key_name, pem = remote.make_certificate(context, node)
        names: list[str] = []
        words = [context.new_uuid() for _ in subject.disks]
        doing = f"receive instance {self.name!r} from another cluster"
        try:
            for index, word in enumerate(words):
                context.check_canceled()
                names.append(self._start_receiving(subject, index, key_name, word))
            states = transfer_states(context, doing, node, names)
            ports = [state["listen_port"] for state in states]
            self._announce(subject, ports, words, pem)
            remote.follow(context, doing, node, names, "received")
        finally:
            remote.forget(context, doing, node, names)
            remote.remove_certificate(context, node, key_name)
        self._tell_new_name(context, subject)

    def _start_receiving(self, subject: Subject, index: int, key_name: str, word: str) -> str:
        options = {
            "key_name": key_name,
            "ca_pem": self.peer,
            "compress": self.op.compress,
            "magic": word,
            "ipv6": ":" in subject.primary.primary_ip,
            "connect_timeout": _BEGIN_TIMEOUT_S + self.op.source_shutdown_timeout,
        }
        answer = order(
            self.context,
            subject.primary,
            f"wait for disk {index} of instance {self.name!r}",
            "import_start",
            options,
            subject.wire(),
            f"disk{index}",
            disk_by_script(subject, index).io,
        )
        return str(answer)

    def _announce(
        self, subject: Subject, ports: Sequence[object], words: Sequence[str], pem: str
    ) -> None:
        """Say where the disks are waited for, as an entry of the log that programs read."""
        salt = self.context.new_uuid
        disks = [
            AwaitedDisk(subject.primary.primary_ip, int(str(port)), word)
            for port, word in zip(ports, words, strict=True)
        ]
        self.context.feedback(f"* waiting for {len(disks)} disk(s) from another cluster...")
        self.context.feedback(
            {
                "disks": [
                    remote_move.signed_disk(self.secret, salt(), index, disk)
                    for index, disk in enumerate(disks)
                ],
                "x509_ca": remote_move.signed_certificate(self.secret, salt(), pem),
            },
            LOG_KIND,
        )

    def _tell_new_name(self, context: JobContext, subject: Subject) -> None:
        """Let the operating system know that it has another name than before."""
        old_name, os_name = str(self.op.source_instance_name), subject.instance.os
        if not os_name or self.name == old_name:
            return
        wire = subject.wire()
        result = run_script(context, subject, RENAME, wire, old_name, self.op.debug_level or 0)
        if result.error is not None:
            doing = f"run the rename script of operating system {os_name!r} for {self.name!r}"
            text = failure_text(doing, subject.primary, RENAME, result)
            context.warn(f"{text}; ignoring")

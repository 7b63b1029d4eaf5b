"""Replace the client certificates of the master candidates, and the SSH keys of nodes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ganeti.base.errors import (
    ErrorCode,
    GenericError,
    OpExecError,
    OpPrereqError,
)
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.cluster.ssh_renewal import SshRenewal
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, exclusive
from ganeti.logical_units.node.candidates import trust
from ganeti.opcodes.cluster import OpClusterRenewCrypto

if TYPE_CHECKING:
    from ganeti.objects.node import Node


class LUClusterRenewCrypto(LogicalUnit[OpClusterRenewCrypto]):
    """Let every candidate but the master make another client certificate, or nodes new SSH keys.

    The master's own certificate signs what this job sends, so it is replaced with all daemons
    stopped.
    """

    @cached_property
    def candidates(self) -> list[Node]:
        """The candidates that can be asked, without the master."""
        return [
            node
            for node in lookup.all_nodes(self.config)
            if node.master_candidate and not node.offline and node.uuid != self.cluster.master_node
        ]

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock nodes exclusively: none may cease to be a candidate, or become one, meanwhile."""
        if level is not LockLevel.NODE:
            return {}
        if self.op.renew_ssh_keys:
            return exclusive(level, [node.uuid for node in lookup.all_nodes(self.config)])
        return exclusive(level, [node.uuid for node in self.candidates])

    def check_prereq(self) -> None:
        """Refuse to do nothing, and SSH keys that are none of the cluster's."""
        if not (self.op.node_certificates or self.op.renew_ssh_keys):
            raise OpPrereqError("please say what is to be replaced", ErrorCode.INVAL)
        if (self.op.ssh_key_type or self.op.ssh_key_bits) and not self.op.renew_ssh_keys:
            raise OpPrereqError(
                "type and length are those of new SSH keys; renew_ssh_keys is missing",
                ErrorCode.INVAL,
            )
        if self.op.renew_ssh_keys and not self.cluster.modify_ssh_setup:
            raise OpPrereqError(
                "the SSH keys of this cluster are managed by hand (it was made with"
                " --no-ssh-init); replace them by hand on each node",
                ErrorCode.STATE,
            )

    def exec(self) -> None:
        """Replace certificates, then keys; errors as of both."""
        if self.op.node_certificates:
            self._renew_certificates()
        if self.op.renew_ssh_keys:
            self._renew_ssh_keys()

    def _renew_ssh_keys(self) -> None:
        before = self.cluster
        kind = self.op.ssh_key_type or before.ssh_key_type
        bits = self.op.ssh_key_bits or before.ssh_key_bits
        after = replace(before, ssh_key_type=kind, ssh_key_bits=bits)
        SshRenewal(self.context, after, lookup.all_nodes(self.config)).run()
        if (kind, bits) != (before.ssh_key_type, before.ssh_key_bits):
            self.config.modify_cluster({"ssh_key_type": str(kind), "ssh_key_bits": bits})

    def _renew_certificates(self) -> None:
        """Replace them one after the other; those that fail are named at the end.

        Raises:
            OpExecError: some nodes have none that is trusted now.
        """
        failed = []
        for node in self.candidates:
            try:
                trust(self.context, node)
            except GenericError as err:
                self.context.warn(f"{err.message}; going on")
                failed.append(node.name)
            else:
                self.context.info(f"node {node.name} has a new client certificate")
        if failed:
            raise OpExecError(
                f"no new client certificate for {', '.join(failed)}; put that right and run"
                " 'gnt-cluster renew-crypto --new-node-certificates', or take the node in again by"
                " 'gnt-node add --readd'"
            )

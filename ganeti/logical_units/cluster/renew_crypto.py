"""Replace the client certificates of the master candidates."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ganeti.base.errors import (
    ErrorCode,
    GenericError,
    NotSupportedError,
    OpExecError,
    OpPrereqError,
)
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, exclusive
from ganeti.logical_units.node.candidates import trust
from ganeti.opcodes.cluster import OpClusterRenewCrypto

if TYPE_CHECKING:
    from ganeti.objects.node import Node


class LUClusterRenewCrypto(LogicalUnit[OpClusterRenewCrypto]):
    """Let every candidate but the master make another client certificate.

    The master's own signs what this job sends, so it is replaced with all daemons stopped.
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
        """Lock the candidates exclusively: none may cease to be one meanwhile."""
        if level is LockLevel.NODE:
            return exclusive(level, [node.uuid for node in self.candidates])
        return {}

    def check_prereq(self) -> None:
        """Refuse what is not built, and to do nothing."""
        if self.op.renew_ssh_keys:
            raise NotSupportedError(
                "replacing SSH keys is not supported yet; replace them by hand on each node, and"
                " the lines in /root/.ssh/authorized_keys of all nodes"
            )
        if not self.op.node_certificates:
            raise OpPrereqError("please say what is to be replaced", ErrorCode.INVAL)

    def exec(self) -> None:
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

"""Send the configuration and the ancillary files to the nodes again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ganeti.base.errors import GenericError
from ganeti.logical_units import ancillary, lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, all_shared
from ganeti.opcodes.cluster import OpClusterRedistConf


class LUClusterRedistConf(LogicalUnit[OpClusterRedistConf]):
    """Send everything that nodes need to all of them."""

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock all nodes shared."""
        return all_shared(level) if level is LockLevel.NODE else {}

    def exec(self) -> None:
        """Let WConfD send the configuration again, and send the other files.

        Whatever a node does not take is named; the others get what they need all the same.

        Raises:
            OpExecError: the configuration is not on enough master candidates.
        """
        self.config.redistribute_config()
        nodes = lookup.all_nodes(self.config)
        files = ancillary.distribute(
            self.context, self.cluster, nodes, master_name=self.master.name
        )
        too_few: GenericError | None = None
        try:
            self.config.flush_config()
        except GenericError as err:
            too_few = err
        for text in failures(self.config.get_replication_status()):
            self.context.warn(text)
        if too_few is not None:
            raise too_few
        online = sum(not node.offline for node in nodes) - 1
        self.context.info(f"sent the configuration and {files} other file(s) to {online} node(s)")


def failures(status: Iterable[Mapping[str, object]]) -> list[str]:
    """Return which online nodes do not have the newest configuration, and why.

    Args:
        status: the answer to "getReplicationStatus".
    """
    found = []
    for row in status:
        lacks_config = row["candidate"] and row["serial_no"] != row["wanted_serial_no"]
        if row["offline"] or not (lacks_config or not row["ssconf_is_current"]):
            continue
        what = "the configuration" if lacks_config else "the simple configuration"
        why = row["error"] or "no answer yet; it will be tried again"
        found.append(f"cannot send {what} to node {row['node']}: {why}")
    return found

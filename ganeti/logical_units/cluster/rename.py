"""Give the cluster another name, and the address that this name stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units import ancillary, lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.cluster.master_network import move_address
from ganeti.logical_units.host_names import resolve
from ganeti.logical_units.undo import Undo
from ganeti.opcodes.cluster import OpClusterRename
from ganeti.system import files

if TYPE_CHECKING:
    from ganeti.objects.node import Node

_KNOWN_HOSTS_MODE = 0o644


class LUClusterRename(LogicalUnit[OpClusterRename]):
    """Rename the cluster; the result is the new name."""

    exclusive_bgl = True

    def expand_names(self) -> None:
        """Look the new name up."""
        self.name, self.address = resolve("cluster", self.op.name, self.context.paths)

    def check_prereq(self) -> None:
        """Refuse a name or address that nodes have, and to change nothing."""
        cluster = self.cluster
        if (self.name, self.address) == (cluster.cluster_name, cluster.master_ip):
            raise OpPrereqError(
                f"the cluster is called {self.name!r} already, and has the address {self.address};"
                " nothing to do",
                ErrorCode.INVAL,
            )
        for node in lookup.all_nodes(self.config):
            if self.name == node.name or self.address in (node.primary_ip, node.secondary_ip):
                raise OpPrereqError(
                    f"{self.name!r} ({self.address}) is the name or an address of node"
                    f" {node.name!r}; the cluster needs ones of its own",
                    ErrorCode.NOTUNIQUE,
                )

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Run hooks on the master, and afterwards on all nodes."""
        return [self.master], lookup.all_nodes(self.config)

    def hooks_env(self) -> Mapping[str, object]:
        """Tell both names."""
        return {"OP_TARGET": self.cluster.cluster_name, "NEW_NAME": self.name}

    def exec(self) -> str:
        """Move the address, write the name down, and tell it to all nodes."""
        before = self.cluster
        after = replace(before, cluster_name=self.name, master_ip=self.address)
        with Undo(self.context) as undo:
            move_address(self.context, self.master, before, after, undo)
            self.config.replace_cluster(after.to_wire())
            undo.forget()
        self._rename_known_host(before.cluster_name)
        ancillary.distribute(
            self.context, after, lookup.all_nodes(self.config), master_name=self.master.name
        )
        return self.name

    def _rename_known_host(self, old_name: str) -> None:
        """Let the host key of all nodes be found under the new name."""
        path = self.context.paths.known_hosts
        try:
            content = files.read_bytes_or_none(path) or b""
            renamed = renamed_known_hosts(content.decode(), old_name, self.name)
            if content:
                files.write_durable(path, renamed.encode(), _KNOWN_HOSTS_MODE)
        except (OSError, UnicodeDecodeError) as err:
            self.context.warn(
                f"cannot change the name in {path}: {err}; put {self.name} in the place of"
                f" {old_name} there and run 'gnt-cluster redist-conf'"
            )


def renamed_known_hosts(text: str, old_name: str, new_name: str) -> str:
    """Return the content of a known_hosts file with one host called otherwise.

    >>> renamed_known_hosts("a ssh-rsa AAAA\\n# a\\n", "a", "b")
    'b ssh-rsa AAAA\\n# a\\n'
    """
    prefix = f"{old_name} "
    return "".join(
        f"{new_name} {line.removeprefix(prefix)}" if line.startswith(prefix) else line
        for line in text.splitlines(keepends=True)
    )

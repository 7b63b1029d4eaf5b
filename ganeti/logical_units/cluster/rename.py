"""Give the cluster another name, and the address that this name stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units import ancillary, lookup
from ganeti.logical_units.base import SimpleUnit
from ganeti.logical_units.cluster.master_network import move_address
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.lookup import resolve
from ganeti.logical_units.undo import Undo
from ganeti.objects.model import Node
from ganeti.opcodes.cluster import OpClusterRename
from ganeti.system import files

_KNOWN_HOSTS_MODE: Final = 0o644


@dataclass(frozen=True, slots=True)
class Identity:
    """A name of the cluster and the address that it stands for."""

    name: str
    address: str


class LUClusterRename(SimpleUnit[OpClusterRename, Identity]):
    """Rename the cluster; the result is the new name."""

    hooks = HookPoint("cluster-rename", ObjectType.CLUSTER)
    exclusive_bgl = True

    def resolve(self) -> Identity:
        return Identity(*resolve("cluster", self.op.name, self.context.paths))

    def plan(self, found: Identity) -> Identity:
        """Refuse a name or address that nodes have, and to change nothing."""
        cluster = self.cluster
        if found == Identity(cluster.cluster_name, cluster.master_ip):
            raise OpPrereqError(
                f"the cluster is called {found.name!r} already, and has the address"
                f" {found.address}; nothing to do"
            )
        for node in lookup.all_nodes(self.config):
            if found.name == node.name or found.address in (node.primary_ip, node.secondary_ip):
                raise OpPrereqError(
                    f"{found.name!r} ({found.address}) is the name or an address of node"
                    f" {node.name!r}; the cluster needs ones of its own",
                    ErrorCode.NOTUNIQUE,
                )
        return found

    def hook_nodes_after(self, plan: Identity) -> Sequence[Node]:
        return lookup.all_nodes(self.config)

    def hook_values(self, plan: Identity) -> Mapping[str, object]:
        return {"OP_TARGET": self.cluster.cluster_name, "NEW_NAME": plan.name}

    def execute(self, plan: Identity) -> str:
        """Move the address, record the name, and send it to all nodes."""
        before = self.cluster
        after = replace(before, cluster_name=plan.name, master_ip=plan.address)
        with Undo(self.context) as undo:
            move_address(self.context, self.master, before, after, undo)
            self.config.replace_cluster(after.to_wire())
            undo.forget()
        self._rename_known_host(before.cluster_name, plan.name)
        ancillary.distribute(
            self.context, after, lookup.all_nodes(self.config), master_name=self.master.name
        )
        return plan.name

    def _rename_known_host(self, old_name: str, new_name: str) -> None:
        """Let the host key of all nodes be found under the new name."""
        path = self.context.paths.known_hosts
        try:
            content = files.read_bytes_or_none(path) or b""
            renamed = renamed_known_hosts(content.decode(), old_name, new_name)
            if content:
                files.write_durable(path, renamed.encode(), _KNOWN_HOSTS_MODE)
        except (OSError, UnicodeDecodeError) as err:
            self.context.warn(
                f"cannot change the name in {path}: {err}; put {new_name} in the place of"
                f" {old_name} there and run 'gnt-cluster redist-conf'"
            )


def renamed_known_hosts(text: str, old_name: str, new_name: str) -> str:
    """Return the content of a known_hosts file with another name for one host.

    >>> renamed_known_hosts("a ssh-rsa AAAA\\n# a\\n", "a", "b")
    'b ssh-rsa AAAA\\n# a\\n'
    """
    prefix = f"{old_name} "
    return "".join(
        f"{new_name} {line.removeprefix(prefix)}" if line.startswith(prefix) else line
        for line in text.splitlines(keepends=True)
    )

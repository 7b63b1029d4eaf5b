"""Root's SSH keys on this node: its own, and those that may log in.

Only a node that was set up so lets keys be changed; what is told by an administrator on the machine
itself, the master cannot change.
"""

import os
from collections.abc import Sequence

from ganeti.base.errors import GenericError
from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.system import ssh


class SshKeys(NodeHandler):
    """Root's SSH keys."""

    def ssh_root_key(self, kind: str, bits: int) -> str:
        return ssh.ensure_user_key(_directory(self.context, kind), kind, bits, host=self.hostname)

    def ssh_next_key(self, kind: str, bits: int) -> str:
        return ssh.make_next_key(_directory(self.context, kind), kind, bits, host=self.hostname)

    def ssh_take_key(self, kind: str, public_key: str) -> None:
        ssh.take_next_key(_directory(self.context, kind), kind, public_key)

    def ssh_authorize(self, add: Sequence[str], remove: Sequence[str]) -> bool:
        _check_managed(self.context)
        for line in (*add, *remove):
            if "\n" in line or not isinstance(ssh.key_of(line), tuple):
                raise GenericError(f"{line[:80]!r} is not a public SSH key")
        return ssh.change_authorized_keys(ssh.directory_of(self.paths), add=add, remove=remove)


def _directory(context: NodeContext, kind: str) -> str:
    _check_managed(context)
    if kind not in ssh.KEY_KINDS:
        raise GenericError(f"there is no kind {kind!r} of SSH keys")
    return ssh.directory_of(context.paths)


def _check_managed(context: NodeContext) -> None:
    if not os.path.exists(context.paths.ssh_managed):
        raise GenericError(
            f"node {context.hostname} was not set up to have its SSH keys managed; 'gnt-node add"
            " --readd' sets it up"
        )

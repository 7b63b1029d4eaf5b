"""Root's SSH keys on this node: its own, and those that may log in.

Only a node that was set up so lets keys be changed; what is told by an administrator on the machine
itself, the master cannot change.
"""

import os

from ganeti.base.errors import GenericError
from ganeti.node_ops.context import NodeContext
from ganeti.system import ssh


def ssh_root_key(context: NodeContext, kind: str, bits: int) -> str:
    """Return root's public key; makes one if there is none.

    Raises:
        GenericError: it cannot be made, or this node keeps its keys to itself.
    """
    return ssh.ensure_user_key(_directory(context, kind), kind, bits, host=context.hostname)


def ssh_next_key(context: NodeContext, kind: str, bits: int) -> str:
    """Make the key that root is to have next, and return its public half; the old one stays.

    Raises:
        GenericError: it cannot be made, or this node keeps its keys to itself.
    """
    return ssh.make_next_key(_directory(context, kind), kind, bits, host=context.hostname)


def ssh_take_key(context: NodeContext, kind: str, public_key: str) -> None:
    """Make the key that was made before the one that root has; repeating it changes nothing.

    Raises:
        GenericError: it is not there, or this node keeps its keys to itself.
    """
    ssh.take_next_key(_directory(context, kind), kind, public_key)


def ssh_authorize(context: NodeContext, add: list[str], remove: list[str]) -> bool:
    """Let owners of keys log in as root, or not any more; tells whether that changed anything.

    Raises:
        GenericError: a key that is none, or this node keeps its keys to itself.
    """
    _check_managed(context)
    for line in (*add, *remove):
        if "\n" in line or not isinstance(ssh.key_of(line), tuple):
            raise GenericError(f"{line[:80]!r} is not a public SSH key")
    return ssh.change_authorized_keys(ssh.directory_of(context.paths), add=add, remove=remove)


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

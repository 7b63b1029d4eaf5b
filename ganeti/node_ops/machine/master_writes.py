"""Writes into the copies on this node: refused if they come from another node than the master.

A node may come to follow the next master while a write of the one before is under way, so the
master's name is compared before and after it.  So all that is acknowledged was here before this
node followed the next master, which asks what is here after that.  The name in the certificate
tells who writes; where all nodes have the same certificate nothing is refused.

Source: ARCHITECTURE, invariant 9.
"""

import contextlib
from collections.abc import Callable, Iterator

from ganeti.base.errors import GenericError
from ganeti.base.text import name_in_certificate
from ganeti.node_ops.context import NodeContext
from ganeti.store import ssconf
from ganeti.store.master_facts import read_claim


@contextlib.contextmanager
def from_master(context: NodeContext, serial_no: Callable[[], int] | None = None) -> Iterator[None]:
    """Let a block write for the master only.

    Args:
        serial_no: tells that of the configuration to be written.  A master of which this node has
            not heard yet has none that is older than the last announcement here.

    Raises:
        GenericError: names the master; what the block has written counts as a copy nowhere.
    """
    _check(context, serial_no)
    yield
    _check(context, serial_no)


def _check(context: NodeContext, serial_no: Callable[[], int] | None) -> None:
    master = ssconf.read_key_or_none(context.paths, "master_node")
    if not master or context.peer_name in ("", name_in_certificate(master)):
        return
    nodes = (ssconf.read_key_or_none(context.paths, "node_list") or "").split()
    if context.peer_name not in map(name_in_certificate, nodes):
        return
    if serial_no is not None and serial_no() >= read_claim(context.paths).serial_no:
        return
    raise GenericError(
        f"node {context.peer_name} is not the master: as far as node {context.hostname} knows,"
        f" that is {master}"
    )

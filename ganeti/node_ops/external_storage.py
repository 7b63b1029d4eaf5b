"""External storage providers of this node.

Source: node_rpc.json, extstorage_diagnose.
"""

from ganeti.node_ops.context import NodeContext
from ganeti.storage.external_provider import list_providers


def extstorage_diagnose(context: NodeContext) -> list[list[object]]:
    """Return [name, path, usable, what is wrong, [[parameter, description]]] of each provider."""
    return [provider.to_wire() for provider in list_providers(context.paths)]

"""What `verify` looks at in the network around this node: other nodes, the master, bridges."""

import os
from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.protocol.node_rpc import DEFAULT_PORT
from ganeti.system import clock
from ganeti.transport.addresses import serves

# Source: constants.json, "timeouts": TCP_PING_TIMEOUT.
_PING_TIMEOUT_S: Final = 10.0
# All together must be done well before the call's own limit, with the other checks.
_ALL_TIMEOUT_S: Final = 120.0


class Bridges(NodeHandler):
    """Bridges."""

    def bridges_exist(self, bridges_list: Sequence[str]) -> None:
        missing = missing_bridges(self.context, bridges_list)
        if missing:
            raise GenericError(
                f"bridges missing on node {self.hostname}: {', '.join(sorted(missing))}"
            )


def missing_bridges(context: NodeContext, names: Sequence[str]) -> list[str]:
    """Return which bridges are not there; guests of a virtual node do without."""
    if context.paths.root:
        return []
    return [name for name in names if not os.path.isdir(f"/sys/class/net/{name}/bridge")]


def reach_nodes(
    context: NodeContext, nodes: list[tuple[str, str, str]], candidates: list[str]
) -> dict[str, str]:
    """Return {node: why it is not reached} for (name, primary, secondary address) of each node.

    Only candidates look: all nodes looking at all nodes would be too much.
    """
    if context.hostname not in candidates:
        return {}
    own = next(((first, second) for name, first, second in nodes if name == context.hostname), None)
    if own is None:
        return {context.hostname: "this node is not in the list of nodes"}
    deadline_s = clock.monotonic() + _ALL_TIMEOUT_S
    failures: dict[str, str] = {}
    for name, primary, secondary in nodes:
        missed = [
            f"{which} interface ({address})"
            for which, source, address in _ways(own, primary, secondary)
            if not _reaches(address, source, deadline_s)
        ]
        if missed:
            failures[name] = f"failure using {' and '.join(missed)}"
    return failures


def reach_master(context: NodeContext, address: str, candidates: list[str]) -> bool | None:
    """Tell whether the master address is reached; None on a node that is not to look."""
    if context.hostname not in candidates:
        return None
    return _reaches(address, None, clock.monotonic() + _PING_TIMEOUT_S)


def _ways(own: tuple[str, str], primary: str, secondary: str) -> list[tuple[str, str, str]]:
    """Return (name, source, target) of the ways from this node to another."""
    ways = [("primary", own[0], primary)]
    if secondary != primary:
        ways.append(("secondary", own[1], secondary))
    return ways


def _reaches(address: str, source: str | None, deadline_s: float) -> bool:
    """Tell whether a node daemon takes a connection on an address."""
    timeout_s = min(_PING_TIMEOUT_S, deadline_s - clock.monotonic())
    if timeout_s <= 0:
        return False
    return serves(address, DEFAULT_PORT, timeout_s, source=source)

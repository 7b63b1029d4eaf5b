"""The base of all handlers of node calls, and their context: the node, the caller, the time."""

from dataclasses import dataclass
from typing import Final

from ganeti.base.paths import Paths
from ganeti.protocol.node_calls import NodeCalls
from ganeti.system import clock

# A script is ended this much before its call, so that the answer can say what it printed.
_SCRIPT_MARGIN_S: Final = 5.0
_SCRIPT_TIMEOUT_S_MIN: Final = 1.0
_NO_DEADLINE_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class NodeContext:
    """One call on one node.

    Attributes:
        hostname: full name of this node.
        peer: address of whoever asked, "" when nobody on the network did.
        job_id: the job that asks, when its client said so.
        deadline_s: when the call is stopped, on the clock that never jumps.
        peer_name: whom the certificate of whoever asked names; of old clusters that is the cluster.
    """

    paths: Paths
    hostname: str
    call: str = ""
    peer: str = ""
    job_id: int | None = None
    deadline_s: float | None = None
    peer_name: str = ""

    def script_timeout_s(self) -> float:
        """Return how long a script may run that is all that is left to do."""
        if self.deadline_s is None:
            return _NO_DEADLINE_S
        return max(_SCRIPT_TIMEOUT_S_MIN, self.deadline_s - clock.monotonic() - _SCRIPT_MARGIN_S)


class NodeHandler(NodeCalls):
    """One call on one node: a subclass serves the calls that it overrides.

    A failure is any error of ``ganeti.base.errors``.
    """

    def __init__(self, context: NodeContext) -> None:
        self.context = context
        self.paths = context.paths
        self.hostname = context.hostname

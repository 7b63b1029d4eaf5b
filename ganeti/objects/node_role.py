"""What a node is to the cluster.

Source: constants.json, "node_roles".
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ganeti.objects.cluster import Cluster
    from ganeti.objects.node import Node


class NodeRole(StrEnum):
    """One letter as shown in lists."""

    MASTER = "M"
    CANDIDATE = "C"
    REGULAR = "R"
    DRAINED = "D"
    OFFLINE = "O"


CANDIDATE_POOL_SIZE_DEFAULT: Final = 10
CLOCK_SKEW_S_MAX: Final = 150


def role_of(cluster: Cluster, node: Node) -> NodeRole:
    """Tell the role of a node; flags exclude each other, the master has none of them."""
    if node.uuid == cluster.master_node:
        return NodeRole.MASTER
    if node.master_candidate:
        return NodeRole.CANDIDATE
    if node.drained:
        return NodeRole.DRAINED
    if node.offline:
        return NodeRole.OFFLINE
    return NodeRole.REGULAR

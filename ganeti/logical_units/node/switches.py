"""Open vSwitches of nodes, made where the node parameters ask for one.

What is not asked for any more stays: there may be guests on it.

Source: constants.json, "ndparams"; node_rpc.json, node_configure_ovs.
"""

from __future__ import annotations

from dataclasses import dataclass

from ganeti.logical_units.context import JobContext
from ganeti.objects.fill import fill_ndparams
from ganeti.objects.model import Cluster, Node, NodeGroup
from ganeti.objects.parameters import NDPARAMS


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch that a node is to have, and the interface that connects it, "" for none."""

    name: str
    link: str


def switch_of(cluster: Cluster, group: NodeGroup, node: Node) -> Switch | None:
    """Return the switch that a node's filled parameters ask for."""
    params = fill_ndparams(cluster, group, node)
    if not params["ovs"]:
        return None
    return Switch(params["ovs_name"] or str(NDPARAMS["ovs_name"].default), params["ovs_link"] or "")


def make_switch(
    context: JobContext, node: Node, wanted: Switch | None, before: Switch | None = None
) -> None:
    """Make the switch of a node, unless it was to have the same before.

    Raises:
        OpExecError: the node cannot.
    """
    if wanted is None or wanted == before:
        return
    if node.offline:
        context.warn(f"node {node.name} is offline; it gets its Open vSwitch when it is re-added")
        return
    if not wanted.link:
        context.warn(
            f"Open vSwitch {wanted.name!r} of node {node.name} is connected to no interface, so"
            " its guests reach nothing outside; give one with the node parameter ovs_link"
        )
    what = f"make Open vSwitch {wanted.name!r}"
    context.nodes.on(node, what).node_configure_ovs(wanted.name, wanted.link)

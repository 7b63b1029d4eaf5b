"""The node's own Open vSwitch."""

from ganeti.netdev.switches import ensure_switch
from ganeti.node_ops.context import NodeContext


def node_configure_ovs(_context: NodeContext, ovs_name: str, ovs_link: str | None) -> None:
    """Make a switch, and connect it to an interface if one is given."""
    ensure_switch(ovs_name, ovs_link or "")

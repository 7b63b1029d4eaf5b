"""Collector "inst-status-xen": what the Xen instances of this node do and are meant to do.

Source: mond.json, collector "inst-status-xen".
"""

from __future__ import annotations

from typing import Final

from ganeti.collectors import xen
from ganeti.collectors.instance_status import report_on
from ganeti.collectors.node_view import Collect, NodeView
from ganeti.objects.hypervisors import Hypervisor

HYPERVISORS: Final = (Hypervisor.XEN_PVM, Hypervisor.XEN_HVM)


def make() -> Collect:
    """Make the collector."""

    def collect(view: NodeView) -> object:
        tool = xen.toolstack(view)
        uptimes = xen.parse_uptime(xen.run(view, tool, "uptime"))
        found = xen.parse_list(xen.run(view, tool, "list"), uptimes)
        return report_on(view, HYPERVISORS, found)

    return collect

"""Collector "xen-cpu-avg-load": how many processors each Xen domain keeps busy.

Source: mond.json, collector "xen-cpu-avg-load"; xentop(1).
"""

from __future__ import annotations

from ganeti.collectors import xen
from ganeti.collectors.load_window import LoadWindow
from ganeti.collectors.node_view import Collect, NodeView
from ganeti.system import clock


def make() -> Collect:
    """Make the collector; it remembers what it saw."""
    window = LoadWindow()

    def collect(view: NodeView) -> object:
        used_s = xen.parse_xentop(xen.run(view, *xen.XENTOP))
        window.add(clock.monotonic(), used_s)
        return window.loads()

    return collect

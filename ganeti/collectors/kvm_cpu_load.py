"""Collector "kvm-cpu-avg-load": how many processors each KVM instance keeps busy.

Source: mond.json, collector "xen-cpu-avg-load", whose form it has.
"""

from __future__ import annotations

from ganeti.collectors import kvm
from ganeti.collectors.load_window import LoadWindow
from ganeti.collectors.node_view import Collect, NodeView
from ganeti.system import clock


def make() -> Collect:
    """Make the collector; it remembers what it saw."""
    window = LoadWindow()

    def collect(view: NodeView) -> object:
        used_s = {files.name: facts.cpu_s for files, _, facts in kvm.running(view)}
        window.add(clock.monotonic(), used_s)
        return window.loads()

    return collect

"""Collector "inst-status-kvm": what the KVM instances of this node do and are meant to do.

Its report has the form of that on Xen instances.

Source: mond.json, collector "inst-status-xen".
"""

from __future__ import annotations

from ganeti.collectors import kvm
from ganeti.collectors.instance_status import ActualState, Found, report_on, uptime_text
from ganeti.collectors.node_view import Collect, NodeView
from ganeti.objects.hypervisors import Hypervisor
from ganeti.system import clock


def make() -> Collect:
    """Make the collector."""

    def collect(view: NodeView) -> object:
        now_s = clock.now()
        found = {}
        for files, process, facts in kvm.running(view):
            actual = ActualState.RUNNING
            if facts.is_stopped:
                actual = ActualState.PAUSED
            elif kvm.is_guest_down(files, process):
                actual = ActualState.SHUTDOWN
            found[files.name] = Found(actual, uptime_text(now_s - facts.started_s))
        return report_on(view, (Hypervisor.KVM,), found)

    return collect

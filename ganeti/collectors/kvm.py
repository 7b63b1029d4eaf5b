"""Collectors "inst-status-kvm" and "kvm-cpu-avg-load": the KVM instances of this node.

Their reports have the form of those on Xen instances.

Source: mond.json, collectors "inst-status-xen" and "xen-cpu-avg-load".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.collectors.collector import NodeView
from ganeti.collectors.instance_status import (
    ActualState,
    Found,
    InstanceLoad,
    InstanceStatus,
    uptime_text,
)
from ganeti.hypervisor.kvm.state import is_guest_down, running_machines
from ganeti.objects.hypervisors import Hypervisor
from ganeti.system import clock

_KVM: Final = frozenset({Hypervisor.KVM})


class KvmInstanceStatus(InstanceStatus):
    """The states of the KVM instances of this node, actual and wanted."""

    name = "inst-status-kvm"
    summary = "the state of each KVM instance whose primary node this is, actual and wanted"
    label = "kvm"
    hypervisors = _KVM

    def find(self, view: NodeView) -> Mapping[str, Found]:
        """Return the machines that run here."""
        now_s = clock.now()
        found = {}
        for files, process, facts in running_machines(view.paths):
            actual = ActualState.RUNNING
            if facts.is_stopped:
                actual = ActualState.PAUSED
            elif is_guest_down(files, process):
                actual = ActualState.SHUTDOWN
            found[files.name] = Found(actual, uptime_text(now_s - facts.started_s))
        return found


class KvmInstanceLoad(InstanceLoad):
    """How many processors each KVM instance keeps busy."""

    name = "kvm-cpu-avg-load"
    summary = "how many processors each KVM instance kept busy, on average over ten minutes"
    label = "kvm"
    hypervisors = _KVM

    def used_s(self, view: NodeView) -> Mapping[str, float]:
        """Return the processor time of each machine."""
        return {files.name: facts.cpu_s for files, _, facts in running_machines(view.paths)}

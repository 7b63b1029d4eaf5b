"""Collectors "inst-status-xen" and "xen-cpu-avg-load": the Xen instances of this node.

Source: mond.json, collectors "inst-status-xen" and "xen-cpu-avg-load".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.collectors.collector import NodeView
from ganeti.collectors.instance_status import ActualState, Found, InstanceLoad, InstanceStatus
from ganeti.hypervisor import xen
from ganeti.objects.hypervisors import HVPARAMS, Hypervisor
from ganeti.store import ssconf

_XEN: Final = frozenset({Hypervisor.XEN_PVM, Hypervisor.XEN_HVM})
_TIMEOUT_S: Final = 20.0
_PARAMETER: Final = "xen_cmd"
_PARAMETER_FILES: Final = ("hvparams_xen-pvm", "hvparams_xen-hvm")
_DEFAULT_TOOL: Final = "xl"  # every Xen has it; that of the parameter is for old ones


def toolstack(view: NodeView) -> str:
    """Return the command that this cluster drives Xen with."""
    tools = HVPARAMS[Hypervisor.XEN_PVM][_PARAMETER].choices
    for key in _PARAMETER_FILES:
        for line in (ssconf.read_key_or_none(view.paths, key) or "").splitlines():
            name, _, value = line.partition("=")
            if name == _PARAMETER and value in tools:
                return value
    return _DEFAULT_TOOL


def run(view: NodeView, *argv: str) -> str:
    """Run one of Xen's tools and return its output.

    Raises:
        CommandError: it is not installed, or failed.
    """
    return view.run(argv, timeout_s=_TIMEOUT_S).check().stdout.decode("utf-8", "replace")


class XenInstanceStatus(InstanceStatus):
    """The states of the Xen instances of this node, actual and wanted."""

    name = "inst-status-xen"
    summary = "the state of each Xen instance whose primary node this is, actual and wanted"
    label = "xen"
    hypervisors = _XEN

    def find(self, view: NodeView) -> Mapping[str, Found]:
        """Return the domains but the node's own."""
        tool = toolstack(view)
        uptimes = xen.parse_uptime(run(view, tool, "uptime"))
        domains = xen.parse_list(run(view, tool, "list"), uptimes)
        return {
            name: Found(ActualState(domain.state), domain.uptime)
            for name, domain in domains.items()
        }


class XenInstanceLoad(InstanceLoad):
    """How many processors each Xen domain keeps busy."""

    name = "xen-cpu-avg-load"
    summary = "how many processors each Xen domain kept busy, on average over ten minutes"
    label = "xen"
    hypervisors = _XEN

    def used_s(self, view: NodeView) -> Mapping[str, float]:
        """Return the processor time of each domain."""
        return xen.parse_xentop(run(view, *xen.XENTOP))

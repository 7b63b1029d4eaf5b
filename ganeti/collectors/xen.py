"""Collectors "inst-status-xen" and "xen-cpu-avg-load": the Xen instances of this node.

Source: mond.json, collectors "inst-status-xen" and "xen-cpu-avg-load"; xl(1), subcommands list and
uptime; xentop(1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.collectors.collector import NodeView
from ganeti.collectors.instance_status import ActualState, Found, InstanceLoad, InstanceStatus
from ganeti.hypervisor.xen.output import DOMAIN_0, PROGRAM, guests, parse_list, rows
from ganeti.hypervisor.xen.tool import DomainFiles
from ganeti.objects.hypervisors import Hypervisor

_XEN: Final = frozenset({Hypervisor.XEN_PVM, Hypervisor.XEN_HVM})
_TIMEOUT_S: Final = 20.0
XENTOP: Final = ("xentop", "--batch", "--full-name", "--iterations=1")


def run(view: NodeView, *argv: str) -> str:
    """Run one of Xen's tools and return its output.

    Raises:
        CommandError: it is not installed, or failed.
    """
    return view.run(argv, timeout_s=_TIMEOUT_S).check().stdout.decode("utf-8", "replace")


# The first that is set counts: a domain that crashed is also shut down.
_FLAGS: Final = (
    ("c", ActualState.CRASHED),
    ("d", ActualState.DYING),
    ("s", ActualState.SHUTDOWN),
    ("p", ActualState.PAUSED),
    ("b", ActualState.BLOCKED),
    ("r", ActualState.RUNNING),
)


def states(text: str, uptimes: Mapping[str, str]) -> dict[str, Found]:
    """Return the instances among the domains that ``xl list`` printed.

    Raises:
        GenericError: a line cannot be understood; the text shows it.
    """
    return {
        domain.name: Found(_state(domain.flags), uptimes.get(domain.name))
        for domain in guests(parse_list(text))
    }


def _state(flags: str) -> ActualState:
    # A domain without any flag waits for a processor: it runs.
    return next((state for flag, state in _FLAGS if flag in flags), ActualState.RUNNING)


def _is_received(view: NodeView, name: str, one: Found) -> bool:
    return one.state is ActualState.PAUSED and DomainFiles(view.paths, name).is_incoming


def parse_uptime(text: str) -> dict[str, str]:
    """Return {domain: how long it has run} from the output of ``xl uptime``."""
    found = {}
    for line in rows(text, "Name"):
        name, _number, uptime = [*line.split(maxsplit=2), "", ""][:3]
        found[name] = uptime.strip()
    return found


def parse_xentop(text: str) -> dict[str, float]:
    """Return {domain: seconds of processor time} from the output of xentop, without the node's own.

    Raises:
        GenericError: a line cannot be understood; the text shows it.
    """
    used_s = {}
    for line in rows(text, "NAME"):
        words = line.split()
        try:
            name, seconds = words[0], float(words[2])
        except (IndexError, ValueError) as err:
            raise GenericError(f"cannot understand the output of xentop: {line[:200]!r}") from err
        if name != DOMAIN_0:
            used_s[name] = seconds
    return used_s


class XenInstanceStatus(InstanceStatus):
    """The states of the Xen instances of this node, actual and wanted."""

    name = "inst-status-xen"
    summary = "the state of each Xen instance whose primary node this is, actual and wanted"
    label = "xen"
    hypervisors = _XEN

    def find(self, view: NodeView) -> Mapping[str, Found]:
        """Return the instances, but not those still being received."""
        uptimes = parse_uptime(run(view, PROGRAM, "uptime"))
        found = states(run(view, PROGRAM, "list"), uptimes)
        return {name: one for name, one in found.items() if not _is_received(view, name, one)}


class XenInstanceLoad(InstanceLoad):
    """How many processors each Xen domain keeps busy."""

    name = "xen-cpu-avg-load"
    summary = "how many processors each Xen domain kept busy, on average over ten minutes"
    label = "xen"
    hypervisors = _XEN

    def used_s(self, view: NodeView) -> Mapping[str, float]:
        """Return the processor time of each domain."""
        return parse_xentop(run(view, *XENTOP))

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
from ganeti.objects.hypervisors import HVPARAMS, Hypervisor
from ganeti.store import ssconf

_XEN: Final = frozenset({Hypervisor.XEN_PVM, Hypervisor.XEN_HVM})
_TIMEOUT_S: Final = 20.0
_PARAMETER: Final = "xen_cmd"
_PARAMETER_FILES: Final = ("hvparams_xen-pvm", "hvparams_xen-hvm")
DOMAIN_0: Final = "Domain-0"
XENTOP: Final = ("xentop", "--batch", "--full-name", "--iterations=1")
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


_LIST_COLUMNS: Final = 6
# The first that is set counts: a domain that crashed is also shut down.
_FLAGS: Final = (
    ("c", ActualState.CRASHED),
    ("d", ActualState.DYING),
    ("s", ActualState.SHUTDOWN),
    ("p", ActualState.PAUSED),
    ("b", ActualState.BLOCKED),
    ("r", ActualState.RUNNING),
)


def parse_list(text: str, uptimes: Mapping[str, str]) -> dict[str, Found]:
    """Return the domains that ``xl list`` printed, without the node's own.

    Raises:
        GenericError: a line cannot be understood; the text shows it.
    """
    found = {}
    for line in _rows(text, "Name"):
        words = line.rsplit(maxsplit=_LIST_COLUMNS - 1)
        if len(words) != _LIST_COLUMNS:
            raise GenericError(f"cannot understand Xen's list of domains: {line[:200]!r}")
        name, flags = words[0].strip(), words[4]
        if name != DOMAIN_0:
            found[name] = Found(_state(flags), uptimes.get(name))
    return found


def _state(flags: str) -> ActualState:
    # A domain without any flag waits for a processor: it runs.
    return next((state for flag, state in _FLAGS if flag in flags), ActualState.RUNNING)


def parse_uptime(text: str) -> dict[str, str]:
    """Return {domain: how long it has run} from the output of ``xl uptime``."""
    found = {}
    for line in _rows(text, "Name"):
        name, _number, uptime = [*line.split(maxsplit=2), "", ""][:3]
        found[name] = uptime.strip()
    return found


def parse_xentop(text: str) -> dict[str, float]:
    """Return {domain: seconds of processor time} from the output of xentop, without the node's own.

    Raises:
        GenericError: a line cannot be understood; the text shows it.
    """
    used_s = {}
    for line in _rows(text, "NAME"):
        words = line.split()
        try:
            name, seconds = words[0], float(words[2])
        except (IndexError, ValueError) as err:
            raise GenericError(f"cannot understand the output of xentop: {line[:200]!r}") from err
        if name != DOMAIN_0:
            used_s[name] = seconds
    return used_s


def _rows(text: str, title: str) -> list[str]:
    """Return the lines after the titles."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.split()[:1] == [title]]
    first = starts[0] + 1 if starts else 0
    return [line for line in lines[first:] if line.strip()]


class XenInstanceStatus(InstanceStatus):
    """The states of the Xen instances of this node, actual and wanted."""

    name = "inst-status-xen"
    summary = "the state of each Xen instance whose primary node this is, actual and wanted"
    label = "xen"
    hypervisors = _XEN

    def find(self, view: NodeView) -> Mapping[str, Found]:
        """Return the domains but the node's own."""
        tool = toolstack(view)
        uptimes = parse_uptime(run(view, tool, "uptime"))
        return parse_list(run(view, tool, "list"), uptimes)


class XenInstanceLoad(InstanceLoad):
    """How many processors each Xen domain keeps busy."""

    name = "xen-cpu-avg-load"
    summary = "how many processors each Xen domain kept busy, on average over ten minutes"
    label = "xen"
    hypervisors = _XEN

    def used_s(self, view: NodeView) -> Mapping[str, float]:
        """Return the processor time of each domain."""
        return parse_xentop(run(view, *XENTOP))

"""States of instances, actual and wanted, and how many processors they keep busy.

The collectors of a hypervisor fill in its instances.

Source: mond.json, collector "inst-status-xen"; constants.json, "instance_states".
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from ganeti.base.errors import GenericError
from ganeti.base.json import loads
from ganeti.base.metrics import Sample, metrics_of
from ganeti.base.text import natural_sorted
from ganeti.collectors.cluster_facts import InstanceFacts, Need, NodeInstances
from ganeti.collectors.collector import Collector, Data, NodeView, Timing
from ganeti.collectors.cpu_load import LoadWindow
from ganeti.collectors.report import FINE, Health, Kind, StatusCode, worst
from ganeti.objects.model import AdminState
from ganeti.system import clock, files

_LABELS: Final = ("instance", "hypervisor")
_REASON_BYTES_MAX: Final = 1 << 20
_DAY_S: Final = 86400
_SOON: Final = StatusCode.TEMPORARILY_BAD
_LOAD_HELP: Final = "How many processors an instance kept busy, on average over 10 minutes."


class ActualState(StrEnum):
    """The actual state of an instance."""

    RUNNING = "running"
    BLOCKED = "blocked"  # waits for input, or sleeps
    PAUSED = "paused"
    SHUTDOWN = "shutdown"  # from inside; the hypervisor still has it
    CRASHED = "crashed"
    DYING = "dying"
    ABSENT = "absent"


_UP: Final[Mapping[ActualState, Health]] = {
    ActualState.RUNNING: FINE,
    ActualState.BLOCKED: FINE,
    ActualState.PAUSED: Health(_SOON, "The instance is paused"),
    ActualState.SHUTDOWN: Health(_SOON, "The instance was shut down from inside"),
    ActualState.CRASHED: Health(StatusCode.BAD, "The instance has crashed"),
    ActualState.DYING: Health(_SOON, "The instance is ending"),
    ActualState.ABSENT: Health(StatusCode.BAD, "The instance is meant to run, but does not"),
}
_ENDED: Final = frozenset({ActualState.SHUTDOWN, ActualState.DYING, ActualState.ABSENT})
_RUNNING: Final = frozenset({ActualState.RUNNING, ActualState.BLOCKED, ActualState.PAUSED})
_ON_SECONDARY: Final = Health(StatusCode.BAD, "The instance runs on its secondary node")
_UNKNOWN: Final = Health(StatusCode.BAD, "This runs here, but is no instance of this node")
_UNWANTED: Final = Health(StatusCode.BAD, "The instance runs, but is not meant to")


@dataclass(frozen=True, slots=True)
class Found:
    """An instance that the hypervisor has."""

    state: ActualState
    uptime: str | None = None


_ABSENT: Final = Found(ActualState.ABSENT)


def judge(admin_state: AdminState, actual: ActualState) -> Health:
    """Judge one instance."""
    if admin_state is AdminState.UP:
        return _UP[actual]
    return FINE if actual in _ENDED else _UNWANTED


def report_on(
    view: NodeView, hypervisors: frozenset[str], found: Mapping[str, Found]
) -> dict[str, object]:
    """Return the data of a report on the instances of some hypervisors.

    ``found`` has the instances that their hypervisor has here, by name.

    Raises:
        GenericError: it is not known which instances are to be here.
    """
    known = view.cluster.instances
    if known is None:
        problem = view.cluster.problem
        raise GenericError(f"it is not known which instances this node has: {problem}")
    instances = [one for one in known.primary if one.hypervisor in hypervisors]
    judged = [
        (one, here, judge(one.admin_state, here.state))
        for one in instances
        for here in [found.get(one.name, _ABSENT)]
    ]
    entries = [_entry(view, one, here, status) for one, here, status in judged]
    strange = _strangers(known, found)
    statuses = [(one.name, status) for one, _, status in judged] + strange
    message = "\n".join(f"{name}: {status.message}" for name, status in statuses if status.message)
    return {"status": Health(worst(each for _, each in statuses), message), "instances": entries}


def _entry(view: NodeView, one: InstanceFacts, here: Found, status: Health) -> dict[str, object]:
    return {
        "name": one.name,
        "uuid": one.uuid,
        "adminState": one.admin_state,
        "actualState": here.state,
        "uptime": here.uptime,
        "mtime": one.mtime,
        "state_reason": _reason(view, one.name),
        "status": status,
    }


def _strangers(known: NodeInstances, found: Mapping[str, Found]) -> list[tuple[str, Health]]:
    """Return a status for everything here that has no business here."""
    primary = {one.name for one in known.primary}
    secondary = {one.name for one in known.secondary}
    strange = natural_sorted(found.keys() - primary)
    return [(name, _ON_SECONDARY if name in secondary else _UNKNOWN) for name in strange]


def _reason(view: NodeView, name: str) -> Sequence[object]:
    """Return why the state of an instance changed last, as the node daemon wrote it down."""
    path = os.path.join(view.paths.instance_reason_dir, name)
    try:
        data = files.read_bytes_or_none(path, _REASON_BYTES_MAX)
        trail = [] if data is None else loads(data)
    except (OSError, GenericError):
        return []  # half of it is worth nothing, and the state itself counts more
    return trail if isinstance(trail, list) else []


def uptime_text(seconds: float) -> str:
    """Say how long something has run, as Xen's tools do: ``3 days,  2:27:44``."""
    days, rest = divmod(int(max(seconds, 0)), _DAY_S)
    clock_text = f"{rest // 3600:2}:{rest // 60 % 60:02}:{rest % 60:02}"
    if not days:
        return clock_text.strip()
    return f"{days} day{'s' if days > 1 else ''}, {clock_text}"


class InstanceStatus(Collector):
    """The state of the instances of a hypervisor; ``label`` is its name in metrics."""

    label: ClassVar[str]
    category = "instance"
    kind = Kind.STATUS
    timing = Timing.WHEN_ASKED
    empty = {"instances": ()}
    needs = frozenset({Need.INSTANCES})
    metrics = metrics_of(
        _LABELS,
        {
            "instance_up": "Whether an instance whose primary node this is runs.",
            "instance_admin_up": "Whether it is meant to.",
            "instance_status_code": "0 fine, 1 repairing itself, 2 unknown, 4 bad.",
        },
    )

    @abstractmethod
    def find(self, view: NodeView) -> Mapping[str, Found]:
        """Return the instances that the hypervisor has here, by name."""

    def collect(self, view: NodeView) -> object:
        """Return each instance with its state, and a judgement."""
        return report_on(view, self.hypervisors, self.find(view))

    @classmethod
    def samples(cls, data: Data) -> Iterator[Sample]:
        """Yield the state of each instance."""
        for one in data["instances"]:
            labels = (one["name"], cls.label)
            yield Sample("ganeti_instance_up", one["actualState"] in _RUNNING, labels)
            yield Sample("ganeti_instance_admin_up", one["adminState"] == AdminState.UP, labels)
            yield Sample("ganeti_instance_status_code", one["status"].code, labels)


class InstanceLoad(Collector):
    """How many processors each instance of a hypervisor keeps busy; it remembers samples."""

    label: ClassVar[str]
    timing = Timing.STEADY
    metrics = metrics_of(_LABELS, {"instance_cpu_load": _LOAD_HELP})

    def __init__(self) -> None:
        self._window = LoadWindow()

    @abstractmethod
    def used_s(self, view: NodeView) -> Mapping[str, float]:
        """Return the processor time that each instance has used, by name."""

    def collect(self, view: NodeView) -> object:
        """Return the load of each instance."""
        self._window.add(clock.monotonic(), self.used_s(view))
        return self._window.loads()

    @classmethod
    def samples(cls, data: Data) -> Iterator[Sample]:
        """Yield the load of each instance."""
        for name, load in data.items():
            yield Sample("ganeti_instance_cpu_load", load, (name, cls.label))

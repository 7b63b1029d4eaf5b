"""The table of data collectors: one row and one module each, imported when it is switched on.

Source: mond.json, "collectors"; maintd.json, "data_collectors".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import Final, cast

from ganeti.collectors.cluster_facts import Need
from ganeti.collectors.node_view import Collect
from ganeti.collectors.report import FINE, VERSION, Kind, Report, Status, StatusCode, presentable
from ganeti.objects.hypervisors import Hypervisor


class Timing(Enum):
    """When a collector works."""

    AT_ONCE = "for each request"  # reads a file or two
    STEADY = "at its interval"  # makes an average over time
    WHEN_ASKED = "at its interval while somebody asks"  # runs a command, or looks at much


@dataclass(frozen=True, slots=True)
class CollectorRow:
    """One collector.

    ``target`` is ``module:function``; the function makes a `Collect` of its own memory.  ``empty``
    is the data of a collector that failed.  ``needs`` is what must be known of the cluster, as of
    now; what is AT_ONCE has to do with what is known.  ``hypervisors``: works only where one of
    them is enabled.  ``interval_s_max``: an interval longer than that is cut.
    """

    name: str
    summary: str
    category: str | None
    kind: Kind
    timing: Timing
    target: str
    empty: Mapping[str, object] | tuple[object, ...]
    format_version: int = 1
    hypervisors: frozenset[str] = frozenset()
    needs: frozenset[Need] = frozenset()
    interval_s_max: float = float("inf")

    def load(self) -> Collect:
        """Import the collector and make one."""
        module, _, function = self.target.partition(":")
        return cast("Collect", getattr(import_module(module), function)())

    def report(self, data: object, timestamp_ns: int, status: Status = FINE) -> Report:
        """Put data into the envelope."""
        return Report(
            name=self.name,
            version=VERSION,
            format_version=self.format_version,
            timestamp=timestamp_ns,
            category=self.category,
            kind=self.kind,
            data=data,
            status=None if status is FINE else status,
        )

    def failure(
        self, message: str, timestamp_ns: int, code: StatusCode = StatusCode.UNKNOWN
    ) -> Report:
        """Report that there is nothing to report, and why."""
        status = Status(code, presentable(message))
        if isinstance(self.empty, Mapping) and self.kind is Kind.STATUS:
            return self.report({"status": status, **self.empty}, timestamp_ns)
        return self.report(self.empty, timestamp_ns, status)


_XEN: Final = frozenset({Hypervisor.XEN_PVM, Hypervisor.XEN_HVM})
_KVM: Final = frozenset({Hypervisor.KVM})
_INSTANCES: Final = frozenset({Need.INSTANCES})

_ROWS: Final = (
    CollectorRow(
        name="cpu-avg-load",
        summary="how busy the processors were, on average over ten minutes",
        category=None,
        kind=Kind.PERFORMANCE,
        timing=Timing.STEADY,
        target="ganeti.collectors.cpu_load:make",
        empty={"cpu_number": 0, "cpus": (), "cpu_total": 0.0},
    ),
    CollectorRow(
        name="xen-cpu-avg-load",
        summary="how many processors each Xen domain kept busy, on average over ten minutes",
        category=None,
        kind=Kind.PERFORMANCE,
        timing=Timing.STEADY,
        target="ganeti.collectors.xen_cpu_load:make",
        empty={},
        hypervisors=_XEN,
    ),
    CollectorRow(
        name="kvm-cpu-avg-load",
        summary="how many processors each KVM instance kept busy, on average over ten minutes",
        category=None,
        kind=Kind.PERFORMANCE,
        timing=Timing.STEADY,
        target="ganeti.collectors.kvm_cpu_load:make",
        empty={},
        hypervisors=_KVM,
    ),
    CollectorRow(
        name="diskstats",
        summary="what the kernel counted of each block device",
        category="storage",
        kind=Kind.PERFORMANCE,
        timing=Timing.AT_ONCE,
        target="ganeti.collectors.diskstats:make",
        empty=(),
    ),
    CollectorRow(
        name="drbd",
        summary="how the DRBD devices are, and to which instance each belongs",
        category="storage",
        kind=Kind.STATUS,
        timing=Timing.AT_ONCE,
        target="ganeti.collectors.drbd:make",
        empty={"versionInfo": {}, "deviceInfos": ()},
    ),
    CollectorRow(
        name="lv",
        summary="the logical volumes, and to which instance each belongs",
        category="storage",
        kind=Kind.PERFORMANCE,
        timing=Timing.WHEN_ASKED,
        target="ganeti.collectors.lv:make",
        empty=(),
        needs=frozenset({Need.VOLUMES}),
    ),
    CollectorRow(
        name="inst-status-xen",
        summary="what each Xen instance whose primary node this is does and is meant to do",
        category="instance",
        kind=Kind.STATUS,
        timing=Timing.WHEN_ASKED,
        target="ganeti.collectors.xen_instances:make",
        empty={"instances": ()},
        hypervisors=_XEN,
        needs=_INSTANCES,
    ),
    CollectorRow(
        name="inst-status-kvm",
        summary="what each KVM instance whose primary node this is does and is meant to do",
        category="instance",
        kind=Kind.STATUS,
        timing=Timing.WHEN_ASKED,
        target="ganeti.collectors.kvm_instances:make",
        empty={"instances": ()},
        hypervisors=_KVM,
        needs=_INSTANCES,
    ),
    CollectorRow(
        name="diagnose",
        summary="what this node's own diagnose command says of it, signed",
        category="node",
        kind=Kind.STATUS,
        timing=Timing.WHEN_ASKED,
        target="ganeti.collectors.diagnose:make",
        empty={},
        needs=frozenset({Need.SETTINGS}),
        interval_s_max=120.0,  # its signature is good for 300 s
    ),
)

COLLECTORS: Final[Mapping[str, CollectorRow]] = {row.name: row for row in _ROWS}

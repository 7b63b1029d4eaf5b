"""Data collectors: facts, metrics and work of one, and the view of the node that it is given.

A collector is a class in a file of its own, named in one row of
`ganeti.objects.model.DATA_COLLECTORS`.  It runs in a thread, and each of its waits has a
deadline.  When it cannot do its work it raises a `GenericError` that says why.

Source: mond.json, "collectors"; maintd.json, "data_collectors".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Protocol

from ganeti.base.errors import GenericError, failing_as
from ganeti.base.metrics import Metric, Sample, metrics_of
from ganeti.base.paths import Paths
from ganeti.collectors.cluster_facts import ClusterFacts, Need
from ganeti.collectors.report import FINE, VERSION, Health, Kind, Report, StatusCode, presentable
from ganeti.system import files, process
from ganeti.system.process import CommandResult

_FILE_BYTES_MAX = 16 << 20  # /proc/diskstats of 50,000 devices is half of it


class RunCommand(Protocol):
    """Runs a command to its end, within limits: `ganeti.system.process.run`, or a part of it."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        output_bytes_max: int = process.OUTPUT_BYTES_MAX,
        leaves_nothing: bool = False,
    ) -> CommandResult:
        """Return its result; raises CommandError if it cannot be started."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """The node as collectors see it."""

    paths: Paths
    hostname: str
    cluster: ClusterFacts = field(default_factory=ClusterFacts)
    run: RunCommand = process.run


def read_text(path: str) -> str:
    """Read a text file whole; bytes that are no text are replaced.

    Raises:
        GenericError: it cannot be read; the text names it.
    """
    with failing_as(GenericError, f"cannot read {path}"):
        return files.read_bytes(path, _FILE_BYTES_MAX).decode("utf-8", "replace")


Data = Any  # of a report, in the form of its collector


class Timing(Enum):
    """When a collector works."""

    AT_ONCE = "for each request"  # reads a file or two
    STEADY = "at its interval"  # makes an average over time
    WHEN_ASKED = "at its interval while somebody asks"  # runs a command, or looks at much
    ALWAYS = "at its interval, asked or not"  # somebody relies on finding a report


@dataclass(frozen=True, slots=True)
class Measures:
    """The numbers of a report that are metrics.

    Attributes:
        rows: {key in the report: (metric without its first word, factor, help)}.
    """

    labels: tuple[str, ...]
    rows: Mapping[str, tuple[str, float, str]]

    def metrics(self) -> tuple[Metric, ...]:
        """Return the metrics."""
        return metrics_of(self.labels, {name: text for name, _, text in self.rows.values()})

    def samples(self, values: Mapping[str, Data], labels: tuple[str, ...]) -> Iterator[Sample]:
        """Yield a sample for each measure that has a value."""
        for key, (name, factor, _) in self.rows.items():
            if key in values:
                yield Sample(f"ganeti_{name}", values[key] * factor, labels)


class Collector(ABC):
    """One collector, with the memory that it may need.

    Attributes:
        category: None for a collector without one.
        empty: the data of a report of a collector that failed.
        needs: facts of the cluster, as of now; those AT_ONCE take the last known ones.
        hypervisors: it works only where one of them is enabled; empty for always.
        interval_s_max: an interval longer than that is cut.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    category: ClassVar[str | None] = None
    kind: ClassVar[Kind] = Kind.PERFORMANCE
    timing: ClassVar[Timing]
    empty: ClassVar[Mapping[str, object] | tuple[object, ...]] = {}
    format_version: ClassVar[int] = 1
    hypervisors: ClassVar[frozenset[str]] = frozenset()
    needs: ClassVar[frozenset[Need]] = frozenset()
    interval_s_max: ClassVar[float] = float("inf")
    metrics: ClassVar[tuple[Metric, ...]] = ()

    @abstractmethod
    def collect(self, view: NodeView) -> object:
        """Return the data of a report."""

    @classmethod
    def samples(cls, data: Data) -> Iterator[Sample]:  # noqa: ARG003 - for those with metrics
        """Yield the data of a report as values of the metrics."""
        yield from ()

    @classmethod
    def report(cls, data: object, timestamp_ns: int, status: Health = FINE) -> Report:
        """Put data into the envelope."""
        return Report(
            name=cls.name,
            version=VERSION,
            format_version=cls.format_version,
            timestamp=timestamp_ns,
            category=cls.category,
            kind=cls.kind,
            data=data,
            status=None if status is FINE else status,
        )

    @classmethod
    def failure(
        cls, message: str, timestamp_ns: int, code: StatusCode = StatusCode.UNKNOWN
    ) -> Report:
        """Report that there is nothing to report, and why."""
        status = Health(code, presentable(message))
        if isinstance(cls.empty, Mapping) and cls.kind is Kind.STATUS:
            return cls.report({"status": status, **cls.empty}, timestamp_ns)
        return cls.report(cls.empty, timestamp_ns, status)

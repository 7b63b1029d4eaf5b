"""The dynamic load of instances: from a file of the operator, or from the monitoring daemons.

The monitoring daemons know the CPU load of each node; an instance is taken to cause the part of it
that its virtual CPUs are of all on the node.  On Xen they know that of each instance.

Source: manual pages hbal(1), "-U", and htools(1), "--mond-data"; mond.json, "cpu-avg-load".
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from ganeti.allocation.model import NO_LOAD, Utilisation
from ganeti.allocation.snapshot import Snapshot
from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.json import loads_as

CPU_COLLECTOR: Final = "cpu-avg-load"
XEN_COLLECTOR: Final = "xen-cpu-avg-load"
_COLUMNS: Final = 5


def read_utilisation(text: str) -> dict[str, Utilisation]:
    """Read lines of ``instance cpu memory disk network``.

    Raises:
        GenericError: a line is not understood; the message names it.
    """
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, *columns = line.split(" ")
        if len(columns) != _COLUMNS - 1:
            raise GenericError(
                f"line {number}: {line!r} is not an instance and four numbers, each after one blank"
            )
        try:
            found[name] = Utilisation(*map(float, columns))
        except ValueError as err:
            raise GenericError(f"line {number}: instance {name!r}: {err}") from err
        if not all(map(isfinite, found[name])):
            raise GenericError(f"line {number}: instance {name!r}: {line!r} has no finite load")
    return found


def without_load(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with instances that put no dynamic load on anything."""
    nodes = {name: replace(node, own_cpu_load=0.0) for name, node in snapshot.nodes.items()}
    loads = dict.fromkeys(snapshot.instances, NO_LOAD)
    return with_loads(replace(snapshot, nodes=nodes), loads)


def with_loads(snapshot: Snapshot, loads: Mapping[str, Utilisation]) -> Snapshot:
    """Return the snapshot with the dynamic load of instances, by name; others are passed over."""
    changed = {
        name: replace(snapshot.instances[name], load=load)
        for name, load in loads.items()
        if name in snapshot.instances
    }
    return replace(snapshot, instances={**snapshot.instances, **changed})


class Report(Struct, frozen=True):
    """A report of a collector."""

    name: str
    data: Any


class NodeReports(Struct, frozen=True):
    """What the monitoring daemon of a node says."""

    node: str
    reports: list[Report]


def read_reports(content: bytes) -> dict[str, list[Report]]:
    """Read the reports of nodes from JSON.

    Raises:
        GenericError: it is something else.
    """
    try:
        return {each.node: each.reports for each in loads_as(list[NodeReports], content)}
    except ProtocolError as err:
        raise GenericError(f"no reports of monitoring daemons: {err.message}") from err


class _CpuLoad(Struct, frozen=True):
    cpu_total: float


class Measured(Struct, frozen=True):
    """The snapshot with the load that was measured, and the collectors that lack on some node."""

    snapshot: Snapshot
    incomplete: tuple[str, ...]


def with_reports(
    snapshot: Snapshot, reports: Mapping[str, list[Report]], *, is_xen: bool = False
) -> Measured:
    """Return the snapshot with the CPU load that all nodes report.

    Raises:
        GenericError: a report is not understood.
    """
    incomplete = []
    asked = [name for name, node in snapshot.nodes.items() if not node.is_offline]
    collectors = [CPU_COLLECTOR, *([XEN_COLLECTOR] if is_xen else [])]
    for collector in collectors:
        found = {
            name: report.data
            for name in asked
            for report in reports.get(name, ())
            if report.name == collector
        }
        if len(found) < len(asked):
            incomplete.append(collector)
        elif collector == CPU_COLLECTOR:
            loads = {name: _parsed(name, data, _CpuLoad).cpu_total for name, data in found.items()}
            snapshot = _with_node_loads(snapshot, loads)
        else:
            snapshot = _with_instance_loads(
                snapshot, [_parsed(name, data, dict[str, float]) for name, data in found.items()]
            )
    return Measured(snapshot, tuple(incomplete))


def _parsed(node: str, data: object, kind: Any) -> Any:
    try:
        return convert(data, kind)
    except ValidationError as err:
        raise GenericError(f"node {node!r}: report of its CPU load: {err}") from err


def _with_node_loads(snapshot: Snapshot, measured: Mapping[str, float]) -> Snapshot:
    here = [each for each in snapshot.instances.values() if not each.is_forthcoming]
    vcpus: dict[str, int] = {}
    for each in here:
        vcpus[each.primary] = vcpus.get(each.primary, 0) + each.spec.vcpus
    loads = {
        each.name: each.load._replace(
            cpu=measured[each.primary] * each.spec.vcpus / vcpus[each.primary]
        )
        for each in here
        if each.primary in measured and vcpus[each.primary]
    }
    nodes = {
        name: replace(node, own_cpu_load=0.0 if vcpus.get(name) else measured.get(name, 0.0))
        for name, node in snapshot.nodes.items()
    }
    return with_loads(replace(snapshot, nodes=nodes), loads)


def _with_instance_loads(snapshot: Snapshot, measured: list[dict[str, float]]) -> Snapshot:
    loads = {
        name: snapshot.instances[name].load._replace(cpu=load)
        for each in measured
        for name, load in each.items()
        if name in snapshot.instances
    }
    nodes = {name: replace(node, own_cpu_load=0.0) for name, node in snapshot.nodes.items()}
    return with_loads(replace(snapshot, nodes=nodes), loads)

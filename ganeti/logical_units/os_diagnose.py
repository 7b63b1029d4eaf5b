"""Which operating systems the nodes have, and whether they agree.

Source: query_fields.json, "os"; node_rpc.json, "os_diagnose".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ganeti.base.errors import OpExecError
from ganeti.base.text import natural_sorted
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.node_calls import call_nodes
from ganeti.opcodes.os import OpOsDiagnose
from ganeti.query.engine import prepare
from ganeti.query.view import View

if TYPE_CHECKING:
    from ganeti.clients.wconfd_stub import WConfStub
    from ganeti.logical_units.context import JobContext
    from ganeti.objects.cluster import Cluster

T = TypeVar("T")


class OsOnNode(msgspec.Struct, frozen=True, array_like=True):
    """One operating system as one node describes it."""

    name: str
    path: str
    ok: bool
    message: str
    variants: list[str] = []
    parameters: list[tuple[str, str]] = []
    api_versions: list[int] = []
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class OsSummary:
    """One operating system on all nodes; an empty list stands for a node that does not have it."""

    name: str
    by_node: Mapping[str, Sequence[OsOnNode]]

    @property
    def is_valid(self) -> bool:
        """Whether every node has it and the first place where it is found is usable."""
        return all(found and found[0].ok for found in self.by_node.values())

    def _first(self) -> list[OsOnNode]:
        return [found[0] for found in self.by_node.values() if found]

    def common_variants(self) -> list[str]:
        """Return the variants that all nodes have."""
        return common(entry.variants for entry in self._first())

    def common_versions(self) -> list[int]:
        """Return the API versions that all nodes have."""
        return common(entry.api_versions for entry in self._first())

    def common_parameters(self) -> list[tuple[str, str]]:
        """Return the parameters that all nodes have."""
        return common(entry.parameters for entry in self._first())

    @property
    def is_trusted(self) -> bool:
        """Whether all nodes run its scripts themselves."""
        return all(entry.trusted for entry in self._first())


def common(lists: Iterable[Sequence[T]]) -> list[T]:
    """Return what is in all lists, in the order of the first."""
    first, *others = [list(values) for values in lists] or [[]]
    return [value for value in first if all(value in other for other in others)]


def summarize(answers: Mapping[str, Sequence[OsOnNode]]) -> list[OsSummary]:
    """Turn what each node has into what each operating system is."""
    names = natural_sorted({entry.name for entries in answers.values() for entry in entries})
    return [
        OsSummary(
            name,
            {
                node: [entry for entry in entries if entry.name == name]
                for node, entries in answers.items()
            },
        )
        for name in names
    ]


def ask_nodes(context: JobContext, config: WConfStub) -> dict[str, list[OsOnNode]]:
    """Ask every node that can have instances for its operating systems."""
    return ask_capable_nodes(context, config, "os_diagnose", OsOnNode, "operating systems")


def ask_capable_nodes(
    context: JobContext, config: WConfStub, call: str, kind: type[T], what: str
) -> dict[str, list[T]]:
    """Ask every node that can have instances for lists of what it has.

    One that does not answer, or not as it should, is named in a warning and left out.
    """
    nodes = [node for node in lookup.all_nodes(config) if node.vm_capable and not node.offline]
    answers: dict[str, list[T]] = {}
    for name, result in call_nodes(context, nodes, call).items():
        try:
            answers[name] = msgspec.convert(result.check(call), list[kind])  # type: ignore[valid-type]
        except (OpExecError, msgspec.ValidationError) as err:
            context.warn(f"cannot ask node {name} for its {what}: {err}")
    return answers


def rows(cluster: Cluster, summaries: Iterable[OsSummary]) -> list[dict[str, object]]:
    """Return the values of all query fields, one row for each operating system."""
    return [
        {
            "name": summary.name,
            "valid": summary.is_valid,
            "hidden": summary.name in cluster.hidden_os,
            "blacklisted": summary.name in cluster.blacklisted_os,
            "variants": summary.common_variants(),
            "api_versions": summary.common_versions(),
            "parameters": [list(pair) for pair in summary.common_parameters()],
            "node_status": {
                node: [
                    [
                        e.path,
                        e.ok,
                        e.message,
                        e.variants,
                        [list(p) for p in e.parameters],
                        e.api_versions,
                    ]
                    for e in found
                ]
                for node, found in summary.by_node.items()
            },
            "os_hvp": {
                hypervisor: dict(params)
                for hypervisor, params in cluster.os_hvp.get(summary.name, {}).items()
            },
            "osparams": dict(cluster.osparams.get(summary.name, {})),
            "trusted": summary.is_trusted,
        }
        for summary in summaries
    ]


class LUOsDiagnose(LogicalUnit[OpOsDiagnose]):
    """Answer fields of the operating systems, in the old style: plain values."""

    def expand_names(self) -> None:
        """Check the fields."""
        self.plan = prepare("os", self.op.output_fields, None, names=self.op.names or None)

    def exec(self) -> list[list[object]]:
        """Ask the nodes and return the rows."""
        summaries = summarize(ask_nodes(self.context, self.config))
        shown = _shown(self.cluster, summaries, set(self.op.names), set(self.op.output_fields))
        view = View(cluster=self.cluster, rows=rows(self.cluster, shown))
        return self.plan.run_plain(view)


def _shown(
    cluster: Cluster, summaries: Iterable[OsSummary], names: set[str], fields: set[str]
) -> list[OsSummary]:
    """Leave out hidden, blacklisted and invalid ones, unless their flag or name is asked for."""
    return [
        summary
        for summary in summaries
        if summary.name in names
        or (
            ("hidden" in fields or summary.name not in cluster.hidden_os)
            and ("blacklisted" in fields or summary.name not in cluster.blacklisted_os)
            and ("valid" in fields or summary.is_valid)
        )
    ]

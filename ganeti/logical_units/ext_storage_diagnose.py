"""Which external storage providers the nodes have, and in which groups they can be used.

Source: query_fields.json, "extstorage"; node_rpc.json, "extstorage_diagnose".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ganeti.base.text import natural_sorted
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.os_diagnose import ask_capable_nodes, common
from ganeti.opcodes.os import OpExtStorageDiagnose
from ganeti.query.engine import prepare
from ganeti.query.view import View

if TYPE_CHECKING:
    from ganeti.clients.wconfd_stub import WConfStub
    from ganeti.logical_units.context import JobContext


class ProviderOnNode(msgspec.Struct, frozen=True, array_like=True):
    """One provider as one node describes it."""

    name: str
    path: str
    ok: bool
    message: str
    parameters: list[tuple[str, str]] = []

    def status(self) -> list[object]:
        """Return what `node_status` shows of it: [path, usable, message, parameters]."""
        return [self.path, self.ok, self.message, _pairs(self.parameters)]


Found = Mapping[str, Sequence[ProviderOnNode]]
"""Node name -> what it has under one name; the first counts."""


def _pairs(parameters: Iterable[tuple[str, str]]) -> list[list[str]]:
    return [list(pair) for pair in parameters]


def _common_parameters(found: Iterable[Sequence[ProviderOnNode]]) -> list[list[str]]:
    return _pairs(common(entries[0].parameters for entries in found if entries))


def _group_status(found: Found, nodes: Collection[str]) -> list[object]:
    """Return [usable on all these nodes, the parameters that it has on all of them]."""
    there = [found[node] for node in nodes]
    usable = all(entries and entries[0].ok for entries in there)
    return [usable, _common_parameters(there) if usable else []]


def provider_rows(
    answers: Mapping[str, Sequence[ProviderOnNode]], groups: Mapping[str, Collection[str]]
) -> list[dict[str, object]]:
    """Return the values of all query fields, one row for each provider.

    Args:
        answers: what each node has, of those that answered.
        groups: node group -> its nodes among them; groups without any are not shown.
    """
    rows: list[dict[str, object]] = []
    for name in natural_sorted({entry.name for entries in answers.values() for entry in entries}):
        found = {
            node: [entry for entry in entries if entry.name == name]
            for node, entries in answers.items()
        }
        rows.append(
            {
                "name": name,
                "node_status": {
                    node: [each.status() for each in entries] for node, entries in found.items()
                },
                "nodegroup_status": {
                    group: _group_status(found, nodes) for group, nodes in groups.items() if nodes
                },
                "parameters": _common_parameters(found.values()),
            }
        )
    return rows


def ask_providers(context: JobContext, config: WConfStub) -> list[dict[str, object]]:
    """Ask every node that can have instances, and return the rows."""
    answers = ask_capable_nodes(
        context, config, "extstorage_diagnose", ProviderOnNode, "external storage providers"
    )
    groups = {
        group.name: [
            node.name
            for node in lookup.all_nodes(config)
            if node.group == group.uuid and node.name in answers
        ]
        for group in lookup.present(config.get_node_groups(None))
    }
    return provider_rows(answers, groups)


class LUExtStorageDiagnose(LogicalUnit[OpExtStorageDiagnose]):
    """Answer fields of the external storage providers, in the old style: plain values."""

    def expand_names(self) -> None:
        """Check the fields."""
        self.plan = prepare("extstorage", self.op.output_fields, names=self.op.names or None)

    def exec(self) -> list[list[object]]:
        """Ask the nodes and return the rows."""
        rows = ask_providers(self.context, self.config)
        return self.plan.run_plain(View(cluster=self.cluster, rows=rows))

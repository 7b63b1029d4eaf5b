"""Queries as jobs: the answers of LUXI's queries, and answers that only a job can find out.

They run on the same engine and the same tables as LuxiD's, filled by WConfD and by the nodes; LuxiD
is not asked.  Jobs belong to LuxiD: they can be queried over LUXI only.  A job finds out which
operating systems and external storage providers the nodes have, and where nodes differ.

Source: query_fields.json, "os" and "extstorage"; node_rpc.json, "os_diagnose" and
"extstorage_diagnose".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ganeti.base import errors
from ganeti.base.errors import OpPrereqError, refusing
from ganeti.base.ids import NodeUuid
from ganeti.base.text import natural_sorted
from ganeti.clients.node_rpc import target_of
from ganeti.logical_units import lookup
from ganeti.logical_units.base import NamelessUnit, SimpleUnit
from ganeti.logical_units.context import JobContext
from ganeti.objects.model import Cluster, Node
from ganeti.objects.query_words import BY_JOB_ONLY, QueryResource
from ganeti.opcodes.cluster import OpClusterConfigQuery, OpClusterQuery
from ganeti.opcodes.query import OpExtStorageDiagnose, OpOsDiagnose, OpQuery, OpQueryFields
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.wconfd import WConfCalls
from ganeti.query.cluster_values import Surroundings, cluster_fields, cluster_info, config_values
from ganeti.query.engine import Plan, fields_of, prepare
from ganeti.query.fields import ASKED_OF_NODES, ASKED_WHILE_RUNNING, Source
from ganeti.query.live import (
    NodeQuestion,
    lock_states,
    questions,
    questions_to_running,
    with_answers,
)
from ganeti.query.view import View
from ganeti.store.job_files import JobFiles
from ganeti.store.notes import watcher_pause
from ganeti.system import environment

logger = logging.getLogger(__name__)

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

    @property
    def names(self) -> list[str]:
        """The names that it goes by: its own, and with each of its variants."""
        return [self.name, *(f"{self.name}+{variant}" for variant in self.variants)]


class ProviderOnNode(msgspec.Struct, frozen=True, array_like=True):
    """One provider as one node describes it."""

    name: str
    path: str
    ok: bool
    message: str
    parameters: list[tuple[str, str]] = []


EntryT = TypeVar("EntryT", OsOnNode, ProviderOnNode)
Found = Mapping[str, Sequence[EntryT]]
"""Node name -> the entries of one name that it has; the first is the one in use."""


def common(lists: Iterable[Sequence[T]]) -> list[T]:
    """Return the values that are in all lists, in the order of the first."""
    first, *others = [list(values) for values in lists] or [[]]
    return [value for value in first if all(value in other for other in others)]


def by_name(answers: Mapping[str, Sequence[EntryT]]) -> dict[str, Found[EntryT]]:
    """Sort the answers of nodes by the names of their entries."""
    names = natural_sorted({entry.name for entries in answers.values() for entry in entries})
    return {
        name: {
            node: [entry for entry in entries if entry.name == name]
            for node, entries in answers.items()
        }
        for name in names
    }


def _in_use(found: Found[EntryT]) -> list[EntryT]:
    return [entries[0] for entries in found.values() if entries]


def _is_valid(found: Found[EntryT]) -> bool:
    """Tell whether every node has it and the first place where it is found is usable."""
    return all(entries and entries[0].ok for entries in found.values())


def ask_nodes(context: JobContext, config: WConfCalls) -> dict[str, list[OsOnNode]]:
    """Ask every node that can have instances for its operating systems."""
    return ask_capable_nodes(context, config, NodeCalls.os_diagnose, OsOnNode, "operating systems")


def ask_capable_nodes(
    context: JobContext,
    config: WConfCalls,
    method: Callable[[NodeCalls], object],
    kind: type[T],
    what: str,
) -> dict[str, list[T]]:
    """Ask every node that can have instances for a list.

    A node with no answer or a malformed one is named in a warning and left out.

    Args:
        kind: the type of the entries.
        what: the name of the entries for the warning.
    """
    nodes = [node for node in lookup.all_nodes(config) if node.vm_capable and not node.offline]
    answers: dict[str, list[T]] = {}
    for name, result in context.nodes.call_all(method, nodes).items():
        try:
            answers[name] = msgspec.convert(result.check(result.call), list[kind])  # type: ignore[valid-type]
        except (errors.OpExecError, msgspec.ValidationError) as err:
            context.warn(f"cannot ask node {name} for its {what}: {err}")
    return answers


def _pairs(parameters: Iterable[tuple[str, str]]) -> list[list[str]]:
    return [list(pair) for pair in parameters]


def _copy_on_node(e: OsOnNode) -> list[object]:
    pairs = _pairs(e.parameters)
    return [e.path, e.ok, e.message, e.variants, pairs, e.api_versions, e.trusted]


def rows(cluster: Cluster, systems: Mapping[str, Found[OsOnNode]]) -> list[dict[str, object]]:
    """Return the values of all query fields, one row for each operating system."""
    return [
        {
            "name": name,
            "valid": _is_valid(found),
            "hidden": name in cluster.hidden_os,
            "blacklisted": name in cluster.blacklisted_os,
            "variants": common(entry.variants for entry in _in_use(found)),
            "api_versions": common(entry.api_versions for entry in _in_use(found)),
            "parameters": _pairs(common(entry.parameters for entry in _in_use(found))),
            "node_status": {
                node: [_copy_on_node(entry) for entry in entries] for node, entries in found.items()
            },
            "os_hvp": {hv: dict(params) for hv, params in cluster.os_hvp.get(name, {}).items()},
            "osparams": dict(cluster.osparams.get(name, {})),
            "trusted": all(entry.trusted for entry in _in_use(found)),
        }
        for name, found in systems.items()
    ]


class LUOsDiagnose(SimpleUnit[OpOsDiagnose, Plan]):
    """Answer fields of the operating systems, in the old style: plain values."""

    def resolve(self) -> Plan:
        return prepare("os", self.op.output_fields, None, names=self.op.names or None)

    def execute(self, plan: Plan) -> list[list[object]]:
        """Ask the nodes; hidden, blacklisted and invalid ones are left out, unless asked for."""
        found = rows(self.cluster, by_name(ask_nodes(self.context, self.config)))
        shown = [row for row in found if row["name"] in self.op.names or self._shows(row)]
        return plan.run_plain(View(rows=shown))

    def _shows(self, row: Mapping[str, object]) -> bool:
        """Tell whether an operating system is shown that is not asked for by its name."""
        flags = {"hidden": False, "blacklisted": False, "valid": True}
        asked = self.op.output_fields
        return all(name in asked or row[name] is usual for name, usual in flags.items())


def _common_parameters(found: Found[ProviderOnNode]) -> list[list[str]]:
    return _pairs(common(entry.parameters for entry in _in_use(found)))


def _group_status(found: Found[ProviderOnNode]) -> list[object]:
    """Return [usable on all nodes of a group, the parameters that all of them have]."""
    usable = _is_valid(found)
    return [usable, _common_parameters(found) if usable else []]


def provider_rows(
    answers: Mapping[str, Sequence[ProviderOnNode]], groups: Mapping[str, Collection[str]]
) -> list[dict[str, object]]:
    """Return the values of all query fields, one row for each provider.

    Args:
        answers: the providers of each node that answered.
        groups: node group -> its nodes among them; a group without any is not shown.
    """
    return [
        {
            "name": name,
            "node_status": {
                node: [[e.path, e.ok, e.message, _pairs(e.parameters)] for e in entries]
                for node, entries in found.items()
            },
            "nodegroup_status": {
                group: _group_status({node: found[node] for node in nodes})
                for group, nodes in groups.items()
                if nodes
            },
            "parameters": _common_parameters(found),
        }
        for name, found in by_name(answers).items()
    ]


def ask_providers(context: JobContext, config: WConfCalls) -> list[dict[str, object]]:
    """Ask every node that can have instances, and return the rows."""
    answers = ask_capable_nodes(
        context, config, NodeCalls.extstorage_diagnose, ProviderOnNode, "external storage providers"
    )
    groups = {
        group.name: [n.name for n in lookup.group_nodes(config, group.uuid) if n.name in answers]
        for group in lookup.all_groups(config)
    }
    return provider_rows(answers, groups)


class LUExtStorageDiagnose(SimpleUnit[OpExtStorageDiagnose, Plan]):
    """Answer fields of the external storage providers, in the old style: plain values."""

    def resolve(self) -> Plan:
        return prepare("extstorage", self.op.output_fields, names=self.op.names or None)

    def execute(self, plan: Plan) -> list[list[object]]:
        """Ask the nodes and return the rows."""
        return plan.run_plain(View(rows=ask_providers(self.context, self.config)))


# Queries of all kinds.


class LUQueryFields(NamelessUnit[OpQueryFields]):
    """Describe the fields of a kind of object."""

    def execute(self, plan: None) -> dict[str, object]:
        return fields_of(self.op.what, self.op.fields)


class LUQuery(SimpleUnit[OpQuery, Plan]):
    """Answer fields of a kind of object."""

    def resolve(self) -> Plan:
        if self.op.what is QueryResource.JOB:
            raise errors.NotSupportedError("jobs cannot be queried by a job; use the LUXI query")
        with refusing(errors.ParameterError):
            return prepare(self.op.what, self.op.fields, self.op.qfilter)

    def execute(self, plan: Plan) -> dict[str, object]:
        if self.op.what in BY_JOB_ONLY:
            return plan.run(View(rows=self._rows()))
        view = View(config=lookup.tables(self.config))
        if Source.LOCKS in plan.needs:
            view = replace(view, locks=lock_states(self.config.list_locks_waiting_status()))
        if plan.needs & ASKED_OF_NODES:
            for question in questions(view.config, plan.targets(view)):
                view = with_answers(view, question, self._answers(view, question))
        if ASKED_WHILE_RUNNING & plan.needs:
            for question in questions_to_running(view, plan.targets(view)):
                view = with_answers(view, question, self._answers(view, question))
        return plan.run(view)

    def _answers(self, view: View, question: NodeQuestion) -> dict[NodeUuid, object]:
        """Ask nodes; None for one whose answer cannot be used."""
        nodes = {uuid: view.config.nodes[uuid] for uuid in question.asked}
        targets = {target_of(node): question.asked[uuid] for uuid, node in nodes.items()}
        results = self.context.rpc.perform(question.call, targets) if targets else {}
        found: dict[NodeUuid, object] = {}
        for uuid, node in nodes.items():
            try:
                found[uuid] = question.decode(results[node.name].check(question.call.name))
            except errors.GenericError as err:
                logger.info("%s; going on", err)
                found[uuid] = None
        return found

    def _rows(self) -> Sequence[Mapping[str, object]]:
        if self.op.what is QueryResource.CLUSTER:
            return [cluster_fields(self.cluster, _surroundings(self.context, self.master))]
        if self.op.what is QueryResource.EXTSTORAGE:
            return ask_providers(self.context, self.config)
        return rows(self.cluster, by_name(ask_nodes(self.context, self.config)))


def _surroundings(context: JobContext, master: Node) -> Surroundings:
    return Surroundings(
        master_name=master.name,
        architecture=environment.architecture(),
        is_drained=JobFiles(context.paths).is_drained(),
        watcher_pause=watcher_pause.read(context.paths),
    )


class LUClusterQuery(NamelessUnit[OpClusterQuery]):
    """Answer the cluster's settings.

    Source: luxi.json, "cluster_info".
    """

    def execute(self, plan: None) -> Mapping[str, object]:
        architecture, maintenance = environment.architecture(), self.config.get_maintenance()
        return cluster_info(self.cluster, self.master.name, architecture, maintenance)


class LUClusterConfigQuery(NamelessUnit[OpClusterConfigQuery]):
    """Answer values of the configuration by name, in the order asked.

    Source: query_fields.json, "cluster"; luxi.json, "config_values".
    """

    def execute(self, plan: None) -> list[object]:
        known = config_values(self.cluster, _surroundings(self.context, self.master))
        unknown = [name for name in self.op.output_fields if name not in known]
        if unknown:
            raise OpPrereqError(
                f"unknown field(s) {', '.join(unknown)}; known are: {', '.join(sorted(known))}"
            )
        return [known[name] for name in self.op.output_fields]

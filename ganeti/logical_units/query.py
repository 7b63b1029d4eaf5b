"""Queries as jobs: the answers of LUXI's queries, and answers that only a job can find out.

They run on the same engine and the same tables as LuxiD's, filled by WConfD and by the nodes; LuxiD
is not asked.  Jobs belong to LuxiD: they can be queried over LUXI only.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ganeti.base.errors import GenericError, NotSupportedError, OpPrereqError, ParameterError
from ganeti.base.ids import NodeUuid
from ganeti.clients.node_rpc import target_of
from ganeti.logical_units import lookup
from ganeti.logical_units.base import NamelessUnit, SimpleUnit
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.diagnose import ask_nodes, ask_providers, rows, summarize
from ganeti.objects.model import Node
from ganeti.objects.query_words import BY_JOB_ONLY, QueryResource
from ganeti.opcodes.cluster import OpClusterConfigQuery, OpClusterQuery
from ganeti.opcodes.query import OpQuery, OpQueryFields
from ganeti.query.cluster_values import Surroundings, cluster_fields, cluster_info, config_values
from ganeti.query.engine import Plan, fields_of, prepare
from ganeti.query.fields import ASKED_OF_NODES, Source
from ganeti.query.live import NodeQuestion, console_question, lock_states, questions, with_answers
from ganeti.query.view import View
from ganeti.store import watcher_pause
from ganeti.store.job_files import JobFiles
from ganeti.system import environment

logger = logging.getLogger(__name__)


class LUQueryFields(NamelessUnit[OpQueryFields]):
    """Describe the fields of a kind of object."""

    def execute(self, plan: None) -> dict[str, object]:
        return fields_of(self.op.what, self.op.fields)


class LUQuery(SimpleUnit[OpQuery, Plan]):
    """Answer fields of a kind of object."""

    def resolve(self) -> Plan:
        if self.op.what is QueryResource.JOB:
            raise NotSupportedError("jobs cannot be queried by a job; use the LUXI query")
        try:
            return prepare(self.op.what, self.op.fields, self.op.qfilter)
        except ParameterError as err:
            raise OpPrereqError(err.message) from err

    def execute(self, plan: Plan) -> dict[str, object]:
        if self.op.what in BY_JOB_ONLY:
            return plan.run(View(rows=self._rows()))
        view = View(config=lookup.tables(self.config))
        if Source.LOCKS in plan.needs:
            view = replace(view, locks=lock_states(self.config.list_locks_waiting_status()))
        if plan.needs & ASKED_OF_NODES:
            for question in questions(view.config, plan.targets(view)):
                view = with_answers(view, question, self._answers(view, question))
        if Source.CONSOLE in plan.needs:
            running = plan.targets(view).consoles  # only now it is known which run
            asked = console_question(view, running)
            view = with_answers(view, asked, self._answers(view, asked))
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
            except GenericError as err:
                logger.info("%s; going on", err)
                found[uuid] = None
        return found

    def _rows(self) -> Sequence[Mapping[str, object]]:
        if self.op.what is QueryResource.CLUSTER:
            return [cluster_fields(self.cluster, _surroundings(self.context, self.master))]
        if self.op.what is QueryResource.EXTSTORAGE:
            return ask_providers(self.context, self.config)
        return rows(self.cluster, summarize(ask_nodes(self.context, self.config)))


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
        return cluster_info(self.cluster, self.master.name, environment.architecture())


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
